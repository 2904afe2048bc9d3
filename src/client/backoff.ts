import type { Clock } from '../clock.js';

export interface BackoffSettings {
  /** The first delay is uniform in [0, baseMs), the next in [0, 2 baseMs), and so on. */
  baseMs: number;
  /** No drawn delay is longer. */
  maxMs: number;
  /** A `Retry-After` is obeyed up to this; a phone is ringing meanwhile. */
  retryAfterMaxMs: number;
}

/** Full jitter: uniform in [0, min(maxMs, baseMs * 2^failures)), so that clients never come back in step. */
export function fullJitterMs(clock: Clock, baseMs: number, maxMs: number, failures: number): number {
  return clock.random() * Math.min(maxMs, baseMs * 2 ** Math.min(failures, 30));
}

/** The delay before the next attempt: the server's wish (bounded) plus jitter, or jitter alone. */
export function retryDelayMs(
  clock: Clock,
  settings: BackoffSettings,
  failures: number,
  retryAfterMs: number | null,
): number {
  const jitterMs = fullJitterMs(clock, settings.baseMs, settings.maxMs, failures);
  return Math.min(retryAfterMs ?? 0, settings.retryAfterMaxMs) + jitterMs;
}

/** `Retry-After` is seconds or an HTTP date; anything else counts as absent. */
export function parseRetryAfterMs(header: string | null, nowMs: number): number | null {
  if (header === null) return null;
  const text = header.trim();
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1000;
  // A date has letters in it; without this check Date.parse would accept "-5" as a year.
  const at = /[A-Za-z]{3}/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(at) ? null : Math.max(0, at - nowMs);
}

/** A period of background work, up to a fifth earlier: never later, so that a third of a lease stays one. */
export function jitteredPeriodMs(clock: Clock, periodMs: number): number {
  return periodMs * (0.8 + 0.2 * clock.random());
}
