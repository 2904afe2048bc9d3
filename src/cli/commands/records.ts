/** `smart-router records`: the commands that only read records. Those that write are in records-changes.ts. */
import type { Command } from 'commander';
import { formatDuration } from '../../config/durations.js';
import { ConfigError } from '../../errors.js';
import { showFailed, showNumbers, showRecord } from '../../records/documents.js';
import { quoteName } from '../../records/identifiers.js';
import { adviseTimes, suggestTimes } from '../../records/timeout-advice.js';
import { type Cell, facts, table } from '../../terminal/table.js';
import type { Paint } from '../../terminal/text.js';
import type { RouterApi } from '../api.js';
import {
  addGroup,
  type Cli,
  type CommandHelp,
  type Outcome,
  wholeNumber,
  withAccess,
  withRouter,
} from '../cli.js';
import { Failure, oneLine } from '../failure.js';
import { count, shownOf } from '../format.js';
import {
  answerReading,
  answerRecords,
  describeReading,
  describeRecords,
  recordTable,
  showWorkflows,
  spanOf,
  stuckColour,
} from '../records.js';
import type { RecordsTools } from '../records-database.js';
import type {
  FailedRecords,
  RecordDocument,
  RecordNumbers,
  RecordWorkflows,
  Status,
  StuckRecords,
} from '../replies.js';
import { recordsChanges } from './records-changes.js';

export function records(program: Command, cli: Cli): void {
  const reading = [recordsStatus, recordsStuck, recordsFailed, recordsInspect, recordsAdvise];
  addGroup(program, cli, 'records', 'show the records in the database, and requeue stuck ones', [
    ...reading,
    ...recordsChanges,
  ]);
}

async function readWorkflows(
  api: RouterApi,
  timeoutMs = api.timeoutMs,
): Promise<RecordWorkflows['workflows']> {
  return (await api.send<RecordWorkflows>('/records', { has: 'workflows', timeoutMs })).body.workflows;
}

/** The usual cause: RECORDS_MODULE is set for the router and not for this command. */
const noWorkflowHint =
  'For your own tables set RECORDS_MODULE to the file that exports their workflows, as for the router; for the shipped workflows set RECORDS_WORKFLOWS, and run `smart-router records migrate --with-workflows` once, which creates their tables (docs/records.md).';

function recordsStatus(parent: Command, cli: Cli): void {
  const command = describeReading(parent.command('status'), {
    summary: 'show the numbers of every workflow',
    about:
      'Stuck records are in Processing and have lost their worker; held records are stuck ones that wait for a person (policy "hold"). Queued records include those that wait for a retry: their number and the time of the first are shown if a workflow has `retry`, and the number of keys at their limit if one has `limit`. Completed records are not counted.',
    examples: [
      ['records status', ''],
      ['records status --url http://router:8080', 'as this router sees them'],
      ['records status --json | jq ".workflows[] | select(.stuck > 10)"', 'for a script'],
    ],
  });
  const onRouter = async (api: RouterApi): Promise<Outcome> => {
    const workflows = await readWorkflows(api);
    if (workflows.length > 0)
      return { document: { workflows }, text: showWorkflows(workflows, cli.output.paint) };
    const { body } = await api.send<Status>('/status', { has: 'records' });
    const reason = body.records?.error ?? `it has no database or no workflow. ${noWorkflowHint}`;
    return { document: { workflows }, text: `no workflows run on the router at ${api.baseUrl}: ${reason}\n` };
  };
  const onDatabase = async ({ config, workflows, operations }: RecordsTools): Promise<Outcome> => {
    const found: RecordNumbers[] = [];
    const warnings: string[] = [];
    for (const { name } of workflows) {
      try {
        found.push(showNumbers(await operations.look(name, 1), null, []));
      } catch (error) {
        // One unusable table must not hide the numbers of the others.
        if (!(error instanceof ConfigError)) throw error;
        warnings.push(...error.problems);
      }
    }
    if (config.recordsModule === undefined && warnings.length > 0) warnings.push(noWorkflowHint);
    if (found.length === 0 && warnings.length > 0)
      throw new Failure('configuration', 'no workflow can be read:', [...new Set(warnings)]);
    return {
      document: { workflows: found, warnings },
      text: found.length === 0 ? `no workflows. ${noWorkflowHint}\n` : showWorkflows(found, cli.output.paint),
      warnings,
    };
  };
  answerReading(command, cli, onDatabase, onRouter);
}

interface WorkflowRecords<T> {
  workflow: string;
  total: number;
  records: T[];
}

/** A command that lists records by workflow. */
interface Listing<T> extends CommandHelp {
  onDatabase(tools: RecordsTools, name: string, limit: number): Promise<WorkflowRecords<T>>;
  onRouter(api: RouterApi, name: string, limit: number): Promise<WorkflowRecords<T>>;
  showTable(records: readonly T[], paint: Paint): string;
  /** Printed if no workflow has such records. */
  empty: string;
}

function addListing<T>(parent: Command, cli: Cli, name: string, listing: Listing<T>): void {
  const command = describeReading(
    parent.command(name).argument('[workflow]', 'only this workflow (default: all)'),
    listing,
  ).option('--limit <n>', 'show at most this many of each workflow', wholeNumber(1, 1000), 100);
  const outcomeOf = async (
    names: readonly string[],
    read: (name: string, limit: number) => Promise<WorkflowRecords<T>>,
  ): Promise<Outcome> => {
    const { paint } = cli.output;
    const workflows: WorkflowRecords<T>[] = [];
    for (const one of names) workflows.push(await read(one, command.opts<{ limit: number }>().limit));
    const texts = workflows
      .filter(({ total }) => total > 0)
      .map(({ workflow, total, records }) => {
        const shown = shownOf(records.length, total, 'record');
        return `${paint('bold', workflow)}\n${listing.showTable(records, paint)}\n${shown}\n`;
      });
    return { document: { workflows }, text: texts.length === 0 ? `${listing.empty}\n` : texts.join('\n') };
  };
  answerReading(
    command,
    cli,
    (tools) =>
      outcomeOf(
        tools.workflows.map((workflow) => workflow.name),
        (one, limit) => listing.onDatabase(tools, one, limit),
      ),
    async (api) => {
      const [named] = command.args;
      const names = named === undefined ? (await readWorkflows(api)).map((one) => one.name) : [named];
      return outcomeOf(names, (one, limit) => listing.onRouter(api, one, limit));
    },
  );
}

function recordsStuck(parent: Command, cli: Cli): void {
  addListing<RecordDocument>(parent, cli, 'stuck', {
    summary: 'list stuck records, the oldest first',
    about:
      'Why: dead worker (its heartbeat expired), timed out (older than its timeout and 30 s), unclaimed (in Processing without a claim of ours for longer than ZOMBIE_STUCK_THRESHOLD_MINUTES).',
    examples: [
      ['records stuck', ''],
      ['records stuck page-curation --limit 20', 'the 20 oldest of one workflow'],
      ['records stuck --url http://router:8080', 'as this router sees them'],
      ['records stuck --json | jq -r ".workflows[].records[].id"', 'for a script'],
    ],
    exits: [4],
    onDatabase: async ({ operations }, workflow, limit) => {
      const { stuck: total, stuckRecords } = await operations.look(workflow, limit);
      return { workflow, total, records: stuckRecords.map(showRecord) };
    },
    onRouter: async (api, workflow, limit) => {
      const path = `/records/${encodeURIComponent(workflow)}/stuck?limit=${limit}`;
      return (await api.send<StuckRecords>(path, { has: 'records' })).body;
    },
    showTable: recordTable,
    empty: 'no stuck records',
  });
}

function recordsFailed(parent: Command, cli: Cli): void {
  addListing<FailedRecords['records'][number]>(parent, cli, 'failed', {
    summary: 'list failed records with their errors, the newest first',
    about:
      'After those in Failed it lists records that wait for their retry, the next first. `records retry` queues both again, at once: those of --ids, or all with --all.',
    examples: [
      ['records failed', ''],
      ['records failed page-curation --limit 20', 'the 20 newest of one workflow'],
      ['records failed --url http://router:8080', 'as this router sees them'],
      ['records failed --json | jq -r ".workflows[].records[].id"', 'for a script'],
    ],
    exits: [4],
    onDatabase: async ({ operations }, workflow, limit) => {
      const { failed, waitingForRetry } = await operations.look(workflow, 1);
      const records = (await operations.failed(workflow, limit)).map(showFailed);
      return { workflow, total: Math.max(failed + (waitingForRetry ?? 0), records.length), records };
    },
    onRouter: async (api, workflow, limit) => {
      const path = `/records/${encodeURIComponent(workflow)}/failed?limit=${limit}`;
      const { body } = await api.send<FailedRecords>(path, { has: 'records' });
      const numbers = (await readWorkflows(api)).find(({ name }) => name === workflow);
      const { failed = 0, waiting_for_retry } = numbers ?? {};
      return { ...body, total: Math.max(failed + (waiting_for_retry ?? 0), body.records.length) };
    },
    showTable: (records, paint) => {
      const hasRetry = records.some(({ retry_seconds }) => retry_seconds !== null);
      const columns = ['RECORD', '>FAILED', ...(hasRetry ? ['>RETRY IN'] : []), 'ERROR'];
      const rows = records.map(({ id, error, failed_seconds, retry_seconds }): Cell[] => [
        id,
        failed_seconds === null ? '-' : `${spanOf(failed_seconds)} ago`,
        ...(hasRetry ? [spanOf(retry_seconds)] : []),
        error === null ? '-' : oneLine(error),
      ]);
      return table(columns, rows, paint);
    },
    empty: 'no failed records',
  });
}

function recordsInspect(parent: Command, cli: Cli): void {
  const command = describeReading(parent.command('inspect').argument('<workflow>', 'name of the workflow'), {
    summary: 'show one workflow: its table, its times, and advice',
    about:
      'Advice names a missing index, and times that do not fit the resets of the last week and the records in progress. `records advise` also asks a running router how long records take. A router gives numbers and advice, but not table and times. Nothing is changed.',
    examples: [
      ['records inspect page-curation', ''],
      ['records inspect page-curation --url http://router:8080', 'as this router sees it'],
    ],
    exits: [4],
  });
  const named = () => command.args[0] ?? '';
  const onRouter = async (api: RouterApi): Promise<Outcome> => {
    const workflows = await readWorkflows(api);
    const found = workflows.find(({ name }) => name === named());
    if (!found) {
      const known = workflows.map(({ name }) => name).join(', ') || 'none';
      const message = `the router at ${api.baseUrl} has no workflow ${JSON.stringify(named())}; known: ${known}`;
      throw new Failure('workflow_not_found', message);
    }
    const p99 = found.processing_p99_seconds;
    const text = facts(
      [
        ...numberFacts(found),
        ['p99', p99 === null ? '-' : `${p99} s on this router`],
        ...adviceFacts(found.advice),
        ['source', `the router at ${api.baseUrl}; set DATABASE_URL for table and times`],
      ],
      cli.output.paint,
    );
    return { document: found, text };
  };
  const onDatabase = async ({ operations, config }: RecordsTools): Promise<Outcome> => {
    const workflow = operations.workflow(named());
    const found = await operations.look(workflow.name, 1);
    const history = await operations.history(workflow.name);
    const thresholdMs = config.zombieStuckThresholdMs;
    const numbers = showNumbers(found, null, adviseTimes(workflow, history, thresholdMs));
    const { stuck, timeoutMs, batchSize, concurrency } = workflow;
    const stuckAfterMs = stuck.afterMs ?? Math.max(thresholdMs, timeoutMs);
    const { deadWorker, timedOut, unclaimed, longestSeconds } = history;
    const text = facts(
      [
        ...numberFacts(numbers, [
          ['table', `${quoteName(workflow.table)}, status ${quoteName([workflow.status.column])}`],
        ]),
        ['concurrency', `${concurrency}, claimed in batches of ${batchSize}`],
        ['timeout', formatDuration(timeoutMs)],
        [
          'if stuck',
          `${stuck.policy}, at most ${count(stuck.maxResets, 'reset')}; unclaimed after ${formatDuration(stuckAfterMs)}`,
        ],
        ['longest now', spanOf(longestSeconds)],
        ['last 7 days', `${deadWorker} dead worker, ${timedOut} timed out, ${unclaimed} unclaimed`],
        ...adviceFacts(numbers.advice),
      ],
      cli.output.paint,
    );
    const document = {
      ...numbers,
      timeout_ms: timeoutMs,
      stuck_after_ms: stuckAfterMs,
      last_7_days: { dead_worker: deadWorker, timed_out: timedOut, unclaimed },
    };
    return { document, text };
  };
  answerReading(command, cli, onDatabase, onRouter);
}

function numberFacts(one: RecordNumbers, tableFacts: readonly [string, Cell][] = []): [string, Cell][] {
  const { name, queued, processing, failed, stuck, held, oldest_stuck_seconds } = one;
  const oldest = oldest_stuck_seconds === null ? '' : `, the oldest for ${spanOf(oldest_stuck_seconds)}`;
  const heldText = held > 0 ? `; ${held} of them held for a person` : '';
  const next = one.next_retry_seconds === null ? '' : `, the first in ${spanOf(one.next_retry_seconds)}`;
  return [
    ['workflow', name],
    ...tableFacts,
    ['records', `${queued} queued, ${processing} processing, ${failed} failed`],
    ['stuck', stuck === 0 ? 0 : { text: `${stuck}${oldest}${heldText}`, colour: stuckColour(stuck) }],
    ...(one.waiting_for_retry === null
      ? []
      : [['retries', `${count(one.waiting_for_retry, 'record')} waiting${next}`] as [string, Cell]]),
    ...(one.keys_at_limit === null
      ? []
      : [['limit', `${count(one.keys_at_limit, 'key')} at the limit`] as [string, Cell]]),
  ];
}

function adviceFacts(advice: readonly string[]): [string, Cell][] {
  return advice.map((text) => ['advice', { text, colour: 'yellow' }]);
}

/** Advice does not wait longer for a router that may not be there. */
const routerTimeoutMs = 2000;

function recordsAdvise(parent: Command, cli: Cli): void {
  const described = describeRecords(parent.command('advise').argument('<workflow>', 'name of the workflow'), {
    summary: 'suggest `timeout` and `stuck.after` for a workflow, with reasons',
    about:
      'A running router knows the p99 of the processing time; it is asked first, for at most two seconds. Without a router the advice rests on the resets of the last week and the records in progress. Nothing is changed: the times are part of the workflow definition.',
    examples: [
      ['records advise page-curation', ''],
      ['records advise page-curation --url http://router:8080', 'ask this router'],
    ],
    exits: [4],
  });
  const command = withAccess(described);
  answerRecords(command, cli, async ({ operations, config }) => {
    const name = command.args[0] ?? '';
    const workflow = operations.workflow(name);
    const thresholdMs = config.zombieStuckThresholdMs;
    const history = await operations.history(name);
    const { p99Seconds, source } = await readP99(command, cli, name);
    const now = {
      timeoutMs: workflow.timeoutMs,
      stuckAfterMs: workflow.stuck.afterMs ?? Math.max(thresholdMs, workflow.timeoutMs),
    };
    const suggested = suggestTimes(now, history, p99Seconds);
    const advice = adviseTimes(workflow, history, thresholdMs, p99Seconds);
    const change = (fromMs: number, toMs: number, why: string): Cell =>
      fromMs === toMs
        ? { text: `${formatDuration(fromMs)}, keep it: ${why}`, colour: undefined }
        : { text: `${formatDuration(toMs)} instead of ${formatDuration(fromMs)}: ${why}`, colour: 'yellow' };
    const text = facts(
      [
        ['workflow', name],
        ['source', source],
        ['p99', p99Seconds === null ? '-' : `${p99Seconds} s`],
        ['timeout', change(now.timeoutMs, suggested.timeoutMs, suggested.whyTimeout)],
        ['stuck.after', change(now.stuckAfterMs, suggested.stuckAfterMs, suggested.whyStuckAfter)],
        ...adviceFacts(advice),
      ],
      cli.output.paint,
    );
    const document = {
      name,
      source,
      processing_p99_seconds: p99Seconds,
      timeout_ms: now.timeoutMs,
      stuck_after_ms: now.stuckAfterMs,
      suggested_timeout_ms: suggested.timeoutMs,
      suggested_stuck_after_ms: suggested.stuckAfterMs,
      why_timeout: suggested.whyTimeout,
      why_stuck_after: suggested.whyStuckAfter,
      advice,
    };
    return { document, text };
  });
}

/** The p99 that a router measured; null without a router that runs the workflow. */
async function readP99(
  command: Command,
  cli: Cli,
  name: string,
): Promise<{ p99Seconds: number | null; source: string }> {
  const none = (why: string) => ({ p99Seconds: null, source: `the database only: ${why}` });
  try {
    return await withRouter(command, cli, async (api) => {
      const workflows = await readWorkflows(api, Math.min(api.timeoutMs, routerTimeoutMs));
      const found = workflows.find((workflow) => workflow.name === name);
      if (!found) return none(`the router at ${api.baseUrl} does not run it`);
      const p99Seconds = found.processing_p99_seconds;
      if (p99Seconds === null)
        return none(`the router at ${api.baseUrl} has processed fewer than 100 records`);
      return { p99Seconds, source: `the router at ${api.baseUrl}, and the database` };
    });
  } catch (error) {
    // A wrong --url is a usage error; an unreachable router is not.
    if (!(error instanceof Failure) || error.exitCode === 2) throw error;
    return none(error.message);
  }
}
