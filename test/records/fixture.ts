/** A team's table as teams have them, a workflow on it, and what tests need around them. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Pool } from 'pg';
import { pino } from 'pino';
import { onTestFinished } from 'vitest';
import { systemClock } from '../../src/clock.js';
import type { Logger } from '../../src/observe/log.js';
import {
  createRecordLoop,
  createRecovery,
  migrate,
  type RecordLoop,
  type RecordLoopOptions,
  type Recovery,
  type RecoveryOptions,
} from '../../src/records/index.js';
import { Sessions } from '../../src/records/sessions.js';
import { type Claim, RecordStore } from '../../src/records/store.js';
import { openTable } from '../../src/records/table.js';
import { defineWorkflow, type Workflow, type WorkflowDefinition } from '../../src/records/workflow.js';
import type { SuitePostgres } from '../support/postgres.js';

export interface Page {
  id: string;
  url: string;
  status: string;
  error: string | null;
  updated_at: Date;
}

export interface Logged {
  level: number;
  msg: string;
  [field: string]: unknown;
}

export async function teamTable(pool: Pool, rows: number, { index = true } = {}): Promise<void> {
  await migrate(pool);
  await pool.query(`
    CREATE TYPE page_status AS ENUM ('Queued', 'Processing', 'Completed', 'Failed');
    CREATE TABLE pages (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      url text NOT NULL,
      status page_status NOT NULL DEFAULT 'Queued',
      error text,
      updated_at timestamptz DEFAULT now()
    )`);
  if (index) await pool.query('CREATE INDEX ON pages (status, updated_at)');
  await pool.query(
    "INSERT INTO pages (url) SELECT 'https://example.com/' || i FROM generate_series(1, $1) AS i",
    [rows],
  );
}

export function pagesWorkflow(more: Partial<WorkflowDefinition<Page>> = {}): Workflow<Page> {
  return defineWorkflow<Page>({
    name: 'pages',
    table: 'pages',
    status: {
      column: 'status',
      queued: 'Queued',
      processing: 'Processing',
      completed: 'Completed',
      failed: 'Failed',
    },
    error: 'error',
    touchedAt: 'updated_at',
    process: () => {},
    ...more,
  });
}

export function memoryLog(): { log: Logger; lines: Logged[]; said(text: string): Logged[] } {
  const lines: Logged[] = [];
  const log: Logger = pino(
    { level: 'debug', base: null },
    { write: (text: string) => lines.push(JSON.parse(text)) },
  );
  return { log, lines, said: (text) => lines.filter(({ msg }) => msg.includes(text)) };
}

/** Stopped after the test. */
export function startable(
  postgres: SuitePostgres,
  options: RecordLoopOptions,
): RecordLoop & { log: ReturnType<typeof memoryLog> } {
  const log = memoryLog();
  const loop = createRecordLoop({ log: log.log, ...options });
  postgres.onEnd(() => loop.stop());
  return Object.assign(loop, { log });
}

export function recovers(
  postgres: SuitePostgres,
  options: RecoveryOptions,
): Recovery & { log: ReturnType<typeof memoryLog> } {
  const log = memoryLog();
  const recovery = createRecovery({ log: log.log, ...options });
  postgres.onEnd(() => recovery.stop());
  return Object.assign(recovery, { log });
}

/** Rows of a process that has died: it holds its claims, and will never finish them. */
export async function deadWorker(
  pool: Pool,
  { workflow = pagesWorkflow(), most = 1000, silentMs = 60_000, host = 'gone' } = {},
): Promise<Claim[]> {
  const { rows } = await pool.query<{ id: number }>(
    `INSERT INTO smart_router.workers (process, host, pid, heartbeat_at)
     VALUES (gen_random_uuid(), $1, 4711, now() - $2 * interval '1 ms') RETURNING id`,
    [host, silentMs],
  );
  const store = await storeOf(pool, workflow);
  const claims = await store.claim(rows[0]?.id ?? 0, most, workflow.timeoutMs, 0);
  // They were made, and begun, while it lived.
  await pool.query(
    "UPDATE smart_router.claims SET claimed_at = claimed_at - ($2 + 1000) * interval '1 ms', begun = token WHERE worker = $1",
    [rows[0]?.id, silentMs],
  );
  return claims;
}

/** The statements themselves. */
export async function storeOf(pool: Pool, workflow: Workflow<Page> = pagesWorkflow()): Promise<RecordStore> {
  const table = await openTable(pool, workflow as Workflow);
  return new RecordStore(new Sessions({ pool, clock: systemClock }), table);
}

/** The heartbeats of all workers stopped a minute ago. */
export async function silence(pool: Pool, seconds = 60): Promise<void> {
  await pool.query(
    "UPDATE smart_router.workers SET heartbeat_at = now() - $1 * interval '1 s' WHERE heartbeat_at > now() - $1 * interval '1 s'",
    [seconds],
  );
}

/** A row that another program set to Processing, minutes ago. */
export async function foreign(
  pool: Pool,
  minutes: number | null,
  url = 'https://foreign.example',
): Promise<string> {
  const { rows } = await pool.query<{ id: string }>(
    `INSERT INTO pages (url, status, updated_at)
     VALUES ($1, 'Processing', now() - $2::double precision * interval '1 minute') RETURNING id`,
    [url, minutes],
  );
  return rows[0]?.id ?? '';
}

export async function statuses(pool: Pool): Promise<Record<string, number>> {
  const { rows } = await pool.query<{ status: string; n: string }>(
    'SELECT status::text, count(*) AS n FROM pages GROUP BY status',
  );
  return Object.fromEntries(rows.map(({ status, n }) => [status, Number(n)]));
}

export async function page(pool: Pool, id?: string): Promise<Page> {
  const { rows } = await pool.query<Page>('SELECT * FROM pages WHERE $1::uuid IS NULL OR id = $1', [
    id ?? null,
  ]);
  if (rows.length !== 1 || !rows[0]) throw new Error(`there are ${rows.length} such pages`);
  return rows[0];
}

export async function resetsOf(pool: Pool): Promise<Record<string, unknown>[]> {
  return (await pool.query('SELECT * FROM smart_router.resets ORDER BY id')).rows;
}

/** Every change of status is written down by the database itself. */
export async function keepHistory(pool: Pool): Promise<void> {
  await pool.query(`
    CREATE TABLE history (n bigint GENERATED ALWAYS AS IDENTITY, page uuid, was text, became text);
    CREATE FUNCTION keep_history() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO history (page, was, became) VALUES (new.id, old.status, new.status);
      RETURN NULL;
    END $$;
    CREATE TRIGGER keep_history AFTER UPDATE OF status ON pages FOR EACH ROW EXECUTE FUNCTION keep_history()`);
}

/** How often each change of status happened to one page at most. */
export async function mostOften(pool: Pool, was: string, became: string): Promise<number> {
  const { rows } = await pool.query<{ most: string | null }>(
    'SELECT max(n) AS most FROM (SELECT count(*) AS n FROM history WHERE was = $1 AND became = $2 GROUP BY page) AS one',
    [was, became],
  );
  return Number(rows[0]?.most ?? 0);
}

export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-test-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}

export function gate(): Gate {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
