/** `smart-router records stuck`: which records are stuck, since when, why, and what they were doing. */
import type { Command } from 'commander';
import { showRecord } from '../../records/by-hand-documents.js';
import type { Paint } from '../../terminal/text.js';
import { shownOf } from '../ages.js';
import type { RecordWorkflows, StuckRecords } from '../answers.js';
import type { RouterApi } from '../api.js';
import { type Cli, type Outcome, wholeNumber } from '../cli.js';
import { answerLook, describeLook, recordTable } from '../records.js';
import type { RecordsTools } from '../records-desk.js';

export function recordsStuck(parent: Command, cli: Cli): void {
  const command = describeLook(
    parent.command('stuck').argument('[workflow]', 'only this one; all if left out'),
    {
      summary: 'list stuck records, the oldest first',
      about:
        'Why: dead worker (its heartbeat ended), timed out (older than its timeout and 30 s), unclaimed (in Processing without a claim of ours for longer than ZOMBIE_STUCK_THRESHOLD_MINUTES).',
      examples: [
        ['records stuck', ''],
        ['records stuck page-curation --limit 20', 'the 20 oldest of one workflow'],
        ['records stuck --url http://router:8080', 'as this router sees them'],
        ['records stuck --json | jq -r ".workflows[].records[].id"', 'for a script'],
      ],
      exits: [4],
    },
  ).option('--limit <n>', 'show at most so many of each workflow', wholeNumber(1, 1000), 100);
  const limit = () => command.opts<{ limit: number }>().limit;
  const onDatabase = async ({ workflows, desk }: RecordsTools): Promise<Outcome> => {
    const found: StuckRecords[] = [];
    for (const { name } of workflows) {
      const { stuck: total, stuckRecords } = await desk.look(name, limit());
      found.push({ workflow: name, total, records: stuckRecords.map(showRecord) });
    }
    return outcomeOf(found, cli.screen.paint);
  };
  const onRouter = async (api: RouterApi): Promise<Outcome> => {
    const [named] = command.args;
    const names = named === undefined ? await workflowsOf(api) : [named];
    const found: StuckRecords[] = [];
    for (const name of names) {
      const path = `/records/${encodeURIComponent(name)}/stuck?limit=${limit()}`;
      found.push((await api.send<StuckRecords>(path, { has: 'records' })).body);
    }
    return outcomeOf(found, cli.screen.paint);
  };
  answerLook(command, cli, onDatabase, onRouter);
}

async function workflowsOf(api: RouterApi): Promise<string[]> {
  const { body } = await api.send<RecordWorkflows>('/records', { has: 'workflows' });
  return body.workflows.map(({ name }) => name);
}

function outcomeOf(found: readonly StuckRecords[], paint: Paint): Outcome {
  const texts = found
    .filter(({ total }) => total > 0)
    .map(
      ({ workflow, total, records }) =>
        `${paint('bold', workflow)}\n${recordTable(records, paint)}\n${shownOf(records.length, total, 'record')}\n`,
    );
  return {
    document: { workflows: found },
    text: texts.length === 0 ? 'nothing is stuck\n' : texts.join('\n'),
  };
}
