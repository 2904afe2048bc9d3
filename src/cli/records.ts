/**
 * What the commands on records share. They talk to the database itself, not to a router: whoever cleans up after an
 * accident may reach nothing else. What would change much is a dry run until --apply says otherwise.
 */
import { type Command, Option } from 'commander';
import type { HandledCounts } from '../records/by-hand.js';
import { showCounts } from '../records/by-hand-documents.js';
import { count, shownOf, span } from './ages.js';
import { answer, type Cli, type CommandHelp, describe, type Outcome } from './cli.js';
import { Failure } from './failure.js';
import type { RecordsTools } from './records-desk.js';
import type { Colour, Paint } from './screen.js';
import { type Cell, table } from './table.js';

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

/** Runs `work` on the database of DATABASE_URL, prints its outcome, keeps its exit code. */
export function answerRecords(
  command: Command,
  cli: Cli,
  work: (tools: RecordsTools) => Promise<Outcome>,
): void {
  answer(command, cli, async () => {
    const { withRecords } = await import('./records-desk.js');
    return withRecords(cli.env, cli.clock, command.args[0], work);
  });
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
export function handledOutcome(counts: HandledCounts, paint: Paint, byId: boolean): Outcome {
  const { dryRun, requeued, failed, held, skipped, total: all, records } = counts;
  const total = [
    `${requeued} queued again`,
    ...(failed > 0 ? [`${failed} failed for good`] : []),
    ...(held > 0 ? [`${held} held for a person (name them with --ids)`] : []),
    ...(skipped > 0
      ? [
          `${skipped} left alone${byId ? '' : ' (past the timeout, but the worker lives: name them with --ids)'}`,
        ]
      : []),
  ].join(', ');
  const rows = recordTable(records, paint);
  const shown = all > records.length ? `${shownOf(records.length, all, 'record')}\n` : '';
  const said = dryRun ? `A dry run: ${total}. Nothing was changed; --apply does it.` : `Done: ${total}.`;
  const left = `${skipped} of ${count(records.length, 'record')} left alone`;
  return {
    document: showCounts(counts),
    text: records.length === 0 ? 'nothing is stuck\n' : `${rows}\n${shown}${said}\n`,
    failure: byId && !dryRun && skipped > 0 ? new Failure('records_skipped', left) : undefined,
  };
}

const outcomes = { requeued: 'queued', failed: 'failed', held: 'held', skipped: 'left alone' } as const;

export function recordTable(records: HandledCounts['records'], paint: Paint): string {
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
    record.stuckSeconds === null ? '-' : span(record.stuckSeconds * 1000),
    record.reason.replaceAll('_', ' '),
    { text: outcomes[record.outcome], colour: record.outcome === 'requeued' ? undefined : 'yellow' },
    record.resets,
    record.worker ?? '-',
    record.trace ?? '-',
  ]);
  return table(columns, rows, paint);
}
