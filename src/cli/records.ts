/**
 * Shared parts of the commands on records. They use the database directly, because after an accident it may be all that
 * an operator can reach. Commands that only read ask a router if no database is named.
 */
import { type Cell, type Column, tableOf } from '../terminal/table.js';
import type { Colour } from '../terminal/text.js';
import {
  type GivenRouter,
  keyNote,
  type RouterOptions,
  readUrl,
  routerOptions,
  withRouter,
} from './access.js';
import { type AddCommand, type CommandSpec, command, type Given, type Outcome } from './cli.js';
import { Failure } from './failure.js';
import { span } from './format.js';
import type { RecordsTools } from './records-database.js';
import type { RecordDocument, RecordNumbers } from './replies.js';

type GivenRecords<Options = object> = Given<Options> & RecordsTools;

const databaseNote = `
Access:
  The database is the one of DATABASE_URL, the workflows are those of
  RECORDS_WORKFLOWS and RECORDS_MODULE, as for \`smart-router serve\`. No router
  needs to run.`;

const sourceNote = `
Source:
  With --url that router is asked. Otherwise the database of DATABASE_URL, with
  the workflows of RECORDS_WORKFLOWS and RECORDS_MODULE; no router needs to run.
  Without DATABASE_URL, the router of SMART_ROUTER_URL or of this machine.`;

/** A command that needs the database. */
export function recordsCommand<Options = object>(spec: CommandSpec<GivenRecords<Options>>): AddCommand {
  return command<Options>({
    ...spec,
    exits: [...(spec.exits ?? []), 6],
    notes: [databaseNote, ...(spec.notes ?? [])],
    async run(given) {
      const { env } = given.cli;
      const problem = databaseProblem(env);
      if (problem === undefined) return onDatabase(given, spec.run);
      throw new Failure('configuration', `${problem}. ${alternative(spec.name, env)}`);
    },
  });
}

/** What to do instead, with a router that has a database. */
function alternative(name: string, env: NodeJS.ProcessEnv): string {
  const url = readUrl(undefined, env);
  if (name === 'reset' || name === 'retry')
    return `A router with a database can do it: open ${url}/#/records, or POST ${url}/api/v1/records/WORKFLOW/${name} (docs/api.md)`;
  if (name === 'migrate') return 'A router migrates its database when it starts';
  return `A router with a database shows its records at ${url}/#/records`;
}

export interface ReadingSpec<Options> extends Omit<CommandSpec<never>, 'run'> {
  onDatabase(given: GivenRecords<Options>): Promise<Outcome>;
  onRouter(given: GivenRouter<Options>): Promise<Outcome>;
}

/** A command that reads from the database, or from a router if --url is given or no database is named. */
export function readingCommand<Options = object>(spec: ReadingSpec<Options>): AddCommand {
  return command<Options & RouterOptions>({
    ...spec,
    exits: [...(spec.exits ?? []), 6],
    options: [...routerOptions, ...(spec.options ?? [])],
    notes: [sourceNote, keyNote],
    async run(given) {
      const onRouter = () => withRouter(given, (api) => spec.onRouter({ ...given, api }));
      if (given.options.url !== undefined) return onRouter();
      const problem = databaseProblem(given.cli.env);
      if (problem === undefined) return onDatabase(given, (tools) => spec.onDatabase(tools));
      return onRouter().catch((error: unknown) => {
        // The router was only a fallback: the missing DATABASE_URL is the first problem to name.
        if (!(error instanceof Failure) || !['unreachable', 'not_a_router'].includes(error.code)) throw error;
        throw new Failure('configuration', `${problem}; and ${error.message}`, [], { cause: error });
      });
    },
  });
}

async function onDatabase<Options, T>(
  given: Given<Options>,
  work: (given: GivenRecords<Options>) => Promise<T>,
): Promise<T> {
  const { withRecords } = await import('./records-database.js');
  const { env, clock } = given.cli;
  return withRecords(env, clock, given.args[0], (tools) => work({ ...given, ...tools }));
}

/** Why no database can be used from here. */
function databaseProblem(env: NodeJS.ProcessEnv): string | undefined {
  const url = env.DATABASE_URL?.trim();
  if (!url) return 'DATABASE_URL is not set: it names the database with the records';
  return url === 'embedded' ? 'DATABASE_URL=embedded is a database inside a router' : undefined;
}

/** Above 50 the alert is critical too. */
export function stuckColour(stuck: number): Colour | undefined {
  return stuck > 50 ? 'red' : stuck > 0 ? 'yellow' : undefined;
}

export const spanOf = (seconds: number | null) => (seconds === null ? '-' : span(seconds * 1000));

export function showWorkflows(found: readonly RecordNumbers[]): string {
  const yellow = (number: number): Cell => ({
    text: String(number),
    colour: number > 0 ? 'yellow' : undefined,
  });
  const hasRetry = found.some((one) => one.waiting_for_retry !== null);
  const columns: Column<RecordNumbers>[] = [
    ['WORKFLOW', (one) => one.name],
    ['>QUEUED', (one) => one.queued],
    ['>PROCESSING', (one) => one.processing],
    ['>STUCK', (one) => ({ text: String(one.stuck), colour: stuckColour(one.stuck) })],
    ['>HELD', (one) => yellow(one.held)],
    ['>FAILED', (one) => yellow(one.failed)],
    ['>OLDEST QUEUED', (one) => spanOf(one.oldest_queued_seconds)],
    ['>OLDEST STUCK', (one) => spanOf(one.oldest_stuck_seconds)],
    ['>WAIT FOR RETRY', (one) => one.waiting_for_retry ?? '-', hasRetry],
    ['>NEXT RETRY', (one) => spanOf(one.next_retry_seconds), hasRetry],
    ['>KEYS AT LIMIT', (one) => one.keys_at_limit ?? '-', found.some((one) => one.keys_at_limit !== null)],
  ];
  return tableOf(found, columns);
}

export function recordTable(records: readonly RecordDocument[]): string {
  const columns: Column<RecordDocument>[] = [
    ['RECORD', (record) => record.id],
    ['>STUCK FOR', (record) => spanOf(record.stuck_seconds)],
    ['WHY', (record) => record.reason.replaceAll('_', ' ')],
    ['BECOMES', ({ outcome }) => (outcome === 'requeued' ? 'queued' : { text: outcome, colour: 'yellow' })],
    ['>RESETS', (record) => record.resets],
    ['WORKER', (record) => record.worker ?? '-'],
    ['LAST NOTE', (record) => record.trace ?? '-'],
  ];
  return tableOf(records, columns);
}
