/** `smart-router records failed`: which records have failed, when, and with which error. */
import type { Command } from 'commander';
import { type Cell, table } from '../../terminal/table.js';
import type { Paint } from '../../terminal/text.js';
import { shownOf, span } from '../ages.js';
import type { FailedRecords, RecordWorkflows } from '../answers.js';
import type { RouterApi } from '../api.js';
import { type Cli, type Outcome, wholeNumber } from '../cli.js';
import { oneLine } from '../failure.js';
import { answerLook, describeLook } from '../records.js';
import type { RecordsTools } from '../records-desk.js';

type Found = FailedRecords & { total: number };

export function recordsFailed(parent: Command, cli: Cli): void {
  const command = describeLook(
    parent.command('failed').argument('[workflow]', 'only this one; all if left out'),
    {
      summary: 'list failed records with their errors, the newest first',
      about: '`records retry` queues them again: those that --ids names, or all with --all.',
      examples: [
        ['records failed', ''],
        ['records failed page-curation --limit 20', 'the 20 newest of one workflow'],
        ['records failed --url http://router:8080', 'as this router sees them'],
        ['records failed --json | jq -r ".workflows[].records[].id"', 'for a script'],
      ],
      exits: [4],
    },
  ).option('--limit <n>', 'show at most so many of each workflow', wholeNumber(1, 1000), 100);
  const limit = () => command.opts<{ limit: number }>().limit;
  const onDatabase = async ({ workflows, desk }: RecordsTools): Promise<Outcome> => {
    const found: Found[] = [];
    for (const { name } of workflows) {
      const { failed: total } = await desk.look(name, 1);
      const records = (await desk.failed(name, limit())).map(({ id, error, failedSeconds }) => ({
        id,
        error,
        failed_seconds: failedSeconds,
      }));
      found.push({ workflow: name, total: Math.max(total, records.length), records });
    }
    return outcomeOf(found, cli.screen.paint);
  };
  const onRouter = async (api: RouterApi): Promise<Outcome> => {
    const [named] = command.args;
    const { body } = await api.send<RecordWorkflows>('/records', { has: 'workflows' });
    const names = named === undefined ? body.workflows.map(({ name }) => name) : [named];
    const found: Found[] = [];
    for (const name of names) {
      const path = `/records/${encodeURIComponent(name)}/failed?limit=${limit()}`;
      const { body: failed } = await api.send<FailedRecords>(path, { has: 'records' });
      const total = body.workflows.find((one) => one.name === name)?.failed ?? 0;
      found.push({ ...failed, total: Math.max(total, failed.records.length) });
    }
    return outcomeOf(found, cli.screen.paint);
  };
  answerLook(command, cli, onDatabase, onRouter);
}

function outcomeOf(found: readonly Found[], paint: Paint): Outcome {
  const texts = found
    .filter(({ records }) => records.length > 0)
    .map(
      ({ workflow, total, records }) =>
        `${paint('bold', workflow)}\n${failedTable(records, paint)}\n${shownOf(records.length, total, 'record')}\n`,
    );
  return {
    document: { workflows: found },
    text: texts.length === 0 ? 'nothing has failed\n' : texts.join('\n'),
  };
}

function failedTable(records: FailedRecords['records'], paint: Paint): string {
  const columns = [{ head: 'RECORD' }, { head: 'FAILED', align: 'right' }, { head: 'ERROR' }] as const;
  const rows = records.map(({ id, error, failed_seconds }): Cell[] => [
    id,
    failed_seconds === null ? '-' : `${span(failed_seconds * 1000)} ago`,
    error === null ? '-' : oneLine(error),
  ]);
  return table(columns, rows, paint);
}
