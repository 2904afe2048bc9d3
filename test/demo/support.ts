/** The real binary with its routers and workers, controlled through its input as a script would. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { onOwnPort } from '../support/ports.js';
import { postgresKinds } from '../support/postgres.js';

export const binary = fileURLToPath(new URL('../../bin/smart-router.js', import.meta.url));
/** Three routers start in a second or two each, on a busy machine in ten seconds. */
export const waitMs = 120_000;
/** Without it the demo runs without records. */
export const hasPostgres = postgresKinds.some(
  ({ name, available }) => name === 'embedded' && available() === true,
);

export class Demo {
  readonly binary = binary;
  readonly child: ChildProcess;
  readonly exited: Promise<number | null>;
  output = '';
  errors = '';

  constructor(env: NodeJS.ProcessEnv, ...args: string[]) {
    const { PATH, HOME } = process.env;
    this.child = spawn(process.execPath, [binary, 'demo', '--seed', '3', ...args], {
      env: { PATH, HOME, HTTP_PORT: '0', ...env },
      // With a channel the demo ends with its parent.
      stdio: args.includes('--headless') ? ['pipe', 'pipe', 'pipe', 'ipc'] : 'pipe',
    });
    this.child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.output += text;
    });
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.errors += text;
    });
    this.exited = new Promise((resolve) => this.child.once('exit', (code) => resolve(code)));
  }

  get url(): string {
    return /Open\s+(http:\S+)\//.exec(this.output)?.[1] ?? '';
  }

  /** Routers, workers and the database; on Linux only. */
  get children(): number[] {
    return process.platform === 'linux' ? childrenOf(this.child.pid as number) : [];
  }

  /** Waits for a match and returns its groups. */
  async until(pattern: RegExp): Promise<string[]> {
    await expect.poll(() => this.output, { timeout: waitMs, interval: 50 }).toMatch(pattern);
    return pattern.exec(this.output)?.slice(1) ?? [];
  }

  /** Returns the output after `mark`, a length of the output. */
  since(mark: number): string {
    return this.output.slice(mark);
  }

  type(word: string): void {
    this.child.stdin?.write(`${word}\n`);
  }

  async end(): Promise<void> {
    this.child.kill('SIGKILL');
    await this.exited;
  }

  /** Kills workers until one held records. */
  async killWorker(): Promise<{ worker: string; records: number }> {
    for (;;) {
      const mark = this.output.length;
      this.type('kill-worker');
      const answer = /worker +(\S+) was killed with (\d+) records?$|no worker runs/m;
      await expect.poll(() => this.since(mark), { timeout: waitMs, interval: 50 }).toMatch(answer);
      const [, worker, records] = answer.exec(this.since(mark)) ?? [];
      if (worker !== undefined && Number(records) > 0) return { worker, records: Number(records) };
    }
  }
}

function childrenOf(pid: number): number[] {
  const parents = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => {
      try {
        const status = readFileSync(`/proc/${name}/status`, 'utf8');
        return { pid: Number(name), parent: Number(/^PPid:\s+(\d+)/m.exec(status)?.[1]) };
      } catch {
        return { pid: 0, parent: 0 };
      }
    });
  return parents.filter(({ parent }) => parent === pid).map((one) => one.pid);
}

export function isRunning(pid: number): boolean {
  try {
    // A zombie process does not run.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

export function listenSomewhere(): Promise<{ server: Server; port: number }> {
  return onOwnPort(
    (port) =>
      new Promise((resolve, reject) => {
        const server = createServer().once('error', reject);
        server.listen(port, '127.0.0.1', () => resolve({ server, port }));
      }),
  );
}
