/**
 * The job loop: claims, processes and finishes records of any number of workflows, as one worker with one heartbeat.
 *
 * Promises: a record is processed under one claim at a time and finished at most once; a batch is never larger than
 * asked for; nothing that was finished is lost while the database or the spool lives. `stop` finishes what runs and
 * gives back the rest. Weakness: a handler's effects outside its `ctx.tx` can happen twice, when its process dies after
 * them and before the finish.
 */
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ClientConfig, Pool } from 'pg';
import { pino } from 'pino';
import { type Clock, systemClock } from '../clock.js';
import { parseDuration } from '../config/durations.js';
import { ConfigError } from '../errors.js';
import type { Logger } from '../observe/log.js';
import { Breaker } from './breaker.js';
import { Finisher, nothingFinished } from './finisher.js';
import { Listener } from './listener.js';
import { missingMigrations } from './migrate.js';
import { migrations } from './migrations.generated.js';
import type { RecordObserver } from './observer.js';
import { opening } from './permissions.js';
import { type BatchCounts, WorkflowRunner } from './runner.js';
import { isSessionFault, type Queryable, Sessions } from './sessions.js';
import { DiskSpool, FirstSpool, RedisSpool, type SpoolRedis } from './spool.js';
import { StatusGuard } from './status-guard.js';
import { RecordStore } from './store.js';
import { openTable } from './table.js';
import { RecordWorker } from './worker.js';
import type { DurationLike, Workflow } from './workflow.js';

export interface RecordLoopOptions {
  pool: Pool;
  // biome-ignore lint/suspicious/noExplicitAny: workflows of different rows in one loop.
  workflows: readonly Workflow<any>[];
  /** Where outcomes wait while the database is away; without it, or when it is away too, a folder. */
  redis?: SpoolRedis;
  /** Default: `smart-router-spool` in the system's folder for temporary files. */
  spoolFolder?: string;
  log?: Logger;
  observer?: RecordObserver;
  heartbeat?: {
    /** Default: 10 s. */
    every?: DurationLike;
    /** Default: the pool's own options. */
    connection?: ClientConfig;
  };
  /** Longest pause between two looks for work. Default: 1 s. */
  poll?: DurationLike;
  /** Longest wait for a free connection. Default: 5 s. */
  sessionTimeout?: DurationLike;
  clock?: Clock;
}

export interface RecordLoop {
  /** Refuses, with every problem, what does not fit the database. */
  start(): Promise<void>;
  stop(): Promise<void>;
  /** One batch of every workflow, finished on return. */
  runOnce(): Promise<BatchCounts & { byWorkflow: Record<string, BatchCounts> }>;
  /** Looks for work now. */
  wake(workflow?: string): void;
  readonly isPaused: boolean;
}

export function createRecordLoop(options: RecordLoopOptions): RecordLoop {
  return new Loop(options);
}

/** What exists from the first use until `stop`. */
interface Parts {
  breaker: Breaker;
  worker: RecordWorker;
  listener: Listener;
  finishers: Finisher[];
  runners: WorkflowRunner[];
}

class Loop implements RecordLoop {
  readonly #options: RecordLoopOptions;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #observer: RecordObserver;
  readonly #sessions: Sessions;
  readonly #heartbeatMs: number;
  readonly #pollMs: number;
  #parts: Parts | undefined;
  #opening: Promise<Parts> | undefined;
  #isStarted = false;

  constructor(options: RecordLoopOptions) {
    const names = options.workflows.map(({ name }) => name);
    const twice = names.filter((name, i) => names.indexOf(name) !== i);
    if (twice.length > 0) throw new ConfigError(twice.map((name) => `workflow ${name} is given twice`));
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#log = options.log ?? pino({ name: 'smart-router-records' });
    this.#observer = options.observer ?? {};
    this.#heartbeatMs = ms(options.heartbeat?.every, 10_000);
    this.#pollMs = ms(options.poll, 1000);
    this.#sessions = new Sessions({
      pool: options.pool,
      clock: this.#clock,
      connectTimeoutMs: ms(options.sessionTimeout, 5000),
      observe: (outcome) => this.#observer.session?.(outcome),
    });
  }

  get isPaused(): boolean {
    return this.#parts?.breaker.isOpen ?? false;
  }

  async start(): Promise<void> {
    if (this.#isStarted) return;
    this.#isStarted = true;
    try {
      const { runners, listener, worker } = await this.#open();
      for (const runner of runners) runner.start();
      listener.start();
      this.#log.info(
        { workflows: runners.map(({ name }) => name), worker: worker.id },
        'the record loop runs',
      );
    } catch (error) {
      this.#isStarted = false;
      throw error;
    }
  }

  /** Once only for what was opened; afterwards it may be started again. */
  async stop(): Promise<void> {
    const parts = await this.#opening?.catch(() => undefined);
    this.#opening = undefined;
    if (parts) {
      const { listener, runners, finishers, breaker, worker } = parts;
      await listener.stop();
      await Promise.all(runners.map((runner) => runner.stop()));
      await breaker.stop();
      const owing = finishers.filter(({ owes }) => owes);
      for (const finisher of owing) await finisher.replay().catch(() => {});
      await worker.stop({ signOff: !owing.some(({ owes }) => owes) });
    }
    this.#parts = undefined;
    this.#isStarted = false;
  }

  async runOnce(): Promise<BatchCounts & { byWorkflow: Record<string, BatchCounts> }> {
    const { runners } = await this.#open();
    const total: BatchCounts = { claimed: 0, ...nothingFinished() };
    const byWorkflow: Record<string, BatchCounts> = {};
    for (const runner of runners) {
      const counts = await runner.runOnce();
      byWorkflow[runner.name] = counts;
      for (const key of Object.keys(total) as (keyof BatchCounts)[]) total[key] += counts[key];
    }
    return { ...total, byWorkflow };
  }

  wake(workflow?: string): void {
    for (const runner of this.#parts?.runners ?? [])
      if (workflow === undefined || runner.name === workflow) runner.wake();
  }

  #open(): Promise<Parts> {
    this.#opening ??= opening(() => this.#openAll()).catch((error: unknown) => {
      this.#opening = undefined;
      throw error;
    });
    return this.#opening;
  }

  async #openAll(): Promise<Parts> {
    const { workflows, redis, spoolFolder, heartbeat } = this.#options;
    await assertMigrated(this.#sessions);
    const tables = await openTables(this.#sessions, workflows);
    const { rows } = await this.#sessions.query<{ id: string }>(
      'SELECT id FROM smart_router.installation',
      [],
    );
    const clock = this.#clock;
    const shared = { clock, log: this.#log, observer: this.#observer, sessions: this.#sessions };
    const spool = new FirstSpool([
      ...(redis ? [new RedisSpool(redis, clock)] : []),
      new DiskSpool(spoolFolder ?? join(tmpdir(), 'smart-router-spool')),
    ]);
    const finishers: Finisher[] = [];
    const runners: WorkflowRunner[] = [];
    const suspicion = {};
    const breaker = new Breaker({
      clock,
      probe: async () => {
        await this.#sessions.query('SELECT 1', []);
      },
      onBack: async () => {
        for (const finisher of finishers)
          await finisher.replay().catch((error: unknown) => {
            // Otherwise it begins nothing new itself, and the other workflows are none the worse for it.
            if (isSessionFault(error)) throw error;
          });
      },
      onChange: (isOpen) => {
        this.#observer.breaker?.(isOpen);
        if (isOpen) this.#log.error('sessions fail: no records are claimed until the database answers again');
        else this.#log.info('the database answers again: records are claimed');
      },
    });
    const worker = new RecordWorker({
      ...shared,
      intervalMs: this.#heartbeatMs,
      connection: heartbeat?.connection,
      onLost: () => {
        for (const runner of runners) runner.loseAll();
      },
    });
    const listener = new Listener({ ...shared, onWake: (workflow) => this.wake(workflow) });
    await worker.start();
    workflows.forEach((workflow, i) => {
      const table = tables[i];
      if (!table) throw new Error('every workflow has its table');
      for (const advice of table.advice) this.#log.info({ workflow: workflow.name }, advice);
      const store = new RecordStore(this.#sessions, table);
      const guard = new StatusGuard({ workflow: workflow.name, clock, log: this.#log });
      const finisher = new Finisher({
        ...shared,
        guard,
        workflow: workflow.name,
        store,
        spool,
        place: `${rows[0]?.id}/${workflow.name}`,
        onSession: (outcome) => (outcome === 'ok' ? breaker.succeeded() : breaker.failed()),
        onAway: () => breaker.open(),
      });
      finishers.push(finisher);
      runners.push(
        new WorkflowRunner({
          ...shared,
          workflow,
          store,
          finisher,
          guard,
          breaker,
          pollMs: this.#pollMs,
          worker: () => worker.id,
          beAlive: () => worker.beAlive(),
          suspicion,
        }),
      );
    });
    // What an earlier process could not write comes first.
    for (const finisher of finishers) {
      await finisher.replay().catch((error: unknown) => {
        this.#log.warn({ err: error }, 'outcomes that were kept aside could not be written yet');
      });
    }
    this.#parts = { breaker, worker, listener, finishers, runners };
    return this.#parts;
  }
}

/** Every table is looked at before anything is said, so that all problems come at once. */
export async function openTables(db: Queryable, workflows: readonly Workflow[]) {
  const problems: string[] = [];
  const tables = [];
  for (const workflow of workflows) {
    try {
      const table = await openTable(db, workflow);
      problems.push(...table.missingRights.map((text) => `workflow ${workflow.name}: ${text}`));
      tables.push(table);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      problems.push(...error.problems);
    }
  }
  if (problems.length > 0) throw new ConfigError(problems);
  return tables;
}

export async function assertMigrated(db: Queryable): Promise<void> {
  const missing = await missingMigrations(db);
  if (missing.length === 0) return;
  const what =
    missing.length === migrations.length
      ? 'is missing'
      : `is older than this version (${missing.join(', ')} to come)`;
  throw new ConfigError([
    `the schema smart_router ${what}: call migrate(pool), or run \`smart-router records migrate\``,
  ]);
}

export function ms(value: DurationLike | undefined, fallback: number): number {
  if (value === undefined) return fallback;
  const found = typeof value === 'number' ? value : parseDuration(value);
  if (found !== undefined && Number.isFinite(found) && found > 0) return found;
  throw new ConfigError([`${JSON.stringify(value)} is no time: give milliseconds, or text like 30s, 5m, 1h`]);
}
