/** All commands. Each is a file in commands/; docs/cli.md has a section for each, and a test compares the two. */
import { Command } from 'commander';
import { version } from '../version.js';
import type { Cli } from './cli.js';
import { alerts } from './commands/alerts.js';
import { allocate } from './commands/allocate.js';
import { audit } from './commands/audit.js';
import { calls } from './commands/calls.js';
import { completion } from './commands/completion.js';
import { config } from './commands/config.js';
import { demo } from './commands/demo.js';
import { doctor } from './commands/doctor.js';
import { drain } from './commands/drain.js';
import { events } from './commands/events.js';
import { merchantsDelete } from './commands/merchants-delete.js';
import { merchantsExport } from './commands/merchants-export.js';
import { merchantsGet } from './commands/merchants-get.js';
import { merchantsImport } from './commands/merchants-import.js';
import { merchantsList } from './commands/merchants-list.js';
import { merchantsSet } from './commands/merchants-set.js';
import { pods } from './commands/pods.js';
import { recordsAdvise } from './commands/records-advise.js';
import { recordsFailed } from './commands/records-failed.js';
import { recordsInspect } from './commands/records-inspect.js';
import { recordsMigrate } from './commands/records-migrate.js';
import { recordsReport } from './commands/records-report.js';
import { recordsReset } from './commands/records-reset.js';
import { recordsRetry } from './commands/records-retry.js';
import { recordsSql } from './commands/records-sql.js';
import { recordsStatus } from './commands/records-status.js';
import { recordsStuck } from './commands/records-stuck.js';
import { release } from './commands/release.js';
import { removalsConfirm } from './commands/removals-confirm.js';
import { removalsList } from './commands/removals-list.js';
import { serve } from './commands/serve.js';
import { status } from './commands/status.js';
import { tiersGet } from './commands/tiers-get.js';
import { tiersSet } from './commands/tiers-set.js';
import { top } from './commands/top.js';
import { undrain } from './commands/undrain.js';
import { exitCodeMeanings } from './exit-codes.js';

export function createProgram(
  cli: Cli,
  write: { out(text: string): void; err(text: string): void },
): Command {
  const program = new Command('smart-router')
    .description('Every live phone call gets a healthy voice-agent pod.')
    .version(version, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .addHelpCommand(helpCommand())
    // A subcommand may have a --version of its own.
    .enablePositionalOptions()
    .exitOverride()
    // Errors are printed in index.ts, as text or as JSON.
    .configureOutput({ writeOut: write.out, writeErr: write.err, outputError: () => undefined })
    .addHelpText('after', () => footer());

  program.commandsGroup('Run:');
  for (const add of [serve, demo, config, doctor]) add(program, cli);
  program.commandsGroup('Look:');
  for (const add of [status, alerts, pods, calls, events, top, audit]) add(program, cli);
  program.commandsGroup('Act:');
  for (const add of [allocate, release, drain, undrain]) add(program, cli);
  const removals = group(program, 'removals', 'show or confirm removals that the brake holds');
  for (const add of [removalsList, removalsConfirm]) add(removals, cli);
  const records = group(program, 'records', 'look at the records in the database, and bring stuck ones back');
  for (const add of [
    recordsStatus,
    recordsStuck,
    recordsFailed,
    recordsInspect,
    recordsAdvise,
    recordsReset,
    recordsRetry,
    recordsReport,
    recordsMigrate,
    recordsSql,
  ])
    add(records, cli);
  program.commandsGroup('Configure a running router:');
  const tiers = group(program, 'tiers', 'show or replace the tier configuration');
  for (const add of [tiersGet, tiersSet]) add(tiers, cli);
  const merchants = group(program, 'merchants', 'show or change merchants');
  for (const add of [
    merchantsList,
    merchantsGet,
    merchantsSet,
    merchantsDelete,
    merchantsExport,
    merchantsImport,
  ])
    add(merchants, cli);
  program.commandsGroup('Help:');
  completion(program, cli);
  return program;
}

function helpCommand(): Command {
  return new Command('help')
    .argument('[command]')
    .description('print the help of a command')
    .helpOption(false)
    .helpGroup('Help:');
}

/** `smart-router tiers set` for the arguments of one: where the help of what was meant is. */
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

function group(program: Command, name: string, summary: string): Command {
  return program
    .command(name)
    .summary(summary)
    .description(`${summary[0]?.toUpperCase()}${summary.slice(1)}.`)
    .usage('<command> [options]')
    .helpCommand(false)
    .addHelpText('after', `\nRun \`smart-router ${name} <command> --help\` for examples.`);
}

function footer(): string {
  const codes = Object.entries(exitCodeMeanings).map(([code, what]) => `  ${code.padEnd(3)}  ${what}`);
  return `
Examples:
  $ smart-router demo                      three routers, a small cluster, and calls to watch
  $ smart-router status                    what the router at http://127.0.0.1:8080 does
  $ smart-router alerts                    what is wrong now, and where the runbook helps
  $ smart-router drain POD --wait 10m      empty a pod before it is stopped
  $ smart-router COMMAND --help            options and examples of one command

Environment:
  SMART_ROUTER_URL        address of the router, if not http://127.0.0.1:8080; --url wins
  SMART_ROUTER_ADMIN_KEY  key for operators; SMART_ROUTER_API_KEY opens less
  DATABASE_URL            the database of \`records\` commands
  NO_COLOR                no colours on a terminal
  DEBUG=smart-router      where an unexpected error came from

Exit codes:
${codes.join('\n')}`;
}
