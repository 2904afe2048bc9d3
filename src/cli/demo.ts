/**
 * `smart-router demo`: a router with simulated agents and callers, to look at. Ends with Ctrl-C.
 *
 * `DEMO_SPEED` (a number from 0.1 to 20, default 1) is for tests: 10 plays a minute in six seconds.
 */
import { systemClock } from '../clock.js';
import { startDemo } from '../demo/demo.js';
import { ConfigError } from '../errors.js';

export interface DemoCommandOptions {
  /** Where to listen; the next free port if it is taken. Default: HTTP_PORT or 8080. */
  port?: number;
  /** The same seed makes the same choices. */
  seed?: number;
  /** Ends by itself after this time. */
  seconds?: number;
  /** Only the banner and the summary. */
  quiet?: boolean;
}

const lingerMs = 500;

/** Resolves to the exit code: 0 after a clean stop. A second signal ends it at once. */
export async function demo(env: NodeJS.ProcessEnv, options: DemoCommandOptions = {}): Promise<number> {
  const { seconds, ...given } = options;
  const speed = speedOf(env);
  const stop = new AbortController();
  const onSignal = () => {
    if (stop.signal.aborted) process.exit(1);
    stop.abort();
  };
  // `smart-router demo | head` closes our output: nobody is watching any more.
  const onOutputError = () => stop.abort();
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, onSignal);
  process.stdout.on('error', onOutputError);
  try {
    const running = await startDemo({
      ...given,
      env,
      speed,
      write: (text) => process.stdout.write(text),
      colours: process.stdout.isTTY === true && !env.NO_COLOR,
    });
    if (seconds === undefined) await untilAborted(stop.signal);
    else await systemClock.sleep(seconds * 1000, stop.signal);
    await running.stop();
    return 0;
  } finally {
    for (const name of ['SIGINT', 'SIGTERM'] as const) process.off(name, onSignal);
    // All is stopped by now: a connection that is slow to close must not keep anybody from the prompt.
    if (stop.signal.aborted) systemClock.after(lingerMs, () => process.exit());
  }
}

function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

function speedOf(env: NodeJS.ProcessEnv): number {
  const text = env.DEMO_SPEED?.trim() || '1';
  const speed = Number(text);
  if (speed >= 0.1 && speed <= 20) return speed;
  throw new ConfigError([`DEMO_SPEED must be a number from 0.1 to 20, got ${JSON.stringify(text)}`]);
}
