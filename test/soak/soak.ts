/**
 * Hours of constant load on real processes: two routers, Redis with an append-only file, PostgreSQL with a records
 * workflow. Nothing breaks on purpose; the question is whether anything grows. Every sample is appended to a file, so that
 * an interrupted run can be summarised.
 */
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import pg from 'pg';
import { systemClock } from '../../src/clock.js';
import { guardPool } from '../../src/records/sessions.js';
import { wait } from '../chaos/child.js';
import { quiet, RedisServer } from '../chaos/redis.js';
import { startCluster } from '../support/cluster.js';
import { freePorts } from '../support/ports.js';
import { postgresKinds, quickestRoot } from '../support/postgres.js';
import { jobsTable } from '../support/records-module.js';
import { until } from '../support/until.js';
import { definitions, routerNames } from './definitions.js';
import { Load } from './load.js';
import { pictureOf } from './picture.js';
import { Router } from './routers.js';
import { Sampler } from './sampler.js';
import { formatted, type Header, type Row, type Sample, summarise, tableOf } from './series.js';

export interface SoakOptions {
  seconds: number;
  /** For logs, samples, the table and the picture. */
  folder: string;
  sampleEveryMs?: number;
  callsPerSecond?: number;
  pods?: number;
  signal?: AbortSignal;
  onSample?: (sample: Sample) => void;
}

export interface Outcome {
  rows: Row[];
  samples: Sample[];
  answers: Record<string, number>;
  file: string;
}

/** A team deletes its finished rows: without that its table would grow by design. */
const keepRowsSeconds = 60;

const tiersFor = (pods: number) => ({
  tiers: {
    gold: { type: 'exclusive', target: Math.ceil(pods / 2) },
    basic: { type: 'shared', target: Math.floor(pods / 2), max_concurrent: 3 },
  },
  default_chain: ['gold', 'basic'],
  hold: { max_wait: '20s', max_waiting: 200 },
});

const moduleText = (heapFile: string) => `
import { renameSync, writeFileSync } from 'node:fs';
const file = ${JSON.stringify(heapFile)};
const write = () => {
  writeFileSync(file + '.new', String(process.memoryUsage().heapUsed));
  renameSync(file + '.new', file);
};
write();
setInterval(write, 1000).unref();
export const workflows = [{
  name: 'jobs',
  table: 'jobs',
  status: { column: 'status', queued: 'Queued', processing: 'Processing', completed: 'Completed', failed: 'Failed' },
  error: 'error',
  touchedAt: 'updated_at',
  batchSize: 50,
  concurrency: 10,
  async process(record, ctx) {
    await new Promise((resolve) => setTimeout(resolve, record.id % 20));
    if (record.id % 20 === 0) await ctx.tx((client) => client.query('SELECT 1'));
    if (record.id % 100 === 1) throw new Error('one in a hundred fails');
  },
}];
`;

export async function soak(options: SoakOptions): Promise<Outcome> {
  const { seconds, folder, signal, onSample } = options;
  const { sampleEveryMs = 10_000, callsPerSecond = 40, pods = 200 } = options;
  const recordsPerSecond = 1.25 * callsPerSecond;
  const closing: (() => unknown)[] = [];
  try {
    mkdirSync(folder, { recursive: true });
    const data = mkdtempSync(join(quickestRoot(undefined), 'smart-router-soak-'));
    closing.push(() => rmSync(data, { recursive: true, force: true, maxRetries: 3 }));
    const cluster = await startCluster({ clock: systemClock });
    closing.push(() => cluster.stop());
    const ports = await freePorts(routerNames.length + 1);
    const redisPort = ports.pop() ?? 0;
    const server = new RedisServer('redis', redisPort, { logs: folder, data }, ['--appendonly', 'yes']);
    await server.start();
    closing.push(() => server.kill());
    const redis = quiet(new Redis(redisPort, '127.0.0.1'));
    closing.push(() => redis.disconnect());
    const kind = postgresKinds.findLast((one) => one.available() === true);
    if (!kind) throw new Error('there is no PostgreSQL here, neither embedded nor native');
    const postgres = await kind.start();
    closing.push(() => postgres.end());
    const pool = new pg.Pool({ connectionString: postgres.url, max: 2 });
    guardPool(pool);
    closing.push(() => pool.end());
    await jobsTable(pool);
    const [heapFile, module] = [join(folder, 'records-heap.txt'), join(folder, 'workflows.mjs')];
    writeFileSync(module, moduleText(heapFile));
    const routers = routerNames.map((name, i) => {
      const records = { DATABASE_URL: postgres.url, RECORDS_MODULE: module };
      const common = {
        REDIS_URL: `redis://127.0.0.1:${redisPort}`,
        TIER_CONFIG: JSON.stringify(tiersFor(pods)),
      };
      const more = { ...common, ...(i === 0 ? records : {}) };
      return new Router(name, ports[i] ?? 0, { cluster, folder, more });
    });
    closing.push(() => Promise.all(routers.map((router) => router.stop())));
    const load = new Load(routers, cluster, { callsPerSecond, pods });
    load.createPods();
    await until(
      async () => {
        const found = await Promise.all(routers.map((router) => router.send('GET', '/api/v1/status')));
        return found.every(({ text }) => podsIn(text) === pods);
      },
      'the routers know all pods',
      60_000,
    );
    let isOver = false;
    const loading = Promise.all([load.run(), fill(pool, recordsPerSecond, () => isOver)]);
    closing.push(async () => {
      isOver = true;
      load.stop();
      await loading;
    });
    const startMs = Date.now();
    const sampler = new Sampler({
      ...{ routers, redis, pool, heapFile, postgresPid: postgres.pid, calls: () => load },
    });
    const file = join(folder, 'samples.ndjson');
    const header: Header = {
      ...{ startedAt: new Date(startMs).toISOString(), plannedSeconds: seconds, callsPerSecond, pods },
    };
    writeFileSync(file, `${JSON.stringify(header)}\n`);
    const samples: Sample[] = [];
    const endMs = startMs + seconds * 1000;
    for (let nextMs = startMs; !isOver; nextMs += sampleEveryMs) {
      await waitUntil(Math.min(nextMs, endMs), signal);
      const values = await sampler.sample();
      const sample = { seconds: (Date.now() - startMs) / 1000, values };
      appendFileSync(file, `${JSON.stringify(sample)}\n`);
      samples.push(sample);
      onSample?.(sample);
      isOver = Date.now() >= endMs || signal?.aborted === true;
    }
    return { rows: writeSummary(folder, header, samples), samples, answers: load.answers, file };
  } finally {
    for (const one of closing.reverse()) await one();
  }
}

/** From the file of a run, also of one that was interrupted: its last line may be incomplete. */
export function readSamples(file: string): { header: Header; samples: Sample[] } {
  const [first = '', ...lines] = readFileSync(file, 'utf8').split('\n');
  const samples = lines.flatMap((line): Sample[] => {
    try {
      return [JSON.parse(line) as Sample];
    } catch {
      return [];
    }
  });
  return { header: JSON.parse(first) as Header, samples };
}

/** `summary.txt`, `summary.md` and `soak.svg`. */
export function writeSummary(folder: string, header: Header, samples: readonly Sample[]): Row[] {
  const rows = summarise(samples, definitions).filter(
    ({ definition, start, end, middle }) => !definition.key.startsWith('keys.') || start + end + middle > 0,
  );
  writeFileSync(join(folder, 'summary.txt'), tableOf(rows));
  writeFileSync(join(folder, 'summary.md'), tableOf(rows, true));
  writeFileSync(join(folder, 'soak.svg'), pictureOf(header, samples, rows));
  return rows;
}

export function progressLine({ seconds, values }: Sample): string {
  const part = (key: string, unit: 'bytes' | 'count' | 'us' | 'percent') =>
    values[key] === undefined ? '-' : formatted(values[key], unit);
  const time = `${Math.floor(seconds / 3600)}:${String(Math.floor((seconds / 60) % 60)).padStart(2, '0')}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`;
  return [
    `${time}  routers ${routerNames.map((name) => part(`${name}.rss`, 'bytes')).join(' ')}`,
    `records ${part('records.rss', 'bytes')}, Redis ${part('redis.used', 'bytes')}, ${part('keys', 'count')} keys`,
    `scripts p99 ${part('script.p99', 'us')}, ${part('calls.live', 'count')} calls, CPU ${part('cpu', 'percent')}`,
  ].join(', ');
}

function podsIn(text: string): number {
  const { pools = {} } = JSON.parse(text) as { pools?: Record<string, { assigned: number }> };
  return Object.values(pools).reduce((sum, { assigned }) => sum + assigned, 0);
}

async function fill(pool: pg.Pool, perSecond: number, isOver: () => boolean): Promise<void> {
  for (let n = 0; !isOver(); n += 1) {
    await pool
      .query("INSERT INTO jobs (what) SELECT 'ok' FROM generate_series(1, $1)", [Math.ceil(perSecond / 2)])
      .catch(() => {});
    if (n % 20 === 0)
      await pool
        .query(
          "DELETE FROM jobs WHERE status IN ('Completed', 'Failed') AND updated_at < now() - make_interval(secs => $1)",
          [keepRowsSeconds],
        )
        .catch(() => {});
    await wait(500);
  }
}

async function waitUntil(atMs: number, signal: AbortSignal | undefined): Promise<void> {
  while (Date.now() < atMs && !signal?.aborted) await wait(Math.min(250, atMs - Date.now()));
}
