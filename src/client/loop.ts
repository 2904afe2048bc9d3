import type { Clock } from '../clock.js';

/** Background work that repeats until told otherwise. */
export interface Loop {
  /** Cancels the next turn and aborts a running one. */
  stop(): void;
}

/**
 * Runs `runOnce` after `firstDelayMs`, then again after as many milliseconds as it returned; null ends the
 * loop. Turns never overlap. Its timer does not keep the process alive.
 * `runOnce` must not reject: it decides itself what a failure means.
 */
export function startLoop(
  clock: Clock,
  firstDelayMs: number,
  runOnce: (signal: AbortSignal) => Promise<number | null>,
): Loop {
  const controller = new AbortController();
  let cancel = () => {};
  const schedule = (delayMs: number) => {
    cancel = clock.after(delayMs, () => void turn(), { unref: true });
  };
  const turn = async () => {
    const nextMs = await runOnce(controller.signal);
    if (nextMs !== null && !controller.signal.aborted) schedule(nextMs);
  };
  schedule(firstDelayMs);
  return {
    stop() {
      cancel();
      controller.abort();
    },
  };
}
