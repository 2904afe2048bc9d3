/**
 * Repeats a read, one at a time. Requests for another read while one runs, or right after it, are combined into one more
 * read.
 */
export interface Rest {
  /** The minimum pause, also before a requested read. */
  minMs: number;
  /** The next read without a request; 0: none. */
  maxMs: number;
}

export interface RepeatedRead {
  again(): void;
  /** Cancels a running read and reads at once. */
  restart(): void;
  stop(): void;
}

/** Reads at once. `read` must not reject; it returns the pause. Its signal aborts when its result is no longer wanted. */
export function repeat(read: (signal: AbortSignal) => Promise<Rest>): RepeatedRead {
  let isBusy = false;
  let isWanted = false;
  let current = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const run = async () => {
    clearTimeout(timer);
    isBusy = true;
    isWanted = false;
    const { signal } = current;
    const { minMs, maxMs } = await read(signal);
    if (signal.aborted) return;
    timer = setTimeout(() => {
      isBusy = false;
      if (isWanted) void run();
      else if (maxMs > 0) timer = setTimeout(() => void run(), Math.max(0, maxMs - minMs));
    }, minMs);
  };
  void run();
  return {
    again() {
      if (isBusy) isWanted = true;
      else void run();
    },
    restart() {
      current.abort();
      current = new AbortController();
      void run();
    },
    stop() {
      current.abort();
      clearTimeout(timer);
      isBusy = true;
    },
  };
}

const intervalMs = 5000;
/** Shorter after a failure, so that the page recovers soon after the router. */
const retryMs = 1000;
const maxMs = 60_000;
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

/** The pause after a read of the state. */
export function pauseAfter({ tookMs, hasFailed, retryAfterMs }: LastRead): number {
  const pauseMs = hasFailed
    ? Math.max(retryMs, tookMs * restPerFailure, retryAfterMs)
    : Math.max(intervalMs, tookMs * restPerRead);
  return Math.min(pauseMs, maxMs);
}
