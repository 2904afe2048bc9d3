/**
 * The router's API as the operator commands use it. Built on node:http, because `fetch` gives up after five
 * minutes without an answer (undici's headersTimeout), and a drain may wait for a day.
 *
 * Every way to fail is a Failure with one line that names the address and what to do. The key travels in a
 * header only, and is never part of a message.
 */
import * as http from 'node:http';
import * as https from 'node:https';
import type { Clock } from '../clock.js';
import { formatDuration } from '../config/durations.js';
import { userAgent } from '../version.js';
import { Failure, oneLine } from './failure.js';

export interface ApiOptions {
  baseUrl: string;
  /** The key and the variable it came from, if there is one. */
  key: { value: string; from: string } | undefined;
  timeoutMs: number;
  clock: Clock;
}

export interface Answer<T> {
  body: T;
  /** The router's clock, to the second. */
  nowMs: number;
}

interface Sending {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  timeoutMs?: number;
  signal?: AbortSignal;
  /** A field that the answer must have: a web page with status 200 is no answer. */
  has: string;
}

interface Raw {
  status: number;
  text: string;
  date: string | undefined;
}

/** A page of 1,000 pods with a few calls each is below 1 MiB. */
const longestAnswerBytes = 64 * 1024 * 1024;

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

  async send<T>(path: string, sending: Sending): Promise<Answer<T>> {
    const { status, text, date } = await this.#exchange(path, sending);
    const body = parseObject(text);
    const at = `what answers at ${this.baseUrl}`;
    if (status >= 200 && status < 300 && body && Object.hasOwn(body, sending.has)) {
      return { body: body as T, nowMs: this.#time(date) };
    }
    if (status >= 400 && typeof body?.code === 'string' && typeof body.error === 'string') {
      throw this.#refused(status, body.code, body.error, body.problems);
    }
    const what = status >= 300 && status < 400 ? 'a redirect' : `status ${status}`;
    throw new Failure(
      'not_a_router',
      `${at} is not a Smart Router: it gave ${what} to ${path.split('?')[0]}. Check --url or SMART_ROUTER_URL.`,
    );
  }

  /** A stream that goes on until `signal` or the router ends it; its beginning has a deadline, and so has a refusal. */
  async open(path: string, signal: AbortSignal): Promise<http.IncomingMessage> {
    const response = await this.#begin(path, { accept: 'text/event-stream' }, signal);
    const { statusCode = 0 } = response;
    if (statusCode === 200 && response.headers['content-type']?.startsWith('text/event-stream'))
      return response;
    const cancel = this.#options.clock.after(this.timeoutMs, () => response.destroy());
    const text = await shortText(response)
      .catch(() => '')
      .finally(cancel);
    const body = parseObject(text);
    if (statusCode >= 400 && typeof body?.code === 'string' && typeof body.error === 'string') {
      throw this.#refused(statusCode, body.code, body.error, body.problems);
    }
    throw new Failure(
      'not_a_router',
      `what answers at ${this.baseUrl} is not a Smart Router: it gave status ${statusCode} to ${path.split('?')[0]}. Check --url or SMART_ROUTER_URL.`,
    );
  }

  close(): void {
    this.#agent.destroy();
  }

  #begin(path: string, headers: Record<string, string>, signal: AbortSignal): Promise<http.IncomingMessage> {
    const { key, clock } = this.#options;
    const url = new URL(`${this.baseUrl}/api/v1${path}`);
    const { request } = url.protocol === 'https:' ? https : http;
    return new Promise((resolve, reject) => {
      let late = false;
      const sent = request(url, {
        // A connection of its own: it never goes back to those that wait for the next request.
        agent: false,
        headers: {
          'user-agent': userAgent,
          ...headers,
          ...(key ? { authorization: `Bearer ${key.value}` } : {}),
        },
        signal,
      });
      const cancel = clock.after(this.timeoutMs, () => {
        late = true;
        sent.destroy();
      });
      sent.on('error', (error) => {
        cancel();
        if (signal.aborted) reject(new Failure('interrupted', 'interrupted'));
        else reject(late ? this.#late(this.timeoutMs) : this.#unreachable(error));
      });
      sent.on('response', (response) => {
        cancel();
        resolve(response);
      });
      sent.end();
    });
  }

  /** The `date` header has seconds only: the middle of that second is off by half of one at most. */
  #time(date: string | undefined): number {
    const ms = date === undefined ? Number.NaN : Date.parse(date);
    return Number.isNaN(ms) ? this.#options.clock.now() : ms + 500;
  }

  #refused(status: number, code: string, error: string, problems: unknown): Failure {
    const { key } = this.#options;
    const said = oneLine(key ? error.replaceAll(key.value, '********') : error);
    const list = Array.isArray(problems) ? problems.map((problem) => oneLine(String(problem))) : [];
    if (status === 401 || status === 403) {
      const hint = key
        ? `the router refused the key in ${key.from}`
        : 'the router wants a key and none is set: put it in SMART_ROUTER_ADMIN_KEY (or SMART_ROUTER_API_KEY for what voice agents may do)';
      return new Failure(code, `${hint}: ${said}`);
    }
    return new Failure(code, list.length > 0 ? 'the router refused this:' : said, list);
  }

  #exchange(path: string, { method = 'GET', body, headers, timeoutMs, signal }: Sending): Promise<Raw> {
    const { key, clock } = this.#options;
    const limitMs = timeoutMs ?? this.timeoutMs;
    const url = new URL(`${this.baseUrl}/api/v1${path}`);
    const payload = body === undefined ? undefined : JSON.stringify(body);
    const { request } = url.protocol === 'https:' ? https : http;
    return new Promise((resolve, reject) => {
      let late = false;
      const fail = (error: NodeJS.ErrnoException) => {
        cancel();
        if (signal?.aborted) reject(new Failure('interrupted', 'interrupted'));
        else if (late) reject(this.#late(limitMs));
        else reject(this.#unreachable(error));
      };
      const sent = request(url, {
        method,
        agent: this.#agent,
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
      const cancel = clock.after(limitMs, () => {
        late = true;
        sent.destroy();
      });
      sent.on('error', fail);
      sent.on('response', (response) => {
        const chunks: Buffer[] = [];
        let bytes = 0;
        response.on('data', (chunk: Buffer) => {
          bytes += chunk.length;
          if (bytes > longestAnswerBytes) sent.destroy(new Error('its answer has no end'));
          chunks.push(chunk);
        });
        response.on('error', fail);
        response.on('end', () => {
          cancel();
          const text = Buffer.concat(chunks).toString('utf8');
          resolve({ status: response.statusCode ?? 0, text, date: response.headers.date });
        });
      });
      sent.end(payload);
    });
  }

  #late(limitMs: number): Failure {
    const shown = limitMs < 10_000 ? limitMs : Math.round(limitMs / 1000) * 1000;
    return new Failure(
      'unreachable',
      `the router at ${this.baseUrl} did not answer within ${formatDuration(shown)}. Is it overloaded, or is something else there? --timeout allows more.`,
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
  ENOTFOUND: { reason: 'there is no such host', hint: checkUrl },
  EAI_AGAIN: { reason: 'the host name cannot be looked up now', hint: checkUrl },
  ETIMEDOUT: { reason: 'the connection timed out', hint: checkUrl },
  EHOSTUNREACH: { reason: 'there is no way to that host', hint: checkUrl },
  ENETUNREACH: { reason: 'there is no way to that network', hint: checkUrl },
};

/** Also of an AggregateError, which node gives when a name has several addresses. */
export function explain(error: NodeJS.ErrnoException): { reason: string; hint: string } {
  const inner = error instanceof AggregateError ? (error.errors[0] as NodeJS.ErrnoException) : error;
  const code = String(inner.code ?? error.code ?? '');
  const known = Object.hasOwn(explanations, code) ? explanations[code] : undefined;
  if (known) return known;
  if (code.startsWith('HPE_')) return { reason: 'what listens there does not speak HTTP', hint: checkUrl };
  if (/CERT|SELF_SIGNED|UNABLE_TO_|ERR_TLS|SSL|EPROTO/.test(code)) {
    return {
      reason: `no trusted TLS connection (${code})`,
      hint: 'Check the scheme of --url; a certificate authority of your own is made known with NODE_EXTRA_CA_CERTS.',
    };
  }
  return { reason: oneLine(inner.message || code || 'the connection failed'), hint: checkUrl };
}

/** Of an answer that is an error: the beginning is enough. */
async function shortText(response: http.IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) {
    text += chunk as string;
    if (text.length > 64 * 1024) break;
  }
  return text;
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
