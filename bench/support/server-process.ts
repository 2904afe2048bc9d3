/** A server in a separate process, which sends its address when it listens. */
import { type ChildProcess, fork } from 'node:child_process';
import { readFileSync } from 'node:fs';

export interface Spent {
  /** Processor time since its start. */
  cpuMs: number;
  rssBytes: number;
  /** Peak since its start. */
  peakRssBytes: number;
}

/** What this process has used. */
export function spent(): Spent {
  const { user, system } = process.cpuUsage();
  return { cpuMs: (user + system) / 1000, rssBytes: process.memoryUsage.rss(), peakRssBytes: peakRss() };
}

/** Not `maxRSS`, where Linux has the process's own peak: a child starts with the `maxRSS` of its parent. */
function peakRss(): number {
  try {
    const peak = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1];
    if (peak !== undefined) return Number(peak) * 1024;
  } catch {
    // Not Linux.
  }
  return process.resourceUsage().maxRSS * 1024;
}

export class ServerProcess {
  private constructor(
    readonly url: string,
    readonly child: ChildProcess,
  ) {}

  static async start(
    file: URL,
    args: readonly string[],
    env: NodeJS.ProcessEnv = process.env,
  ): Promise<ServerProcess> {
    // The log is written as in a container, and discarded.
    const child = fork(file, args, { env, stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    const url = await new Promise<string>((resolve, reject) => {
      child.once('message', (message: { url: string }) => resolve(message.url));
      child.once('error', reject);
      child.once('exit', (code) => reject(new Error(`the server ended with ${code} before it listened`)));
    });
    return new ServerProcess(url, child);
  }

  spent(): Promise<Spent> {
    return new Promise((resolve, reject) => {
      const ended = () => reject(new Error('the server has ended'));
      if (!this.child.connected) return ended();
      this.child.once('exit', ended);
      this.child.once('message', (message: Spent) => {
        this.child.off('exit', ended);
        resolve(message);
      });
      this.child.send('spent');
    });
  }

  stop(): Promise<void> {
    return endOf(this.child);
  }
}

/** Disconnects a child, which ends it, and resolves when it has ended. */
export function endOf(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  if (child.connected) child.disconnect();
  return ended;
}

/** Called in the server's process: it reports what it has spent when asked, and ends with its parent. */
export function answerSpent(): void {
  process.on('message', () => process.send?.(spent()));
  process.once('disconnect', () => process.exit());
}
