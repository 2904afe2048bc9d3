/** The real binary, at ten times its pace: a minute of the demo lasts six seconds. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, describe, expect, test } from 'vitest';
import { findOnPath } from '../support/engines.js';

const binary = fileURLToPath(new URL('../../bin/smart-router.js', import.meta.url));
const waitMs = 45_000;
const noCurl = findOnPath('curl') === undefined;

class Demo {
  readonly child: ChildProcess;
  readonly exited: Promise<number | null>;
  output = '';
  errors = '';

  constructor(env: NodeJS.ProcessEnv, ...args: string[]) {
    const { PATH, HOME } = process.env;
    this.child = spawn(process.execPath, [binary, 'demo', '--seed', '3', ...args], {
      env: { PATH, HOME, DEMO_SPEED: '10', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
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

  async until(pattern: RegExp): Promise<void> {
    await expect.poll(() => this.output, { timeout: waitMs, interval: 50 }).toMatch(pattern);
  }
}

const started: Demo[] = [];
function start(env: NodeJS.ProcessEnv = {}, ...args: string[]): Demo {
  const demo = new Demo(env, ...args);
  started.push(demo);
  return demo;
}

afterEach(async () => {
  for (const demo of started.splice(0)) {
    demo.child.kill('SIGKILL');
    await demo.exited;
  }
});

function childrenOf(pid: number): number[] {
  const parents = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => {
      try {
        return { pid: Number(name), parent: Number(/^PPid:\s+(\d+)/m.exec(readStatus(name))?.[1]) };
      } catch {
        return { pid: 0, parent: 0 };
      }
    });
  return parents.filter(({ parent }) => parent === pid).map((one) => one.pid);
}

const readStatus = (pid: string) => readFileSync(`/proc/${pid}/status`, 'utf8');

function listenSomewhere(): Promise<{ server: Server; port: number }> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      resolve({ server, port: (server.address() as AddressInfo).port });
    });
  });
}

describe('smart-router demo', () => {
  test('shows every part of the story, then ends with 0 on Ctrl-C and leaves nothing behind', async () => {
    const demo = start({ HTTP_PORT: '0' });
    for (const part of [
      /^[\d:]{8} {2}allocated CA-\d+ +→ gold-\d/m,
      /^[\d:]{8} {2}merchant +CA-\d+ +→ acme-\d/m,
      /^[\d:]{8} {2}fallback +CA-\d+ +↘ standard-\d +nothing free in gold/m,
      /^[\d:]{8} {2}fallback +CA-\d+ +↘ basic-\d +nothing free in gold, standard/m,
      /^[\d:]{8} {2}pools +gold [●○◌]{3} {2}standard [●○◌]{4} {2}basic \d\/9 {2}acme [●○◌]{2} /m,
      /^[\d:]{8} {2}draining +\S+-\d +no new calls; its call goes on/m,
      /^[\d:]{8} {2}drained +\S+-\d +its last call has ended/m,
      /^[\d:]{8} {2}undrained +\S+-\d +takes calls again/m,
      /^[\d:]{8} {2}recovered CA-\d+ +↺ \S+-\d +zombie: /m,
      /^[\d:]{8} {2}fallback +CA-\d+ +↘ standard-\d +nothing free in acme’s own pool/m,
    ]) {
      await demo.until(part);
    }
    if (process.platform === 'linux') expect(childrenOf(demo.child.pid as number)).toEqual([]);
    demo.child.kill('SIGINT');
    expect(await demo.exited).toBe(0);
    await demo.until(/Stopped: \d+ calls, \d+ fallbacks?, \d+ zombies? recovered, \d+ drains? completed\.\n/);
    expect(demo.errors).toBe('');
    expect(demo.output).not.toMatch(/stumbled|\u001b\[/);
    await expect(fetch(`${demo.url}/health`)).rejects.toThrow();
  });

  test.skipIf(noCurl)('the curl lines of the banner work as printed, and what they do is shown', async () => {
    const demo = start({ HTTP_PORT: '0', DEMO_SPEED: '1' });
    await demo.until(/Ctrl-C stops it/);
    const lines = demo.output.match(/^ {4}curl .*$/gm) ?? [];
    expect(lines).toHaveLength(5);
    for (const line of lines) {
      const { stdout } = await promisify(execFile)('sh', ['-c', line]);
      expect(JSON.parse(stdout), line).not.toHaveProperty('error');
    }
    await demo.until(/allocated my-call/);
    await demo.until(/released +my-call/);
    await demo.until(/drained +standard-4/);
    demo.child.kill('SIGTERM');
    expect(await demo.exited).toBe(0);
  });

  test.skipIf(noCurl)('with a key set, the curl lines carry it by name and the show goes on', async () => {
    const key = 'a-key-for-the-demo-test';
    const demo = start({ HTTP_PORT: '0', SMART_ROUTER_ADMIN_KEY: key });
    await demo.until(/released +CA-101/);
    const [line = ''] = demo.output.match(/^ {4}curl .*$/m) ?? [];
    expect(demo.output).not.toContain(key);
    const { stdout } = await promisify(execFile)('sh', ['-c', line], {
      env: { ...process.env, SMART_ROUTER_ADMIN_KEY: key },
    });
    expect(JSON.parse(stdout)).toMatchObject({ status: 'up' });
    // The page holds no data, so it opens without the key; what it asks for does not.
    expect((await fetch(`${demo.url}/`)).status).toBe(200);
    expect((await fetch(`${demo.url}/api/v1/status`)).status).toBe(401);
  });

  test('takes the next free port and says so when the wanted one is taken', async () => {
    const { server, port } = await listenSomewhere();
    const demo = start({}, '--port', String(port));
    await demo.until(/Ctrl-C stops it/);
    expect(demo.output).toContain(`port ${port} is taken`);
    expect(Number(new URL(demo.url).port)).toBeGreaterThan(port);
    await new Promise((resolve) => server.close(resolve));
  });

  test('ends by itself after --seconds; --quiet shows only the banner and the summary', async () => {
    const demo = start({ HTTP_PORT: '0' }, '--seconds', '2', '--quiet');
    expect(await demo.exited).toBe(0);
    expect(demo.output).toContain('Stopped: ');
    expect(demo.output).not.toContain('CA-1');
  });

  test('refuses a wrong DEMO_SPEED in one line', async () => {
    const demo = start({ HTTP_PORT: '0', DEMO_SPEED: 'fast' });
    expect(await demo.exited).toBe(2);
    expect(demo.errors).toContain('DEMO_SPEED must be a number from 0.1 to 20, got "fast"');
  });
});
