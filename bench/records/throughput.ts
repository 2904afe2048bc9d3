/**
 * 100,000 jobs that do nothing: ours against the peers, one process and two, each in its fastest documented
 * configuration, on one PostgreSQL (BullMQ: on the Redis of the run). From the moment the workers start until the last
 * job is finished in the database.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Pool } from 'pg';
import { median } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { RecordsBench } from './bench.js';
import { type Contender, contenders } from './contenders.js';

/** Limit for a lost or failed job, which would never finish. */
const maxRunMs = 5 * 60_000;

interface Run {
  perSecond: number;
  walBytes: number;
  deadTuples: number;
}

export async function throughput(bench: RecordsBench): Promise<Figure[]> {
  const jobs = bench.quick ? 20_000 : 100_000;
  const rounds = bench.quick ? 1 : 3;
  const all = contenders(bench.pool, bench.databaseUrl, bench.admin);
  const figures: Figure[] = [];
  for (const processes of [1, 2]) {
    const runs = new Map<string, Run[]>();
    for (let round = 0; round < rounds; round++) {
      // Alternating: other load on the machine affects all of them.
      for (const contender of all) {
        const run = await once(bench, contender, jobs, processes);
        runs.set(contender.name, [...(runs.get(contender.name) ?? []), run]);
        process.stderr.write(`  ${contender.label}, ${processes} process(es): ${number(run.perSecond)}/s\n`);
      }
    }
    figures.push(...figuresOf(all, runs, processes));
  }
  return figures;
}

function figuresOf(all: readonly Contender[], runs: ReadonlyMap<string, Run[]>, processes: number): Figure[] {
  const rate = (name: string) => median((runs.get(name) ?? []).map(({ perSecond }) => perSecond));
  const ours = rate('ours');
  const figures: Figure[] = all
    .filter(({ name }) => name !== 'ours')
    .map(({ name, label }) => ({
      id: `throughput.${processes}.${name}`,
      label: `${processes} process(es): ours against ${label}`,
      value: ours / rate(name),
      unit: 'times',
      target: { atLeast: name === 'graphile' ? 1.2 : 1 },
      note: `${number(ours)}/s against ${number(rate(name))}/s`,
    }));
  if (processes > 1) return figures;
  const of = (name: string, what: 'walBytes' | 'deadTuples') =>
    median((runs.get(name) ?? []).map((run) => run[what]));
  const others = all.filter(({ name, tables }) => name !== 'ours' && tables.length > 0);
  return [
    ...figures,
    {
      id: 'wal',
      label: 'WAL per record',
      value: of('ours', 'walBytes'),
      unit: 'bytes',
      target: { below: 801 },
      note: others.map(({ name }) => `${name} ${number(of(name, 'walBytes'))}`).join(', '),
    },
    {
      id: 'dead',
      label: 'dead tuples per record',
      value: of('ours', 'deadTuples'),
      unit: '',
      note: others.map(({ name }) => `${name} ${number(of(name, 'deadTuples'))}`).join(', '),
    },
  ];
}

export async function once(
  { pool, databaseUrl, engine }: RecordsBench,
  contender: Contender,
  jobs: number,
  processes: number,
): Promise<Run> {
  await contender.fill(jobs);
  await pool.query('VACUUM ANALYZE');
  await pool.query('CHECKPOINT');
  const workers = await Promise.all(
    Array.from({ length: processes }, () => Worker.open(contender.name, databaseUrl, engine.url)),
  );
  const before = { wal: await lsn(pool), dead: await dead(pool, contender.tables) };
  const startMs = performance.now();
  await Promise.all(workers.map((worker) => worker.start()));
  // The workers' own counts first: a query of the database slows the contenders down.
  const counted = async () =>
    (await Promise.all(workers.map((worker) => worker.count()))).reduce((sum, done) => sum + done);
  const inTime = () => {
    if (performance.now() - startMs < maxRunMs) return;
    throw new Error(`${contender.label} did not finish ${jobs} jobs in ${maxRunMs / 60_000} minutes`);
  };
  for (; (await counted()) < jobs; await pause(10)) inTime();
  for (; (await contender.left()) > 0; await pause(2)) inTime();
  const seconds = (performance.now() - startMs) / 1000;
  const walBytes = (await lsn(pool)) - before.wal;
  await Promise.all(workers.map((worker) => worker.stop()));
  await pause(600); // statistics are written when a session is idle or ends
  const deadTuples = (await dead(pool, contender.tables)) - before.dead;
  return { perSecond: jobs / seconds, walBytes: walBytes / jobs, deadTuples: deadTuples / jobs };
}

async function lsn(pool: Pool): Promise<number> {
  return Number((await pool.query("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn AS n")).rows[0]?.n);
}

async function dead(pool: Pool, tables: readonly string[]): Promise<number> {
  const { rows } = await pool.query(
    'SELECT coalesce(sum(n_tup_upd + n_tup_del), 0) AS n FROM pg_stat_user_tables WHERE relname = ANY($1)',
    [tables],
  );
  return Number(rows[0]?.n);
}

class Worker {
  readonly #child: ChildProcess;
  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  static async open(contender: string, databaseUrl: string, redisUrl: string): Promise<Worker> {
    const file = fileURLToPath(new URL('./contender-process.js', import.meta.url));
    const worker = new Worker(
      fork(file, [contender, databaseUrl, redisUrl], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] }),
    );
    await worker.#next();
    return worker;
  }

  async start(): Promise<void> {
    const started = this.#next();
    this.#child.send('start');
    await started;
  }

  async count(): Promise<number> {
    const answer = this.#next();
    this.#child.send('count');
    return Number(((await answer) as { done?: number }).done ?? 0);
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.send('stop');
    await Promise.race([ended, pause(5000)]);
    this.#child.kill('SIGKILL');
  }

  #next(): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const onExit = (code: number | null) => reject(new Error(`a worker ended with ${code}`));
      this.#child.once('exit', onExit);
      this.#child.once('message', (message) => {
        this.#child.off('exit', onExit);
        resolve(message);
      });
    });
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
