/**
 * Reading again and again, one read at a time. Whoever asks for another while one runs, or right after it, gets one
 * more when its time has come: however often it is asked, the router hears of it once.
 */
export interface Rest {
  /** No read sooner than this after the last, whoever asks. */
  leastMs: number;
  /** Unasked after this; 0: only when asked. */
  mostMs: number;
}

export interface Repeating {
  again(): void;
  stop(): void;
}

/** Reads at once. `read` must not reject: its answer says how long to rest. */
export function repeat(read: () => Promise<Rest>): Repeating {
  let isBusy = false;
  let isWanted = false;
  let isOver = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const run = async () => {
    clearTimeout(timer);
    isBusy = true;
    isWanted = false;
    const { leastMs, mostMs } = await read();
    if (isOver) return;
    timer = setTimeout(() => {
      isBusy = false;
      if (isWanted) void run();
      else if (mostMs > 0) timer = setTimeout(() => void run(), Math.max(0, mostMs - leastMs));
    }, leastMs);
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
