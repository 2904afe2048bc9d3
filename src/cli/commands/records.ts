/** `smart-router records`: the commands that only read records. Those that write are in records-changes.ts. */
import { Argument, Option } from 'commander';
import { formatDuration } from '../../config/durations.js';
import { ConfigError } from '../../errors.js';
import { showFailed, showNumbers, showRecord } from '../../records/admin.js';
import { quoteName } from '../../records/identifiers.js';
import { adviseTimes, suggestTimes } from '../../records/timeout-advice.js';
import type { Workflow } from '../../records/workflow.js';
import { type Cell, type Column, type Fact, facts, tableOf } from '../../terminal/table.js';
import { paint } from '../../terminal/text.js';
import { keyNote, type RouterOptions, routerOptions, withRouter } from '../access.js';
import type { RouterApi } from '../api.js';
import { type AddCommand, type Given, group, type Outcome } from '../cli.js';
import { Failure, oneLine } from '../failure.js';
import { count, shownOf } from '../format.js';
import { wholeNumber } from '../input.js';
import {
  type ReadingSpec,
  readingCommand,
  recordsCommand,
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
import { recordsChanges, workflowArgument } from './records-changes.js';

async function readWorkflows(api: RouterApi, timeoutMs = api.timeoutMs): Promise<RecordNumbers[]> {
  return (await api.send<RecordWorkflows>('/records', 'workflows', { timeoutMs })).body.workflows;
}

/** The usual cause: RECORDS_MODULE is set for the router and not for this command. */
const noWorkflowHint =
  'For your own tables set RECORDS_MODULE to the file that exports their workflows, as for the router; for the shipped workflows set RECORDS_WORKFLOWS, and run `smart-router records migrate --with-workflows` once, which creates their tables (docs/records.md).';

const status = readingCommand({
  name: 'status',
  summary: 'show the numbers of every workflow',
  about:
    'Stuck records are in Processing and have lost their worker; held records are stuck ones that wait for a person (policy "hold"). Queued records include those that wait for a retry: their number and the time of the first are shown if a workflow has `retry`, and the number of keys at their limit if one has `limit`. Completed records are not counted.',
  examples: [
    ['records status', ''],
    ['records status --url http://router:8080', 'as this router sees them'],
    ['records status --json | jq ".workflows[] | select(.stuck > 10)"', 'for a script'],
  ],
  async onRouter({ api }) {
    const workflows = await readWorkflows(api);
    if (workflows.length > 0) return { document: { workflows }, text: showWorkflows(workflows) };
    const { body } = await api.send<Status>('/status', 'records');
    const reason = body.records?.error ?? `it has no database or no workflow. ${noWorkflowHint}`;
    return { document: { workflows }, text: `no workflows run on the router at ${api.baseUrl}: ${reason}\n` };
  },
  async onDatabase({ config, workflows, operations }) {
    const found: RecordNumbers[] = [];
    const warnings: string[] = [];
    for (const { name } of workflows) {
      try {
        found.push(showNumbers(await operations.inspect(name, 1), null, []));
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
      text: found.length === 0 ? `no workflows. ${noWorkflowHint}\n` : showWorkflows(found),
      warnings,
    };
  },
});

interface WorkflowRecords<T> {
  workflow: string;
  total: number;
  records: T[];
}

/** A command that lists records by workflow. */
interface Listing<T> extends Omit<ReadingSpec<never>, 'onDatabase' | 'onRouter'> {
  fromDatabase(tools: RecordsTools, workflow: string, limit: number): Promise<WorkflowRecords<T>>;
  fromRouter(api: RouterApi, workflow: string, limit: number): Promise<WorkflowRecords<T>>;
  showTable(records: readonly T[]): string;
  /** Printed if no workflow has such records. */
  empty: string;
}

function listing<T>({ fromDatabase, fromRouter, showTable, empty, ...spec }: Listing<T>): AddCommand {
  const list = async (
    names: readonly string[],
    read: (name: string) => Promise<WorkflowRecords<T>>,
  ): Promise<Outcome> => {
    const workflows: WorkflowRecords<T>[] = [];
    for (const name of names) workflows.push(await read(name));
    const texts = workflows
      .filter(({ total }) => total > 0)
      .map(({ workflow, total, records }) => {
        const shown = shownOf(records.length, total, 'record');
        return `${paint('bold', workflow)}\n${showTable(records)}\n${shown}\n`;
      });
    return { document: { workflows }, text: texts.length === 0 ? `${empty}\n` : texts.join('\n') };
  };
  return readingCommand<{ limit: number }>({
    ...spec,
    args: [new Argument('[workflow]', 'only this workflow (default: all)')],
    options: [
      new Option('--limit <n>', 'show at most this many of each workflow')
        .argParser(wholeNumber(1, 1000))
        .default(100),
    ],
    onDatabase: ({ options: { limit }, ...tools }) =>
      list(
        tools.workflows.map(({ name }) => name),
        (name) => fromDatabase(tools, name, limit),
      ),
    async onRouter({ api, args: [named], options: { limit } }) {
      const names = named === undefined ? (await readWorkflows(api)).map(({ name }) => name) : [named];
      return list(names, (name) => fromRouter(api, name, limit));
    },
  });
}

const recordsPath = (workflow: string, list: string, limit: number) =>
  `/records/${encodeURIComponent(workflow)}/${list}?limit=${limit}`;

const stuck = listing<RecordDocument>({
  name: 'stuck',
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
  async fromDatabase({ operations }, workflow, limit) {
    const { stuck: total, stuckRecords } = await operations.inspect(workflow, limit);
    return { workflow, total, records: stuckRecords.map(showRecord) };
  },
  async fromRouter(api, workflow, limit) {
    return (await api.send<StuckRecords>(recordsPath(workflow, 'stuck', limit), 'records')).body;
  },
  showTable: recordTable,
  empty: 'no stuck records',
});

type FailedRecord = FailedRecords['records'][number];

const failed = listing<FailedRecord>({
  name: 'failed',
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
  async fromDatabase({ operations }, workflow, limit) {
    const { failed, waitingForRetry } = await operations.inspect(workflow, 1);
    const records = (await operations.failed(workflow, limit)).map(showFailed);
    return { workflow, total: Math.max(failed + (waitingForRetry ?? 0), records.length), records };
  },
  async fromRouter(api, workflow, limit) {
    const { body } = await api.send<FailedRecords>(recordsPath(workflow, 'failed', limit), 'records');
    const numbers = (await readWorkflows(api)).find(({ name }) => name === workflow);
    const { failed = 0, waiting_for_retry } = numbers ?? {};
    return { ...body, total: Math.max(failed + (waiting_for_retry ?? 0), body.records.length) };
  },
  showTable(records) {
    const hasRetry = records.some(({ retry_seconds }) => retry_seconds !== null);
    const columns: Column<FailedRecord>[] = [
      ['RECORD', ({ id }) => id],
      ['>FAILED', ({ failed_seconds: at }) => (at === null ? '-' : `${spanOf(at)} ago`)],
      ['>RETRY IN', ({ retry_seconds }) => spanOf(retry_seconds), hasRetry],
      ['ERROR', ({ error }) => (error === null ? '-' : oneLine(error))],
    ];
    return tableOf(records, columns);
  },
  empty: 'no failed records',
});

/** After this time a record in Processing without a claim is stuck. */
function stuckAfterMs({ stuck, timeoutMs }: Workflow, { config }: RecordsTools): number {
  return stuck.afterMs ?? Math.max(config.zombieStuckThresholdMs, timeoutMs);
}

const inspect = readingCommand({
  name: 'inspect',
  summary: 'show one workflow: its table, its times, and advice',
  about:
    'Advice names a missing index, and times that do not fit the resets of the last week and the records in progress. `records advise` also asks a running router how long records take. A router gives numbers and advice, but not table and times. Nothing is changed.',
  examples: [
    ['records inspect page-curation', ''],
    ['records inspect page-curation --url http://router:8080', 'as this router sees it'],
  ],
  exits: [4],
  args: [workflowArgument],
  async onRouter({ api, args: [wanted = ''] }) {
    const workflows = await readWorkflows(api);
    const found = workflows.find(({ name }) => name === wanted);
    if (!found) {
      const known = workflows.map(({ name }) => name).join(', ') || 'none';
      const message = `the router at ${api.baseUrl} has no workflow ${JSON.stringify(wanted)}; known: ${known}`;
      throw new Failure('workflow_not_found', message);
    }
    const p99 = found.processing_p99_seconds;
    const text = facts([
      ...numberFacts(found),
      ['p99', p99 === null ? '-' : `${p99} s on this router`],
      ...adviceFacts(found.advice),
      ['source', `the router at ${api.baseUrl}; set DATABASE_URL for table and times`],
    ]);
    return { document: found, text };
  },
  async onDatabase({ args: [name = ''], ...tools }) {
    const { operations, config } = tools;
    const workflow = operations.workflow(name);
    const found = await operations.inspect(name, 1);
    const history = await operations.history(name);
    const numbers = showNumbers(found, null, adviseTimes(workflow, history, config.zombieStuckThresholdMs));
    const { timeoutMs, batchSize, concurrency } = workflow;
    const { policy, maxResets } = workflow.stuck;
    const afterMs = stuckAfterMs(workflow, tools);
    const { deadWorker, timedOut, unclaimed, longestSeconds } = history;
    const text = facts([
      ...numberFacts(numbers, `${quoteName(workflow.table)}, status ${quoteName([workflow.status.column])}`),
      ['concurrency', `${concurrency}, claimed in batches of ${batchSize}`],
      ['timeout', formatDuration(timeoutMs)],
      [
        'if stuck',
        `${policy}, at most ${count(maxResets, 'reset')}; unclaimed after ${formatDuration(afterMs)}`,
      ],
      ['longest now', spanOf(longestSeconds)],
      ['last 7 days', `${deadWorker} dead worker, ${timedOut} timed out, ${unclaimed} unclaimed`],
      ...adviceFacts(numbers.advice),
    ]);
    const document = {
      ...numbers,
      timeout_ms: timeoutMs,
      stuck_after_ms: afterMs,
      last_7_days: { dead_worker: deadWorker, timed_out: timedOut, unclaimed },
    };
    return { document, text };
  },
});

function numberFacts(one: RecordNumbers, table?: string): Fact[] {
  const { name, queued, processing, failed, stuck, held, oldest_stuck_seconds } = one;
  const { waiting_for_retry: waiting, keys_at_limit: keys } = one;
  const oldest = oldest_stuck_seconds === null ? '' : `, the oldest for ${spanOf(oldest_stuck_seconds)}`;
  const heldText = held > 0 ? `; ${held} of them held for a person` : '';
  const next = one.next_retry_seconds === null ? '' : `, the first in ${spanOf(one.next_retry_seconds)}`;
  return [
    ['workflow', name],
    ['table', table],
    ['records', `${queued} queued, ${processing} processing, ${failed} failed`],
    ['stuck', stuck === 0 ? 0 : { text: `${stuck}${oldest}${heldText}`, colour: stuckColour(stuck) }],
    ['retries', waiting === null ? undefined : `${count(waiting, 'record')} waiting${next}`],
    ['limit', keys === null ? undefined : `${count(keys, 'key')} at the limit`],
  ];
}

function adviceFacts(advice: readonly string[]): Fact[] {
  return advice.map((text) => ['advice', { text, colour: 'yellow' }]);
}

/** Advice does not wait longer for a router that may not be there. */
const routerTimeoutMs = 2000;

const advise = recordsCommand<RouterOptions>({
  name: 'advise',
  summary: 'suggest `timeout` and `stuck.after` for a workflow, with reasons',
  about:
    'A running router knows the p99 of the processing time; it is asked first, for at most two seconds. Without a router the advice rests on the resets of the last week and the records in progress. Nothing is changed: the times are part of the workflow definition.',
  examples: [
    ['records advise page-curation', ''],
    ['records advise page-curation --url http://router:8080', 'ask this router'],
  ],
  exits: [4],
  args: [workflowArgument],
  options: routerOptions,
  notes: [keyNote],
  async run(given) {
    const { operations, config } = given;
    const [name = ''] = given.args;
    const workflow = operations.workflow(name);
    const history = await operations.history(name);
    const { p99Seconds, source } = await readP99(given, name);
    const now = { timeoutMs: workflow.timeoutMs, stuckAfterMs: stuckAfterMs(workflow, given) };
    const suggested = suggestTimes(now, history, p99Seconds);
    const advice = adviseTimes(workflow, history, config.zombieStuckThresholdMs, p99Seconds);
    const change = (fromMs: number, toMs: number, why: string): Cell =>
      fromMs === toMs
        ? `${formatDuration(fromMs)}, keep it: ${why}`
        : { text: `${formatDuration(toMs)} instead of ${formatDuration(fromMs)}: ${why}`, colour: 'yellow' };
    const text = facts([
      ['workflow', name],
      ['source', source],
      ['p99', p99Seconds === null ? '-' : `${p99Seconds} s`],
      ['timeout', change(now.timeoutMs, suggested.timeoutMs, suggested.whyTimeout)],
      ['stuck.after', change(now.stuckAfterMs, suggested.stuckAfterMs, suggested.whyStuckAfter)],
      ...adviceFacts(advice),
    ]);
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
  },
});

/** The p99 that a router measured; null without a router that runs the workflow. */
async function readP99(
  given: Given<RouterOptions>,
  name: string,
): Promise<{ p99Seconds: number | null; source: string }> {
  const none = (why: string) => ({ p99Seconds: null, source: `the database only: ${why}` });
  try {
    return await withRouter(given, async (api) => {
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

export const records = group('records', 'show the records in the database, and requeue stuck ones', [
  ...[status, stuck, failed, inspect, advise],
  ...recordsChanges,
]);
