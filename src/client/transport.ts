import type { Clock } from '../clock.js';
import { userAgent } from '../version.js';
import { parseRetryAfterMs } from './backoff.js';
import { RouterUnavailableError, refusalError, SmartRouterError, withAdvice } from './errors.js';
import { type Decode, isRecord, ShapeError } from './wire.js';

/** One attempt: a POST with a deadline, and its answer sorted into a result or a typed error. */
export interface Attempt<T> {
  /** For messages: `allocate CA123`. */
  operation: string;
  /** Below `/api/v1`. */
  path: string;
  body: unknown;
  timeoutMs: number;
  /** Counting this one. */
  attempts: number;
  decode: Decode<T>;
}

export interface Transport {
  baseUrl: string;
  apiKey: string | undefined;
  clock: Clock;
  fetch: typeof globalThis.fetch;
}

/** The longest answer is that to a report: 10,000 calls of at most 1 KiB, each named twice. More is not the router's. */
const maxAnswerBytes = 32 * 1024 * 1024;

async function readText(response: Response): Promise<string> {
  if (response.body === null) return '';
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  // Leaving the loop by a throw cancels the stream, so that the socket is not kept for the rest of it.
  for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
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

/** The innermost message of a fetch error: "fetch failed" alone helps nobody. */
function rootMessage(error: unknown): string {
  let current = error;
  for (let depth = 0; depth < 5 && current instanceof Error && current.cause instanceof Error; depth++) {
    current = current.cause;
  }
  if (!(current instanceof Error)) return String(current);
  // An AggregateError of all addresses tried has an empty message and a telling code.
  return current.message || String((current as NodeJS.ErrnoException).code ?? current.name);
}

/** The router's are shorter; somebody else's may be a whole page. */
const longestSentence = 2000;

/** The answer's meaning; `text` is never quoted in messages, because a proxy may echo our headers in it. */
function sort<T>(transport: Transport, attempt: Attempt<T>, response: Response, text: string): T {
  const { operation, attempts, decode } = attempt;
  const body = parseObject(text);
  const status = response.status;
  // A code of the router is a word; what else stands there may be anything, our key included.
  const code = typeof body?.code === 'string' && /^[a-z_]{1,64}$/.test(body.code) ? body.code : undefined;
  const retryAfterMs = parseRetryAfterMs(response.headers.get('retry-after'), transport.clock.now());

  if (status >= 200 && status < 300) {
    if (body === null) throw new ShapeError('it is not a JSON object');
    if (body.success === false) throw new ShapeError('it says success: false with a 2xx status');
    return decode(body);
  }
  if (status >= 300 && status < 400)
    throw new ShapeError('it is a redirect, which this client never follows');

  const said =
    typeof body?.error === 'string'
      ? redact(body.error, transport.apiKey).slice(0, longestSentence)
      : 'no JSON error body.';
  if (status >= 500 && !(status === 503 && code === 'no_pods')) {
    throw new RouterUnavailableError({
      operation,
      reason: 'server_error',
      text: `the router at ${transport.baseUrl} answered ${status} ${code ?? ''}: ${withAdvice(said, 'Look at its logs and at /ready.')}`,
      attempts,
      code,
      status,
      retryAfterMs,
    });
  }
  throw refusalError({ operation, status, code: code ?? 'unexpected_status', text: said, retryAfterMs });
}

function redact(text: string, apiKey: string | undefined): string {
  return apiKey === undefined ? text : text.replaceAll(apiKey, '[api key]');
}

/** Sends once. When `signal` aborts it throws something; the caller looks at the signal first. */
export async function sendOnce<T>(
  transport: Transport,
  attempt: Attempt<T>,
  signal: AbortSignal,
): Promise<T> {
  const { operation, attempts, timeoutMs } = attempt;
  const controller = new AbortController();
  let timedOut = false;
  const abort = () => controller.abort();
  if (signal.aborted) abort();
  else signal.addEventListener('abort', abort, { once: true });
  const cancelTimeout = transport.clock.after(timeoutMs, () => {
    timedOut = true;
    abort();
  });
  let status: number | undefined;
  try {
    const response = await transport.fetch(`${transport.baseUrl}/api/v1${attempt.path}`, {
      method: 'POST',
      headers: {
        accept: 'application/json',
        'user-agent': userAgent,
        'content-type': 'application/json',
        ...(transport.apiKey === undefined ? {} : { authorization: `Bearer ${transport.apiKey}` }),
      },
      body: JSON.stringify(attempt.body),
      // A followed 302 would become a GET without a body, and might carry the key elsewhere.
      redirect: 'manual',
      signal: controller.signal,
    });
    status = response.status;
    return sort(transport, attempt, response, await readText(response));
  } catch (error) {
    if (error instanceof SmartRouterError) throw error;
    const at = `the router at ${transport.baseUrl}`;
    if (timedOut) {
      throw new RouterUnavailableError({
        operation,
        reason: 'timeout',
        text: `${at} did not answer within ${timeoutMs} ms. Check that it is running and not overloaded.`,
        attempts,
      });
    }
    if (error instanceof ShapeError) {
      throw new RouterUnavailableError({
        operation,
        reason: 'bad_response',
        text: `${at} answered ${status}, but ${error.message}. Check that baseUrl leads to the router and not to a proxy's own page.`,
        attempts,
        ...(status === undefined ? {} : { status }),
      });
    }
    throw new RouterUnavailableError({
      operation,
      reason: 'network',
      text: `${at} could not be reached: ${redact(rootMessage(error), transport.apiKey)}. Check baseUrl, DNS and the network.`,
      attempts,
      cause: error,
    });
  } finally {
    cancelTimeout();
    signal.removeEventListener('abort', abort);
  }
}
