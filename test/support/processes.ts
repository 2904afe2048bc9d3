/**
 * Real router processes: `node bin/smart-router.js serve`, as an operator starts them. They listen on a free port,
 * belong to the test that starts them and end with it, also if it fails.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { findOnPath } from './engines.js';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** The replies of the API: the fields of all operations. */
export interface AnswerBody {
  success?: boolean;
  error?: string;
  code?: string;
  status?: string;
  pod_name?: string;
  source_pool?: string;
  fence?: number;
  was_existing?: boolean;
  lease_expires_at?: string;
  released_to_pool?: string | null;
  is_leader?: boolean;
  leader?: string | null;
  active_calls?: number | null;
  pools?: Record<string, { type: string; assigned: number; available: number; active_calls: number }>;
  loops?: { name: string; running: boolean; rounds: number; crashes: number }[];
  chain?: string[];
}

export interface Answer {
  /** 0: no answer came (connection refused or reset). */
  status: number;
  body: AnswerBody;
  text: string;
  /** The `Retry-After` header in seconds, if there was one. */
  retryAfter: number | undefined;
  ms: number;
}

export interface LogLine {
  level: string;
  msg: string;
  url?: string;
  epoch?: string;
  [field: string]: unknown;
}

export interface RouterProcess {
  readonly url: string;
  readonly pid: number;
  readonly running: boolean;
  /** Everything it has written to stdout and stderr. */
  readonly output: string;
  /** Its log lines with this message. */
  logged(message: string | RegExp): LogLine[];
  get(path: string): Promise<Answer>;
  post(path: string, body: unknown): Promise<Answer>;
  put(path: string, body: unknown): Promise<Answer>;
  /** Sends a signal; resolves when the process has ended, except for SIGSTOP and SIGCONT. */
  signal(name: NodeJS.Signals): Promise<void>;
  /** A clean stop; resolves to the exit code. */
  stop(): Promise<number | null>;
}

export interface EndedProcess {
  code: number | null;
  output: string;
}

export type RouterEnv = Record<string, string>;

/** Short intervals, so that a test sees in seconds what takes minutes in production. */
export const quickTimes: RouterEnv = {
  LEASE_TTL: '2s',
  CLEANUP_INTERVAL: '500ms',
  CALL_INFO_TTL: '10s',
  RECONCILE_INTERVAL: '1s',
  TIER_CONFIG_REFRESH_INTERVAL: '1s',
  REPORT_GRACE: '1s',
  LEADER_ELECTION_DURATION: '1500ms',
  LEADER_ELECTION_RENEW_DEADLINE: '1s',
  LEADER_ELECTION_RETRY_PERIOD: '200ms',
};

// --- Starting and ending ---

const children = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL');
});

/** `folder`: of another version, built. Resolves when it listens, which it does with or without a store; see `untilReady`. */
export async function startRouter(env: RouterEnv, folder?: string): Promise<RouterProcess> {
  const child = spawnRouter(env, folder);
  const output = collect(child);
  const listening = /"url":"([^"]+)".*"msg":"smart-router is listening"/;
  const url = await new Promise<string>((resolve, reject) => {
    const look = () => {
      const found = listening.exec(output.text)?.[1];
      if (found === undefined) return;
      // Read on, it would look through the whole log with every line.
      child.stdout?.off('data', look);
      resolve(found);
    };
    child.stdout?.on('data', look);
    child.once('error', reject);
    child.once('exit', (code, signal) =>
      reject(new Error(`the router ended with ${code ?? signal} before it listened:\n${output.text}`)),
    );
  });
  // 1,000 callers at once are 1,000 connections.
  const agent = new Agent({ keepAlive: true, maxSockets: 1000 });
  onTestFinished(() => agent.destroy());
  const send = (method: string, path: string, body?: unknown) => request(agent, method, url + path, body);
  return {
    url,
    pid: child.pid ?? 0,
    get running() {
      return child.exitCode === null && child.signalCode === null;
    },
    get output() {
      return output.text;
    },
    logged: (message) =>
      logLines(output.text).filter(({ msg }) =>
        typeof message === 'string' ? msg === message : message.test(msg),
      ),
    get: (path) => send('GET', path),
    post: (path, body) => send('POST', path, body),
    put: (path, body) => send('PUT', path, body),
    async signal(name) {
      if (name === 'SIGSTOP' || name === 'SIGCONT') child.kill(name);
      else await end(child, name);
    },
    async stop() {
      await end(child, 'SIGTERM');
      return child.exitCode;
    },
  };
}

/** For a start that is refused: resolves when the process has ended. */
export async function runRouter(env: RouterEnv): Promise<EndedProcess> {
  const child = spawnRouter(env);
  const output = collect(child);
  await new Promise((resolve) => child.once('close', resolve));
  return { code: child.exitCode, output: output.text };
}

function spawnRouter(env: RouterEnv, folder = root): ChildProcess {
  build();
  const command = [process.execPath, join(folder, 'bin', 'smart-router.js'), 'serve'];
  // If this process is killed outright no exit handler runs; the kernel then ends the router.
  const guard = process.platform === 'linux' ? findOnPath('setpriv') : undefined;
  const [file = '', ...args] = guard === undefined ? command : [guard, '--pdeathsig', 'KILL', ...command];
  const child = spawn(file, args, {
    cwd: root,
    // Nothing of the surroundings: a REDIS_URL of the developer's would be used otherwise.
    env: {
      PATH: process.env.PATH,
      HTTP_PORT: '0',
      METRICS_PORT: 'off',
      POD_SOURCE: 'static',
      LOG_FORMAT: 'json',
      // With many tests on a few cores every event loop is late: that is not an overload.
      OVERLOAD_DELAY: 'off',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.add(child);
  child.once('exit', () => children.delete(child));
  onTestFinished(() => end(child, 'SIGKILL'));
  return child;
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill(signal);
  await ended;
}

function collect(child: ChildProcess): { text: string } {
  const output = { text: '' };
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8');
    stream?.on('data', (chunk: string) => {
      output.text += chunk;
    });
  }
  return output;
}

function logLines(text: string): LogLine[] {
  return text.split('\n').flatMap((line) => {
    try {
      const parsed: unknown = JSON.parse(line);
      return typeof parsed === 'object' && parsed !== null && 'msg' in parsed ? [parsed as LogLine] : [];
    } catch {
      // The last line may be incomplete, and stderr is not JSON.
      return [];
    }
  });
}

/** `npm test` builds before it tests; a single test file started by hand may find nothing built, or something old. */
function build(): void {
  const built = join(root, 'dist', 'index.js');
  const lock = join(root, 'node_modules', '.smart-router-build');
  const deadline = performance.now() + 60_000;
  while (!existsSync(built) || existsSync(lock)) {
    if (performance.now() > deadline) throw new Error(`dist/ is not built, and ${lock} stays: remove it.`);
    try {
      mkdirSync(lock);
    } catch {
      // Another test file builds it.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
      continue;
    }
    try {
      if (!existsSync(built)) execFileSync(process.execPath, [join(root, 'scripts', 'build.mjs')]);
    } finally {
      rmSync(lock, { recursive: true });
    }
  }
  // Only a message: another test file may be using it.
  if (!toldOld && newestMs(join(root, 'src')) > statSync(built).mtimeMs) {
    console.warn('dist/ is older than src/, and these tests run dist/: `npm run build` first.');
    toldOld = true;
  }
}

let toldOld = false;

function newestMs(folder: string): number {
  const times = readdirSync(folder, { withFileTypes: true }).map((entry) => {
    if (entry.isDirectory()) return newestMs(join(folder, entry.name));
    return entry.name.endsWith('.generated.ts') ? 0 : statSync(join(folder, entry.name)).mtimeMs;
  });
  return Math.max(0, ...times);
}

// --- Talking to them ---

export function request(agent: Agent, method: string, url: string, body: unknown): Promise<Answer> {
  const started = performance.now();
  return new Promise((resolve) => {
    const failed = (error: Error) =>
      resolve({
        status: 0,
        body: {},
        text: error.message,
        retryAfter: undefined,
        ms: performance.now() - started,
      });
    const outgoing = httpRequest(
      url,
      { method, agent, ...(body === undefined ? {} : { headers: { 'content-type': 'application/json' } }) },
      (incoming) => {
        let text = '';
        incoming.setEncoding('utf8');
        incoming.on('data', (chunk: string) => {
          text += chunk;
        });
        incoming.on('error', failed);
        incoming.on('end', () => {
          const retryAfter = incoming.headers['retry-after'];
          resolve({
            status: incoming.statusCode ?? 0,
            body: parseBody(text),
            text,
            retryAfter: retryAfter === undefined ? undefined : Number(retryAfter),
            ms: performance.now() - started,
          });
        });
      },
    );
    outgoing.on('error', failed);
    outgoing.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

function parseBody(text: string): AnswerBody {
  try {
    return JSON.parse(text) as AnswerBody;
  } catch {
    return {};
  }
}

export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  timeoutMs = 40_000,
): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > deadline)
      throw new Error(`timed out after ${timeoutMs} ms waiting until ${what}`);
    await pause(25);
  }
}

/** For callers that hold a call or wait before a retry; not for waiting until something has happened. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Ready, and all its pods are in their pools. */
export async function untilServing(router: RouterProcess, pods: number, timeoutMs?: number): Promise<void> {
  await until(
    `${router.url} has ${pods} pods`,
    async () => {
      if ((await router.get('/ready')).status !== 200) return false;
      const { pools } = (await router.get('/api/v1/status')).body;
      return Object.values(pools ?? {}).reduce((sum, pool) => sum + pool.assigned, 0) === pods;
    },
    timeoutMs,
  );
}

/** No call lives and every pod can take one. */
export async function isIdle(router: RouterProcess): Promise<boolean> {
  const { body, status } = await router.get('/api/v1/status');
  const pools = Object.values(body.pools ?? {});
  return (
    status === 200 &&
    body.active_calls === 0 &&
    pools.length > 0 &&
    pools.every(({ assigned, available }) => assigned === available)
  );
}

export const allocate = (router: RouterProcess, callSid: string, merchantId?: string): Promise<Answer> =>
  router.post('/api/v1/allocate', {
    call_sid: callSid,
    ...(merchantId === undefined ? {} : { merchant_id: merchantId }),
  });

export const release = (router: RouterProcess, callSid: string, fence?: number): Promise<Answer> =>
  router.post('/api/v1/release', { call_sid: callSid, ...(fence === undefined ? {} : { fence }) });

export const renew = (router: RouterProcess, callSid: string, fence?: number): Promise<Answer> =>
  router.post('/api/v1/renew', { call_sid: callSid, ...(fence === undefined ? {} : { fence }) });
