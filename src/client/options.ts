import { type Clock, systemClock } from '../clock.js';
import type { BackoffSettings } from './backoff.js';
import type { BreakerSettings } from './breaker.js';
import { InvalidArgumentError } from './errors.js';
import type { ClientEvent } from './events.js';

/** What to allocate: the call's SID is the idempotency key. */
export interface AllocateRequest {
  callSid: string;
  merchantId?: string | undefined;
  /** The router's default is `twilio`. */
  provider?: string | undefined;
  /** The router's default is `v2`. */
  flow?: string | undefined;
  template?: string | undefined;
}

/** Options of `createClient`. Unknown keys are refused. */
export interface ClientOptions {
  /** Where the router is, for example `http://smart-router:8080`; a path prefix before `/api/v1` is kept. */
  baseUrl: string;
  /** Sent as `Authorization: Bearer`. Never logged, never part of an error. */
  apiKey?: string | undefined;
  /** For one attempt, from connecting to the last byte of the answer. Default 2000. */
  timeoutMs?: number | undefined;
  /** Attempts after the first one. Default 3. */
  retries?: number | undefined;
  /** Default `{ baseMs: 100, maxMs: 1000, retryAfterMaxMs: 2000 }`. */
  backoff?: Partial<BackoffSettings> | undefined;
  /** Default `{ failures: 5, openMs: 30000, trials: 3 }`. */
  breaker?: Partial<BreakerSettings> | undefined;
  /** Where calls go while the router is down; without it `allocate` throws `RouterUnavailableError`. */
  fallbackUrl?: string | ((request: AllocateRequest) => string) | undefined;
  /** Time, timers and randomness; tests bring their own. */
  clock?: Clock | undefined;
  /** Another `fetch`, for example one bound to a dispatcher. It must honour `signal`. */
  fetch?: typeof globalThis.fetch | undefined;
  /** Told of retries, breaker changes, fallbacks, renewals, lost calls and reports. */
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

/** Timers overflow at 2^31 ms; nothing here sensibly waits longer than a day. */
export const maxDurationMs = 24 * 60 * 60 * 1000;

export interface Settings {
  baseUrl: string;
  apiKey: string | undefined;
  timeoutMs: number;
  retries: number;
  backoff: BackoffSettings;
  breaker: BreakerSettings;
  fallbackUrl: ClientOptions['fallbackUrl'];
  clock: Clock;
  fetch: typeof globalThis.fetch;
  onEvent: ClientOptions['onEvent'];
}

const optionNames: Record<keyof ClientOptions, true> = {
  baseUrl: true,
  apiKey: true,
  timeoutMs: true,
  retries: true,
  backoff: true,
  breaker: true,
  fallbackUrl: true,
  clock: true,
  fetch: true,
  onEvent: true,
};

function refuseUnknown(what: string, given: object, known: object): void {
  for (const key of Object.keys(given)) {
    if (!Object.hasOwn(known, key)) {
      throw new InvalidArgumentError(
        `${what} has no option "${key}". Known are: ${Object.keys(known).join(', ')}.`,
      );
    }
  }
}

/** `value`, or `fallback` where it is undefined; refuses anything but an integer within the bounds. */
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

// Messages below never repeat the value: a URL may hold a password, and a malformed key is still a key.
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
  // fetch would refuse other characters too, but with a message that quotes the whole header.
  if (typeof key !== 'string' || !/^[\x21-\x7e]+$/.test(key)) {
    throw new InvalidArgumentError('apiKey must be printable ASCII without spaces or line breaks.');
  }
  return key;
}

function checkFallbackUrl(fallback: ClientOptions['fallbackUrl']): ClientOptions['fallbackUrl'] {
  if (fallback === undefined || typeof fallback === 'function') return fallback;
  if (typeof fallback === 'string' && URL.canParse(fallback)) return fallback;
  throw new InvalidArgumentError(
    'fallbackUrl must be an absolute URL, for example "wss://agents.example.com/ws", or a function that gives one.',
  );
}

/** Checks every option and fills in the defaults. */
export function resolveOptions(options: ClientOptions): Settings {
  refuseUnknown('createClient', options, optionNames);
  const backoff = options.backoff ?? {};
  const breaker = options.breaker ?? {};
  refuseUnknown('backoff', backoff, defaults.backoff);
  refuseUnknown('breaker', breaker, defaults.breaker);
  const duration = (name: string, value: number | undefined, fallback: number, min = 1) =>
    integer(name, value, fallback, min, maxDurationMs);
  return {
    baseUrl: checkBaseUrl(options.baseUrl),
    apiKey: checkApiKey(options.apiKey),
    timeoutMs: duration('timeoutMs', options.timeoutMs, defaults.timeoutMs),
    retries: integer('retries', options.retries, defaults.retries, 0, 100),
    backoff: {
      baseMs: duration('backoff.baseMs', backoff.baseMs, defaults.backoff.baseMs, 0),
      maxMs: duration('backoff.maxMs', backoff.maxMs, defaults.backoff.maxMs, 0),
      retryAfterMaxMs: duration(
        'backoff.retryAfterMaxMs',
        backoff.retryAfterMaxMs,
        defaults.backoff.retryAfterMaxMs,
        0,
      ),
    },
    breaker: {
      failures: integer('breaker.failures', breaker.failures, defaults.breaker.failures, 1, 1000),
      openMs: duration('breaker.openMs', breaker.openMs, defaults.breaker.openMs),
      trials: integer('breaker.trials', breaker.trials, defaults.breaker.trials, 1, 1000),
    },
    fallbackUrl: checkFallbackUrl(options.fallbackUrl),
    clock: options.clock ?? systemClock,
    // Looked up per request, so that a fetch instrumented after createClient (tracing) is used.
    fetch: options.fetch ?? ((input, init) => globalThis.fetch(input, init)),
    onEvent: options.onEvent,
  };
}
