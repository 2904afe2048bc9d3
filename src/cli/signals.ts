/** Commands that run until a signal: Ctrl-C, SIGTERM and a closed terminal end them normally. */
import { stopSignals } from '../abort.js';
import { exitCodes } from './failure.js';

export interface UntilSignal {
  readonly signal: AbortSignal;
  /** Removes the signal handlers. */
  release(): void;
}

export function untilSignal(): UntilSignal {
  const stop = new AbortController();
  const end = () => {
    // A second signal does not wait for a request in flight.
    if (stop.signal.aborted) process.exit(exitCodes.interrupted);
    stop.abort();
  };
  for (const name of stopSignals) process.on(name, end);
  return {
    signal: stop.signal,
    release: () => {
      for (const name of stopSignals) process.off(name, end);
    },
  };
}

export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Waits for `work` or the signal; the result of `work` after an abort is ignored. */
export async function unlessAborted(signal: AbortSignal, work: Promise<void>): Promise<void> {
  work.catch(() => undefined);
  await Promise.race([work, untilAborted(signal)]);
}
