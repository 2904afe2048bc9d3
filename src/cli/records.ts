/**
 * What the commands on records share. They talk to the database itself, not to a router: whoever cleans up after an
 * accident may reach nothing else. Those that only look ask a router where no database is named. What would change much
 * is a dry run until --apply says otherwise.
 */
import { type Command, Option } from 'commander';
import type { HandledCounts } from '../records/by-hand.js';
import { showCounts, showRecord } from '../records/by-hand-documents.js';
import { type Cell, table } from '../terminal/table.js';
import type { Colour, Paint } from '../terminal/text.js';
import { count, shownOf, span } from './ages.js';
import type { RecordDocument } from './answers.js';
import type { RouterApi } from './api.js';
import {
  answer,
  type Cli,
  type CommandHelp,
  describe,
  type Outcome,
  readUrl,
  withAccess,
  withRouter,
} from './cli.js';
import { Failure } from './failure.js';
import type { RecordsTools } from './records-desk.js';

/** Commander wraps descriptions, but not what stands after the options: these lines fit 80 columns. */
const access = `
Access:
  The database is the one of DATABASE_URL, the workflows are those of
  RECORDS_WORKFLOWS and RECORDS_MODULE, as for \`smart-router serve\`. No router
  needs to run.`;

/** Description, --json, examples, exit codes, and where the database is. */
export function describeRecords(command: Command, help: CommandHelp): Command {
  return describe(command, { ...help, exits: [...(help.exits ?? []), 6] }).addHelpText('after', access);
}

/** The same for a command that only looks: where no database is named, a router is asked. */
export function describeLook(command: Command, help: CommandHelp): Command {
  return withAccess(
    describe(command, { ...help, exits: [...(help.exits ?? []), 6] }).addHelpText('after', where),
  );
}

const where = `
Where:
  With --url the router there is asked. Else the database of DATABASE_URL, with
  the workflows of RECORDS_WORKFLOWS and RECORDS_MODULE; no router needs to run.
  Without DATABASE_URL, the router of SMART_ROUTER_URL or this machine.`;

/** Runs `work` on the database of DATABASE_URL, prints its outcome, keeps its exit code. */
export function answerRecords(
  command: Command,
  cli: Cli,
  work: (tools: RecordsTools) => Promise<Outcome>,
): void {
  answer(command, cli, () => {
    const elsewhere = notHere(cli.env);
    if (elsewhere === undefined) return onDatabase(command, cli, work);
    throw new Failure('configuration', `${elsewhere}. ${insteadOf(command.name(), cli.env)}`);
  });
}

/** What can be done where a router has the database, and we do not. */
function insteadOf(command: string, env: NodeJS.ProcessEnv): string {
  const url = readUrl(undefined, env);
  if (command === 'reset' || command === 'retry')
    return `A router that has them does it too: open ${url}/#/records, or POST ${url}/api/v1/records/WORKFLOW/${command} (docs/api.md)`;
  if (command === 'migrate') return 'A router does it itself when it starts';
  return `What a router knows of them is at ${url}/#/records`;
}

/** Runs `onRouter` where a router is named, or no database is; else `work`, on the database. */
export function answerLook(
  command: Command,
  cli: Cli,
  work: (tools: RecordsTools) => Promise<Outcome>,
  onRouter: (api: RouterApi) => Promise<Outcome>,
): void {
  answer(command, cli, async () => {
    if (command.opts<{ url?: string }>().url !== undefined) return withRouter(command, cli, onRouter);
    const elsewhere = notHere(cli.env);
    if (elsewhere === undefined) return onDatabase(command, cli, work);
    try {
      return await withRouter(command, cli, onRouter);
    } catch (error) {
      // Nobody has named this router: what is missing is the database, or its address.
      if (!(error instanceof Failure) || !['unreachable', 'not_a_router'].includes(error.code)) throw error;
      throw new Failure('configuration', `${elsewhere}; and ${error.message}`, [], { cause: error });
    }
  });
}

async function onDatabase(
  command: Command,
  cli: Cli,
  work: (tools: RecordsTools) => Promise<Outcome>,
): Promise<Outcome> {
  const { withRecords } = await import('./records-desk.js');
  return withRecords(cli.env, cli.clock, command.args[0], work);
}

/** Why there is no database to go to from here. */
function notHere(env: NodeJS.ProcessEnv): string | undefined {
  const url = env.DATABASE_URL?.trim();
  if (!url) return 'DATABASE_URL is not set: it says where the records are';
  return url === 'embedded' ? 'DATABASE_URL=embedded is a database beside a router' : undefined;
}

/** Any is worth a look; above fifty the alert is critical too. */
export function stuckColour(stuck: number): Colour | undefined {
  return stuck > 50 ? 'red' : stuck > 0 ? 'yellow' : undefined;
}

export function withApply(command: Command): Command {
  return command.option('--apply', 'do it; without this it is only shown what would be done');
}

export function idsOption(what: string): Option {
  return new Option('--ids <ids>', what).argParser((text: string) =>
    text
      .split(',')
      .map((id) => id.trim())
      .filter((id) => id !== ''),
  );
}

/** What was done, or would be, record by record. */
export function handledOutcome(
  counts: HandledCounts,
  paint: Paint,
  { byId, isRetry = false }: { byId: boolean; isRetry?: boolean },
): Outcome {
  const { dryRun, requeued, failed, held, skipped, total: all, records } = counts;
  const why = byId || isRetry ? '' : ' (past the timeout, but the worker lives: name them with --ids)';
  const total = [
    `${requeued} queued again`,
    ...(failed > 0 ? [`${failed} failed for good`] : []),
    ...(held > 0 ? [`${held} held for a person (name them with --ids)`] : []),
    ...(skipped > 0 ? [`${skipped} left alone${why}`] : []),
  ].join(', ');
  const rows = recordTable(records.map(showRecord), paint);
  const shown = all > records.length ? `${shownOf(records.length, all, 'record')}\n` : '';
  const said = dryRun ? `A dry run: ${total}. Nothing was changed; --apply does it.` : `Done: ${total}.`;
  const left = `${skipped} of ${count(records.length, 'record')} left alone`;
  const none = isRetry ? 'nothing has failed\n' : 'nothing is stuck\n';
  return {
    document: showCounts(counts),
    text: records.length === 0 ? none : `${rows}\n${shown}${said}\n`,
    failure: byId && !dryRun && skipped > 0 ? new Failure('records_skipped', left) : undefined,
  };
}

const outcomes: Readonly<Record<string, string | undefined>> = {
  requeued: 'queued',
  failed: 'failed',
  held: 'held',
  skipped: 'left alone',
};

export function recordTable(records: readonly RecordDocument[], paint: Paint): string {
  const columns = [
    { head: 'RECORD' },
    { head: 'STUCK FOR', align: 'right' },
    { head: 'WHY' },
    { head: 'BECOMES' },
    { head: 'RESETS', align: 'right' },
    { head: 'WORKER' },
    { head: 'LAST NOTE' },
  ] as const;
  const rows = records.map((record): Cell[] => [
    record.id,
    record.stuck_seconds === null ? '-' : span(record.stuck_seconds * 1000),
    record.reason.replaceAll('_', ' '),
    {
      text: outcomes[record.outcome] ?? record.outcome,
      colour: record.outcome === 'requeued' ? undefined : 'yellow',
    },
    record.resets,
    record.worker ?? '-',
    record.trace ?? '-',
  ]);
  return table(columns, rows, paint);
}
