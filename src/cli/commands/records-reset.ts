/** `smart-router records reset`: brings stuck records back. */
import type { Command } from 'commander';
import type { Cli } from '../cli.js';
import { answerRecords, describeRecords, handledOutcome, idsOption, withApply } from '../records.js';
import { audited } from '../records-audit.js';

export function recordsReset(parent: Command, cli: Cli): void {
  const described = describeRecords(parent.command('reset').argument('<workflow>', 'name of the workflow'), {
    summary: 'bring stuck records back; a dry run unless --apply is given',
    about:
      'Without --ids everything that is stuck, as the recovery would do it now: to Queued, past its resets to Failed, and what the policy "hold" keeps stays. Nothing is taken from a worker that lives. With --ids those records, whatever their age and resets, and their resets count from 0; also from a worker that lives, if it has held them for longer than the timeout and 30 s. The counts are of all records, also where only 1000 are listed.',
    examples: [
      ['records reset page-curation', 'what would be done'],
      ['records reset page-curation --apply', 'do it'],
      ['records reset page-curation --ids 17,18 --apply', 'only these'],
    ],
    exits: [4, 5],
  }).addOption(idsOption('only these records, separated by commas'));
  const command = withApply(described);
  answerRecords(command, cli, async ({ desk }) => {
    const { ids, apply } = command.opts<{ ids?: string[]; apply?: true }>();
    const [workflow = ''] = command.args;
    const counts = await audited(
      cli,
      command,
      { action: 'records.reset', workflow, isApplied: apply === true },
      () => desk.reset(workflow, { ids, dryRun: !apply }),
    );
    return handledOutcome(counts, cli.screen.paint, { byId: ids !== undefined });
  });
}
