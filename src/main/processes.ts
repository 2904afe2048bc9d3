/** Processes of a router: their memory, their entry files, and the end of a child. */
import type { ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import type { Clock } from '../clock.js';

/**
 * Limits the memory and the pauses of garbage collection (docs/decisions: memory-of-the-leader, overload).
 *
 * The heap grows to 1.3 times what was live after the last collection. On a machine with much memory V8 allows up to four
 * times: a leader with 5,000 pods then took up to 250 MB, of which 35 MB were live; with this limit under 170 MB.
 *
 * New objects do not start in the old space. By default V8 puts them there when earlier objects of the same line of code have
 * survived, as they do in the first reconcile and in an overload. The garbage of later requests then needs full collections: up
 * to 23 in 14 s instead of 2.
 *
 * The main thread collects young objects alone, in 1.5 to 4 ms. With helper threads it waited up to 50 ms for those without a
 * core.
 */
export function limitGarbage(): void {
  setFlagsFromString('--heap-growing-percent=30');
  setFlagsFromString('--no-allocation-site-pretenuring');
  setFlagsFromString('--no-parallel-scavenge');
}

/** From `dist`, also when the router runs from the sources: Node cannot run TypeScript. */
export const entryOf = (name: string) =>
  fileURLToPath(new URL(`../../dist/main/${name}.js`, import.meta.url));

/** For what a worker does after its connections have ended. */
export const stopMarginMs = 5000;

/** How a child is stopped when the signal aborts. */
export interface Ending {
  signal: AbortSignal;
  clock: Clock;
  /** Asks it to end. */
  stop(): void;
  /** After this it is killed. */
  timeoutMs: number;
  onKill?(): void;
}

/** Resolves to the exit code or signal, or to why it could not start. */
export function exitOf(
  child: ChildProcess,
  { signal, clock, stop, timeoutMs, onKill }: Ending,
): Promise<string> {
  let cancelKill = () => {};
  const onAbort = () => {
    stop();
    cancelKill = clock.after(timeoutMs, () => {
      onKill?.();
      child.kill('SIGKILL');
    });
  };
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  return new Promise<string>((resolve) => {
    child.once('exit', (code, killedBy) => resolve(killedBy ?? `code ${code}`));
    // Also emitted for a signal that could not be sent.
    child.on('error', (error) => {
      if (child.pid === undefined) resolve(error.message);
    });
  }).finally(() => {
    signal.removeEventListener('abort', onAbort);
    cancelKill();
  });
}
