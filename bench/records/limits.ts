/** A limit per key against the same workflow without it: empty jobs of 1,000 keys, two processes, alternating. */
import { migrate } from '../../src/records/index.js';
import { median } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { RecordsBench } from './bench.js';
import type { Contender } from './contenders.js';
import { once } from './throughput.js';

export async function limits(bench: RecordsBench): Promise<Figure[]> {
  const jobs = bench.quick ? 20_000 : 100_000;
  const rates: Record<string, number[]> = { ours: [], limited: [] };
  const cpu: Record<string, number[]> = { ours: [], limited: [] };
  for (let round = 0; round < (bench.quick ? 1 : 3); round++)
    for (const [name, all] of Object.entries(rates)) {
      const { perSecond, workerCpu, serverCpu } = await once(bench, contender(bench, name), jobs, 2);
      all.push(perSecond);
      cpu[name]?.push(workerCpu + serverCpu);
      process.stderr.write(
        `  ${name}: ${number(perSecond)}/s, CPU per job ${number(workerCpu)} + ${number(serverCpu)} us\n`,
      );
    }
  const [without, limited] = [median(rates.ours ?? []), median(rates.limited ?? [])];
  return [
    {
      id: 'limits.throughput',
      label: 'limit of 2 for each of 1,000 keys: throughput against the same workflow without it',
      value: limited / without,
      unit: 'times',
      target: { atLeast: 0.8 },
      note: `${number(limited)}/s against ${number(without)}/s; CPU per record ${number(median(cpu.limited ?? []))} us against ${number(median(cpu.ours ?? []))} us`,
    },
  ];
}

function contender({ pool }: RecordsBench, name: string): Contender {
  return {
    ...{ name, label: name, tables: ['bench_records', 'claims'] },
    async fill(count) {
      await migrate(pool);
      // Each with the index and the fillfactor advised for it.
      await pool.query(`
        DROP TABLE IF EXISTS bench_records;
        TRUNCATE smart_router.claims;
        CREATE TABLE bench_records (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer_id bigint NOT NULL,
          status text NOT NULL DEFAULT 'Queued', error text, updated_at timestamptz NOT NULL DEFAULT now())
          WITH (fillfactor = 50);
        CREATE INDEX ON bench_records (${name === 'limited' ? 'customer_id, ' : ''}updated_at) ${name === 'limited' ? 'WITH (deduplicate_items = off)' : ''}
          WHERE status = 'Queued'`);
      await pool.query(
        'INSERT INTO bench_records (customer_id) SELECT i % 1000 FROM generate_series(1, $1) AS i',
        [count],
      );
    },
    left: async () =>
      Number(
        (await pool.query("SELECT count(*) AS n FROM bench_records WHERE status <> 'Completed'")).rows[0]?.n,
      ),
  };
}
