/**
 * Loads the workflows of an installation: the shipped ones in RECORDS_WORKFLOWS, and those of RECORDS_MODULE, an ES
 * module of the team. The command line uses the same two variables.
 *
 * The tables of the shipped workflows are created only on request: by `records migrate --with-workflows`, and in the
 * embedded database. An existing table of the same name is the team's: it is used if it fits, and never changed. A
 * shipped workflow whose tables are missing or do not fit is off; the others run.
 */
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Pool } from 'pg';
import { type Clock, systemClock } from '../clock.js';
import type { Config } from '../config/config.js';
import { ConfigError } from '../errors.js';
import { appliedMigrations, applyMigrations, type Migration, migrate } from '../records/migrate.js';
import { type Queryable, Sessions } from '../records/sessions.js';
import { openTables } from '../records/table.js';
import { defineWorkflow, type Workflow, type WorkflowDefinition } from '../records/workflow.js';
import { migrations } from '../workflows/migrations.generated.js';
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

/** Throws a ConfigError with the problems of the module or its workflows. */
export async function loadWorkflows(settings: WorkflowSettings, clock: Clock): Promise<Workflow[]> {
  const options = { clock, allowPrivateAddresses: settings.recordsAllowPrivateAddresses };
  const workflows = settings.recordsWorkflows.map((name) => defineWorkflow(shipped[name].define(options)));
  if (settings.recordsModule !== undefined) workflows.push(...(await loadModule(settings.recordsModule)));
  const names = workflows.map(({ name }) => name);
  const duplicates = names.filter((name, i) => names.indexOf(name) !== i);
  if (duplicates.length > 0)
    throw new ConfigError(duplicates.map((name) => `RECORDS_MODULE: duplicate workflow ${name}`));
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
    throw problem(isMissing ? 'no such file' : `cannot be loaded: ${message}${where}`);
  }
  const given = found.workflows ?? found.default;
  const list: unknown[] = Array.isArray(given) ? given : given === undefined ? [] : [given];
  if (list.length === 0)
    throw problem('must export `workflows` (or a default), a list of at least one workflow');
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

/** Accepts a definition, or a result of `defineWorkflow`: there the table is a list of its parts. */
function asWorkflow(item: unknown): Workflow {
  if (typeof item !== 'object' || item === null)
    throw new ConfigError([`a workflow must be an object, got ${String(item)}`]);
  return Array.isArray((item as Workflow).table)
    ? (item as Workflow)
    : defineWorkflow(item as WorkflowDefinition);
}

/** Creates our schema; with `withWorkflows` also the tables of the shipped workflows. `kept` are tables that existed. */
export async function migrateRecords(
  pool: Pool,
  { withWorkflows }: { withWorkflows: boolean },
): Promise<{ applied: string[]; kept: string[] }> {
  const { applied } = await migrate(pool);
  if (!withWorkflows) return { applied, kept: [] };
  const db = new Sessions({ pool, clock: systemClock });
  const done = await appliedMigrations(db, 'workflows');
  const missing: Migration[] = [];
  const kept: string[] = [];
  for (const migration of migrations) {
    if (done?.has(migration.name)) continue;
    // Each migration has the name of the table that it creates.
    const table = migration.name.replace(/^\d+_/, '');
    const { rows } = await db.query<{ exists: boolean }>('SELECT to_regclass($1) IS NOT NULL AS exists', [
      table,
    ]);
    if (rows[0]?.exists) kept.push(table);
    else missing.push(migration);
  }
  if (missing.length > 0) applied.push(...(await applyMigrations(pool, 'workflows', missing)).applied);
  return { applied, kept };
}

/** Why a shipped workflow is off, and what to do about it. */
export interface ShippedProblem {
  text: string;
  advice: string;
}

/** Returns why a shipped workflow cannot run on these tables; undefined if it can, or is the team's own. */
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
