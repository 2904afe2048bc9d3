/** How long to leave the router alone after a read. */

const everyMs = 5000;
/** While it fails, it is tried sooner: the page should be true again the moment the router is. */
const retryMs = 1000;
const longestMs = 60_000;
/** A read that takes long costs the router much: it reads for us a fifth of the time at most. */
const restPerRead = 4;
/** Of a failed one. After the five seconds that one page may take it is the second above. */
const restPerFailure = 0.2;

export interface LastRead {
  tookMs: number;
  hasFailed: boolean;
  /** What the router asked for; 0: nothing. */
  retryAfterMs: number;
}

export function pauseAfter({ tookMs, hasFailed, retryAfterMs }: LastRead): number {
  const pauseMs = hasFailed
    ? Math.max(retryMs, tookMs * restPerFailure, retryAfterMs)
    : Math.max(everyMs, tookMs * restPerRead);
  return Math.min(pauseMs, longestMs);
}
