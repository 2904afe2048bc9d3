/** Commands that run until a signal: Ctrl-C, SIGTERM and a closed terminal end them normally. */
import { stopSignals, systemClock, unlessAborted } from '../clock.js';

interface UntilSignal {
  /** Its reason is the name of the signal. */
  readonly signal: AbortSignal;
  /** Ends the wait as a signal does. */
  abort(): void;
  /** Removes the signal handlers. */
  release(): void;
}

/** `onSecond` ends the process at once: a second signal does not wait for a request in flight. */
export function untilSignal(onSecond: () => void = () => process.exit(130)): UntilSignal {
  const stop = new AbortController();
  const end = (name: NodeJS.Signals) => (stop.signal.aborted ? onSecond() : stop.abort(name));
  for (const name of stopSignals) process.on(name, end);
  return {
    signal: stop.signal,
    abort: () => stop.abort(),
    release: () => {
      for (const name of stopSignals) process.off(name, end);
    },
  };
}

export const untilAborted = (signal: AbortSignal) => unlessAborted(new Promise(() => {}), signal);

const exitDelayMs = 500;

/** Everything has stopped: an open input or a connection that does not close must not keep the process alive. */
export function exitSoon(): void {
  systemClock.after(exitDelayMs, () => process.exit(), { unref: true });
}
