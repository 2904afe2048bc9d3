/** The real command, in this process or as a child process, and routers for it to talk to. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll } from 'vitest';
import { run } from '../../src/cli/index.js';
import { loadConfig } from '../../src/config/config.js';
import { type RunningRouter, startRouter } from '../../src/main/router.js';
import { silentLogger } from '../../src/observe/log.js';
import '../support/compiled-schemas.js';
import { type Engine, startPreferred } from '../support/engines.js';
import { until } from '../support/until.js';
import { capture } from './capture.js';
import { redisAt } from './redis.js';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** `npm test` builds first. With an older dist/ the sources are compiled to a separate folder. */
export function useBinary(): { readonly path: string } {
  const binary = { path: join(root, 'bin', 'smart-router.js') };
  const own = join(root, '.cache', `cli-${process.pid}`);
  beforeAll(() => {
    const built = join(root, 'dist', 'cli', 'index.js');
    if (existsSync(built) && newest(join(root, 'src')) <= statSync(built).mtimeMs) return;
    mkdirSync(own, { recursive: true });
    cpSync(join(root, 'bin'), join(own, 'bin'), { recursive: true });
    cpSync(join(root, 'package.json'), join(own, 'package.json'));
    const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
    const args = [tsc, '-p', join(root, 'tsconfig.build.json'), '--outDir', join(own, 'dist')];
    execFileSync(process.execPath, args, { cwd: root, stdio: 'inherit' });
    binary.path = join(own, 'bin', 'smart-router.js');
  }, 120_000);
  afterAll(() => rmSync(own, { recursive: true, force: true }));
  return binary;
}

function newest(folder: string): number {
  const times = readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => statSync(join(entry.parentPath ?? entry.path, entry.name)).mtimeMs);
  return Math.max(...times);
}

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

export interface Started {
  child: ChildProcess;
  ended: Promise<Ended>;
  /** Resolves when stdout or stderr has shown `text`. */
  shows(text: string): Promise<void>;
}

/** Nothing of the surrounding environment but what a program needs to run. */
const bareEnv = () => ({ PATH: process.env.PATH, HOME: process.env.HOME });

export function start(
  binary: { path: string },
  args: readonly string[],
  { env = {}, input }: { env?: NodeJS.ProcessEnv; input?: string } = {},
): Started {
  const child = spawn(process.execPath, [binary.path, ...args], {
    env: { ...bareEnv(), ...env },
    stdio: 'pipe',
    // One that hangs fails its test, and does not outlive it. Long enough for a demo on a busy machine.
    timeout: 55_000,
    killSignal: 'SIGKILL',
  });
  let [stdout, stderr] = ['', ''];
  const watchers = new Set<() => void>();
  const heard = () => {
    for (const look of watchers) look();
  };
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    heard();
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
    heard();
  });
  child.stdin.on('error', () => undefined);
  child.stdin.end(input ?? '');
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, stdout, stderr }));
  });
  const shows = (text: string) =>
    new Promise<void>((resolve, reject) => {
      const look = () => {
        if (!`${stdout}\n${stderr}`.includes(text)) return;
        watchers.delete(look);
        resolve();
      };
      watchers.add(look);
      look();
      ended.then(() => reject(new Error(`it ended without showing ${text}: ${stdout}${stderr}`)), reject);
    });
  return { child, ended, shows };
}

export type Run = (
  args: string | readonly string[],
  options?: { env?: NodeJS.ProcessEnv; input?: string },
) => Promise<Ended>;

/**
 * Runs the command to its end against `url()`; arguments as one string are split at spaces. In this process: a child
 * takes 0.15 s of CPU to start.
 */
export function runner(url: () => string, env: NodeJS.ProcessEnv = {}): Run {
  return async (args, options = {}) => {
    const { streams, out, err } = capture({ input: options.input ?? '' });
    const given = { ...bareEnv(), SMART_ROUTER_URL: url(), ...env, ...options.env };
    const code = await run(typeof args === 'string' ? args.split(' ') : args, given, { streams });
    return { code, stdout: out(), stderr: err() };
  };
}

/** Like `runner`, as a child process. */
export function processRunner(binary: { path: string }, url: () => string, env: NodeJS.ProcessEnv = {}): Run {
  return (args, options = {}) =>
    start(binary, typeof args === 'string' ? args.split(' ') : args, {
      ...options,
      env: { SMART_ROUTER_URL: url(), ...env, ...options.env },
    }).ended;
}

/** The one document on stdout. */
export function documentOf({ stdout }: Ended): Record<string, unknown> {
  return JSON.parse(stdout) as Record<string, unknown>;
}

export const testTiers = {
  tiers: {
    gold: { type: 'exclusive', target: 2 },
    basic: { type: 'shared', target: 1, max_concurrent: 3 },
    vip: { type: 'exclusive', target: 1 },
  },
  default_chain: ['gold', 'basic'],
};

export const routerEnv: NodeJS.ProcessEnv = {
  POD_SOURCE: 'static',
  STATIC_PODS: 'pod-a=gold,pod-b=gold,pod-c=basic,vip-1=merchant:vip',
  TIER_CONFIG: JSON.stringify(testTiers),
  HTTP_PORT: '0',
  METRICS_PORT: 'off',
  REDIS_URL: 'embedded',
  LEADER_ELECTION_ENABLED: 'false',
  // A busy machine is not a store that does not answer.
  REQUEST_TIMEOUT: '20s',
  REDIS_COMMAND_TIMEOUT: '15s',
  // With many tests on a few cores every event loop is late; other tests cover overload.
  OVERLOAD_DELAY: 'off',
};

/** The store of a test file. `emptied` resolves to its address. */
export function useStore(): { emptied(): Promise<string> } {
  let engine: Engine;
  beforeAll(async () => {
    engine = await startPreferred();
  });
  afterAll(() => engine.stop());
  return {
    async emptied() {
      await redisAt(engine.url, (redis) => redis.flushall());
      return engine.url;
    },
  };
}

/** A real router, with all its pods registered. */
export async function startTestRouter(redisUrl: string, env: NodeJS.ProcessEnv = {}): Promise<RunningRouter> {
  const config = loadConfig({ ...routerEnv, REDIS_URL: redisUrl, ...env }, 'serve');
  const router = await startRouter(config, { log: silentLogger });
  await until(async () => {
    const { pools } = await router.context.store.snapshot();
    return pools.reduce((sum, pool) => sum + pool.assigned, 0) === 4;
  }, 'the pods of the test router are registered');
  return router;
}

export type Handler = (
  request: IncomingMessage,
  body: string,
) => { status?: number; json?: unknown; text?: string } | undefined;

/** Something that listens where a router should be. `undefined` means: never answer. */
export async function startScripted(handler: Handler): Promise<{ url: string; stop(): Promise<void> }> {
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    let body = '';
    request.setEncoding('utf8').on('data', (text: string) => {
      body += text;
    });
    request.on('end', () => {
      const answer = handler(request, body);
      if (answer === undefined) return;
      response.writeHead(answer.status ?? 200, { 'content-type': 'application/json' });
      response.end(answer.text ?? JSON.stringify(answer.json));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** One that has just started may still be busy with its store. */
export const allocateOn = ({ context }: RunningRouter, callSid: string) =>
  until(
    () => context.router.allocate({ callSid, merchantId: '', provider: 'twilio', flow: 'v2', template: 't' }),
    `call ${callSid} has its pod`,
  );
