/** All commands, one file per noun in commands/. A test compares them with docs/cli.md. */
import { Command } from 'commander';
import { version } from '../version.js';
import type { Cli } from './cli.js';
import { alerts } from './commands/alerts.js';
import { audit } from './commands/audit.js';
import { allocate, calls, release } from './commands/calls.js';
import { completion } from './commands/completion.js';
import { config } from './commands/config.js';
import { demo } from './commands/demo.js';
import { doctor } from './commands/doctor.js';
import { events } from './commands/events.js';
import { explain } from './commands/explain.js';
import { merchants } from './commands/merchants.js';
import { drain, pods, undrain } from './commands/pods.js';
import { records } from './commands/records.js';
import { removals } from './commands/removals.js';
import { serve } from './commands/serve.js';
import { status } from './commands/status.js';
import { tiers } from './commands/tiers.js';
import { top } from './commands/top.js';
import { exitCodeMeanings } from './failure.js';

export function createProgram(
  cli: Cli,
  write: { out(text: string): void; err(text: string): void },
): Command {
  const program = new Command('smart-router')
    .description('Every live phone call gets a healthy voice-agent pod.')
    .version(version, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .addHelpCommand(helpCommand())
    // `tiers set` has its own --version.
    .enablePositionalOptions()
    .exitOverride()
    // Errors are printed in index.ts, as text or as JSON.
    .configureOutput({ writeOut: write.out, writeErr: write.err, outputError: () => undefined })
    .addHelpText('after', () => footer());

  const groups = {
    'Run:': [serve, demo, config, doctor],
    'Look:': [status, alerts, pods, calls, explain, events, top, audit],
    'Act:': [allocate, release, drain, undrain, removals, records],
    'Configure a running router:': [tiers, merchants],
    'Help:': [completion],
  };
  for (const [title, commands] of Object.entries(groups)) {
    program.commandsGroup(title);
    for (const add of commands) add(program, cli);
  }
  return program;
}

function helpCommand(): Command {
  return new Command('help')
    .argument('[command]')
    .description('print the help of a command')
    .helpOption(false)
    .helpGroup('Help:');
}

/** The help command for `args`: `smart-router tiers set --help`. */
export function helpOf(program: Command, args: readonly string[]): string {
  let command = program;
  const path = [program.name()];
  for (const arg of args) {
    const next = command.commands.find((candidate) => candidate.name() === arg);
    if (!next) break;
    command = next;
    path.push(next.name());
  }
  return `${path.join(' ')} --help`;
}

function footer(): string {
  const codes = Object.entries(exitCodeMeanings).map(([code, what]) => `  ${code.padEnd(3)}  ${what}`);
  return `
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
${codes.join('\n')}`;
}
