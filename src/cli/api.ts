/**
 * The router's API for the commands. It uses node:http, because `fetch` gives up after five minutes without a reply
 * (undici's headersTimeout), and a drain may wait for a day.
 *
 * Every failure is a Failure with one line that names the address and what to do. The key is sent in a header only and
 * is never part of a message.
 */
import * as http from 'node:http';
import * as https from 'node:https';
import type { Clock } from '../clock.js';
import { formatDuration } from '../config/durations.js';
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

interface Response {
  message: http.IncomingMessage;
  /** Ends the deadline of the request. */
  settle(): void;
  toFailure(error: unknown): Failure;
}

/** A page of 1,000 pods with a few calls each is below 1 MiB. */
const maxReplyBytes = 64 * 1024 * 1024;

export class RouterApi {
  readonly baseUrl: string;
  readonly timeoutMs: number;
  readonly #options: ApiOptions;
  readonly #agent: http.Agent;

  constructor(options: ApiOptions) {
    this.#options = options;
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
    const response = await this.#request(target, request, this.#agent);
    const { statusCode = 0, headers } = response.message;
    const text = await readText(response);
    const body = parseObject(text);
    if (statusCode >= 200 && statusCode < 300 && body && Object.hasOwn(body, has))
      return { body: body as T, nowMs: this.#time(headers.date) };
    throw this.#rejection(statusCode, text, target);
  }

  /** A stream until `signal` aborts or the router ends it. The deadline covers its start and an error reply. */
  async open(path: string, signal: AbortSignal): Promise<http.IncomingMessage> {
    // Not the agent: the connection is never reused.
    const response = await this.#request(path, { headers: { accept: 'text/event-stream' }, signal }, false);
    const { statusCode = 0, headers } = response.message;
    if (statusCode === 200 && headers['content-type']?.startsWith('text/event-stream')) {
      response.settle();
      return response.message;
    }
    throw this.#rejection(statusCode, await readText(response).catch(() => ''), path);
  }

  close(): void {
    this.#agent.destroy();
  }

  #request(
    target: string,
    { body, headers, timeoutMs = this.timeoutMs, signal }: Request,
    agent: http.Agent | false,
  ): Promise<Response> {
    const { key, clock } = this.#options;
    const [path, method = 'GET'] = target.split(' ').reverse();
    const url = new URL(`${this.baseUrl}/api/v1${path}`);
    const payload = body === undefined ? undefined : JSON.stringify(body);
    const { request } = url.protocol === 'https:' ? https : http;
    return new Promise((resolve, reject) => {
      let isLate = false;
      const sent = request(url, {
        method,
        agent,
        headers: {
          accept: 'application/json',
          'user-agent': userAgent,
          ...(payload === undefined
            ? {}
            : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) }),
          ...(key ? { authorization: `Bearer ${key.value}` } : {}),
          ...headers,
        },
        ...(signal ? { signal } : {}),
      });
      const settle = clock.after(timeoutMs, () => {
        isLate = true;
        sent.destroy();
      });
      const toFailure = (error: unknown) => {
        if (signal?.aborted) return new Failure('interrupted', 'interrupted');
        return isLate ? this.#late(timeoutMs) : this.#unreachable(error as NodeJS.ErrnoException);
      };
      sent.on('error', (error) => {
        settle();
        reject(toFailure(error));
      });
      // A 101 closes the request with neither an error nor a response.
      const close = () => {
        settle();
        reject(toFailure(new Error('connection closed without a response')));
      };
      sent.on('close', close);
      sent.on('response', (message) => {
        sent.off('close', close);
        resolve({ message, settle, toFailure });
      });
      sent.end(payload);
    });
  }

  /** The `date` header has whole seconds: the middle of that second is off by at most half a second. */
  #time(date: string | undefined): number {
    const ms = date === undefined ? Number.NaN : Date.parse(date);
    return Number.isNaN(ms) ? this.#options.clock.now() : ms + 500;
  }

  #rejection(status: number, text: string, target: string): Failure {
    const { key } = this.#options;
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

  #unreachable(error: NodeJS.ErrnoException): Failure {
    const { reason, hint } = explain(error);
    return new Failure('unreachable', `cannot reach the router at ${this.baseUrl}: ${reason}. ${hint}`, [], {
      cause: error,
    });
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
export function explain(error: NodeJS.ErrnoException): { reason: string; hint: string } {
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

async function readText({ message, settle, toFailure }: Response): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of message) {
      bytes += (chunk as Buffer).length;
      if (bytes > maxReplyBytes) throw new Error(`its reply is longer than ${maxReplyBytes / 2 ** 20} MiB`);
      chunks.push(chunk as Buffer);
    }
  } catch (error) {
    throw toFailure(error);
  } finally {
    settle();
  }
  return Buffer.concat(chunks).toString('utf8');
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}
