import type { Clock } from '../clock.js';

const retryBaseMs = 1000;

/** Full jitter: uniform in [0, min(maxMs, baseMs * 2^failures)), so that clients do not retry in step. */
export function fullJitterMs(clock: Clock, baseMs: number, maxMs: number, failures: number): number {
  return clock.random() * Math.min(maxMs, baseMs * 2 ** Math.min(failures, 30));
}

export interface LoopOptions {
  clock: Clock;
  /** Whether the first turn runs at once; else after a period. */
  startsNow: boolean;
  runOnce(signal: AbortSignal): Promise<unknown>;
  /** Time to the next turn. Each turn is up to a fifth earlier, never later: a third of a lease stays one. */
  periodMs(): number;
  /** A failed turn is retried after 1, 2, 4 ... s with full jitter, at most after this. */
  retryMaxMs: number;
  onFailure(error: unknown, retryInMs: number): void;
}

export interface Loop {
  /** The next turn runs now, or right after the current one. */
  wake(): void;
  /** Cancels the next turn and aborts a running one. */
  stop(): void;
}

/** Repeats `runOnce` until `stop()`. Turns never overlap, and the timer does not keep the process alive. */
export function startLoop(options: LoopOptions): Loop {
  const { clock, startsNow, runOnce, periodMs, retryMaxMs, onFailure } = options;
  const controller = new AbortController();
  const { signal } = controller;
  let failures = 0;
  let cancel = () => {};
  let isRunning = false;
  let isWoken = false;
  const schedule = (delayMs: number) => {
    cancel = clock.after(delayMs, () => void turn(), { unref: true });
  };
  const nextPeriodMs = () => periodMs() * (0.8 + 0.2 * clock.random());
  const turn = async () => {
    isRunning = true;
    isWoken = false;
    try {
      await runOnce(signal);
      failures = 0;
      isRunning = false;
      if (!signal.aborted) schedule(isWoken ? 0 : nextPeriodMs());
    } catch (error) {
      isRunning = false;
      if (signal.aborted) return;
      const retryInMs = fullJitterMs(clock, retryBaseMs, retryMaxMs, failures++);
      onFailure(error, retryInMs);
      schedule(retryInMs);
    }
  };
  schedule(startsNow ? 0 : nextPeriodMs());
  return {
    wake() {
      isWoken = true;
      if (isRunning || signal.aborted) return;
      cancel();
      schedule(0);
    },
    stop() {
      cancel();
      controller.abort();
    },
  };
}
