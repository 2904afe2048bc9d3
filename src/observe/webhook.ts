/**
 * One POST of JSON with a deadline, signed if there is a secret. The address may be a secret itself (a chat tool's
 * webhook), so no error repeats it. Redirects are rejected: a signed message is for the configured address only.
 */

import { createHmac } from 'node:crypto';
import { type Clock, Deadline } from '../clock.js';
import { ConfigError } from '../errors.js';
import { userAgent } from '../version.js';

export class DeliveryError extends Error {
  override readonly name = 'DeliveryError';

  constructor(
    message: string,
    /** False: the receiver will never accept the message. */
    readonly isTemporary: boolean,
    readonly retryAfterMs = 0,
  ) {
    super(message);
  }
}

export interface PostOptions {
  url: URL;
  body: object;
  secret?: string | undefined;
  clock: Clock;
  signal?: AbortSignal | undefined;
}

const timeoutMs = 10_000;
const maxRetryAfterMs = 300_000;

export async function post({ url, body, secret, clock, signal }: PostOptions): Promise<void> {
  const late = () => new DeliveryError(`no response within ${timeoutMs} ms`, true);
  const deadline = new Deadline(clock, timeoutMs, late, signal);
  const text = JSON.stringify(body);
  try {
    const response = await fetch(url, {
      method: 'POST',
      body: text,
      headers: {
        'content-type': 'application/json',
        'user-agent': userAgent,
        ...(secret && { 'smart-router-signature': signature(secret, text, clock.now()) }),
      },
      redirect: 'manual',
      signal: deadline.signal,
    });
    await response.body?.cancel();
    if (!response.ok) throw errorOf(response);
  } catch (error) {
    if (error instanceof DeliveryError) throw error;
    throw new DeliveryError(causeOf(error), true);
  } finally {
    deadline.end();
  }
}

function errorOf({ status, headers }: Response): DeliveryError {
  const isTemporary = status >= 500 || [408, 425, 429].includes(status);
  const seconds = Number(headers.get('retry-after') ?? 0);
  const retryAfterMs = Number.isFinite(seconds) ? Math.min(1000 * Math.max(0, seconds), maxRetryAfterMs) : 0;
  return new DeliveryError(`response status ${status}`, isTemporary, retryAfterMs);
}

/** The code of the socket error: the messages of fetch may contain the address. */
function causeOf(error: unknown): string {
  const { cause } = error as { cause?: { code?: unknown } };
  return typeof cause?.code === 'string' ? cause.code : 'connection failed';
}

/** `t=<seconds>,v1=<hex>`: HMAC-SHA256 of `<seconds>.<body>`. With the time a receiver can reject old messages. */
function signature(secret: string, body: string, nowMs: number): string {
  const seconds = Math.floor(nowMs / 1000);
  return `t=${seconds},v1=${createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex')}`;
}

/** The error does not repeat the address. */
export function parseAddress(text: string, name: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url && (url.protocol === 'https:' || url.protocol === 'http:') && url.username === '') return url;
  throw new ConfigError([`${name} must be an http or https address, without a user in it`]);
}
