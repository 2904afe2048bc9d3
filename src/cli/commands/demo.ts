/**
 * `smart-router demo`: three routers and a simulated cluster. Ends with Ctrl-C, `q`, or the word `quit`.
 *
 * `DEMO_SPEED` (0.1 to 20, default 1) is for tests: 10 plays a minute in six seconds.
 */
import { Option } from 'commander';
import { systemClock } from '../../clock.js';
import { readKeys, readLines } from '../../terminal/keys.js';
import { isTerminal, showsColours } from '../../terminal/text.js';
import { command } from '../cli.js';
import { wholeNumber } from '../input.js';
import { exitSoon, untilAborted, untilSignal } from '../signals.js';

interface Options {
  port?: number;
  seed?: number;
  seconds?: number;
  quiet?: boolean;
  headless?: boolean;
  plain?: boolean;
  story: boolean;
}

export const demo = command<Options>({
  name: 'demo',
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
  options: [
    new Option('--port <n>', 'port (default: HTTP_PORT or 8080, or the next free one)').argParser(
      wholeNumber(0, 65_535),
    ),
    new Option('--seed <n>', 'the same seed makes the same choices').argParser(wholeNumber(0, 4_294_967_295)),
    new Option('--seconds <n>', 'end after this many seconds').argParser(wholeNumber(1, 1_000_000)),
    new Option('--quiet', 'only the banner and the summary'),
    new Option('--headless', 'only one line of JSON, {"ready":true,"url":...,"pid":...}, when ready'),
    new Option('--plain', 'lines instead of a picture, also on a terminal'),
    new Option('--no-story', 'only calls and records, without the built-in story'),
  ],
  async run({ cli, options: { json: _, ...options } }) {
    cli.resident = true;
    await runDemo(cli.env, options);
  },
});

/** Resolves after a clean stop. A second signal ends the process at once. */
async function runDemo(env: NodeJS.ProcessEnv, options: Options): Promise<void> {
  // Loaded here: the demo includes a cluster and its routers.
  const { startDemo } = await import('../../demo/demo.js');
  const { seconds, plain, quiet, headless, ...given } = options;
  const { stdin, stdout } = process;
  const screen = isTerminal(stdout, env) && !plain ? 'picture' : 'lines';
  const mode = headless ? 'headless' : quiet ? 'quiet' : screen;
  const endNow = () => process.exit(1);
  const { signal, abort, release } = untilSignal(endNow);
  const quit = () => (signal.aborted ? endNow() : abort());
  // The program that started us with a channel has ended and cannot stop us.
  if (headless) process.once('disconnect', abort);
  // `smart-router demo | head` closes our output.
  stdout.on('error', abort);
  let restoreInput = () => {};
  try {
    const hasColours = showsColours(stdout, env);
    const starting = startDemo({ ...given, env, out: stdout, hasColours, mode, onQuit: quit, signal });
    // Ctrl-C works at once; other commands wait for the end of the start.
    const command = (text: string) =>
      void starting.then(
        (running) => running.command(text),
        () => {},
      );
    restoreInput =
      stdin.isTTY && mode === 'picture'
        ? readKeys(stdin, (key) => (key === 'interrupt' ? quit() : command(key.toLowerCase())))
        : readLines(stdin, command);
    const running = await starting;
    if (seconds === undefined) await untilAborted(signal);
    else await systemClock.sleep(seconds * 1000, signal);
    await running.stop();
  } finally {
    restoreInput();
    release();
    exitSoon();
  }
}
