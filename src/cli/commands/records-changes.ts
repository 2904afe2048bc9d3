/** `smart-router records`: the commands that change records or the schema, and `report` and `sql`. */
import { hostname, userInfo } from 'node:os';
import { Argument, InvalidArgumentError, Option } from 'commander';
import { type ErrorCode, errorCodes } from '../../errors.js';
import { showCounts, showRecord } from '../../records/admin.js';
import type { HandledCounts } from '../../records/operations.js';
import { applyOption, command, type Given, type Outcome } from '../cli.js';
import { files } from '../deploy-postgres.generated.js';
import { Failure, toFailure } from '../failure.js';
import { count, shownOf } from '../format.js';
import { recordsCommand, recordTable } from '../records.js';

export const workflowArgument = new Argument('<workflow>', 'name of the workflow');

interface Change {
  ids?: string[];
  all?: true;
  apply?: true;
}

const reset = recordsCommand<Change>({
  name: 'reset',
  summary: 'requeue stuck records; a dry run unless --apply is given',
  about:
    'Without --ids it does what the recovery would do now: stuck records become Queued, or Failed once their resets are used up; records with the policy "hold" stay. Records of live workers are not touched. With --ids it requeues these records regardless of age and resets, and their resets count from 0; also those of a live worker, if it has held them for longer than the timeout and 30 s. The counts cover all records, even if only 1000 are listed.',
  examples: [
    ['records reset page-curation', 'show what would be done'],
    ['records reset page-curation --apply', 'do it'],
    ['records reset page-curation --ids 17,18 --apply', 'only these'],
  ],
  exits: [4, 5],
  args: [workflowArgument],
  options: [
    idsOption('only these records, separated by commas; ids with a comma through the API'),
    applyOption,
  ],
  async run(given) {
    const { operations, args, options } = given;
    const { ids, apply } = options;
    const [workflow = ''] = args;
    const counts = await audited(given, 'records.reset', () =>
      operations.reset(workflow, { ids, dryRun: !apply }),
    );
    return handledOutcome(counts, { byId: ids !== undefined });
  },
});

const retry = recordsCommand<Change>({
  name: 'retry',
  summary: 'requeue failed records; a dry run unless --apply is given',
  about:
    'Clears their error and counts their resets and attempts from 0. `records failed` lists them, also those that wait for a retry, which then run at once. With --all, records that fail again during the run are skipped, and the counts cover all records, even if only 1000 are listed.',
  examples: [
    ['records retry page-curation --ids 17,18', 'show what would be done'],
    ['records retry page-curation --ids 17,18 --apply', 'do it'],
    ['records retry page-curation --all --apply', 'all that have failed so far'],
  ],
  exits: [4, 5],
  args: [workflowArgument],
  options: [
    idsOption('the records, separated by commas; ids with a comma through the API').conflicts('all'),
    new Option('--all', 'all failed records of the workflow, also those that wait for a retry'),
    applyOption,
  ],
  async run(given) {
    const { operations, args, options } = given;
    const { ids, all, apply } = options;
    const [workflow = ''] = args;
    if (ids === undefined && !all)
      throw new Failure(
        'usage',
        `name the records with --ids, or give --all; \`smart-router records failed ${workflow}\` lists them`,
      );
    const dryRun = !apply;
    const counts = await audited(given, 'records.retry', () =>
      ids ? operations.retry(workflow, { ids, dryRun }) : operations.retryAll(workflow, { dryRun }),
    );
    return handledOutcome(counts, { byId: ids !== undefined, isRetry: true });
  },
});

function idsOption(description: string): Option {
  return new Option('--ids <ids>', description).argParser((text: string) =>
    text
      .split(',')
      .map((id) => id.trim())
      .filter((id) => id !== ''),
  );
}

/** What was done, or would be done, record by record. */
function handledOutcome(
  counts: HandledCounts,
  { byId, isRetry = false }: { byId: boolean; isRetry?: boolean },
): Outcome {
  const { dryRun, requeued, failed, held, skipped, total: all, records } = counts;
  const why = byId || isRetry ? '' : ' (past the timeout, but the worker is alive: name them with --ids)';
  const total = [
    `${requeued} requeued`,
    ...(failed > 0 ? [`${failed} failed`] : []),
    ...(held > 0 ? [`${held} held for a person (name them with --ids)`] : []),
    ...(skipped > 0 ? [`${skipped} skipped${why}`] : []),
  ].join(', ');
  const rows = recordTable(records.map(showRecord));
  const shown = all > records.length ? `${shownOf(records.length, all, 'record')}\n` : '';
  const result = dryRun ? `Dry run: ${total}. Nothing was changed; --apply does it.` : `Done: ${total}.`;
  const skippedText = `${skipped} of ${count(records.length, 'record')} skipped`;
  const none = isRetry ? 'no failed records\n' : 'no stuck records\n';
  return {
    document: showCounts(counts),
    text: records.length === 0 ? none : `${rows}\n${shown}${result}\n`,
    failure: byId && !dryRun && skipped > 0 ? new Failure('records_skipped', skippedText) : undefined,
  };
}

/**
 * Runs `work`. With --apply and --json it also writes one audit line to stderr, in the format of a router
 * (http/action-log.ts), so that one collector reads both. The actor is the user of this machine.
 */
async function audited(
  { cli: { output }, args: [workflow], options: { apply, json } }: Given<Change>,
  action: 'records.reset' | 'records.retry',
  work: () => Promise<HandledCounts>,
): Promise<HandledCounts> {
  if (!apply || !json) return work();
  // Loaded here: the logger takes longer to load than most commands run.
  const { createLogger } = await import('../../observe/log.js');
  const destination = { write: (line: string) => output.err(line.trimEnd()) };
  const log = createLogger({ level: 'info', format: 'json', destination });
  const entry = { audit: true, action, what: workflow };
  const logOutcome = (outcome: string, more: object) =>
    log.info(
      { ...entry, outcome, ...more, actor: `${userName()}@${hostname()}` },
      `audit: ${action} ${outcome}`,
    );
  try {
    const counts = await work();
    const { requeued, failed, held, skipped } = counts;
    logOutcome('done', { requeued, failed, held, skipped });
    return counts;
  } catch (error) {
    const { toAppError } = await import('../../records/permissions.js');
    const known = toAppError(error);
    const { code } = toFailure(known);
    const isRefused = code === 'configuration' || (errorCodes[code as ErrorCode] ?? 500) < 500;
    // Unexpected: the database's own code says more.
    const shown = code === 'failed' ? ((known as { code?: string }).code ?? 'internal') : code;
    logOutcome(isRefused ? 'refused' : 'failed', { code: shown });
    throw error;
  }
}

/** A container may run with a uid that has no name. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid:${process.getuid?.() ?? 'unknown'}`;
  }
}

const report = recordsCommand<{ since?: Date; until?: Date }>({
  name: 'report',
  summary: 'report recovered records, the reasons, and repeated recoveries, as Markdown',
  about:
    'Covers the last seven days by default. A router sends the same report for every full week. A time is a day or a moment like 2026-11-09 or 2026-11-09T08:30Z, in UTC unless it names another zone. Resets are kept for 90 days.',
  examples: [
    ['records report', 'the last seven days'],
    ['records report --since 2026-11-09 --until 2026-11-16', 'one week, Monday to Monday'],
    ['records report --json | jq .byHand', 'how often a person had to step in'],
  ],
  options: [
    new Option('--since <time>', 'start (default: seven days before --until)').argParser(parseTime),
    new Option('--until <time>', 'end (default: now)').argParser(parseTime),
  ],
  async run({ pool, options: { since, until } }) {
    if (since && until && since >= until) throw new Failure('usage', '--since must be before --until');
    const { assertMigrated } = await import('../../records/migrate.js');
    const { weeklyReport } = await import('../../records/report.js');
    const { reportMarkdown } = await import('../../records/report-markdown.js');
    await assertMigrated(pool);
    const found = await weeklyReport(pool, { ...(since && { since }), ...(until && { until }) });
    return { document: found, text: reportMarkdown(found) };
  },
});

/** Stricter than `new Date`, which accepts February 30 and reads a time without a zone as local time. */
function parseTime(text: string): Date {
  const parts = /^(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)(Z|[+-]\d\d:\d\d)?)?$/i.exec(text);
  const [, day = '', time = '00:00', zone = 'Z'] = parts ?? [];
  const midnight = new Date(`${day}T00:00Z`);
  const moment = new Date(`${day}T${time}${zone.toUpperCase()}`);
  const isDay = !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(day);
  if (parts && isDay && !Number.isNaN(moment.getTime())) return moment;
  throw new InvalidArgumentError('It must be a time like 2026-11-09 or 2026-11-09T08:30Z.');
}

const migrate = recordsCommand<{ withWorkflows?: boolean }>({
  name: 'migrate',
  summary: 'create or update the schema smart_router',
  about:
    'Safe to repeat, also concurrently. `serve` does the same when it starts; use this where the router must not create schemas. With --with-workflows it also creates the tables of the shipped workflows, which `serve` never does in your database. Existing tables are never changed.',
  examples: [
    ['records migrate', ''],
    ['records migrate --with-workflows', 'also sitemap_files and pages'],
    ['doctor', 'show missing migrations'],
  ],
  options: [new Option('--with-workflows', 'create the tables of the shipped workflows too')],
  async run({ pool, options: { withWorkflows = false } }) {
    const { migrateRecords, shippedProblems } = await import('../../main/workflows.js');
    const { applied, kept } = await migrateRecords(pool, { withWorkflows });
    const done = applied.length > 0 ? applied.map((name) => `applied ${name}\n`).join('') : 'up to date\n';
    const problems = kept.length > 0 ? await shippedProblems(pool) : [];
    return {
      document: { applied, kept },
      warnings: problems.map(({ text, advice }) => `${text}. ${advice}`),
      text: done + kept.map((table) => `kept    ${table}: it existed already\n`).join(''),
    };
  },
});

const sql = command<{ trigger?: true; cron?: true; script?: true }>({
  name: 'sql',
  summary: 'print the cleanup that runs inside the database, without a router',
  about:
    'Without options it prints the function smart_router.reset_stuck, to be installed with psql, and again after an update. The options print what calls it: a trigger, lines for pg_cron, or a script for cron and psql. They use the tables of the shipped workflows: replace the names with yours. Connects to nothing and changes nothing.',
  examples: [
    ['records sql | psql "$DATABASE_URL" -v ON_ERROR_STOP=1', 'install the function'],
    ['records sql --cron', 'lines for the extension pg_cron'],
    ['records sql --trigger', 'no scheduler: every write to the table cleans it up'],
    ['records sql --script > zombie-cleanup.sh', 'for cron and psql'],
  ],
  json: 'print one JSON document: name and text of the file',
  options: [
    new Option('--trigger', 'the trigger that calls it').conflicts(['cron', 'script']),
    new Option('--cron', 'the lines for pg_cron that call it').conflicts(['trigger', 'script']),
    new Option('--script', 'the shell script that calls it').conflicts(['trigger', 'cron']),
  ],
  async run({ options: { trigger, cron, script } }) {
    const caller = trigger ? 'trigger.sql' : cron ? 'pg_cron.sql' : script && 'zombie-cleanup.sh';
    const file = caller ?? 'zombie_cleanup.sql';
    return { document: { file, text: files[file] }, text: files[file] };
  },
});

export const recordsChanges = [reset, retry, report, migrate, sql];
