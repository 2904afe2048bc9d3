/** `smart-router records stuck`: which records are stuck, since when, why, and what they were doing. */
import type { Command } from 'commander';
import { showRecord } from '../../records/by-hand-documents.js';
import { shownOf } from '../ages.js';
import { type Cli, wholeNumber } from '../cli.js';
import { answerRecords, describeRecords, recordTable } from '../records.js';

export function recordsStuck(parent: Command, cli: Cli): void {
  const command = describeRecords(
    parent.command('stuck').argument('[workflow]', 'only this one; all if left out'),
    {
      summary: 'list stuck records, the oldest first',
      about:
        'Why: dead worker (its heartbeat ended), timed out (older than its timeout and 30 s), unclaimed (in Processing without a claim of ours for longer than ZOMBIE_STUCK_THRESHOLD_MINUTES).',
      examples: [
        ['records stuck', ''],
        ['records stuck page-curation --limit 20', 'the 20 oldest of one workflow'],
        ['records stuck --json | jq -r ".workflows[].records[].id"', 'for a script'],
      ],
      exits: [4],
    },
  ).option('--limit <n>', 'show at most so many of each workflow', wholeNumber(1, 1000), 100);
  answerRecords(command, cli, async ({ workflows, desk }) => {
    const { limit } = command.opts<{ limit: number }>();
    const documents: object[] = [];
    const texts: string[] = [];
    for (const { name } of workflows) {
      const { stuck: total, stuckRecords } = await desk.look(name, limit);
      documents.push({ workflow: name, total, records: stuckRecords.map(showRecord) });
      if (total === 0) continue;
      const rows = recordTable(stuckRecords, cli.screen.paint);
      texts.push(
        `${cli.screen.paint('bold', name)}\n${rows}\n${shownOf(stuckRecords.length, total, 'record')}\n`,
      );
    }
    return {
      document: { workflows: documents },
      text: texts.length === 0 ? 'nothing is stuck\n' : texts.join('\n'),
    };
  });
}
