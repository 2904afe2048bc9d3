/**
 * Our own schema, `smart_router`, brought up to date. Several may do it at once: one does, the others wait and find it
 * done. A newer schema than ours is left alone: during a roll the neighbouring version works with it.
 */
import type { Pool } from 'pg';
import { systemClock } from '../clock.js';
import { ConfigError, messageOf } from '../errors.js';
import { migrations } from './migrations.generated.js';
import { opening } from './permissions.js';
import { type Queryable, Sessions } from './sessions.js';

/** Any number, the same everywhere: the one lock of all who migrate. */
const lockKey = 5_274_093_811;
/** For one statement, and for whoever migrates at the same time: a large table may take its time. */
const queryTimeoutMs = 300_000;

export interface Migration {
  name: string;
  sql: string;
}

export async function migrate(pool: Pool): Promise<{ applied: string[] }> {
  return applyMigrations(pool, 'records', migrations);
}

/** `set` names whose migrations these are: the record plane's own, or those of the shipped workflows. */
export async function applyMigrations(
  pool: Pool,
  set: string,
  wanted: readonly Migration[],
): Promise<{ applied: string[] }> {
  return opening(() => applied(pool, set, wanted));
}

async function applied(
  pool: Pool,
  set: string,
  wanted: readonly Migration[],
): Promise<{ applied: string[] }> {
  const sessions = new Sessions({ pool, clock: systemClock, queryTimeoutMs });
  // Whatever the database's default is: who has waited for the lock must see what the other one did.
  const done = sessions.transaction(
    (client) => apply({ query: (text, values = []) => sessions.queryOn(client, text, values) }, set, wanted),
    'READ COMMITTED',
  );
  return done.catch((error: unknown) => {
    if ((error as { code?: unknown }).code !== '42501') throw error;
    throw new ConfigError([
      `the schema smart_router cannot be brought up to date: ${messageOf(error)}. Run \`smart-router records migrate\` once as a role that may create schemas in this database, then let the program's role use it: GRANT USAGE ON SCHEMA smart_router TO <role>; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA smart_router TO <role>; GRANT USAGE ON ALL SEQUENCES IN SCHEMA smart_router TO <role>`,
    ]);
  });
}

/** Those of the record plane that this database has not seen; all of them when there is no such schema. */
export async function missingMigrations(db: Queryable): Promise<string[]> {
  const { rows: found } = await db.query<{ exists: boolean }>(
    "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'smart_router' AND tablename = 'migrations') AS exists",
  );
  const { rows } = found[0]?.exists
    ? await db.query<{ name: string }>("SELECT name FROM smart_router.migrations WHERE set = 'records'")
    : { rows: [] };
  const done = new Set(rows.map(({ name }) => name));
  return migrations.map(({ name }) => name).filter((name) => !done.has(name));
}

async function apply(
  client: Queryable,
  set: string,
  wanted: readonly Migration[],
): Promise<{ applied: string[] }> {
  await client.query('SELECT pg_advisory_xact_lock($1)', [lockKey]);
  const { rows: found } = await client.query(
    "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'smart_router' AND tablename = 'migrations') AS exists",
  );
  if (!found[0]?.exists) {
    await client.query('CREATE SCHEMA IF NOT EXISTS smart_router');
    await client.query(
      'CREATE TABLE smart_router.migrations (set text, name text, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (set, name))',
    );
  }
  const { rows } = await client.query<{ name: string }>(
    'SELECT name FROM smart_router.migrations WHERE set = $1',
    [set],
  );
  const done = new Set(rows.map(({ name }) => name));
  const applied: string[] = [];
  for (const { name, sql } of wanted) {
    if (done.has(name)) continue;
    await client.query(sql);
    await client.query('INSERT INTO smart_router.migrations (set, name) VALUES ($1, $2)', [set, name]);
    applied.push(name);
  }
  return { applied };
}
