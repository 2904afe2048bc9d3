/** `smart-router records status`: how much waits, is worked on, is stuck, has failed. */
import type { Command } from 'commander';
import { ConfigError } from '../../errors.js';
import { showNumbers } from '../../records/by-hand-documents.js';
import { type Cell, table } from '../../terminal/table.js';
import type { Paint } from '../../terminal/text.js';
import { span } from '../ages.js';
import type { RecordNumbers, RecordWorkflows } from '../answers.js';
import type { RouterApi } from '../api.js';
import type { Cli, Outcome } from '../cli.js';
import { Failure } from '../failure.js';
import { answerLook, describeLook, stuckColour } from '../records.js';
import type { RecordsTools } from '../records-desk.js';

/** The usual cause: the module with the team's workflows was given to the router and not to this command. */
const whatToDo =
  'For tables of your own set RECORDS_MODULE to the file that exports their workflows, as for the router; for the shipped workflows run `smart-router records migrate --with-workflows`, which creates their tables (docs/records.md).';

export function recordsStatus(parent: Command, cli: Cli): void {
  const command = describeLook(parent.command('status'), {
    summary: 'show the numbers of every workflow',
    about:
      'Stuck are those in Processing that have lost their owner; held are those of them that wait for a person (policy "hold"). Completed records are not counted.',
    examples: [
      ['records status', ''],
      ['records status --url http://router:8080', 'as this router sees them'],
      ['records status --json | jq ".workflows[] | select(.stuck > 10)"', 'for a script'],
    ],
  });
  const onRouter = async (api: RouterApi): Promise<Outcome> => {
    const { body } = await api.send<RecordWorkflows>('/records', { has: 'workflows' });
    const none = `no workflows: the router at ${api.baseUrl} has no database or no workflow. ${whatToDo}\n`;
    return {
      document: body,
      text: body.workflows.length === 0 ? none : show(body.workflows, cli.screen.paint),
    };
  };
  const onDatabase = async ({ config, workflows, desk }: RecordsTools): Promise<Outcome> => {
    const found: RecordNumbers[] = [];
    const warnings: string[] = [];
    for (const { name } of workflows) {
      try {
        found.push(showNumbers(await desk.look(name, 1), null, []));
      } catch (error) {
        // One whose table does not fit is told; the others have their numbers.
        if (!(error instanceof ConfigError)) throw error;
        warnings.push(...error.problems);
      }
    }
    if (config.recordsModule === undefined && warnings.length > 0) warnings.push(whatToDo);
    if (found.length === 0 && warnings.length > 0)
      throw new Failure('configuration', 'no workflow can be read:', [...new Set(warnings)]);
    return {
      document: { workflows: found, warnings },
      text: found.length === 0 ? `no workflows. ${whatToDo}\n` : show(found, cli.screen.paint),
      warnings,
    };
  };
  answerLook(command, cli, onDatabase, onRouter);
}

const spanOf = (seconds: number | null) => (seconds === null ? '-' : span(seconds * 1000));

function show(found: readonly RecordNumbers[], paint: Paint): string {
  const rows = found.map((one): Cell[] => [
    one.name,
    one.queued,
    one.processing,
    { text: String(one.stuck), colour: stuckColour(one.stuck) },
    { text: String(one.held), colour: one.held > 0 ? 'yellow' : undefined },
    { text: String(one.failed), colour: one.failed > 0 ? 'yellow' : undefined },
    spanOf(one.oldest_queued_seconds),
    spanOf(one.oldest_stuck_seconds),
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
