/** A team's table and its RECORDS_MODULE, as a router or a command finds them. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Pool } from 'pg';
import { onTestFinished } from 'vitest';

/**
 * Table `jobs`: `what` decides what becomes of a record: ok, fail, hold (until its signal aborts), wait (for `done`),
 * spin (blocks the event loop), eat (uses up memory).
 */
const source = `
export const workflows = [
  {
    name: 'jobs',
    table: 'jobs',
    status: { column: 'status', queued: 'Queued', processing: 'Processing', completed: 'Completed', failed: 'Failed' },
    error: 'error',
    touchedAt: 'updated_at',
    batchSize: 10,
    concurrency: 2,
    async process(record, ctx) {
      ctx.trace('doing ' + record.what);
      if (record.what === 'fail') throw new Error('no luck');
      while (record.what === 'spin');
      for (const all = []; record.what === 'eat'; ) all.push(new Array(1e5).fill(all.length));
      if (record.what === 'hold') await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve));
      while (record.what === 'wait') {
        const done = await ctx.tx((client) => client.query("SELECT FROM jobs WHERE what = 'done'"));
        if (done.rowCount > 0) return;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    },
  },
];
`;

/** The same with one record of each `what` at a time, and retries after about an hour. */
export const limitedSource = source.replace(
  'batchSize: 10,',
  "batchSize: 10, limit: { key: 'what', max: 1 }, retry: { max: 2, backoff: '1h' },",
);

/** Its path; removed after the test. */
export function recordsModule(text: string = source): string {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-module-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'workflows.mjs');
  writeFileSync(path, text);
  return path;
}

export async function jobsTable(pool: Pool, { index = true } = {}): Promise<void> {
  await pool.query(`
    CREATE TABLE jobs (
      id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      what text NOT NULL,
      status text NOT NULL DEFAULT 'Queued',
      error text,
      updated_at timestamptz DEFAULT now()
    )`);
  if (index) await pool.query('CREATE INDEX ON jobs (status, updated_at)');
}

export interface Job {
  id: number;
  what: string;
  status: string;
  error: string | null;
}

/** Puts one in; its id. */
export async function addJob(
  pool: Pool,
  what: string,
  { status = 'Queued', ago = '0 s' } = {},
): Promise<string> {
  const { rows } = await pool.query<{ id: number }>(
    'INSERT INTO jobs (what, status, updated_at) VALUES ($1, $2, now() - $3::interval) RETURNING id',
    [what, status, ago],
  );
  return String(rows[0]?.id);
}

export async function jobOf(pool: Pool, id: string): Promise<Job> {
  const { rows } = await pool.query<Job>('SELECT id, what, status, error FROM jobs WHERE id = $1', [id]);
  if (!rows[0]) throw new Error(`there is no job ${id}`);
  return rows[0];
}
