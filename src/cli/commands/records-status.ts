/** `smart-router records status`: how much waits, is worked on, is stuck, has failed. */
import type { Command } from 'commander';
import { ConfigError } from '../../errors.js';
import { showNumbers } from '../../records/by-hand-documents.js';
import type { Inspection } from '../../records/inspect.js';
import { span } from '../ages.js';
import type { Cli } from '../cli.js';
import { answerRecords, describeRecords, stuckColour } from '../records.js';
import type { Paint } from '../screen.js';
import { type Cell, table } from '../table.js';

export function recordsStatus(parent: Command, cli: Cli): void {
  const command = describeRecords(parent.command('status'), {
    summary: 'show the numbers of every workflow',
    about:
      'Stuck are those in Processing that have lost their owner; held are those of them that wait for a person (policy "hold"). Completed records are not counted.',
    examples: [
      ['records status', ''],
      ['records status --json | jq ".workflows[] | select(.stuck > 10)"', 'for a script'],
    ],
  });
  answerRecords(command, cli, async ({ workflows, desk }) => {
    const found: Inspection[] = [];
    const warnings: string[] = [];
    for (const { name } of workflows) {
      try {
        found.push(await desk.look(name, 1));
      } catch (error) {
        // One whose table does not fit is told; the others have their numbers.
        if (!(error instanceof ConfigError)) throw error;
        warnings.push(...error.problems);
      }
    }
    if (found.length === 0 && warnings.length > 0) throw new ConfigError([...new Set(warnings)]);
    return {
      document: { workflows: found.map((one) => showNumbers(one, null, [])), warnings },
      text: found.length === 0 ? 'no workflows\n' : show(found, cli.screen.paint),
      warnings,
    };
  });
}

function show(found: readonly Inspection[], paint: Paint): string {
  const rows = found.map((one): Cell[] => [
    one.workflow,
    one.queued,
    one.processing,
    { text: String(one.stuck), colour: stuckColour(one.stuck) },
    { text: String(one.held), colour: one.held > 0 ? 'yellow' : undefined },
    { text: String(one.failed), colour: one.failed > 0 ? 'yellow' : undefined },
    one.queued > 0 ? span(one.oldestQueuedSeconds * 1000) : '-',
    one.stuck > 0 ? span(one.oldestStuckSeconds * 1000) : '-',
  ]);
  const columns = [
    { head: 'WORKFLOW' },
    { head: 'QUEUED', align: 'right' },
    { head: 'PROCESSING', align: 'right' },
    { head: 'STUCK', align: 'right' },
    { head: 'HELD', align: 'right' },
    { head: 'FAILED', align: 'right' },
    { head: 'OLDEST QUEUED', align: 'right' },
    { head: 'OLDEST STUCK', align: 'right' },
  ] as const;
  return table(columns, rows, paint);
}
