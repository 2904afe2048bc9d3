/**
 * Requeues a million rows stuck in Processing: the total time, and how long one statement holds its locks. With the
 * usual index of such a table, and without any.
 */
import { Pool, type PoolClient } from 'pg';
import { pino } from 'pino';
import { createRecovery, defineWorkflow, migrate } from '../../src/records/index.js';
import { percentile } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { RecordsBench } from './bench.js';

export async function recovery(bench: RecordsBench): Promise<Figure[]> {
  const rows = bench.quick ? 100_000 : 1_000_000;
  return [...(await measure(bench, rows, true)), ...(await measure(bench, rows, false))];
}

async function measure(
  { pool, databaseUrl }: RecordsBench,
  rows: number,
  isIndexed: boolean,
): Promise<Figure[]> {
  await migrate(pool);
  await pool.query(`DROP TABLE IF EXISTS stuck; TRUNCATE smart_router.claims, smart_router.resets;
    CREATE TABLE stuck (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text NOT NULL DEFAULT 'some text',
      status text NOT NULL, error text, updated_at timestamptz NOT NULL)`);
  if (isIndexed) await pool.query('CREATE INDEX ON stuck (status, updated_at)');
  await pool.query(
    "INSERT INTO stuck (status, updated_at) SELECT 'Processing', now() - interval '2 hours' FROM generate_series(1, $1)",
    [rows],
  );
  await pool.query('VACUUM ANALYZE stuck');
  const workflow = defineWorkflow({
    name: 'stuck',
    table: 'stuck',
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
  });
  // The time a transaction is open is the time it may hold a lock.
  const held: number[] = [];
  const own = new Pool({ connectionString: databaseUrl, max: 4 });
  own.on('error', () => {});
  const since = new Map<PoolClient, number>();
  own.on('acquire', (client) => since.set(client, performance.now()));
  own.on('release', (_, client) => held.push(performance.now() - (since.get(client) ?? 0)));
  const recoverer = createRecovery({ pool: own, workflows: [workflow], log: pino({ level: 'silent' }) });
  const startMs = performance.now();
  const { requeued } = await recoverer.runOnce();
  const seconds = (performance.now() - startMs) / 1000;
  await own.end();
  if (requeued !== rows) throw new Error(`${requeued} of ${rows} rows were requeued`);
  const what = isIndexed ? 'with an index' : 'without an index';
  const id = isIndexed ? 'indexed' : 'bare';
  return [
    {
      id: `recovery.${id}.rate`,
      label: `recovery of ${number(rows)} stuck rows, ${what}`,
      value: rows / seconds,
      unit: 'rows/s',
      note: `${number(seconds)} s`,
    },
    {
      id: `recovery.${id}.lock`,
      label: `longest transaction of it, ${what}`,
      value: Math.max(...held),
      unit: 'ms',
      target: { below: 100 },
      note: `${held.length} transactions, p99 ${number(percentile(held, 99))} ms`,
    },
  ];
}
