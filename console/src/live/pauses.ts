/** The pause after a read. */

const intervalMs = 5000;
/** Shorter after a failure, so that the page recovers soon after the router. */
const retryMs = 1000;
const longestMs = 60_000;
/** Slow reads are expensive for the router: reads take at most a fifth of the time. */
const restPerRead = 4;
/** For a failed read. After the timeout of five seconds it is the second above. */
const restPerFailure = 0.2;

export interface LastRead {
  tookMs: number;
  hasFailed: boolean;
  /** From Retry-After; 0: none. */
  retryAfterMs: number;
}

export function pauseAfter({ tookMs, hasFailed, retryAfterMs }: LastRead): number {
  const pauseMs = hasFailed
    ? Math.max(retryMs, tookMs * restPerFailure, retryAfterMs)
    : Math.max(intervalMs, tookMs * restPerRead);
  return Math.min(pauseMs, longestMs);
}
