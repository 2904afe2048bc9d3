/**
 * The command line. Whatever happens, a person gets one line that says what to do, a script gets an exit code
 * (exit-codes.ts) and, with --json, exactly one document on stdout. A stack trace is shown only with
 * DEBUG=smart-router.
 */
import { CommanderError } from 'commander';
import { type Clock, systemClock } from '../clock.js';
import { isInstance, messageOf } from '../errors.js';
import { type Cli, printFailure, toJson } from './cli.js';
import { exitCodes, type Failure, toFailure } from './failure.js';
import { createProgram, helpOf } from './program.js';
import { Screen, type Streams } from './screen.js';

export interface RunOptions {
  streams?: Streams;
  clock?: Clock;
}

/** Resolves to the exit code; never rejects. */
export async function run(
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
  { streams = process, clock = systemClock }: RunOptions = {},
): Promise<number> {
  const screen = new Screen(streams, env);
  const cli: Cli = { env, clock, screen, exitCode: exitCodes.done, resident: false };
  const json = wantsJson(args);
  endQuietlyWithoutReader(streams, cli);
  if (streams === process) {
    const onSurprise = (error: unknown) => process.exit(printError(cli, json, error));
    process.on('uncaughtException', onSurprise);
    process.on('unhandledRejection', onSurprise);
  }
  const write = {
    out: (text: string) => void streams.stdout.write(text),
    err: (text: string) => void streams.stderr.write(text),
  };
  const program = createProgram(cli, write);
  try {
    await program.parseAsync([...args], { from: 'user' });
  } catch (error) {
    cli.exitCode = exitCodeFor(error) ?? printError(cli, json, error);
    const usage = isInstance(error, CommanderError) && cli.exitCode === exitCodes.usage;
    if (usage && !json && error.code !== 'commander.help') screen.err(`See \`${helpOf(program, args)}\`.`);
  }
  if (streams === process && !cli.resident) await leave(cli.exitCode);
  return cli.exitCode;
}

/** Help and version come as errors too, and are none; help that nobody asked for means a command is missing. */
function exitCodeFor(error: unknown): number | undefined {
  if (!isInstance(error, CommanderError)) return undefined;
  if (error.exitCode === 0) return exitCodes.done;
  return error.code === 'commander.help' ? exitCodes.usage : undefined;
}

/** What is done ends at once: a connection to the store takes another two seconds to close (ioredis). */
async function leave(exitCode: number): Promise<void> {
  for (const stream of [process.stdout, process.stderr]) {
    await new Promise<void>((resolve) => stream.write('', () => resolve()));
  }
  process.exit(exitCode);
}

function wantsJson(args: readonly string[]): boolean {
  const end = args.indexOf('--');
  return args.slice(0, end < 0 ? undefined : end).includes('--json');
}

function printError({ screen, env, resident }: Cli, json: boolean, error: unknown): number {
  const failure: Failure = toFailure(error);
  const document = { success: false, ...failure.fields };
  // Between log lines a document has one line too.
  if (json) screen.out(resident ? JSON.stringify(document) : toJson(document));
  else printFailure(screen, failure);
  if (env.DEBUG?.split(/[\s,]+/).includes('smart-router')) {
    screen.err(stackOf(error).trimEnd());
    if (isInstance(failure.cause, Error) && failure.cause !== error)
      screen.err(`caused by ${stackOf(failure.cause)}`);
  }
  return failure.exitCode;
}

function stackOf(error: unknown): string {
  try {
    return error instanceof Error && error.stack ? String(error.stack) : messageOf(error);
  } catch {
    return messageOf(error);
  }
}

/** `smart-router calls | head`: once nobody reads, there is nothing left to do, and nobody to tell. */
function endQuietlyWithoutReader({ stdout, stderr }: Streams, cli: Cli): void {
  stdout.on?.('error', ({ code, message }) => {
    if (cli.resident) return;
    if (code === 'EPIPE') process.exit(exitCodes.done);
    stderr.write(`smart-router: cannot write the result: ${message}\n`);
    process.exit(exitCodes.failed);
  });
  stderr.on?.('error', () => undefined);
}
