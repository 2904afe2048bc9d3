/**
 * The router's API for the commands. It does not use `fetch`, which gives up after five minutes without a reply (undici's
 * headersTimeout): a drain may wait for a day.
 *
 * Every failure is a Failure with one line that names the address and what to do. The key is sent in a header only and
 * is never part of a message.
 */
import * as http from 'node:http';
import * as https from 'node:https';
import { sendRequest } from '../agent/http-request.js';
import { type Clock, Deadline } from '../clock.js';
import { formatDuration } from '../config/durations.js';
import { isPlainObject } from '../config/tiers.js';
import { userAgent } from '../version.js';
import { Failure, oneLine } from './failure.js';

interface ApiOptions {
  baseUrl: string;
  /** The key and the variable that holds it, if set. */
  key: { value: string; from: string } | undefined;
  timeoutMs: number;
  clock: Clock;
}

export interface Answer<T> {
  body: T;
  /** The router's clock, to the second. */
  nowMs: number;
}

interface Request {
  body?: unknown;
  headers?: Record<string, string>;
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** A page of 1,000 pods with a few calls each is below 1 MiB. */
const maxReplyBytes = 64 * 1024 * 1024;

export class RouterApi {
  readonly baseUrl: string;
  readonly timeoutMs: number;
  readonly #agent: http.Agent;

  constructor(private readonly options: ApiOptions) {
    this.baseUrl = options.baseUrl;
    this.timeoutMs = options.timeoutMs;
    const { Agent } = options.baseUrl.startsWith('https:') ? https : http;
    this.#agent = new Agent({ keepAlive: true });
  }

  /**
   * `target` is a path, or a method and a path: `POST /drain`. The reply must be an object with the field `has`: a web
   * page with status 200 is not a reply.
   */
  async send<T>(target: string, has: string, request: Request = {}): Promise<Answer<T>> {
    const deadline = this.#deadline(request);
    try {
      const response = await this.#request(target, request, deadline.signal, this.#agent);
      const { statusCode = 0, headers } = response;
      const text = await readText(response);
      const body = parseObject(text);
      if (statusCode >= 200 && statusCode < 300 && body && Object.hasOwn(body, has))
        return { body: body as T, nowMs: this.#time(headers.date) };
      throw this.#rejection(statusCode, text, target);
    } catch (error) {
      throw this.#failureOf(error, deadline.signal);
    } finally {
      deadline.end();
    }
  }

  /** A stream until `signal` aborts or the router ends it. The deadline covers its start and an error reply. */
  async open(path: string, signal: AbortSignal): Promise<http.IncomingMessage> {
    const request = { headers: { accept: 'text/event-stream' }, signal };
    const deadline = this.#deadline(request);
    try {
      // Not the agent: the connection is never reused.
      const response = await this.#request(path, request, deadline.signal, false);
      const { statusCode = 0, headers } = response;
      if (statusCode === 200 && headers['content-type']?.startsWith('text/event-stream')) {
        deadline.pause();
        return response;
      }
      throw this.#rejection(statusCode, await readText(response).catch(() => ''), path);
    } catch (error) {
      deadline.end();
      throw this.#failureOf(error, deadline.signal);
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  #deadline({ timeoutMs = this.timeoutMs, signal }: Request): Deadline {
    return new Deadline(this.options.clock, timeoutMs, () => this.#late(timeoutMs), signal);
  }

  #request(
    target: string,
    { body, headers }: Request,
    signal: AbortSignal,
    agent: http.Agent | false,
  ): Promise<http.IncomingMessage> {
    const { key } = this.options;
    const [path, method = 'GET'] = target.split(' ').reverse();
    return sendRequest(`${this.baseUrl}/api/v1${path}`, {
      method,
      agent,
      headers: {
        accept: 'application/json',
        'user-agent': userAgent,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(key ? { authorization: `Bearer ${key.value}` } : {}),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  }

  #failureOf(error: unknown, { aborted, reason }: AbortSignal): Failure {
    if (error instanceof Failure) return error;
    if (aborted) return reason instanceof Failure ? reason : new Failure('interrupted', 'interrupted');
    const { reason: why, hint } = explain(error as NodeJS.ErrnoException);
    const message = `cannot reach the router at ${this.baseUrl}: ${why}. ${hint}`;
    return new Failure('unreachable', message, [], { cause: error });
  }

  /** The `date` header has whole seconds: the middle of that second is off by at most half a second. */
  #time(date: string | undefined): number {
    const ms = date === undefined ? Number.NaN : Date.parse(date);
    return Number.isNaN(ms) ? this.options.clock.now() : ms + 500;
  }

  #rejection(status: number, text: string, target: string): Failure {
    const { key } = this.options;
    const body = parseObject(text);
    if (status < 400 || typeof body?.code !== 'string' || typeof body.error !== 'string') {
      const got = status >= 300 && status < 400 ? 'a redirect' : `status ${status}`;
      return new Failure(
        'not_a_router',
        `${this.baseUrl} is not a Smart Router: got ${got} from ${/\/[^?]*/.exec(target)}. Check --url or SMART_ROUTER_URL.`,
      );
    }
    const { code, error, problems } = body as { code: string; error: string; problems?: unknown };
    const message = oneLine(key ? error.replaceAll(key.value, '********') : error);
    if (status === 401 || status === 403) {
      const hint = key
        ? `the router rejected the key in ${key.from}`
        : 'the router requires a key: set SMART_ROUTER_ADMIN_KEY (or SMART_ROUTER_API_KEY for what voice agents may do)';
      return new Failure(code, `${hint}: ${message}`);
    }
    const list = Array.isArray(problems) ? problems.map((problem) => oneLine(String(problem))) : [];
    return new Failure(code, list.length > 0 ? 'the router rejected this:' : message, list);
  }

  #late(timeoutMs: number): Failure {
    const shown = timeoutMs < 10_000 ? timeoutMs : Math.round(timeoutMs / 1000) * 1000;
    return new Failure(
      'unreachable',
      `the router at ${this.baseUrl} did not answer within ${formatDuration(shown)}. Is it overloaded, or does another program use this address? --timeout allows more time.`,
    );
  }
}

const startOne =
  'Is it running? Start one with `npm start` (demo) or `smart-router serve`, or set --url or SMART_ROUTER_URL.';
const checkUrl = 'Check --url or SMART_ROUTER_URL.';

const explanations: Readonly<Record<string, { reason: string; hint: string }>> = {
  ECONNREFUSED: { reason: 'connection refused', hint: startOne },
  ECONNRESET: { reason: 'it closed the connection', hint: startOne },
  EPIPE: { reason: 'it closed the connection', hint: startOne },
  ENOTFOUND: { reason: 'no such host', hint: checkUrl },
  EAI_AGAIN: { reason: 'the host name lookup failed', hint: checkUrl },
  ETIMEDOUT: { reason: 'the connection timed out', hint: checkUrl },
  EHOSTUNREACH: { reason: 'no route to the host', hint: checkUrl },
  ENETUNREACH: { reason: 'no route to the network', hint: checkUrl },
};

/** Node throws an AggregateError if a name has several addresses. */
function explain(error: NodeJS.ErrnoException): { reason: string; hint: string } {
  const inner = error instanceof AggregateError ? (error.errors[0] as NodeJS.ErrnoException) : error;
  const code = String(inner.code ?? error.code ?? '');
  const known = Object.hasOwn(explanations, code) ? explanations[code] : undefined;
  if (known) return known;
  if (code.startsWith('HPE_')) return { reason: 'it does not speak HTTP', hint: checkUrl };
  if (/CERT|SELF_SIGNED|UNABLE_TO_|ERR_TLS|SSL|EPROTO/.test(code)) {
    return {
      reason: `no trusted TLS connection (${code})`,
      hint: 'Check the scheme of --url; set NODE_EXTRA_CA_CERTS for your own certificate authority.',
    };
  }
  return { reason: oneLine(inner.message || code || 'the connection failed'), hint: checkUrl };
}

async function readText(response: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response) {
    bytes += (chunk as Buffer).length;
    if (bytes > maxReplyBytes) throw new Error(`its reply is longer than ${maxReplyBytes / 2 ** 20} MiB`);
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isPlainObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
