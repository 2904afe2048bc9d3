/**
 * Runs several routers as processes that share the ports (`serve --workers N`), for machines without
 * Kubernetes. This process is the primary: it opens the ports for the workers, which accept the connections. The ports are closed while no
 * worker runs.
 *
 * Guarantees: a worker is an ordinary router with its own name (`POD_NAME/2`), so the election, the history and the events
 * between replicas work between workers too. Embedded engines belong to the primary, the records process to worker 1;
 * there is one of each. A worker that ends is started again after 1, 2, 4 ... 30 s; the backoff starts again at 1 s after a
 * healthy minute. If a worker cannot start when `serve` starts, all are stopped and `start` throws its error: a restart
 * would not help. A worker that does not answer is killed. `stop` waits for all workers; each has SHUTDOWN_TIMEOUT and 5 s more. When the
 * primary is killed, the workers stop cleanly.
 *
 * Metrics are those of the whole group. Counters and histograms are sums over all workers. The last values of a worker that
 * has ended or does not answer stay in the sum: Prometheus would take a smaller sum for a restart and count the rest again. When a
 * worker ends, its counts since the last scrape are lost. Each gauge names how it is aggregated (calls/metrics.ts).
 *
 * Weakness: when a worker is killed, the requests on its connections are lost, as with a killed replica.
 */
import cluster, { type Worker } from 'node:cluster';
import type { Duplex } from 'node:stream';
import { AggregatorRegistry, Counter, Registry } from 'prom-client';
import { collectProcessMetrics, type MetricData } from '../calls/metrics.js';
import { systemClock as clock } from '../clock.js';
import type { Config } from '../config/config.js';
import { messageOf } from '../errors.js';
import { SupervisedLoop } from '../loop.js';
import { createLogger, type Logger } from '../observe/log.js';
import { PacedRender } from '../observe/paced-render.js';
import { Channel, NoAnswer } from './channel.js';
import { entryOf, exitOf, stopMarginMs } from './processes.js';
import { askWorker1, recordsUnavailable } from './records-report.js';

/** A scrape does not wait longer for a worker that hangs. */
const maxMetricsMs = 12_000;
const aliveEveryMs = 5000;
const aliveTimeoutMs = 10_000;
/** A start waits for modules, the store and the records process, each with its own limit. */
const startTimeoutMs = 120_000;

type Stop = () => Promise<void> | void;

interface Member {
  readonly number: number;
  readonly loop: SupervisedLoop;
  worker: Worker | undefined;
  /** Undefined while no router runs in the worker. */
  channel: Channel | undefined;
  /** As of the last scrape. */
  metrics: MetricData[];
}

export class WorkerGroup {
  readonly log: Logger;
  /** Never resolves: a worker that exits because it lost its leadership is started again. */
  readonly mustStop = new Promise<string>(() => {});
  readonly #stops: Stop[] = [];
  readonly #members: readonly Member[];
  #config: Config;
  readonly #stopping = new AbortController();
  readonly #registry = new Registry();
  readonly #restarts = new Counter({
    name: 'smart_router_loop_restarts_total',
    help: 'Crashes of a background loop',
    labelNames: ['loop'],
    registers: [this.#registry],
  });
  readonly #scrape = new PacedRender(clock, this.#stopping.signal, () => this.#render());
  /** The counts of workers that have ended. */
  #past: MetricData[] = [];
  #onStarted = (_member: Member) => {};
  #onFailed = (_member: Member, _error: unknown) => {};

  /** Resolves when all workers listen, or at `stopped`. */
  static async start(config: Config, stopped: Promise<unknown>): Promise<WorkerGroup> {
    const group = new WorkerGroup(config);
    try {
      await group.#start(stopped);
      return group;
    } catch (error) {
      await group.stop();
      throw error;
    }
  }

  private constructor(config: Config) {
    this.#config = config;
    this.log = createLogger({ level: config.logLevel, format: config.logFormat });
    this.#restarts.inc({ loop: 'worker' }, 0);
    collectProcessMetrics(this.#registry);
    this.#members = Array.from({ length: config.workers }, (_, i) => this.#createMember(i + 1));
  }

  async #start(stopped: Promise<unknown>): Promise<void> {
    for (const warning of this.#config.warnings) this.log.warn(warning);
    const engines = await openEngines(this.#config, this.#stops, this.log);
    this.#config = { ...this.#config, ...engines, warnings: [] };
    // Workers accept from a shared socket. With SCHED_RR the primary hands a connection to a worker that was just killed,
    // and the caller never gets an answer: 12 of 11,000 connections while 14 workers were killed; 0 with this.
    cluster.schedulingPolicy = cluster.SCHED_NONE;
    // 3 is Node's own channel, which hands over the ports; 4 is ours.
    const stdio = ['inherit', 'inherit', 'inherit', 'ipc', 'pipe'] as const;
    cluster.setupPrimary({ exec: entryOf('worker-child'), args: [], stdio: [...stdio] });
    const waiting = new Set(this.#members);
    const started = new Promise<void>((resolve, reject) => {
      this.#onFailed = (member, error) => {
        if (!waiting.has(member)) return;
        this.#stopping.abort();
        reject(error);
      };
      this.#onStarted = (member) => {
        waiting.delete(member);
        if (waiting.size === 0) resolve();
      };
    });
    for (const { loop } of this.#members) loop.start();
    await Promise.race([started, stopped]);
    this.#onFailed = () => {};
    if (waiting.size > 0) return;
    this.log.info({ workers: this.#members.length }, 'all workers are listening');
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all(this.#members.map(({ loop }) => loop.stop()));
    for (const stop of this.#stops.splice(0).reverse()) await stop();
  }

  kill(): void {
    for (const { worker } of this.#members) worker?.process.kill('SIGKILL');
  }

  #createMember(number: number): Member {
    const error = ({ err, retry_in_ms }: { err?: unknown; retry_in_ms?: number }) => {
      // If a first worker could not start, `start` throws its error.
      if (this.#stopping.signal.aborted) return;
      const reason = messageOf(err);
      this.log.error({ worker: number, reason, retry_in_ms }, 'worker ended; starting it again');
    };
    const member: Member = {
      number,
      loop: new SupervisedLoop({
        name: 'worker',
        intervalMs: 0,
        clock,
        log: { info: error, error },
        onCrash: () => this.#restarts.inc({ loop: 'worker' }),
        runOnce: (signal) =>
          this.#run(member, signal).catch((error) => {
            this.#onFailed(member, error);
            throw error;
          }),
      }),
      worker: undefined,
      channel: undefined,
      metrics: [],
    };
    return member;
  }

  /** Runs the worker once. Resolves when it was stopped, throws if it ended on its own. */
  async #run(member: Member, signal: AbortSignal): Promise<Record<string, number>> {
    const { number } = member;
    const worker = cluster.fork();
    member.worker = worker;
    // Without a listener Node would throw it; `exitOf` handles it.
    worker.on('error', () => {});
    const { pid } = worker.process;
    const kill = () => worker.process.kill('SIGKILL');
    const ended = exitOf(worker.process, {
      signal,
      clock,
      stop: () => worker.process.kill('SIGTERM'),
      timeoutMs: this.#config.shutdownTimeoutMs + stopMarginMs,
    });
    if (pid === undefined) throw new Error(`worker ${number} could not be started: ${await ended}`);
    this.log.info({ worker: number, pid }, 'worker started');
    const channel = this.#openChannel(number, worker);
    try {
      try {
        await this.#startRouter(number, channel, ended);
      } catch (error) {
        kill();
        await ended;
        throw error;
      }
      member.channel = channel;
      this.#onStarted(member);
      void this.#watch(member, channel, kill);
      const how = await ended;
      if (!signal.aborted) throw new Error(`ended with ${how}`);
    } finally {
      channel.close();
      member.worker = undefined;
      member.channel = undefined;
      this.#past = sum([this.#past, countsOf(member.metrics)]);
      member.metrics = [];
    }
    return {};
  }

  /** Kills a worker that hangs. Two questions, because a machine that was suspended for a while answers the first one late. */
  async #watch(member: Member, channel: Channel, kill: () => void): Promise<void> {
    const { signal } = this.#stopping;
    for (let missed = 0; missed < 2; ) {
      await clock.sleep(aliveEveryMs, signal);
      missed = await channel.call('alive', [], aliveTimeoutMs).then(
        () => 0,
        () => missed + 1,
      );
      if (channel !== member.channel || signal.aborted) return;
    }
    this.log.error({ worker: member.number }, 'worker does not answer; killing it');
    kill();
  }

  #openChannel(number: number, { process }: Worker): Channel {
    return new Channel(process.stdio[4] as Duplex, {
      clock,
      handlers: {
        metrics: () => this.#scrape.next(),
        records: (name: string, args: unknown[]) => {
          const channel = this.#members[0]?.channel;
          if (!channel) throw recordsUnavailable('worker 1 is starting');
          return askWorker1(channel, name, args);
        },
      },
      onError: (error) => {
        this.log.error({ worker: number, err: error }, 'worker sent an invalid message; killing it');
        process.kill('SIGKILL');
      },
    });
  }

  async #startRouter(number: number, channel: Channel, ended: Promise<string>): Promise<void> {
    const podName = `${this.#config.podName}/${number}`;
    const config = { ...this.#config, podName };
    const endedEarly = ended.then((how) => {
      throw new Error(`worker ${number} ended with ${how} during its start`);
    });
    const started = channel.call('start', [config, number], startTimeoutMs).catch((error: unknown) => {
      if (!(error instanceof NoAnswer)) throw error;
      throw new Error(`worker ${number} did not start within ${startTimeoutMs / 1000} s`);
    });
    await Promise.race([started, endedEarly]);
  }

  async #render(): Promise<string> {
    await Promise.all(this.#members.map((member) => this.#updateMetrics(member)));
    const own = await this.#registry.getMetricsAsJSON();
    // Without an await from here on: a worker that ends now would be counted twice.
    const running = this.#members.map(({ metrics }) => metrics);
    return AggregatorRegistry.aggregate([...running, own, this.#past]).metrics();
  }

  /** Keeps the counts of a worker that does not answer, but not its gauges. */
  async #updateMetrics(member: Member): Promise<void> {
    const { channel, number } = member;
    if (!channel) return;
    // A worker waits for the store, at most REQUEST_TIMEOUT.
    const timeoutMs = Math.min(maxMetricsMs, this.#config.requestTimeoutMs + 1000);
    try {
      const metrics = (await channel.call('metrics', [], timeoutMs)) as MetricData[];
      if (channel === member.channel) member.metrics = metrics;
    } catch (error) {
      member.metrics = countsOf(member.metrics);
      this.log.warn(
        { worker: number, reason: messageOf(error) },
        'worker sent no metrics; its last counts are used',
      );
    }
  }
}

const countsOf = (metrics: MetricData[]) =>
  metrics.filter(({ type }) => ['counter', 'histogram'].includes(String(type)));

function sum(metrics: MetricData[][]): MetricData[] {
  return AggregatorRegistry.aggregate(metrics).getMetricsAsArray() as unknown as MetricData[];
}

/** Starts the embedded engines, one of each for all workers. */
async function openEngines(config: Config, stops: Stop[], log: Logger): Promise<object> {
  const engines: { redisUrl?: string; databaseUrl?: string; isOwnDatabase?: true } = {};
  if (config.redisUrl === 'embedded') {
    const { openEngine } = await import('./store.js');
    engines.redisUrl = await openEngine(config, stops, log);
  }
  const { databaseUrl } = config;
  const hasWorkflows = config.recordsWorkflows.length > 0 || config.recordsModule !== undefined;
  if (databaseUrl === 'embedded' && hasWorkflows) {
    const { openDatabase } = await import('./records-process.js');
    const database = await openDatabase({ ...config, databaseUrl }, { clock, log });
    if (database) {
      stops.push(() => database.stop());
      engines.databaseUrl = database.url;
      engines.isOwnDatabase = true;
    }
  }
  return engines;
}
