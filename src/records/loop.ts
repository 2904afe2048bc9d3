/**
 * The job loop: claims, processes and finishes records of several workflows, as one worker with one heartbeat.
 *
 * Guarantees: a record is processed under one claim at a time and finished at most once; a batch is never larger than
 * `batchSize`; finished work is kept while the database or the spool survives. `stop` finishes running records and
 * releases the rest. Weakness: effects of a handler outside `ctx.tx` can happen twice, if its process dies after them and
 * before the finish.
 */
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ClientConfig, Pool } from 'pg';
import { pino } from 'pino';
import { type Clock, systemClock } from '../clock.js';
import { ConfigError } from '../errors.js';
import type { Logger } from '../observe/log.js';
import { Breaker } from './breaker.js';
import { Finisher, noCounts } from './finisher.js';
import { Listener } from './listener.js';
import { assertMigrated } from './migrate.js';
import type { RecordObserver } from './observer.js';
import { explainDatabaseErrors } from './permissions.js';
import { type BatchCounts, WorkflowRunner } from './runner.js';
import { isSessionFault, Sessions } from './sessions.js';
import { DiskSpool, RedisSpool, SpoolChain, type SpoolRedis } from './spool.js';
import { StatusGuard } from './status-guard.js';
import { RecordStore } from './store.js';
import { openTables } from './table.js';
import { RecordWorker } from './worker.js';
import { type AnyWorkflow, type DurationLike, durationMs } from './workflow.js';

export interface RecordLoopOptions {
  pool: Pool;
  workflows: readonly AnyWorkflow[];
  /** Stores outcomes while the database is unreachable; without it, or if it fails too, a folder does. */
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
  /** Maximum pause between two claims when the queue is empty. Default: 1 s. */
  poll?: DurationLike;
  /** Maximum wait for a free connection. Default: 5 s. */
  sessionTimeout?: DurationLike;
  clock?: Clock;
}

export interface RecordLoop {
  /** Throws a ConfigError with every problem if a workflow does not fit the database. */
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Processes one batch of every workflow, finished on return. */
  runOnce(): Promise<BatchCounts & { byWorkflow: Record<string, BatchCounts> }>;
  /** Claims now instead of at the next poll. */
  wake(workflow?: string): void;
  readonly isPaused: boolean;
}

export function createRecordLoop(options: RecordLoopOptions): RecordLoop {
  return new Loop(options);
}

/** Exists from the first use until `stop`. */
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
    const duplicates = names.filter((name, i) => names.indexOf(name) !== i);
    if (duplicates.length > 0)
      throw new ConfigError(duplicates.map((name) => `workflow ${name} is given twice`));
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#log = options.log ?? pino({ name: 'smart-router-records' });
    this.#observer = options.observer ?? {};
    this.#heartbeatMs = durationMs(options.heartbeat?.every, 10_000);
    this.#pollMs = durationMs(options.poll, 1000);
    this.#sessions = new Sessions({
      pool: options.pool,
      clock: this.#clock,
      connectTimeoutMs: durationMs(options.sessionTimeout, 5000),
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
        { workflows: runners.map(({ name }) => name), worker_id: worker.id },
        'record loop started',
      );
    } catch (error) {
      this.#isStarted = false;
      throw error;
    }
  }

  /** Afterwards the loop may be started again. */
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
    const total: BatchCounts = { claimed: 0, ...noCounts() };
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
    this.#opening ??= explainDatabaseErrors(() => this.#openAll()).catch((error: unknown) => {
      this.#opening = undefined;
      throw error;
    });
    return this.#opening;
  }

  async #openAll(): Promise<Parts> {
    const { workflows, redis, spoolFolder, heartbeat } = this.#options;
    await assertMigrated(this.#sessions);
    const tables = await openTables(this.#sessions, workflows);
    const { rows } = await this.#sessions.query<{ id: string }>('SELECT id FROM smart_router.installation');
    const clock = this.#clock;
    const shared = { clock, log: this.#log, observer: this.#observer, sessions: this.#sessions };
    const disk = new DiskSpool(spoolFolder ?? join(tmpdir(), 'smart-router-spool'));
    const spool = new SpoolChain([...(redis ? [new RedisSpool(redis, clock)] : []), disk]);
    const reason = await disk.problem();
    if (reason !== undefined)
      this.#log.error(
        { folder: disk.folder, reason },
        'spool folder cannot be used safely: outcomes may be lost while the database is unreachable; set another folder',
      );
    const finishers: Finisher[] = [];
    const runners: WorkflowRunner[] = [];
    const suspectSlot = {};
    const breaker = new Breaker({
      clock,
      probe: async () => {
        await this.#sessions.query('SELECT 1');
      },
      onBack: async () => {
        for (const finisher of finishers)
          await finisher.replay().catch((error: unknown) => {
            // Any other error blocks this workflow only.
            if (isSessionFault(error)) throw error;
          });
      },
      onChange: (isOpen) => {
        this.#observer.breaker?.(isOpen);
        if (isOpen) this.#log.error('database sessions fail: claiming paused until the database answers');
        else this.#log.info('database answers again: claiming resumed');
      },
    });
    const worker = new RecordWorker({
      ...shared,
      intervalMs: this.#heartbeatMs,
      tables: Object.fromEntries(workflows.map(({ name }, i) => [name, tables[i]?.path ?? ''])),
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
        breaker,
        ...(workflow.limit ? { onWritten: () => this.wake(workflow.name) } : {}),
      });
      finishers.push(finisher);
      runners.push(
        new WorkflowRunner({
          ...shared,
          ...{ workflow, store, finisher, guard, breaker, suspectSlot, worker },
          pollMs: this.#pollMs,
        }),
      );
    });
    // First what an earlier process could not write.
    for (const finisher of finishers) {
      await finisher.replay().catch((error: unknown) => {
        this.#log.warn({ err: error }, 'spooled outcomes not written yet');
      });
    }
    this.#parts = { breaker, worker, listener, finishers, runners };
    return this.#parts;
  }
}
