/**
 * `smart-router demo`: routers, a simulated cluster and its callers, to look at and to do harm to. Ends with Ctrl-C,
 * `q`, or the word `quit`.
 *
 * `DEMO_SPEED` (a number from 0.1 to 20, default 1) is for tests: 10 plays a minute in six seconds.
 */
import { systemClock } from '../clock.js';
import { startDemo } from '../demo/demo.js';
import { speedOf } from '../demo/setup.js';
import { readKeys, readLines } from '../terminal/keys.js';
import { isTerminal, paintFor } from '../terminal/text.js';

export interface DemoCommandOptions {
  /** Where to listen; the next free port if it is taken. Default: HTTP_PORT or 8080. */
  port?: number;
  /** The same seed makes the same choices. */
  seed?: number;
  /** Ends by itself after this time. */
  seconds?: number;
  /** Only the banner and the summary. */
  quiet?: boolean;
  /** Nothing but one line of JSON with the address, when it answers. */
  headless?: boolean;
  /** Lines instead of a picture, on a terminal too. */
  plain?: boolean;
  /** False: nothing happens by itself but calls. */
  story?: boolean;
}

const lingerMs = 500;
const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** Resolves to the exit code: 0 after a clean stop. A second signal ends it at once. */
export async function demo(env: NodeJS.ProcessEnv, options: DemoCommandOptions = {}): Promise<number> {
  const { seconds, plain = false, ...given } = options;
  const { stdin, stdout } = process;
  const speed = speedOf(env);
  const isPicture = isTerminal(stdout, env) && !plain;
  const stop = new AbortController();
  const quit = () => {
    if (stop.signal.aborted) process.exit(1);
    stop.abort();
  };
  // `smart-router demo | head` closes our output: nobody is watching any more.
  const onOutputError = () => stop.abort();
  for (const name of signals) process.on(name, quit);
  // A program that has started us with a channel, and is gone, will not stop us any more.
  if (given.headless) process.once('disconnect', () => stop.abort());
  stdout.on('error', onOutputError);
  let restoreInput = () => {};
  try {
    const starting = startDemo({
      ...given,
      env,
      speed,
      out: stdout,
      paint: paintFor(stdout, env),
      isPicture,
      onQuit: quit,
      signal: stop.signal,
    });
    // Ctrl-C works at once; what else comes before the start is over is done afterwards.
    const command = (text: string) =>
      void starting.then(
        (running) => running.command(text),
        () => {},
      );
    if (stdin.isTTY && isPicture && !given.quiet && !given.headless)
      restoreInput = readKeys(stdin, systemClock, (key) =>
        key === 'interrupt' ? quit() : command(key.toLowerCase()),
      );
    else restoreInput = readLines(stdin, command);
    const running = await starting;
    if (seconds === undefined) await untilAborted(stop.signal);
    else await systemClock.sleep(seconds * 1000, stop.signal);
    await running.stop();
    return 0;
  } finally {
    restoreInput();
    for (const name of signals) process.off(name, quit);
    // All is stopped by now: an open input or a connection that is slow to close keeps nobody from the prompt.
    systemClock.after(lingerMs, () => process.exit(), { unref: true });
  }
}

function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
