/** The real binary with its routers and workers, at several times its pace, driven through its input as a script would. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, describe, expect, test } from 'vitest';
import { findOnPath } from '../support/engines.js';
import { postgresKinds } from '../support/postgres.js';
import { until } from '../support/until.js';

const binary = fileURLToPath(new URL('../../bin/smart-router.js', import.meta.url));
/** Three routers start in a second or two each, on a busy machine in ten. */
const waitMs = 60_000;
const noCurl = findOnPath('curl') === undefined;
/** Without it the demo leaves records out. */
const hasPostgres = postgresKinds.some(({ name, available }) => name === 'embedded' && available() === true);

class Demo {
  readonly child: ChildProcess;
  readonly exited: Promise<number | null>;
  output = '';
  errors = '';

  constructor(env: NodeJS.ProcessEnv, ...args: string[]) {
    const { PATH, HOME } = process.env;
    this.child = spawn(process.execPath, [binary, 'demo', '--seed', '3', ...args], {
      env: { PATH, HOME, HTTP_PORT: '0', ...env },
      stdio: 'pipe',
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

  /** Routers, workers and the database, wherever the system tells who started whom. */
  get children(): number[] {
    return process.platform === 'linux' ? childrenOf(this.child.pid as number) : [];
  }

  /** Waits for a match and gives its groups. */
  async until(pattern: RegExp): Promise<string[]> {
    await expect.poll(() => this.output, { timeout: waitMs, interval: 50 }).toMatch(pattern);
    return pattern.exec(this.output)?.slice(1) ?? [];
  }

  /** What was printed since `mark`, a length of the output. */
  since(mark: number): string {
    return this.output.slice(mark);
  }

  type(word: string): void {
    this.child.stdin?.write(`${word}\n`);
  }

  /** Until one is killed that had something to lose. */
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

const recordParts = [
  /^[\d:]{8} {2}site +\S+\.example has appeared: a sitemap, \d+ pages$/m,
  /^[\d:]{8} {2}worker +worker-\d was killed with \d+ records?$/m,
  /^[\d:]{8} {2}worker +worker-\d is up again$/m,
];

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
        const status = readFileSync(`/proc/${name}/status`, 'utf8');
        return { pid: Number(name), parent: Number(/^PPid:\s+(\d+)/m.exec(status)?.[1]) };
      } catch {
        return { pid: 0, parent: 0 };
      }
    });
  return parents.filter(({ parent }) => parent === pid).map((one) => one.pid);
}

function isRunning(pid: number): boolean {
  try {
    // A process that has ended and was not collected yet is no running one.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

/** A call that somebody places by hand; its agent keeps it for half a minute at four times the pace. */
async function allocate(demo: Demo, call_sid: string): Promise<string> {
  const response = await fetch(`${demo.url}/api/v1/allocate`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ call_sid }),
  });
  return ((await response.json()) as { pod_name: string }).pod_name;
}

function listenSomewhere(): Promise<{ server: Server; port: number }> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      resolve({ server, port: (server.address() as AddressInfo).port });
    });
  });
}

describe('smart-router demo', { timeout: 2 * waitMs }, () => {
  test('tells its story without being asked, and ends with 0 on Ctrl-C', async () => {
    // A database of its user's, which it must leave alone.
    const { server, port } = await listenSomewhere();
    let visitors = 0;
    server.on('connection', () => {
      visitors += 1;
    });
    const demo = start({ DEMO_SPEED: '8', DATABASE_URL: `postgres://somebody@127.0.0.1:${port}/theirs` });
    for (const part of [
      /^[\d:]{8} {2}leader +router-\d leads, [\d.]+ s after the start$/m,
      /^[\d:]{8} {2}ready +http:\S+ answers: 3 routers, 20 agents$/m,
      /^[\d:]{8} {2}allocated CA-\d+ +→ gold-\d/m,
      /^[\d:]{8} {2}merchant +CA-\d+ +→ acme-\d/m,
      /^[\d:]{8} {2}fallback +CA-\d+ +↘ standard-\d +nothing free in gold/m,
      /^[\d:]{8} {2}agent +\S+-\d crashed and took \d calls? with it$/m,
      /^[\d:]{8} {2}lost +CA-\d+ +× \S+-\d +its container was restarted/m,
      /^[\d:]{8} {2}router +router-\d was killed while leading$/m,
      /^[\d:]{8} {2}leader +router-\d leads, [\d.]+ s after router-\d; meanwhile \d+ calls? began$/m,
      /^[\d:]{8} {2}draining +\S+-\d +no new calls; its call goes on/m,
      /^[\d:]{8} {2}roll +all 20 agents run version 2 after [\d.]+ s; meanwhile \d+ calls? served, 0 cut$/m,
      /^[\d:]{8} {2}redis +everything is back after [\d.]+ s: \d+ agents registered, \d+ live calls? adopted$/m,
      /^[\d:]{8} {2}recovered CA-\d+ +↺ \S+-\d +zombie: /m,
      ...(hasPostgres ? recordParts : []),
    ]) {
      await demo.until(part);
    }
    const { children } = demo;
    demo.child.kill('SIGINT');
    expect(await demo.exited).toBe(0);
    expect(demo.output).toMatch(/ {2}Stopped: \d+ calls, \d+ served, 0 cut, 0 given twice,.*\.\n/);
    expect(demo.errors).toBe('');
    expect(demo.output).not.toMatch(/stumbled|\u001b\[/);
    expect(children.filter(isRunning)).toEqual([]);
    await expect(fetch(`${demo.url}/health`)).rejects.toThrow();
    await new Promise((resolve) => server.close(resolve));
    expect(visitors).toBe(0);
  });

  test('does what it is told: another router leads, agents roll without a cut, Redis is filled again', async () => {
    const demo = start({ DEMO_SPEED: '4', DATABASE_URL: 'off' }, '--no-story');
    await demo.until(/^[\d:]{8} {2}ready /m);

    demo.type('kill-leader');
    const [killed] = await demo.until(/router +(router-\d) was killed while leading/);
    const killedAt = demo.output.length;
    const [next] = await demo.until(new RegExp(`leader +(\\S+) leads, [\\d.]+ s after ${killed}; meanwhile`));
    expect(next).not.toBe(killed);
    expect(demo.since(killedAt)).toMatch(/(allocated|merchant|fallback) +CA-/);

    demo.type('roll');
    const [served] = await demo.until(
      /roll +all 20 agents run version 2 after [\d.]+ s; meanwhile (\d+) calls? served, 0 cut/,
    );
    expect(Number(served)).toBeGreaterThan(0);
    const replaced = [...demo.output.matchAll(/agent +(\S+) (?:let .* and )?was replaced by version 2$/gm)];
    expect(new Set(replaced.map(([, name]) => name)).size).toBe(20);
    expect(demo.output).toMatch(/agent +\S+ let \d calls? end in [\d.]+ s and was replaced/);
    await demo.until(new RegExp(`router +${killed} is up again`));

    const pod = await allocate(demo, 'a-long-call');
    await demo.until(/a-long-call +[→↘]/);
    demo.type('lose-redis');
    const [adopted] = await demo.until(
      /redis +everything is back after [\d.]+ s: 20 agents registered, (\d+) live calls? adopted/,
    );
    expect(Number(adopted)).toBeGreaterThan(0);
    await demo.until(new RegExp(`adopted +a-long-call +→ ${pod} `));
    expect(await allocate(demo, 'a-long-call')).toBe(pod);

    await demo.until(/^[\d:]{8} {2}records {3}left out: DATABASE_URL is off$/m);
    demo.type('kill-worker');
    await demo.until(/▸ there are no records: DATABASE_URL is off$/m);
    demo.type('dance');
    await demo.until(/▸ no command is called dance; there are: kill-leader, .*quit/);
    const { children } = demo;
    demo.type('quit');
    expect(await demo.exited).toBe(0);
    expect(children.filter(isRunning)).toEqual([]);
    expect(demo.output).toMatch(/Stopped: \d+ calls, \d+ served, 0 cut, 0 given twice,/);
    expect(demo.output).not.toMatch(/stumbled| cut {7}/);
    expect(demo.errors).toBe('');
  });

  test.skipIf(noCurl)(
    'the curl lines of the banner work as printed, with the key by name; killed, it takes along whatever it has started',
    async () => {
      const key = 'a-key-for-the-demo-test';
      const demo = start({ SMART_ROUTER_ADMIN_KEY: key }, '--no-story');
      await demo.until(/^[\d:]{8} {2}ready /m);
      const lines = demo.output.match(/^ {4}curl .*$/gm) ?? [];
      expect(lines).toHaveLength(5);
      const env = { ...process.env, SMART_ROUTER_ADMIN_KEY: key };
      for (const line of lines) {
        const { stdout } = await promisify(execFile)('sh', ['-c', line], { env });
        expect(JSON.parse(stdout), line).not.toHaveProperty('error');
      }
      await demo.until(/allocated my-call/);
      await demo.until(/released +my-call/);
      await demo.until(/drained +standard-4/);
      expect(demo.output).not.toContain(key);
      // The page holds no data, so it opens without the key; what it asks for does not.
      expect((await fetch(`${demo.url}/`)).status).toBe(200);
      expect((await fetch(`${demo.url}/api/v1/status`)).status).toBe(401);

      await demo.until(
        hasPostgres ? /worker +worker-\d is up$[\s\S]*worker +worker-\d is up$/m : /records {3}left out/,
      );
      const { children } = demo;
      // Three routers; two workers, the database and its guard.
      if (process.platform === 'linux') expect(children).toHaveLength(hasPostgres ? 7 : 3);
      demo.child.kill('SIGKILL');
      await demo.exited;
      await until(() => !children.some(isRunning), 'everything it has started has ended');
    },
  );

  test('takes the next free port, ends by itself after --seconds, and --quiet shows no call', async () => {
    const { server, port } = await listenSomewhere();
    const demo = start({ DATABASE_URL: 'off' }, '--port', String(port), '--seconds', '2', '--quiet');
    expect(await demo.exited).toBe(0);
    await new Promise((resolve) => server.close(resolve));
    expect(demo.output).toContain(`port ${port} is taken`);
    expect(Number(new URL(demo.url).port)).toBeGreaterThan(port);
    expect(demo.output).toMatch(/Stopped: [1-9]/);
    expect(demo.output).not.toContain('CA-1');
  });

  test.skipIf(!hasPostgres)(
    'the records of a killed worker come back and are finished, none of them twice',
    async () => {
      const demo = start({ DEMO_SPEED: '4' }, '--no-story');
      await demo.until(/worker +worker-1 is up$/m);
      await demo.until(/worker +worker-2 is up$/m);
      const { worker, records } = await demo.killWorker();
      await demo.until(new RegExp(`records +\\d+ records? of ${worker} came back after [\\d.]+ s$`, 'm'));
      const all = records === 1 ? `the record of ${worker} is` : `all ${records} records of ${worker} are`;
      await demo.until(
        new RegExp(`records +${all} finished by .*worker-\\d.*; finished twice since the start: 0$`, 'm'),
      );
      await demo.until(new RegExp(`worker +${worker} is up again$`, 'm'));
      const { children } = demo;
      demo.type('quit');
      expect(await demo.exited).toBe(0);
      expect(children.filter(isRunning)).toEqual([]);
      expect(demo.output).toMatch(
        /Records: \d+ sitemaps? imported, \d+ pages curated, \d+ failed, 0 finished twice, [1-9]\d* came back from \d+ killed workers?\./,
      );
      expect(demo.output).not.toContain('stumbled');
      expect(demo.errors).toBe('');
    },
  );

  test('refuses a wrong DEMO_SPEED in one line', async () => {
    const demo = start({ DEMO_SPEED: 'fast' });
    expect(await demo.exited).toBe(2);
    expect(demo.errors).toContain('DEMO_SPEED must be a number from 0.1 to 20, got "fast"');
  });
});
