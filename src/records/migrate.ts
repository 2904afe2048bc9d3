/**
 * Creates and updates the schema `smart_router`. Safe to run in several processes at once: one migrates, the others wait.
 * A schema newer than this version is left unchanged, so that both versions run during a rolling update.
 */
import type { Pool } from 'pg';
import { systemClock } from '../clock.js';
import { ConfigError, messageOf } from '../errors.js';
import { migrations } from './migrations.generated.js';
import { explainDatabaseErrors, schemaGrants } from './permissions.js';
import { codeOf, type Queryable, Sessions } from './sessions.js';

/** An arbitrary number, shared by all processes that migrate. */
const lockKey = 5_274_093_811;
/** For one statement, and for the wait for another process: a large table may take minutes. */
const queryTimeoutMs = 300_000;

export interface Migration {
  name: string;
  sql: string;
}

export async function migrate(pool: Pool): Promise<{ applied: string[] }> {
  return applyMigrations(pool, 'records', migrations);
}

/** `set` is `records`, or `workflows` for the tables of the shipped workflows. */
export async function applyMigrations(
  pool: Pool,
  set: string,
  wanted: readonly Migration[],
): Promise<{ applied: string[] }> {
  const sessions = new Sessions({ pool, clock: systemClock, queryTimeoutMs });
  return explainDatabaseErrors(async () => {
    try {
      // At any other level, a process that waited for the lock would not see what the first one did.
      const applied = await sessions.transaction(
        (client) => apply({ query: (text, values) => sessions.queryOn(client, text, values) }, set, wanted),
        'READ COMMITTED',
      );
      return { applied };
    } catch (error) {
      if (codeOf(error) !== '42501') throw error;
      throw new ConfigError([
        `cannot migrate the schema smart_router: ${messageOf(error)}. Run \`smart-router records migrate\` once as a role that may create schemas in this database, then grant the program's role access: ${Object.values(schemaGrants).join('; ')}`,
      ]);
    }
  });
}

async function apply(db: Queryable, set: string, wanted: readonly Migration[]): Promise<string[]> {
  await db.query('SELECT pg_advisory_xact_lock($1)', [lockKey]);
  const done = await appliedMigrations(db, set);
  if (!done) {
    await db.query('CREATE SCHEMA IF NOT EXISTS smart_router');
    await db.query(
      'CREATE TABLE smart_router.migrations (set text, name text, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (set, name))',
    );
  }
  const missing = wanted.filter(({ name }) => !done?.has(name));
  for (const { name, sql } of missing) {
    await db.query(sql);
    await db.query('INSERT INTO smart_router.migrations (set, name) VALUES ($1, $2)', [set, name]);
  }
  return missing.map(({ name }) => name);
}

/** Undefined: the table of migrations does not exist. */
export async function appliedMigrations(db: Queryable, set: string): Promise<Set<string> | undefined> {
  // Not to_regclass, which fails without rights on the schema.
  const { rows: found } = await db.query<{ exists: boolean }>(
    "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'smart_router' AND tablename = 'migrations') AS exists",
  );
  if (!found[0]?.exists) return undefined;
  const { rows } = await db.query<{ name: string }>(
    'SELECT name FROM smart_router.migrations WHERE set = $1',
    [set],
  );
  return new Set(rows.map(({ name }) => name));
}

/** Returns the migrations of the record plane that this database lacks. Reads only. */
export async function missingMigrations(db: Queryable): Promise<string[]> {
  const done = await appliedMigrations(db, 'records');
  return migrations.map(({ name }) => name).filter((name) => !done?.has(name));
}

export async function assertMigrated(db: Queryable): Promise<void> {
  const missing = await missingMigrations(db);
  if (missing.length === 0) return;
  const what =
    missing.length === migrations.length
      ? 'does not exist'
      : `is older than this version (missing: ${missing.join(', ')})`;
  throw new ConfigError([
    `the schema smart_router ${what}: call migrate(pool), or run \`smart-router records migrate\``,
  ]);
}
