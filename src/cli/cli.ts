/**
 * What every command shares. A command gives an Outcome; here it becomes text for people or, with --json, one
 * document on stdout whose `success` is true exactly when the exit code is 0. Failures are printed the same
 * way in index.ts, so a script reads one stream and never has to guess which.
 */
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { Clock } from '../clock.js';
import { durationMaxMs, parseDuration } from '../config/durations.js';
import { RouterApi } from './api.js';
import { type ExitCode, exitCodeMeanings } from './exit-codes.js';
import { Failure, oneLine } from './failure.js';
import type { Screen } from './screen.js';

export interface Cli {
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly screen: Screen;
  exitCode: ExitCode | number;
  /** A command that runs until it is told to stop looks after its own output. */
  resident: boolean;
}

export interface Outcome {
  /** For --json, beside `success`. */
  document: object;
  /** For people, on stdout. */
  text: string;
  /** For people, on stderr. */
  warnings?: readonly string[];
  /** There is an answer, and still the command did not do what was asked. */
  failure?: Failure | undefined;
}

export interface CommandHelp {
  summary: string;
  /** More than the summary says. One paragraph without line breaks: it is wrapped to the terminal. */
  about?: string;
  examples: readonly (readonly [command: string, what: string])[];
  /** Beside 0, 1 and 2. */
  exits?: readonly ExitCode[];
  /** What --json does, if it is not the usual. */
  json?: string;
}

/** Gives a command its description, --json, examples and exit codes. */
export function describe(command: Command, help: CommandHelp): Command {
  const { summary, about, examples, exits = [], json = 'print one JSON document, also when it fails' } = help;
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

/** The same, for a command that talks to a router. */
export function describeOperator(command: Command, help: CommandHelp): Command {
  return withAccess(describe(command, { ...help, exits: [...(help.exits ?? []), 6] }));
}

/** Commander wraps descriptions, but not what stands after the options: these lines fit 80 columns. */
const access = `
Access:
  The key is read from SMART_ROUTER_ADMIN_KEY, else SMART_ROUTER_API_KEY, in the
  environment. It is never an argument, because arguments are seen by everybody
  on the machine and kept in the shell history.`;

/** Where the router is, how long to wait for it, and where the key comes from. */
export function withAccess(command: Command): Command {
  return command
    .option('--url <url>', 'address of the router (default: SMART_ROUTER_URL, else http://127.0.0.1:8080)')
    .addOption(
      new Option('--timeout <duration>', 'longest to wait for one answer')
        .argParser(duration(1, durationMaxMs))
        .default(10_000, '10s'),
    )
    .addHelpText('after', access);
}

/** Runs `work`, prints its outcome, keeps its exit code. */
export function answer(command: Command, cli: Cli, work: () => Promise<Outcome>): void {
  command.action(async () => printOutcome(command, cli, await work()));
}

export function printOutcome(command: Command, cli: Cli, outcome: Outcome): void {
  const { document, text, warnings = [], failure } = outcome;
  const { screen } = cli;
  if (command.opts<{ json?: true }>().json) {
    // The router's own `success` does not know what was asked for: a drain that waited in vain has one too.
    const { success: _, ...rest } = document as Record<string, unknown>;
    screen.out(toJson({ success: failure === undefined, ...failure?.fields, ...rest }));
  } else {
    if (text !== '') screen.out(text);
    for (const warning of warnings) screen.err(`${screen.paintError('yellow', 'warning:')} ${warning}`);
    if (failure) printFailure(screen, failure);
  }
  cli.exitCode = failure?.exitCode ?? 0;
}

/** The same, with a connection to the router that is closed afterwards. */
export function answerWith(command: Command, cli: Cli, work: (api: RouterApi) => Promise<Outcome>): void {
  answer(command, cli, () => withRouter(command, cli, work));
}

/** A connection to the router that the options and the environment name, closed when `work` has ended. */
export async function withRouter<T>(
  command: Command,
  cli: Cli,
  work: (api: RouterApi) => Promise<T>,
): Promise<T> {
  const { url, timeout } = command.opts<{ url?: string; timeout: number }>();
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

/** What our own code throws over a value that has another type than a router's answer has there. */
function isMisread(error: unknown): error is Error {
  return error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError;
}

function misread(baseUrl: string, error: Error): Failure {
  return new Failure(
    'not_a_router',
    `what answers at ${baseUrl} does not answer as a Smart Router of this version does (${oneLine(error.message).slice(0, 200)}). Check --url or SMART_ROUTER_URL.`,
    [],
    { cause: error },
  );
}

export function toJson(document: object): string {
  return JSON.stringify(document, null, 2);
}

export function printFailure(screen: Screen, failure: Failure): void {
  screen.err(`${screen.paintError('red', 'smart-router:')} ${failure.message}`);
  for (const problem of failure.problems) screen.err(`  ${problem}`);
}

/** Where the router is: the option, the environment, the default. */
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
      `${from} must not carry a user or password: set SMART_ROUTER_ADMIN_KEY instead`,
    );
  }
  // People copy addresses of the API.
  return url.href.replace(/\/+$/, '').replace(/\/api\/v1$/, '');
}

export function readKey(env: NodeJS.ProcessEnv): { value: string; from: string } | undefined {
  for (const from of ['SMART_ROUTER_ADMIN_KEY', 'SMART_ROUTER_API_KEY']) {
    const value = env[from];
    if (!value) continue;
    if (!/^[\x21-\x7e]+$/.test(value)) {
      throw new Failure(
        'configuration',
        `${from} must be visible ASCII characters without spaces or line breaks (a secret's file may end in one); the value is not shown`,
      );
    }
    return { value, from };
  }
  return undefined;
}

/**
 * The uid of `pod`, if this runs in it: the preStop of a pod that has been replaced must not drain its successor. Of any
 * other pod the router's word counts.
 */
export function ownUid(pod: string, env: NodeJS.ProcessEnv): string | undefined {
  return (env.POD_NAME === pod && env.POD_UID) || undefined;
}

/** A parser for an option's whole number. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d{1,16}$/.test(text) && value >= min && value <= max) return value;
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
  };
}

/** A parser for an option's duration, in milliseconds. */
export function duration(minMs: number, maxMs: number): (text: string) => number {
  return (text) => {
    const value = parseDuration(text);
    if (value !== undefined && value >= minMs && value <= maxMs) return value;
    throw new InvalidArgumentError('It must be a duration like 500ms, 30s or 5m.');
  };
}
