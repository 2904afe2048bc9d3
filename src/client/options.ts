import { type Clock, systemClock } from '../clock.js';
import type { BreakerSettings, BreakerState } from './breaker.js';
import {
  type ApiError,
  InvalidArgumentError,
  type LostReason,
  type RouterUnavailableError,
} from './errors.js';
import type { Report } from './wire.js';

/** An event of the client, for logs and metrics. Carries call SIDs and pod names, never the key. */
export type ClientEvent =
  /** An attempt failed and another one follows after `delayMs`. */
  | {
      type: 'retry';
      operation: string;
      attempt: number;
      delayMs: number;
      error: RouterUnavailableError | ApiError;
    }
  | { type: 'breaker'; from: BreakerState; to: BreakerState }
  /** `allocate` returned the fallback URL because the router is down. */
  | { type: 'fallback'; callSid: string; error: RouterUnavailableError }
  | { type: 'renewed'; callSid: string; leaseExpiresAt: Date }
  /** A background renew failed and is retried after `retryInMs`. */
  | { type: 'renew_failed'; callSid: string; error: unknown; retryInMs: number }
  | { type: 'lost'; callSid: string; reason: LostReason }
  | { type: 'reported'; pod: string; report: Report }
  /** A background report failed and is retried after `retryInMs`. */
  | { type: 'report_failed'; pod: string; error: unknown; retryInMs: number }
  /** A callback of the application threw; the client ignored it. */
  | { type: 'callback_failed'; callback: string; error: unknown };

export interface BackoffSettings {
  /** The first delay is uniform in [0, baseMs), the next in [0, 2 baseMs), and so on. */
  baseMs: number;
  /** Maximum of a random delay. */
  maxMs: number;
  /** Maximum of a `Retry-After`: a phone is ringing. */
  retryAfterMaxMs: number;
}

/** The call to allocate a pod for; its SID is the idempotency key. */
export interface AllocateRequest {
  callSid: string;
  merchantId?: string | undefined;
  /** The router's default is `twilio`. */
  provider?: string | undefined;
  /** The router's default is `v2`. */
  flow?: string | undefined;
  template?: string | undefined;
}

/**
 * The part of `fetch` that the client uses. The types of `fetch` differ between Node, browsers and versions of undici; this
 * one fits them all.
 */
export type Fetch = (
  url: string,
  init: {
    method: 'GET' | 'POST';
    headers: Record<string, string>;
    body?: string;
    redirect: 'manual';
    signal: AbortSignal;
  },
) => Promise<{
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  /** An async iterable of bytes; some types of `fetch` do not say so. */
  readonly body: object | null;
}>;

/** Like Partial, but an explicit undefined is the default too, as everywhere in the options. */
type Some<T> = { [Name in keyof T]?: T[Name] | undefined };

/** Options of `createClient`. Unknown keys are rejected. */
export interface ClientOptions {
  /** URL of the router, for example `http://smart-router:8080`; a path prefix before `/api/v1` is kept. */
  baseUrl: string;
  /** Sent as `Authorization: Bearer`. Never logged, never part of an error. */
  apiKey?: string | undefined;
  /** Deadline of one attempt, from connecting to the last byte of the response. Default 2000. */
  timeoutMs?: number | undefined;
  /** Attempts after the first one. Default 3. */
  retries?: number | undefined;
  /** Default `{ baseMs: 100, maxMs: 1000, retryAfterMaxMs: 2000 }`. */
  backoff?: Some<BackoffSettings> | undefined;
  /** Default `{ failures: 5, openMs: 30000, trials: 3 }`. */
  breaker?: Some<BreakerSettings> | undefined;
  /** URL for calls while the router is down; without it `allocate` throws `RouterUnavailableError`. */
  fallbackUrl?: string | ((request: AllocateRequest) => string) | undefined;
  /** Time, timers and randomness, for tests. */
  clock?: Clock | undefined;
  /** Another `fetch`, for example one bound to a dispatcher. It must honour `signal`. */
  fetch?: Fetch | undefined;
  /** Called for retries, breaker changes, fallbacks, renewals, lost calls and reports. */
  onEvent?: ((event: ClientEvent) => void) | undefined;
}

/**
 * The defaults. Together they bound an operation: 4 attempts of 2 s, and between them at most 3 x 2 s of
 * Retry-After plus 0.1 + 0.2 + 0.4 s of jitter, 14.7 s in all; Twilio drops a webhook after 15 s.
 */
export const defaults = {
  timeoutMs: 2000,
  retries: 3,
  backoff: { baseMs: 100, maxMs: 1000, retryAfterMaxMs: 2000 },
  breaker: { failures: 5, openMs: 30_000, trials: 3 },
} as const;

/** One day. Timers overflow at 2^31 ms. */
export const maxDurationMs = 24 * 60 * 60 * 1000;

/** The options with their defaults. */
export type Settings = {
  [Name in keyof ClientOptions]-?: Name extends 'apiKey' | 'fallbackUrl' | 'onEvent'
    ? ClientOptions[Name]
    : NonNullable<ClientOptions[Name]>;
} & { backoff: BackoffSettings; breaker: BreakerSettings };

function rejectUnknown(what: string, given: object, known: object): void {
  for (const key of Object.keys(given)) {
    if (!Object.hasOwn(known, key)) {
      throw new InvalidArgumentError(
        `${what} has no option "${key}". Use one of: ${Object.keys(known).join(', ')}.`,
      );
    }
  }
}

/** `value`, or `fallback` if it is undefined; rejects anything but an integer within the bounds. */
export function integer(
  name: string,
  value: number | undefined,
  fallback: number,
  min: number,
  max: number,
): number {
  const number = value ?? fallback;
  if (!Number.isInteger(number) || number < min || number > max) {
    throw new InvalidArgumentError(
      `${name} must be an integer from ${min} to ${max}, not ${String(number)}.`,
    );
  }
  return number;
}

// Messages below never quote the value: a URL may hold a password, and a malformed key is still a key.
function checkBaseUrl(text: unknown): string {
  const example = 'for example "http://smart-router:8080"';
  if (typeof text !== 'string' || !URL.canParse(text)) {
    throw new InvalidArgumentError(`baseUrl must be an absolute URL, ${example}.`);
  }
  const url = new URL(text);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new InvalidArgumentError(`baseUrl must start with http:// or https://, ${example}.`);
  }
  if (url.username || url.password || url.search || url.hash) {
    throw new InvalidArgumentError(`baseUrl must have no user, password, query or fragment, ${example}.`);
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
}

function checkApiKey(key: unknown): string | undefined {
  if (key === undefined) return undefined;
  // fetch rejects other characters, too, but with a message that quotes the whole header.
  if (typeof key !== 'string' || !/^[\x21-\x7e]+$/.test(key)) {
    throw new InvalidArgumentError('apiKey must be printable ASCII without spaces or line breaks.');
  }
  return key;
}

function checkFallbackUrl(fallback: ClientOptions['fallbackUrl']): ClientOptions['fallbackUrl'] {
  if (fallback === undefined || typeof fallback === 'function') return fallback;
  if (typeof fallback === 'string' && URL.canParse(fallback)) return fallback;
  throw new InvalidArgumentError(
    'fallbackUrl must be an absolute URL, for example "wss://agents.example.com/ws", or a function that returns one.',
  );
}

/** Checks every option and applies the defaults. */
export function resolveOptions(options: ClientOptions): Settings {
  const { backoff = {}, breaker = {} } = options;
  rejectUnknown('backoff', backoff, defaults.backoff);
  rejectUnknown('breaker', breaker, defaults.breaker);
  const duration = (name: string, value: number | undefined, fallback: number, min = 1) =>
    integer(name, value, fallback, min, maxDurationMs);
  const delay = (name: keyof BackoffSettings) =>
    duration(`backoff.${name}`, backoff[name], defaults.backoff[name], 0);
  const count = (name: 'failures' | 'trials') =>
    integer(`breaker.${name}`, breaker[name], defaults.breaker[name], 1, 1000);
  const settings: Settings = {
    baseUrl: checkBaseUrl(options.baseUrl),
    apiKey: checkApiKey(options.apiKey),
    timeoutMs: duration('timeoutMs', options.timeoutMs, defaults.timeoutMs),
    retries: integer('retries', options.retries, defaults.retries, 0, 100),
    backoff: {
      baseMs: delay('baseMs'),
      maxMs: delay('maxMs'),
      retryAfterMaxMs: delay('retryAfterMaxMs'),
    },
    breaker: {
      failures: count('failures'),
      openMs: duration('breaker.openMs', breaker.openMs, defaults.breaker.openMs),
      trials: count('trials'),
    },
    fallbackUrl: checkFallbackUrl(options.fallbackUrl),
    clock: options.clock ?? systemClock,
    // Looked up per request, so that a fetch instrumented after createClient (tracing) is used.
    fetch: options.fetch ?? ((url, init) => globalThis.fetch(url, init)),
    onEvent: options.onEvent,
  };
  rejectUnknown('createClient', options, settings);
  return settings;
}
