/** `smart-router records inspect`: one workflow, and what would make it faster or safer. */
import type { Command } from 'commander';
import { formatDuration } from '../../durations.js';
import { adviseTimes } from '../../records/by-hand-advice.js';
import { showNumbers } from '../../records/by-hand-documents.js';
import { quoteName } from '../../records/identifiers.js';
import { count, span } from '../ages.js';
import type { Cli } from '../cli.js';
import { answerRecords, describeRecords, stuckColour } from '../records.js';
import { type Cell, facts } from '../table.js';

export function recordsInspect(parent: Command, cli: Cli): void {
  const command = describeRecords(parent.command('inspect').argument('<workflow>', 'name of the workflow'), {
    summary: 'look at one workflow: its table, its times, and advice',
    about:
      'Advice is about a missing index, and about times that do not fit the resets of the last week and what is being worked on now. `records advise` also asks a running router how long records take. Nothing is changed.',
    examples: [['records inspect page-curation', '']],
    exits: [4],
  });
  answerRecords(command, cli, async ({ desk, config }) => {
    const name = command.args[0] ?? '';
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
        ['workflow', name],
        ['table', `${quoteName(workflow.table)}, status ${quoteName([workflow.status.column])}`],
        ['records', `${found.queued} queued, ${found.processing} processing, ${found.failed} failed`],
        [
          'stuck',
          found.stuck === 0
            ? 0
            : {
                text: `${found.stuck}, the oldest for ${span(found.oldestStuckSeconds * 1000)}${found.held > 0 ? `; ${found.held} of them held for a person` : ''}`,
                colour: stuckColour(found.stuck),
              },
        ],
        ['at once', `${concurrency}, claimed by ${batchSize}`],
        ['timeout', formatDuration(timeoutMs)],
        [
          'if stuck',
          `${stuck.policy}, at most ${count(stuck.maxResets, 'reset')}; unclaimed after ${formatDuration(after)}`,
        ],
        ['longest now', longest === null ? '-' : span(longest * 1000)],
        ['last 7 days', resets],
        ...numbers.advice.map((advice): [string, Cell] => ['advice', { text: advice, colour: 'yellow' }]),
      ],
      cli.screen.paint,
    );
    return {
      document: { ...numbers, timeout_ms: timeoutMs, stuck_after_ms: after, last_7_days: days },
      text,
    };
  });
}
