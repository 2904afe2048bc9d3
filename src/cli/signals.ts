/** Commands that run until they are told to stop: Ctrl-C, SIGTERM and a closed terminal are the usual end of them. */
import { exitCodes } from './exit-codes.js';

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export interface UntilSignal {
  readonly signal: AbortSignal;
  /** From now on a signal ends the process as it would without us. */
  release(): void;
}

export function untilSignal(): UntilSignal {
  const stop = new AbortController();
  const end = () => {
    // Whoever asks twice does not want to wait for an answer that is still under way.
    if (stop.signal.aborted) process.exit(exitCodes.interrupted);
    stop.abort();
  };
  for (const name of signals) process.on(name, end);
  return {
    signal: stop.signal,
    release: () => {
      for (const name of signals) process.off(name, end);
    },
  };
}

/** For work that cannot be interrupted itself: what it still gives is of no interest then. */
export async function unlessAborted(signal: AbortSignal, work: Promise<void>): Promise<void> {
  // It may fail after nobody waits for it any more.
  work.catch(() => undefined);
  const aborted = new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
  await Promise.race([work, aborted]);
}
