/**
 * One POST with an end. Addresses may be secrets themselves (a chat tool's webhook), so no message here repeats one;
 * redirects are refused, because a signed message is meant for the address that was given.
 */
import { createHmac } from 'node:crypto';
import type { Clock } from '../clock.js';
import { ConfigError } from '../errors.js';
import { userAgent } from '../version.js';

export class DeliveryError extends Error {
  override readonly name = 'DeliveryError';

  constructor(
    message: string,
    /** False: the receiver will not take it however often it comes. */
    readonly isPassing: boolean,
    readonly retryAfterMs = 0,
  ) {
    super(message);
  }
}

export interface PostOptions {
  url: URL;
  body: string;
  headers?: Readonly<Record<string, string>>;
  clock: Clock;
  signal?: AbortSignal | undefined;
}

const answerWithinMs = 10_000;
const longestRetryAfterMs = 300_000;

export async function post({ url, body, headers, clock, signal }: PostOptions): Promise<void> {
  const late = new AbortController();
  const cancel = clock.after(answerWithinMs, () => late.abort());
  try {
    const response = await fetch(url, {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/json', 'user-agent': userAgent, ...headers },
      redirect: 'manual',
      signal: signal ? AbortSignal.any([late.signal, signal]) : late.signal,
    });
    await response.body?.cancel();
    if (!response.ok) throw refusal(response);
  } catch (error) {
    if (error instanceof DeliveryError) throw error;
    throw new DeliveryError(
      late.signal.aborted ? `no answer within ${answerWithinMs} ms` : causeOf(error),
      true,
    );
  } finally {
    cancel();
  }
}

function refusal({ status, headers }: Response): DeliveryError {
  const isPassing = status >= 500 || [408, 425, 429].includes(status);
  const seconds = Number(headers.get('retry-after') ?? 0);
  const retryAfterMs = Number.isFinite(seconds)
    ? Math.min(1000 * Math.max(0, seconds), longestRetryAfterMs)
    : 0;
  return new DeliveryError(`answered ${status}`, isPassing, retryAfterMs);
}

/** What the socket said; fetch hides it, and its own messages may contain the address. */
function causeOf(error: unknown): string {
  const { cause } = error as { cause?: { code?: unknown } };
  return typeof cause?.code === 'string' ? cause.code : 'the connection failed';
}

/** `t=<seconds>,v1=<hex>`: HMAC-SHA256 of `<seconds>.<body>`; the time lets a receiver refuse old ones. */
export function signature(secret: string, body: string, nowMs: number): string {
  const seconds = Math.floor(nowMs / 1000);
  return `t=${seconds},v1=${createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex')}`;
}

export const signatureHeader = 'smart-router-signature';

/** Does not repeat what it was given. */
export function parseAddress(text: string, name: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url && (url.protocol === 'https:' || url.protocol === 'http:') && url.username === '') return url;
  throw new ConfigError([`${name} must be an http or https address, without a user in it`]);
}
