/**
 * The command line. Every failure prints one line that says what to do, sets an exit code (failure.ts) and, with --json,
 * prints exactly one document on stdout. Stack traces need DEBUG=smart-router.
 */
import { type Command, CommanderError } from 'commander';
import { type Clock, systemClock } from '../clock.js';
import { isInstance, messageOf } from '../errors.js';
import { type Cli, createProgramOf, toJson } from './cli.js';
import { agent } from './commands/agent.js';
import { toFailure } from './failure.js';
import { Output, type Streams } from './output.js';

/** Resolves to the exit code; never rejects. */
export async function run(
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
  { streams = process, clock = systemClock }: { streams?: Streams; clock?: Clock } = {},
): Promise<number> {
  const output = new Output(streams, env);
  const cli: Cli = { env, clock, output, exitCode: 0, resident: false };
  const json = wantsJson(args);
  exitWithoutReader(streams, cli);
  if (streams === process) {
    const onUncaught = (error: unknown) => process.exit(printError(cli, json, error));
    process.on('uncaughtException', onUncaught);
    process.on('unhandledRejection', onUncaught);
  }
  // Alone, the sidecar needs a fifth less memory: the other commands are not loaded.
  const program =
    args[0] === 'agent'
      ? createProgramOf(cli, { 'Run:': [agent] })
      : (await import('./program.js')).createProgram(cli);
  try {
    await program.parseAsync([...args], { from: 'user' });
  } catch (error) {
    cli.exitCode = exitCodeFor(error) ?? printError(cli, json, error);
    const usage = isInstance(error, CommanderError) && cli.exitCode === 2;
    if (usage && !json && error.code !== 'commander.help') output.err(`See \`${helpOf(program, args)}\`.`);
  }
  if (streams === process && !cli.resident) await exit(cli.exitCode);
  return cli.exitCode;
}

/** Commander throws for help and version too; help without --help means that the command is missing. */
function exitCodeFor(error: unknown): number | undefined {
  if (!isInstance(error, CommanderError)) return undefined;
  if (error.exitCode === 0) return 0;
  return error.code === 'commander.help' ? 2 : undefined;
}

/** The help command for `args`: `smart-router tiers set --help`. */
function helpOf(program: Command, args: readonly string[]): string {
  const path = [program.name()];
  let command: Command | undefined = program;
  for (const arg of args) {
    command = command.commands.find((candidate) => candidate.name() === arg);
    if (!command) break;
    path.push(arg);
  }
  return `${path.join(' ')} --help`;
}

/** Exits at once: ioredis takes two more seconds to close its connection. */
async function exit(exitCode: number): Promise<void> {
  for (const stream of [process.stdout, process.stderr]) {
    await new Promise<void>((resolve) => stream.write('', () => resolve()));
  }
  process.exit(exitCode);
}

function wantsJson(args: readonly string[]): boolean {
  const end = args.indexOf('--');
  return args.slice(0, end < 0 ? undefined : end).includes('--json');
}

function printError({ output, env, resident }: Cli, json: boolean, error: unknown): number {
  const failure = toFailure(error);
  const document = { success: false, ...failure.fields };
  // Between log lines, a document must be one line.
  if (json) output.out(resident ? JSON.stringify(document) : toJson(document));
  else output.fail(failure);
  if (env.DEBUG?.split(/[\s,]+/).includes('smart-router')) {
    output.err(stackOf(error).trimEnd());
    if (isInstance(failure.cause, Error) && failure.cause !== error)
      output.err(`caused by ${stackOf(failure.cause)}`);
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

/** `smart-router calls | head` closes stdout: that is a normal end. */
function exitWithoutReader({ stdout, stderr }: Streams, cli: Cli): void {
  stdout.on?.('error', ({ code, message }) => {
    if (cli.resident) return;
    if (code === 'EPIPE') process.exit(0);
    stderr.write(`smart-router: cannot write the result: ${message}\n`);
    process.exit(1);
  });
  stderr.on?.('error', () => undefined);
}
