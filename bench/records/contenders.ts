/** How each contender gets its jobs, and how the benchmark sees that all are finished. */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import { migrate } from '../../src/records/index.js';

export interface Contender {
  readonly name: string;
  readonly label: string;
  /** Recreates the tables, with `count` jobs queued. */
  fill(count: number): Promise<void>;
  /** Unfinished jobs in the database. */
  left(): Promise<number>;
  /** Tables whose dead tuples count. */
  readonly tables: string[];
}

/** An ordinary table of a team with the index and the fillfactor that docs/records.md advises, or with another fillfactor. */
export function ours(pool: Pool, name = 'ours', label = 'Smart Router', fillfactor = 50): Contender {
  return {
    ...{ name, label, tables: ['bench_records', 'claims'] },
    async fill(count) {
      await migrate(pool);
      await pool.query(`
        DROP TABLE IF EXISTS bench_records;
        TRUNCATE smart_router.claims;
        CREATE TABLE bench_records (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload jsonb NOT NULL DEFAULT '{}',
          status text NOT NULL DEFAULT 'Queued', error text, updated_at timestamptz NOT NULL DEFAULT now())
          WITH (fillfactor = ${fillfactor});
        CREATE INDEX ON bench_records (updated_at) WHERE status = 'Queued'`);
      await pool.query(
        "INSERT INTO bench_records (payload) SELECT jsonb_build_object('n', i) FROM generate_series(1, $1) AS i",
        [count],
      );
    },
    left: () => countOf(pool, "SELECT count(*) AS n FROM bench_records WHERE status <> 'Completed'"),
  };
}

const countOf = async (pool: Pool, sql: string) => Number((await pool.query(sql)).rows[0]?.n);

export function contenders(pool: Pool, databaseUrl: string, redis: Redis): Contender[] {
  return [
    ours(pool),
    {
      name: 'graphile',
      label: 'graphile-worker 0.17, local queue and batched completion',
      tables: ['_private_jobs', 'jobs'],
      async fill(count) {
        const { runMigrations, Logger } = await import('graphile-worker');
        await runMigrations({ pgPool: pool, logger: new Logger(() => () => {}) });
        await pool.query('TRUNCATE graphile_worker._private_jobs');
        await pool.query(
          `SELECT graphile_worker.add_jobs(ARRAY(SELECT json_populate_record(null::graphile_worker.job_spec,
             json_build_object('identifier', 'bench', 'payload', json_build_object('n', i))) FROM generate_series(1, $1) AS i))`,
          [count],
        );
      },
      left: () => countOf(pool, 'SELECT count(*) AS n FROM graphile_worker._private_jobs'),
    },
    {
      name: 'pgboss',
      label: 'pg-boss 10, eight workers with batches of 500',
      tables: ['job'],
      async fill(count) {
        const { default: PgBoss } = await import('pg-boss');
        const boss = new PgBoss({ connectionString: databaseUrl, supervise: false, schedule: false });
        boss.on('error', () => {});
        await boss.start();
        await boss.deleteQueue('bench').catch(() => {});
        await boss.createQueue('bench');
        for (let i = 0; i < count; i += 10_000)
          await boss.insert(
            Array.from({ length: Math.min(10_000, count - i) }, (_, n) => ({
              name: 'bench',
              data: { n: i + n },
            })),
          );
        await boss.stop({ graceful: false });
      },
      left: () =>
        countOf(pool, "SELECT count(*) AS n FROM pgboss.job WHERE name = 'bench' AND state < 'completed'"),
    },
    {
      name: 'bullmq',
      label: 'BullMQ 6 on Redis, concurrency 32',
      tables: [],
      async fill(count) {
        await redis.flushall();
        const { Queue } = await import('bullmq');
        const queue = new Queue('bench', {
          connection: { host: redis.options.host ?? '', port: redis.options.port ?? 0 },
        });
        for (let i = 0; i < count; i += 5000)
          await queue.addBulk(
            Array.from({ length: Math.min(5000, count - i) }, (_, n) => ({
              name: 'bench',
              data: { n: i + n },
            })),
          );
        await queue.close();
      },
      async left() {
        return (await redis.llen('bull:bench:wait')) + (await redis.llen('bull:bench:active'));
      },
    },
  ];
}
