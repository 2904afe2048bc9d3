/**
 * Shared parts of all commands. A command returns an Outcome, printed as text or, with --json, as one document on
 * stdout whose `success` is true exactly if the exit code is 0. index.ts prints failures in the same way.
 */
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { Clock } from '../clock.js';
import { durationMaxMs, parseDuration } from '../config/durations.js';
import type { RouterApi } from './api.js';
import { type ExitCode, exitCodeMeanings, Failure, oneLine } from './failure.js';
import type { Output } from './output.js';

export interface Cli {
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly output: Output;
  exitCode: ExitCode | number;
  /** True for a command that runs until a signal and handles its own output. */
  resident: boolean;
}

export interface Outcome {
  /** For --json, beside `success`. */
  document: object;
  /** For people, on stdout. */
  text: string;
  /** For people, on stderr. */
  warnings?: readonly string[];
  /** The command has a result, but did not do what was asked. */
  failure?: Failure | undefined;
}

export interface CommandHelp {
  summary: string;
  /** One paragraph without line breaks: commander wraps it to the terminal. */
  about?: string;
  examples: readonly (readonly [command: string, what: string])[];
  /** In addition to 0, 1 and 2. */
  exits?: readonly ExitCode[];
  /** The description of --json, if not the usual. */
  json?: string;
}

/** Adds description, --json, examples and exit codes. */
export function describe(command: Command, help: CommandHelp): Command {
  const {
    summary,
    about,
    examples,
    exits = [],
    json = 'print one JSON document, also after a failure',
  } = help;
  const width = Math.max(...examples.map(([line]) => line.length));
  const lines = examples.map(([line, what]) => `  $ smart-router ${line.padEnd(width)}   ${what}`.trimEnd());
  const codes = ([0, 1, 2, ...exits] as ExitCode[]).sort((a, b) => a - b);
  const meanings = codes.map((code) => `  ${String(code).padEnd(3)}  ${exitCodeMeanings[code]}`);
  return command
    .summary(summary)
    .description(`${summary[0]?.toUpperCase()}${summary.slice(1)}.${about ? `\n\n${about}` : ''}`)
    .option('--json', json)
    .addHelpText('after', `\nExamples:\n${lines.join('\n')}\n\nExit codes:\n${meanings.join('\n')}`);
}

/** A command that has commands of its own: `smart-router tiers`. */
export function addGroup(
  program: Command,
  cli: Cli,
  name: string,
  summary: string,
  commands: readonly ((parent: Command, cli: Cli) => void)[],
): void {
  const group = program
    .command(name)
    .summary(summary)
    .description(`${summary[0]?.toUpperCase()}${summary.slice(1)}.`)
    .usage('<command> [options]')
    .helpCommand(false)
    .addHelpText('after', `\nRun \`smart-router ${name} <command> --help\` for examples.`);
  for (const add of commands) add(group, cli);
}

/** Like `describe`, for a command that calls a router. */
export function describeOperator(command: Command, help: CommandHelp): Command {
  return withAccess(describe(command, { ...help, exits: [...(help.exits ?? []), 6] }));
}

/** Commander does not wrap text after the options: these lines fit 80 columns. */
const access = `
Access:
  The key is read from the environment: SMART_ROUTER_ADMIN_KEY, or else
  SMART_ROUTER_API_KEY. It is never an argument, because other users can see
  arguments and the shell history keeps them.`;

/** Adds --url, --timeout and the help about the key. */
export function withAccess(command: Command): Command {
  return command
    .option('--url <url>', 'address of the router (default: SMART_ROUTER_URL, else http://127.0.0.1:8080)')
    .addOption(
      new Option('--timeout <duration>', 'maximum wait for one reply')
        .argParser(duration(1, durationMaxMs))
        .default(10_000, '10s'),
    )
    .addHelpText('after', access);
}

export function withApply(command: Command): Command {
  return command.option('--apply', 'do it; without this only show what would be done');
}

/** Makes `work` the action of the command: prints its outcome and sets the exit code. */
export function answer(command: Command, cli: Cli, work: () => Promise<Outcome>): void {
  command.action(async () => printOutcome(command, cli, await work()));
}

export function printOutcome(command: Command, cli: Cli, outcome: Outcome): void {
  const { document, text, warnings = [], failure } = outcome;
  const { output } = cli;
  if (command.opts<{ json?: true }>().json) {
    // The router's `success` is about its request: a drain whose wait timed out has it too.
    const { success: _, ...rest } = document as Record<string, unknown>;
    output.out(toJson({ success: failure === undefined, ...failure?.fields, ...rest }));
  } else {
    if (text !== '') output.out(text);
    for (const warning of warnings) output.warn(warning);
    if (failure) printFailure(output, failure);
  }
  cli.exitCode = failure?.exitCode ?? 0;
}

/** Like `answer`, with a connection to the router. */
export function answerWith(command: Command, cli: Cli, work: (api: RouterApi) => Promise<Outcome>): void {
  answer(command, cli, () => withRouter(command, cli, work));
}

/** Runs `work` with a connection to the router of the options and the environment, and closes it. */
export async function withRouter<T>(
  command: Command,
  cli: Cli,
  work: (api: RouterApi) => Promise<T>,
): Promise<T> {
  const { url, timeout } = command.opts<{ url?: string; timeout: number }>();
  // Loaded here: the sidecar does without it and without TLS, which takes 4 MB.
  const { RouterApi } = await import('./api.js');
  const api = new RouterApi({
    baseUrl: readUrl(url, cli.env),
    key: readKey(cli.env),
    timeoutMs: timeout,
    clock: cli.clock,
  });
  try {
    return await work(api);
  } catch (error) {
    throw isMisread(error) ? misread(api.baseUrl, error) : error;
  } finally {
    api.close();
  }
}

/** Errors that our code throws on a reply with unexpected types. */
function isMisread(error: unknown): error is Error {
  return error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError;
}

function misread(baseUrl: string, error: Error): Failure {
  return new Failure(
    'not_a_router',
    `unexpected reply from ${baseUrl}: not a Smart Router of this version (${oneLine(error.message).slice(0, 200)}). Check --url or SMART_ROUTER_URL.`,
    [],
    { cause: error },
  );
}

export function toJson(document: object): string {
  return JSON.stringify(document, null, 2);
}

export function printFailure(output: Output, failure: Failure): void {
  output.err(`${output.paintError('red', 'smart-router:')} ${failure.message}`);
  for (const problem of failure.problems) output.err(`  ${problem}`);
}

/** The address of the router: the option, the environment, or the default. */
export function readUrl(option: string | undefined, env: NodeJS.ProcessEnv): string {
  const from = option === undefined ? 'SMART_ROUTER_URL' : '--url';
  const text = (option ?? env.SMART_ROUTER_URL?.trim()) || 'http://127.0.0.1:8080';
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || url.search || url.hash) {
    throw new Failure(
      'usage',
      `${from} must be a URL like http://127.0.0.1:8080, got ${JSON.stringify(text)}`,
    );
  }
  if (url.username || url.password) {
    throw new Failure(
      'usage',
      `${from} must not contain a user or password: set SMART_ROUTER_ADMIN_KEY instead`,
    );
  }
  // People paste addresses of the API.
  return url.href.replace(/\/+$/, '').replace(/\/api\/v1$/, '');
}

export function readKey(env: NodeJS.ProcessEnv): { value: string; from: string } | undefined {
  for (const from of ['SMART_ROUTER_ADMIN_KEY', 'SMART_ROUTER_API_KEY']) {
    const value = env[from];
    if (!value) continue;
    if (!/^[\x21-\x7e]+$/.test(value)) {
      throw new Failure(
        'configuration',
        `${from} must be visible ASCII characters without spaces or line breaks (a secret file may end in one); the value is not shown`,
      );
    }
    return { value, from };
  }
  return undefined;
}

/** The uid of `pod` if this runs inside it: the preStop of a replaced pod must not drain its successor. */
export function ownUid(pod: string, env: NodeJS.ProcessEnv): string | undefined {
  return (env.POD_NAME === pod && env.POD_UID) || undefined;
}

/** Parses an option's whole number. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d{1,16}$/.test(text) && value >= min && value <= max) return value;
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
  };
}

/** Parses an option's duration to milliseconds. */
export function duration(minMs: number, maxMs: number): (text: string) => number {
  return (text) => {
    const value = parseDuration(text);
    if (value !== undefined && value >= minMs && value <= maxMs) return value;
    throw new InvalidArgumentError('It must be a duration like 500ms, 30s or 5m.');
  };
}
