/**
 * Which workflows an installation has: the shipped ones that RECORDS_WORKFLOWS names, and those of RECORDS_MODULE, an
 * ES module of the team's own, so that `serve` runs them without another program. The command line reads the same two.
 *
 * The tables of the shipped workflows are created only on request: by `records migrate --with-workflows`, and in the
 * embedded database. A table of that name that existed before is the team's: it is used as it is if it fits, and never
 * changed. A shipped workflow whose tables are missing or do not fit is off; the others run.
 */
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Pool } from 'pg';
import { type Clock, systemClock } from '../clock.js';
import type { Config } from '../config/config.js';
import { ConfigError } from '../errors.js';
import { openTables } from '../records/loop.js';
import { applyMigrations, type Migration, migrate } from '../records/migrate.js';
import { migrations as ownMigrations } from '../records/migrations.generated.js';
import { type Queryable, Sessions } from '../records/sessions.js';
import { defineWorkflow, type Workflow, type WorkflowDefinition } from '../records/workflow.js';
import { migrations as shippedMigrations } from '../workflows/migrations.generated.js';
import { pageCuration } from '../workflows/page-curation.js';
import { queries } from '../workflows/queries.generated.js';
import { sitemapImport } from '../workflows/sitemap-import.js';

export type WorkflowSettings = Pick<
  Config,
  'recordsWorkflows' | 'recordsModule' | 'recordsAllowPrivateAddresses'
>;

const shipped = {
  'sitemap-import': { define: sitemapImport, statements: [queries.insertPages, queries.insertSitemapFiles] },
  'page-curation': { define: pageCuration, statements: [queries.savePage] },
};

/** Throws a ConfigError with what is wrong with the module or its workflows. */
export async function loadWorkflows(settings: WorkflowSettings, clock: Clock): Promise<Workflow[]> {
  const options = { clock, allowPrivateAddresses: settings.recordsAllowPrivateAddresses };
  const workflows = settings.recordsWorkflows.map((name) => defineWorkflow(shipped[name].define(options)));
  if (settings.recordsModule !== undefined) workflows.push(...(await loadModule(settings.recordsModule)));
  const names = workflows.map(({ name }) => name);
  const twice = names.filter((name, i) => names.indexOf(name) !== i);
  if (twice.length > 0)
    throw new ConfigError(twice.map((name) => `RECORDS_MODULE: there are two workflows ${name}`));
  return workflows;
}

async function loadModule(path: string): Promise<Workflow[]> {
  const problem = (text: string) => new ConfigError([`RECORDS_MODULE ${path}: ${text}`]);
  let found: { workflows?: unknown; default?: unknown };
  try {
    found = await import(pathToFileURL(resolve(path)).href);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const isMissing = code === 'ERR_MODULE_NOT_FOUND' && message.includes(resolve(path));
    // A SyntaxError of an import does not say where it is.
    const where = error instanceof SyntaxError ? `; \`node ${path}\` shows where` : '';
    throw problem(isMissing ? 'there is no such file' : `it cannot be loaded: ${message}${where}`);
  }
  const given = found.workflows ?? found.default;
  const list: unknown[] = Array.isArray(given) ? given : given === undefined ? [] : [given];
  if (list.length === 0)
    throw problem('it must export `workflows`, a list of at least one workflow (or export it as default)');
  const problems: string[] = [];
  const workflows = list.flatMap((item) => {
    try {
      return [asWorkflow(item)];
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      problems.push(...error.problems.map((text) => `RECORDS_MODULE ${path}: ${text}`));
      return [];
    }
  });
  if (problems.length > 0) throw new ConfigError(problems);
  return workflows;
}

/** A definition, or what `defineWorkflow` made of one: there the table's name is in its parts. */
function asWorkflow(item: unknown): Workflow {
  if (typeof item !== 'object' || item === null)
    throw new ConfigError([`a workflow must be an object, got ${String(item)}`]);
  return Array.isArray((item as Workflow).table)
    ? (item as Workflow)
    : defineWorkflow(item as WorkflowDefinition);
}

/** Creates our schema; with `withWorkflows` also the tables of the shipped workflows. `kept` existed before. */
export async function migrateRecords(
  pool: Pool,
  { withWorkflows }: { withWorkflows: boolean },
): Promise<{ applied: string[]; kept: string[] }> {
  const { applied } = await migrate(pool);
  if (!withWorkflows) return { applied, kept: [] };
  const { missing, kept } = await shippedState(new Sessions({ pool, clock: systemClock }));
  if (missing.length > 0) applied.push(...(await applyMigrations(pool, 'workflows', missing)).applied);
  return { applied, kept };
}

/** What `migrateRecords` would do to our schema. Reads only. */
export async function pendingMigrations(pool: Pool): Promise<string[]> {
  const done = await appliedNames(pool, 'records');
  return ownMigrations.filter(({ name }) => !done.has(name)).map(({ name }) => name);
}

/** Why a shipped workflow is off, and what to do about it. */
export interface ShippedProblem {
  text: string;
  advice: string;
}

/** Why a shipped workflow cannot run on these tables; undefined: it can, or it is the team's own. */
export async function shippedProblem(
  pool: Pool,
  settings: WorkflowSettings,
  workflow: Workflow,
): Promise<ShippedProblem | undefined> {
  if (shippedName(settings, workflow) === undefined) return undefined;
  const sessions = new Sessions({ pool, clock: systemClock });
  try {
    await sessions.transaction((client) => openWorkflow(client, settings, workflow));
    return undefined;
  } catch (error) {
    if (error instanceof ConfigError) return describeProblem(workflow.name, error);
    throw error;
  }
}

/** The name of a shipped workflow that is wanted; one of the team's own may have the same name. */
export function shippedName({ recordsWorkflows }: WorkflowSettings, { name }: Workflow) {
  return recordsWorkflows.find((each) => each === name);
}

/** Every shipped workflow that cannot run on the tables of this database, whether it is wanted or not. */
export async function shippedProblems(pool: Pool): Promise<ShippedProblem[]> {
  const recordsWorkflows = Object.keys(shipped) as (keyof typeof shipped)[];
  const settings = { recordsWorkflows, recordsModule: undefined, recordsAllowPrivateAddresses: false };
  const problems: ShippedProblem[] = [];
  for (const workflow of await loadWorkflows(settings, systemClock)) {
    const problem = await shippedProblem(pool, settings, workflow);
    if (problem !== undefined) problems.push(problem);
  }
  return problems;
}

/** Looks at the table of a workflow; of a shipped one, also at the tables that it writes. Throws a ConfigError. */
export async function openWorkflow(client: Queryable, settings: WorkflowSettings, workflow: Workflow) {
  const [table] = await openTables(client, [workflow]);
  const name = shippedName(settings, workflow);
  const statements = name === undefined ? [] : shipped[name].statements;
  try {
    // The database reads the statements of the workflow as they are: every column that they name must exist.
    for (const [i, text] of statements.entries()) await client.query(`PREPARE smart_router_${i} AS ${text}`);
    for (const i of statements.keys()) await client.query(`DEALLOCATE smart_router_${i}`);
  } catch (error) {
    const { code = '', message } = error as Error & { code?: string };
    // Class 42: a table or column that does not exist, another type, no rights.
    if (code.startsWith('42')) throw new ConfigError([`workflow ${workflow.name}: ${message}`]);
    throw error;
  }
  return table;
}

export function describeProblem(name: string, { problems }: ConfigError): ShippedProblem {
  const prefix = `workflow ${name}: `;
  const found = problems.map((text) => text.replace(prefix, ''));
  const takeOut = `take ${name} out of RECORDS_WORKFLOWS`;
  const advice = found.some((text) => /^(?:table|relation) \S+ does not exist/.test(text))
    ? `Create its tables with \`smart-router records migrate --with-workflows\`, or ${takeOut}.`
    : found.some((text) => /^column .* does not exist/.test(text))
      ? `This is another table of the same name, and it is never changed: rename it, or ${takeOut}.`
      : `Correct that, or ${takeOut}.`;
  return { text: prefix + found.join('; '), advice };
}

async function shippedState(db: Queryable): Promise<{ missing: Migration[]; kept: string[] }> {
  const done = await appliedNames(db, 'workflows');
  const missing: Migration[] = [];
  const kept: string[] = [];
  for (const migration of shippedMigrations) {
    if (done.has(migration.name)) continue;
    // Each is named for the table that it makes.
    const table = migration.name.replace(/^\d+_/, '');
    const { rows } = await db.query<{ exists: boolean }>('SELECT to_regclass($1) IS NOT NULL AS exists', [
      table,
    ]);
    if (rows[0]?.exists) kept.push(table);
    else missing.push(migration);
  }
  return { missing, kept };
}

async function appliedNames(db: Queryable, set: string): Promise<Set<string>> {
  const { rows: found } = await db.query<{ exists: boolean }>(
    "SELECT to_regclass('smart_router.migrations') IS NOT NULL AS exists",
  );
  if (!found[0]?.exists) return new Set();
  const { rows } = await db.query<{ name: string }>(
    'SELECT name FROM smart_router.migrations WHERE set = $1',
    [set],
  );
  return new Set(rows.map(({ name }) => name));
}
