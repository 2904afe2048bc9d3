/** `smart-router demo`. */
import type { Command } from 'commander';
import { type Cli, describe, wholeNumber } from '../cli.js';
import type { DemoCommandOptions } from '../demo.js';

export function demo(parent: Command, cli: Cli): void {
  const command = describe(parent.command('demo'), {
    summary: 'run three routers with a simulated cluster around them, to look at and to break',
    about:
      'Needs no Redis, no PostgreSQL, no Kubernetes and no telephony. Nothing it starts outlives it. On a terminal it takes single keys (? shows help), elsewhere words on lines of their own: kill-leader, stop-leader, roll, crash, delete, drain, lose-redis, pause-redis, kill-worker, api, rush, exhaust, story, help, quit. With TERM=dumb it prints lines, as with --plain.',
    examples: [
      ['demo', ''],
      ['demo --plain --no-story', 'lines instead of a picture, and nothing happens but what you ask for'],
      ['demo --seconds 60 --quiet', 'one minute, only the beginning and the summary'],
      [
        'demo --headless --port 8123',
        'for tests: one line of JSON when it answers, then silence until SIGTERM',
      ],
      ['status', 'in another terminal: look at it'],
    ],
    json: 'print a failure to start as a JSON document; the show itself is for people',
  })
    .option(
      '--port <n>',
      'where to listen (default: HTTP_PORT, else 8080, or the next free one)',
      wholeNumber(0, 65_535),
    )
    .option('--seed <n>', 'the same seed makes the same choices', wholeNumber(0, 4_294_967_295))
    .option('--seconds <n>', 'end after so many seconds', wholeNumber(1, 1_000_000))
    .option('--quiet', 'only the banner and the summary')
    .option('--headless', 'only one line of JSON, {"ready":true,"url":...,"pid":...}, when it answers')
    .option('--plain', 'lines instead of a picture, on a terminal too')
    .option('--no-story', 'nothing happens by itself but calls and records');
  command.action(async () => {
    cli.resident = true;
    const { port, seed, seconds, quiet, headless, plain, story } = command.opts<DemoCommandOptions>();
    const options = { port, seed, seconds, quiet, headless, plain, story };
    const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
    const { demo: run } = await import('../demo.js');
    cli.exitCode = await run(cli.env, given);
  });
}
