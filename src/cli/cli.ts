/**
 * The program, and the shape of all commands. A command is data: its help, arguments and options, and `run`. Its outcome
 * is printed as text or, with --json, as one document on stdout whose `success` is true exactly if the exit code is 0.
 * index.ts prints failures in the same way. Loads no command, API or database: the sidecar does without them.
 */
import { type Argument, Command, Option } from 'commander';
import type { Clock } from '../clock.js';
import { version } from '../version.js';
import { type ExitCode, exitCodeMeanings, type Failure } from './failure.js';
import type { Output } from './output.js';

export interface Cli {
  readonly env: NodeJS.ProcessEnv;
  readonly clock: Clock;
  readonly output: Output;
  exitCode: number;
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

export interface Given<Options = object> {
  cli: Cli;
  args: readonly string[];
  options: Options & { json?: true };
  command: Command;
}

export interface CommandSpec<Run> {
  name: string;
  summary: string;
  /** One paragraph without line breaks: commander wraps it to the terminal. */
  about?: string;
  examples: readonly (readonly [command: string, what: string])[];
  /** In addition to 0, 1 and 2. */
  exits?: readonly ExitCode[];
  /** The description of --json, if not the usual. */
  json?: string;
  args?: readonly Argument[];
  options?: readonly Option[];
  /** Paragraphs at the end of the help. Commander does not wrap them: their lines must fit 80 columns. */
  notes?: readonly string[];
  /** Without an outcome, `run` has printed everything itself. */
  run(given: Run): Promise<Outcome | undefined>;
}

export type AddCommand = (parent: Command, cli: Cli) => void;

/** Makes a program of these commands, by the title of their group in the help. */
export function createProgramOf(cli: Cli, groups: Record<string, readonly AddCommand[]>): Command {
  const help = new Command('help').argument('[command]').description('print the help of a command');
  const program = new Command('smart-router')
    .description('Every live phone call gets a healthy voice-agent pod.')
    .version(version, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .addHelpCommand(help.helpOption(false).helpGroup('Help:'))
    // `tiers set` has its own --version.
    .enablePositionalOptions()
    .exitOverride()
    // Errors are printed in index.ts, as text or as JSON.
    .configureOutput({
      writeOut: (text) => void cli.output.streams.stdout.write(text),
      writeErr: (text) => void cli.output.streams.stderr.write(text),
      outputError: () => undefined,
    })
    .addHelpText('after', footer);
  for (const [title, commands] of Object.entries(groups)) {
    program.commandsGroup(title);
    for (const add of commands) add(program, cli);
  }
  return program;
}

export function command<Options>(spec: CommandSpec<Given<Options>>): AddCommand {
  const { name, summary, about, examples, exits = [], args = [], options = [], notes = [] } = spec;
  const width = Math.max(...examples.map(([line]) => line.length));
  const lines = examples.map(([line, what]) => `  $ smart-router ${line.padEnd(width)}   ${what}`.trimEnd());
  const codes = ([0, 1, 2, ...exits] as ExitCode[]).sort((a, b) => a - b);
  const help = [`\nExamples:\n${lines.join('\n')}\n\nExit codes:\n${exitCodeLines(codes)}`, ...notes];
  return (parent, cli) => {
    const added = parent.command(name).summary(summary).description(paragraphs(summary, about));
    for (const argument of args) added.addArgument(argument);
    added.option('--json', spec.json ?? 'print one JSON document, also after a failure');
    for (const option of options) added.addOption(option);
    for (const text of help) added.addHelpText('after', text);
    added.action(async () => {
      const options = added.opts() as Given<Options>['options'];
      const outcome = await spec.run({ cli, args: added.args, options, command: added });
      if (outcome) printOutcome(cli, outcome, options.json);
    });
  };
}

/** A command that has commands of its own: `smart-router tiers`. */
export function group(name: string, summary: string, commands: readonly AddCommand[]): AddCommand {
  return (program, cli) => {
    const added = program
      .command(name)
      .summary(summary)
      .description(paragraphs(summary))
      .usage('<command> [options]')
      .helpCommand(false)
      .addHelpText('after', `\nRun \`smart-router ${name} <command> --help\` for examples.`);
    for (const add of commands) add(added, cli);
  };
}

function paragraphs(summary: string, about?: string): string {
  return `${summary.charAt(0).toUpperCase()}${summary.slice(1)}.${about ? `\n\n${about}` : ''}`;
}

function exitCodeLines(codes: readonly ExitCode[]): string {
  return codes.map((code) => `  ${String(code).padEnd(3)}  ${exitCodeMeanings[code]}`).join('\n');
}

export const applyOption = new Option('--apply', 'do it; without this only show what would be done');

const footer = `
Examples:
  $ smart-router demo                      three routers, a small cluster, and calls
  $ smart-router status                    the state of the router at http://127.0.0.1:8080
  $ smart-router alerts                    current problems and their runbook pages
  $ smart-router drain POD --wait 10m      wait until a pod has no calls
  $ smart-router COMMAND --help            options and examples of one command

Environment:
  SMART_ROUTER_URL        address of the router (default: http://127.0.0.1:8080)
  SMART_ROUTER_ADMIN_KEY  key for operators; SMART_ROUTER_API_KEY allows less
  DATABASE_URL            the database of \`records\` commands
  NO_COLOR                no colours on a terminal
  DEBUG=smart-router      print stack traces

Exit codes:
${exitCodeLines(Object.keys(exitCodeMeanings).map(Number) as ExitCode[])}`;

function printOutcome(cli: Cli, { document, text, warnings = [], failure }: Outcome, json?: true): void {
  const { output } = cli;
  if (json) {
    // The router's `success` is about its request: a drain whose wait timed out has it too.
    const { success: _, ...rest } = document as Record<string, unknown>;
    output.out(toJson({ success: failure === undefined, ...failure?.fields, ...rest }));
  } else {
    if (text !== '') output.out(text);
    for (const warning of warnings) output.warn(warning);
    if (failure) output.fail(failure);
  }
  cli.exitCode = failure?.exitCode ?? 0;
}

export const toJson = (document: object) => JSON.stringify(document, null, 2);
