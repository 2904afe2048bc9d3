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
  stop(): void;
}

/** Reads at once. `read` must not reject; it returns the pause. */
export function repeat(read: () => Promise<Rest>): RepeatedRead {
  let isBusy = false;
  let isWanted = false;
  let isOver = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const run = async () => {
    clearTimeout(timer);
    isBusy = true;
    isWanted = false;
    const { minMs, maxMs } = await read();
    if (isOver) return;
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
      else if (!isOver) void run();
    },
    stop() {
      isOver = true;
      clearTimeout(timer);
    },
  };
}
