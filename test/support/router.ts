/**
 * A real router in this process, asked over real HTTP. Its log is kept in memory, so that a test can look for
 * lines that must be there and for secrets that must not.
 */
import { type IncomingHttpHeaders, type RequestOptions, request as send } from 'node:http';
import { Writable } from 'node:stream';
import type { Redis } from 'ioredis';
import { systemClock } from '../../src/clock.js';
import { loadConfig } from '../../src/config/config.js';
import type { HttpContext } from '../../src/http/context.js';
import { type StartOptions, startRouter } from '../../src/main/router.js';
import { createLogger } from '../../src/observe/log.js';
import './compiled-schemas.js';
import { until } from './until.js';

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
  /** The parsed body, or undefined if it is not JSON. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies of every shape.
  body: any;
}

export interface Asking {
  method?: string;
  headers?: Record<string, string>;
  body?: string | Buffer;
  signal?: AbortSignal;
}

export interface TestRouter {
  url: string;
  port: number;
  context: HttpContext;
  /** Path under `/api/v1`, e.g. `/allocate`; with a leading `//` it is taken from the root. */
  ask(path: string, asking?: Asking): Promise<Answer>;
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<Answer>;
  put(path: string, body: unknown, headers?: Record<string, string>): Promise<Answer>;
  get(path: string, headers?: Record<string, string>): Promise<Answer>;
  del(path: string): Promise<Answer>;
  form(path: string, fields: Record<string, string>, headers?: Record<string, string>): Promise<Answer>;
  /** Everything logged so far, one object per line. */
  logs(): Record<string, unknown>[];
  logText(): string;
  stop(): Promise<void>;
}

export const baseEnv = {
  HTTP_PORT: '0',
  METRICS_PORT: 'off',
  POD_SOURCE: 'static',
  STATIC_PODS: 'gold-1=gold,gold-2=gold,basic-1=basic',
  TIER_CONFIG: JSON.stringify({
    tiers: {
      gold: { type: 'exclusive', target: 2 },
      basic: { type: 'shared', target: 1, max_concurrent: 3 },
    },
    default_chain: ['gold', 'basic'],
  }),
  LEADER_ELECTION_ENABLED: 'false',
  POD_NAME: 'router-under-test',
  CLEANUP_INTERVAL: '200ms',
  RECONCILE_INTERVAL: '300ms',
  TIER_CONFIG_REFRESH_INTERVAL: '200ms',
  // A busy machine is not a store that does not answer.
  REQUEST_TIMEOUT: '20s',
  REDIS_COMMAND_TIMEOUT: '15s',
  SHUTDOWN_TIMEOUT: '5s',
  // With many tests on a few cores every event loop is late; other tests cover overload.
  OVERLOAD_DELAY: 'off',
  LOG_LEVEL: 'debug',
};

/** For tests in which the store does not answer. */
export const impatient = { REQUEST_TIMEOUT: '1s', REDIS_COMMAND_TIMEOUT: '800ms' };

/** Resolves when the static pods are registered; with `ready: false` at once, for a store that does not answer. */
export async function startTestRouter(
  engineUrl: string,
  env: Record<string, string> = {},
  { ready = true, ...options }: Omit<StartOptions, 'log'> & { ready?: boolean } = {},
): Promise<TestRouter> {
  const config = loadConfig({ ...baseEnv, REDIS_URL: engineUrl, ...env }, 'serve');
  const { log, text } = memoryLog(config.logLevel);
  const running = await startRouter(config, { clock: systemClock, ...options, log });
  const root = new URL(running.url);
  const ask = (path: string, asking: Asking = {}) =>
    askOnce({ host: root.hostname, port: root.port, path: fullPath(path) }, asking);
  const json = (headers: Record<string, string> = {}) => ({ 'content-type': 'application/json', ...headers });
  if (ready && config.staticPods) await untilRegistered(running.context, config.staticPods.length);
  return {
    url: running.url,
    port: Number(root.port),
    context: running.context,
    ask,
    get: (path, headers = {}) => ask(path, { headers }),
    del: (path) => ask(path, { method: 'DELETE' }),
    post: (path, body, headers) =>
      ask(path, { method: 'POST', headers: json(headers), body: JSON.stringify(body) }),
    put: (path, body, headers) =>
      ask(path, { method: 'PUT', headers: json(headers), body: JSON.stringify(body) }),
    form: (path, fields, headers = {}) =>
      ask(path, {
        method: 'POST',
        headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
        body: new URLSearchParams(fields).toString(),
      }),
    logs: () =>
      text()
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line)),
    logText: text,
    stop: running.stop,
  };
}

const fullPath = (path: string) => (path.startsWith('//') ? path.slice(1) : `/api/v1${path}`);

/** One raw request on a new connection. */
export function askOnce(
  target: RequestOptions,
  { method = 'GET', headers = {}, body, signal }: Asking = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = send({ ...target, method, headers, agent: false, ...(signal ? { signal } : {}) });
    request.once('error', reject);
    request.once('response', (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.once('error', reject);
      response.once('end', () => {
        const text = Buffer.concat(chunks).toString('utf8');
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text, body: parsed(text) });
      });
    });
    request.end(body);
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function untilRegistered(context: HttpContext, count: number): Promise<void> {
  await until(async () => {
    const { pools } = await context.store.snapshot();
    return pools.reduce((sum, pool) => sum + pool.assigned, 0) >= count;
  }, `${count} pods are registered`);
}

/** The product's own logger, redaction and serializers included, writing into memory. */
function memoryLog(level: string) {
  const lines: string[] = [];
  const destination = new Writable({
    write(chunk: Buffer, _, done) {
      lines.push(chunk.toString());
      done();
    },
  });
  return { log: createLogger({ level, format: 'json', destination }), text: () => lines.join('') };
}

/** Every key as text, except streams and keys that change with time: two equal dumps mean nothing has changed. */
export async function dump(redis: Redis): Promise<Record<string, unknown>> {
  const keys = (await redis.keys('*')).filter((key) => !/:(events|journal|history|alive)$/.test(key)).sort();
  const entries = await Promise.all(keys.map(async (key) => [key, await read(redis, key)] as const));
  return Object.fromEntries(entries);
}

async function read(redis: Redis, key: string): Promise<unknown> {
  switch (await redis.type(key)) {
    case 'string':
      return redis.get(key);
    case 'set':
      return (await redis.smembers(key)).sort();
    case 'zset':
      return redis.zrange(key, '0', '-1', 'WITHSCORES');
    case 'hash':
      return redis.hgetall(key);
    default:
      return undefined;
  }
}
