import { Deadline } from '../clock.js';
import { userAgent } from '../version.js';
import { isNoPod, RouterUnavailableError, refusalError, SmartRouterError, withAdvice } from './errors.js';
import type { Fetch, Settings } from './options.js';
import { type Decode, isRecord, ShapeError } from './wire.js';

/** One attempt with a deadline: a POST, or a GET if there is no body. */
export interface Attempt<T> {
  operation: string;
  path: string;
  body: unknown;
  timeoutMs: number;
  /** Counting this one. */
  attempts: number;
  decode: Decode<T>;
}

type Transport = Pick<Settings, 'baseUrl' | 'apiKey' | 'clock' | 'fetch'>;

/** The response to a report can be largest: 10,000 calls of at most 1 KiB, each named twice. */
const maxAnswerBytes = 32 * 1024 * 1024;

async function readText(body: object | null): Promise<string> {
  if (body === null) return '';
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  // A throw cancels the stream and frees the socket.
  for await (const chunk of body as AsyncIterable<Uint8Array>) {
    bytes += chunk.byteLength;
    if (bytes > maxAnswerBytes) throw new ShapeError(`it is longer than ${maxAnswerBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? value : null;
  } catch {
    return null;
  }
}

/** The innermost message of a fetch error, which itself only says "fetch failed". */
function rootMessage(error: unknown): string {
  let current = error;
  for (let depth = 0; depth < 5 && current instanceof Error && current.cause instanceof Error; depth++) {
    current = current.cause;
  }
  if (!(current instanceof Error)) return String(current);
  // An AggregateError of all addresses has an empty message and a useful code.
  return current.message || String((current as NodeJS.ErrnoException).code ?? current.name);
}

/** Messages of the router are shorter; that of a proxy may be a whole page. */
const maxMessageLength = 2000;

/** `Retry-After` in seconds or as an HTTP date; null for anything else. */
function parseRetryAfterMs(header: string | null, nowMs: number): number | null {
  if (header === null) return null;
  const text = header.trim();
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1000;
  // A date has letters in it; without this check Date.parse would accept "-5" as a year.
  const at = /[A-Za-z]{3}/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(at) ? null : Math.max(0, at - nowMs);
}

/** Turns a response into a result or an error. Never quotes `text`: a proxy may echo our headers in it. */
function interpret<T>(
  transport: Transport,
  attempt: Attempt<T>,
  response: Awaited<ReturnType<Fetch>>,
  text: string,
): T {
  const { operation, attempts, decode } = attempt;
  const body = parseObject(text);
  const status = response.status;
  // Codes of the router are words; any other text may contain our key.
  const code = typeof body?.code === 'string' && /^[a-z_]{1,64}$/.test(body.code) ? body.code : undefined;
  const retryAfterMs = parseRetryAfterMs(response.headers.get('retry-after'), transport.clock.now());

  if (status >= 200 && status < 300) {
    if (body === null) throw new ShapeError('it is not a JSON object');
    if (body.success === false) throw new ShapeError('it says success: false with a 2xx status');
    return decode(body);
  }
  if (status >= 300 && status < 400)
    throw new ShapeError('it is a redirect, which this client does not follow');

  const message =
    typeof body?.error === 'string' ? quote(body.error, transport.apiKey) : 'no JSON error body.';
  if (status >= 500 && !(status === 503 && isNoPod(code))) {
    throw new RouterUnavailableError({
      operation,
      reason: 'server_error',
      text: `the router at ${transport.baseUrl} answered ${status} ${code ?? ''}: ${withAdvice(message, 'Check its log and /ready.')}`,
      attempts,
      code,
      status,
      retryAfterMs,
    });
  }
  throw refusalError({ operation, status, code: code ?? 'unexpected_status', text: message, retryAfterMs });
}

/** The text of another program for an error message: without the key, on one line, and of limited length. */
function quote(text: string, apiKey: string | undefined): string {
  const redacted = apiKey === undefined ? text : text.replaceAll(apiKey, '[api key]');
  return redacted.replaceAll(/\s+/g, ' ').trim().slice(0, maxMessageLength);
}

/** Sends one request. If `signal` aborts, the thrown error has no meaning: check the signal first. */
export async function sendOnce<T>(
  transport: Transport,
  attempt: Attempt<T>,
  signal: AbortSignal,
): Promise<T> {
  const { operation, attempts, timeoutMs, body } = attempt;
  const at = `the router at ${transport.baseUrl}`;
  const late = () =>
    new RouterUnavailableError({
      operation,
      reason: 'timeout',
      text: `${at} did not answer within ${timeoutMs} ms. Check that it is running and not overloaded.`,
      attempts,
    });
  const deadline = new Deadline(transport.clock, timeoutMs, late, signal);
  let status: number | undefined;
  try {
    const response = await transport.fetch(`${transport.baseUrl}/api/v1${attempt.path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: {
        accept: 'application/json',
        'user-agent': userAgent,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(transport.apiKey === undefined ? {} : { authorization: `Bearer ${transport.apiKey}` }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      // A followed 302 would become a GET without a body, and might carry the key elsewhere.
      redirect: 'manual',
      signal: deadline.signal,
    });
    status = response.status;
    return interpret(transport, attempt, response, await readText(response.body));
  } catch (error) {
    if (error instanceof SmartRouterError) throw error;
    if (deadline.signal.aborted) throw deadline.signal.reason;
    if (error instanceof ShapeError) {
      throw new RouterUnavailableError({
        operation,
        reason: 'bad_response',
        text: `${at} answered ${status}, but ${error.message}. Check that baseUrl is the router and not a proxy.`,
        attempts,
        status,
      });
    }
    throw new RouterUnavailableError({
      operation,
      reason: 'network',
      text: `cannot reach ${at}: ${quote(rootMessage(error), transport.apiKey)}. Check baseUrl, DNS and the network.`,
      attempts,
      cause: error,
    });
  } finally {
    deadline.end();
  }
}
