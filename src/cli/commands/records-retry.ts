/** `smart-router records retry`: queues failed records again. */
import type { Command } from 'commander';
import type { Cli } from '../cli.js';
import { Failure } from '../failure.js';
import { answerRecords, describeRecords, handledOutcome, idsOption, withApply } from '../records.js';
import { audited } from '../records-audit.js';

export function recordsRetry(parent: Command, cli: Cli): void {
  const described = describeRecords(parent.command('retry').argument('<workflow>', 'name of the workflow'), {
    summary: 'queue failed records again; a dry run unless --apply is given',
    about:
      'Their error is cleared and their resets count from 0, so that one that failed for its resets has all of them again. `records failed` lists them. With --all those that fail again during the run are left alone, and the counts are of all records, also where only 1000 are listed.',
    examples: [
      ['records retry page-curation --ids 17,18', 'what would be done'],
      ['records retry page-curation --ids 17,18 --apply', 'do it'],
      ['records retry page-curation --all --apply', 'all that have failed by now'],
    ],
    exits: [4, 5],
  })
    .addOption(idsOption('the records, separated by commas').conflicts('all'))
    .option('--all', 'all failed records of the workflow');
  const command = withApply(described);
  answerRecords(command, cli, async ({ desk }) => {
    const { ids, all, apply } = command.opts<{ ids?: string[]; all?: true; apply?: true }>();
    const [workflow = ''] = command.args;
    if (ids === undefined && !all)
      throw new Failure(
        'usage',
        `name the records with --ids, or give --all; \`smart-router records failed ${workflow}\` lists them`,
      );
    const counts = await audited(
      cli,
      command,
      { action: 'records.retry', workflow, isApplied: apply === true },
      async () => {
        if (ids) return desk.retry(workflow, { ids, dryRun: !apply });
        return desk.retryAll(workflow, { dryRun: !apply });
      },
    );
    return handledOutcome(counts, cli.screen.paint, { byId: ids !== undefined, isRetry: true });
  });
}
