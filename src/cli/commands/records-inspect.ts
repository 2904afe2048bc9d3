/** `smart-router records inspect`: one workflow, and what would make it faster or safer. */
import type { Command } from 'commander';
import { formatDuration } from '../../config/durations.js';
import { adviseTimes } from '../../records/by-hand-advice.js';
import { showNumbers } from '../../records/by-hand-documents.js';
import { quoteName } from '../../records/identifiers.js';
import { type Cell, facts } from '../../terminal/table.js';
import { count, span } from '../ages.js';
import type { RecordNumbers, RecordWorkflows } from '../answers.js';
import type { RouterApi } from '../api.js';
import type { Cli, Outcome } from '../cli.js';
import { Failure } from '../failure.js';
import { answerLook, describeLook, stuckColour } from '../records.js';
import type { RecordsTools } from '../records-desk.js';

export function recordsInspect(parent: Command, cli: Cli): void {
  const command = describeLook(parent.command('inspect').argument('<workflow>', 'name of the workflow'), {
    summary: 'look at one workflow: its table, its times, and advice',
    about:
      'Advice is about a missing index, and about times that do not fit the resets of the last week and what is being worked on now. `records advise` also asks a running router how long records take. A router that is asked instead of the database tells numbers and advice, not table and times. Nothing is changed.',
    examples: [
      ['records inspect page-curation', ''],
      ['records inspect page-curation --url http://router:8080', 'as this router sees it'],
    ],
    exits: [4],
  });
  const named = () => command.args[0] ?? '';
  const onRouter = async (api: RouterApi): Promise<Outcome> => {
    const { body } = await api.send<RecordWorkflows>('/records', { has: 'workflows' });
    const found = body.workflows.find(({ name }) => name === named());
    if (!found) throw unknown(named(), api.baseUrl, body.workflows);
    const p99 = found.processing_p99_seconds;
    const text = facts(
      [
        ...numberFacts(found),
        ['p99', p99 === null ? '-' : `${p99} s on this router`],
        ...adviceFacts(found),
        ['seen by', `the router at ${api.baseUrl}; table and times are told with DATABASE_URL`],
      ],
      cli.screen.paint,
    );
    return { document: found, text };
  };
  const onDatabase = async ({ desk, config }: RecordsTools): Promise<Outcome> => {
    const name = named();
    const workflow = desk.workflow(name);
    const found = await desk.look(name, 1);
    const history = await desk.history(name);
    const stuckAfterMs = config.zombieStuckThresholdMs;
    const numbers = showNumbers(found, null, adviseTimes(workflow, history, stuckAfterMs));
    const { stuck, timeoutMs, batchSize, concurrency } = workflow;
    const after = stuck.afterMs ?? Math.max(stuckAfterMs, timeoutMs);
    const resets = `${history.deadWorker} dead worker, ${history.timedOut} timed out, ${history.unclaimed} unclaimed`;
    const longest = history.longestSeconds;
    const days = {
      dead_worker: history.deadWorker,
      timed_out: history.timedOut,
      unclaimed: history.unclaimed,
    };
    const text = facts(
      [
        ...numberFacts(numbers, [
          ['table', `${quoteName(workflow.table)}, status ${quoteName([workflow.status.column])}`],
        ]),
        ['at once', `${concurrency}, claimed by ${batchSize}`],
        ['timeout', formatDuration(timeoutMs)],
        [
          'if stuck',
          `${stuck.policy}, at most ${count(stuck.maxResets, 'reset')}; unclaimed after ${formatDuration(after)}`,
        ],
        ['longest now', longest === null ? '-' : span(longest * 1000)],
        ['last 7 days', resets],
        ...adviceFacts(numbers),
      ],
      cli.screen.paint,
    );
    return {
      document: { ...numbers, timeout_ms: timeoutMs, stuck_after_ms: after, last_7_days: days },
      text,
    };
  };
  answerLook(command, cli, onDatabase, onRouter);
}

function numberFacts(one: RecordNumbers, table: readonly [string, Cell][] = []): [string, Cell][] {
  const { name, queued, processing, failed, stuck, held, oldest_stuck_seconds } = one;
  const oldest = oldest_stuck_seconds === null ? '' : `, the oldest for ${span(oldest_stuck_seconds * 1000)}`;
  const waiting = held > 0 ? `; ${held} of them held for a person` : '';
  return [
    ['workflow', name],
    ...table,
    ['records', `${queued} queued, ${processing} processing, ${failed} failed`],
    ['stuck', stuck === 0 ? 0 : { text: `${stuck}${oldest}${waiting}`, colour: stuckColour(stuck) }],
  ];
}

function adviceFacts({ advice }: RecordNumbers): [string, Cell][] {
  return advice.map((text) => ['advice', { text, colour: 'yellow' }]);
}

function unknown(name: string, url: string, known: readonly RecordNumbers[]): Failure {
  const names = known.map((workflow) => workflow.name).join(', ');
  return new Failure(
    'workflow_not_found',
    `the router at ${url} has no workflow ${JSON.stringify(name)}: ${names === '' ? 'it has no database' : `it has ${names}`}`,
  );
}
