/**
 * `smart-router demo`: three routers and a simulated cluster. Ends with Ctrl-C, `q`, or the word `quit`.
 *
 * `DEMO_SPEED` (0.1 to 20, default 1) is for tests: 10 plays a minute in six seconds.
 */
import type { Command } from 'commander';
import { stopSignals } from '../../abort.js';
import { systemClock } from '../../clock.js';
import { readKeys, readLines } from '../../terminal/keys.js';
import { isTerminal, paintFor } from '../../terminal/text.js';
import { type Cli, describe, wholeNumber } from '../cli.js';
import { untilAborted } from '../signals.js';

export function demo(parent: Command, cli: Cli): void {
  const command = describe(parent.command('demo'), {
    summary: 'run three routers with a simulated cluster, to watch and to break',
    about:
      'Needs no Redis, PostgreSQL, Kubernetes or telephony, and stops everything it started. On a terminal it reads single keys (? shows help), elsewhere one word per line: kill-leader, stop-leader, roll, crash, delete, drain, lose-redis, pause-redis, kill-worker, api, rush, exhaust, story, help, quit. With TERM=dumb it prints lines, as with --plain.',
    examples: [
      ['demo', ''],
      ['demo --plain --no-story', 'lines instead of a picture, and nothing happens without a command'],
      ['demo --seconds 60 --quiet', 'one minute, only the banner and the summary'],
      ['demo --headless --port 8123', 'for tests: one line of JSON when ready, then no output until SIGTERM'],
      ['status', 'in another terminal'],
    ],
    json: 'print a failure to start as a JSON document',
  })
    .option('--port <n>', 'port (default: HTTP_PORT or 8080, or the next free one)', wholeNumber(0, 65_535))
    .option('--seed <n>', 'the same seed makes the same choices', wholeNumber(0, 4_294_967_295))
    .option('--seconds <n>', 'end after this many seconds', wholeNumber(1, 1_000_000))
    .option('--quiet', 'only the banner and the summary')
    .option('--headless', 'only one line of JSON, {"ready":true,"url":...,"pid":...}, when ready')
    .option('--plain', 'lines instead of a picture, also on a terminal')
    .option('--no-story', 'nothing happens except calls and records');
  command.action(async () => {
    cli.resident = true;
    const { json: _, ...options } = command.opts<DemoCommandOptions & { json?: true }>();
    cli.exitCode = await runDemo(cli.env, options);
  });
}

interface DemoCommandOptions {
  port?: number;
  seed?: number;
  seconds?: number;
  quiet?: boolean;
  headless?: boolean;
  plain?: boolean;
  story?: boolean;
}

const exitDelayMs = 500;

/** Resolves to the exit code: 0 after a clean stop. A second signal ends the process at once. */
async function runDemo(env: NodeJS.ProcessEnv, options: DemoCommandOptions): Promise<number> {
  // Loaded here: the demo includes a cluster and its routers.
  const [{ startDemo }, { speedOf }] = await Promise.all([
    import('../../demo/demo.js'),
    import('../../demo/setup.js'),
  ]);
  const { seconds, plain = false, ...given } = options;
  const { stdin, stdout } = process;
  const speed = speedOf(env);
  const isPicture = isTerminal(stdout, env) && !plain;
  const stop = new AbortController();
  const quit = () => {
    if (stop.signal.aborted) process.exit(1);
    stop.abort();
  };
  // `smart-router demo | head` closes our output.
  const onOutputError = () => stop.abort();
  for (const name of stopSignals) process.on(name, quit);
  // The program that started us with a channel has ended and cannot stop us.
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
    // Ctrl-C works at once; other commands wait for the end of the start.
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
    for (const name of stopSignals) process.off(name, quit);
    // Everything is stopped; an open input or a slow connection must not keep the process alive.
    systemClock.after(exitDelayMs, () => process.exit(), { unref: true });
  }
}
