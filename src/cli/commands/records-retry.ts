/** `smart-router records retry`: queues failed records again. */
import type { Command } from 'commander';
import type { Cli } from '../cli.js';
import { answerRecords, describeRecords, handledOutcome, idsOption, withApply } from '../records.js';
import { audited } from '../records-audit.js';

export function recordsRetry(parent: Command, cli: Cli): void {
  const described = describeRecords(parent.command('retry').argument('<workflow>', 'name of the workflow'), {
    summary: 'queue failed records again; a dry run unless --apply is given',
    about:
      'Their error is cleared and their resets count from 0, so that one that failed for its resets has all of them again.',
    examples: [
      ['records retry page-curation --ids 17,18', 'what would be done'],
      ['records retry page-curation --ids 17,18 --apply', 'do it'],
    ],
    exits: [4, 5],
  }).addOption(idsOption('the records, separated by commas').makeOptionMandatory());
  const command = withApply(described);
  answerRecords(command, cli, async ({ desk }) => {
    const { ids, apply } = command.opts<{ ids: string[]; apply?: true }>();
    const [workflow = ''] = command.args;
    const counts = await audited(cli, { action: 'records.retry', workflow, isApplied: apply === true }, () =>
      desk.retry(workflow, { ids, dryRun: !apply }),
    );
    return handledOutcome(counts, cli.screen.paint, true);
  });
}
