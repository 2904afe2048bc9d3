/**
 * 100,000 jobs that do nothing: ours against the peers, one process and two, each in its fastest documented
 * configuration, on one PostgreSQL (BullMQ: on the Redis of the run). From the moment the workers start until the last
 * job is finished in the database. CPU time per job depends less on other load than the rate.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Pool } from 'pg';
import { groupCpuMs } from '../support/group-cpu.js';
import { median } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { RecordsBench } from './bench.js';
import { type Contender, contenders } from './contenders.js';

/** Limit for a lost or failed job, which would never finish. */
const maxRunMs = 5 * 60_000;

export interface Run {
  perSecond: number;
  walBytes: number;
  deadTuples: number;
  /** Microseconds of CPU per job. */
  workerCpu: number;
  serverCpu: number;
}

type Runs = ReadonlyMap<string, Run[]>;

export async function throughput(bench: RecordsBench): Promise<Figure[]> {
  const all = contenders(bench.pool, bench.databaseUrl, bench.admin);
  const figures: Figure[] = [];
  for (const processes of [1, 2])
    figures.push(
      ...figuresOf(
        all,
        await alternate(bench, all, {
          ...{ jobs: bench.quick ? 20_000 : 100_000, rounds: bench.quick ? 1 : 3, processes },
        }),
        processes,
      ),
    );
  return figures;
}

/** Other load on the machine affects all of them: every other round is in the reverse order. */
export async function alternate(
  bench: RecordsBench,
  all: readonly Contender[],
  { jobs, rounds, processes }: { jobs: number; rounds: number; processes: number },
): Promise<Runs> {
  const runs = new Map<string, Run[]>(all.map(({ name }) => [name, []]));
  for (let round = 0; round < rounds; round++)
    for (const contender of round % 2 === 0 ? all : [...all].reverse()) {
      const run = await once(bench, contender, jobs, processes);
      runs.get(contender.name)?.push(run);
      process.stderr.write(
        `  ${contender.label}, ${processes} process(es): ${number(run.perSecond)}/s, CPU per job ${number(run.workerCpu)} + ${number(run.serverCpu)} us, WAL ${number(run.walBytes)} bytes\n`,
      );
    }
  return runs;
}

export const medianOf = (runs: Runs, name: string, what: keyof Run) =>
  median((runs.get(name) ?? []).map((run) => run[what]));

function figuresOf(all: readonly Contender[], runs: Runs, processes: number): Figure[] {
  const rates = (name: string) => (runs.get(name) ?? []).map(({ perSecond }) => perSecond);
  const ours = rates('ours');
  const others = all.filter(({ name }) => name !== 'ours');
  const cpu = (name: string) =>
    `${number(medianOf(runs, name, 'workerCpu'))} + ${number(medianOf(runs, name, 'serverCpu'))}`;
  return [
    ...others.map(({ name, label }) => {
      const ratios = ours.map((rate, round) => rate / (rates(name)[round] ?? Number.NaN));
      return {
        id: `throughput.${processes}.${name}`,
        label: `${processes} process(es): ours against ${label}`,
        // The target must be met in every round.
        value: Math.min(...ratios),
        unit: 'times',
        target: { atLeast: name === 'graphile' && processes === 2 ? 1.3 : 1 },
        note: `the lowest of ${ratios.length} round(s), median ${number(median(ratios))}; ${number(median(ours))}/s against ${number(median(rates(name)))}/s`,
      };
    }),
    {
      id: `cpu.${processes}`,
      label: `${processes} process(es): CPU of workers and PostgreSQL per record`,
      value: medianOf(runs, 'ours', 'workerCpu') + medianOf(runs, 'ours', 'serverCpu'),
      unit: 'us',
      note: `ours ${cpu('ours')}, ${others
        .filter(({ tables }) => tables.length > 0)
        .map(({ name }) => `${name} ${cpu(name)}`)
        .join(', ')}`,
    },
  ];
}

export async function once(
  { pool, databaseUrl, engine, serverPid }: RecordsBench,
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
  const before = {
    wal: await lsn(pool),
    dead: await dead(pool, contender.tables),
    cpu: groupCpuMs(serverPid),
  };
  const startMs = performance.now();
  await Promise.all(workers.map((worker) => worker.start()));
  // The workers' own counts first: a query of the database slows the contenders down.
  const counted = async () => {
    const counts = await Promise.all(workers.map((worker) => worker.count()));
    const sum = (what: keyof Count) => counts.reduce((total, count) => total + count[what], 0);
    return { done: sum('done'), cpuUs: sum('cpuUs') };
  };
  const inTime = () => {
    if (performance.now() - startMs < maxRunMs) return;
    throw new Error(`${contender.label} did not finish ${jobs} jobs in ${maxRunMs / 60_000} minutes`);
  };
  for (; (await counted()).done < jobs; await pause(10)) inTime();
  for (; (await contender.left()) > 0; await pause(2)) inTime();
  const seconds = (performance.now() - startMs) / 1000;
  const walBytes = (await lsn(pool)) - before.wal;
  const { cpuUs } = await counted();
  const serverCpu = ((groupCpuMs(serverPid) - before.cpu) * 1000) / jobs;
  await Promise.all(workers.map((worker) => worker.stop()));
  await pause(600); // statistics are written when a session is idle or ends
  const deadTuples = (await dead(pool, contender.tables)) - before.dead;
  return {
    perSecond: jobs / seconds,
    walBytes: walBytes / jobs,
    deadTuples: deadTuples / jobs,
    workerCpu: cpuUs / jobs,
    serverCpu,
  };
}

async function lsn(pool: Pool): Promise<number> {
  return Number((await pool.query("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS n")).rows[0]?.n);
}

async function dead(pool: Pool, tables: readonly string[]): Promise<number> {
  const { rows } = await pool.query(
    'SELECT coalesce(sum(n_tup_upd + n_tup_del), 0) AS n FROM pg_stat_user_tables WHERE relname = ANY($1)',
    [tables],
  );
  return Number(rows[0]?.n);
}

/** Finished jobs of a worker, and its CPU time since it started. */
interface Count {
  done: number;
  cpuUs: number;
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

  async count(): Promise<Count> {
    const answer = this.#next();
    this.#child.send('count');
    return (await answer) as Count;
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
