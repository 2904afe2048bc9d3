/**
 * The record plane of a router: job loop, recovery and weekly report on the database of DATABASE_URL. `serve` runs it in
 * its own process (records-process.ts).
 *
 * Guarantees: it never delays calls. If the database is unreachable or does not fit, it retries after 1, 2, 4 ... 30 s,
 * and `/status` shows why. Once the database is open, the loop's breaker and the sweeps' supervisor handle outages.
 * `stop` finishes running records and releases the rest within SHUTDOWN_TIMEOUT; what takes longer is left to the
 * recovery, a minute after this process has ended.
 */
import pg from 'pg';
import { StoreConnection, type StoreOutcome } from '../calls/store/connection.js';
import { type Clock, within } from '../clock.js';
import { type Config, hidePassword } from '../config/config.js';
import { AppError, ConfigError, messageOf } from '../errors.js';
import { Backoff, type LoopState, SupervisedLoop } from '../loop.js';
import type { Logger } from '../observe/log.js';
import type { RecordsAdmin, RecordsStatus, RemoteOperations } from '../records/admin.js';
import {
  createRecordLoop,
  createRecovery,
  type RecordLoop,
  type Recovery,
  Reporter,
} from '../records/index.js';
import type { RecordGauges } from '../records/metrics.js';
import { combineObservers, type RecordObserver } from '../records/observer.js';
import { RecordOperations } from '../records/operations.js';
import { isSessionFault } from '../records/sessions.js';
import type { SpoolRedis } from '../records/spool.js';
import type { Workflow } from '../records/workflow.js';
import { RecordsStatusTracker } from './records-status.js';
import { loadWorkflows, migrateRecords, shippedProblem } from './workflows.js';

/** The configuration of a router; both addresses are those of running servers. */
export type RecordsConfig = Config & {
  databaseUrl: string;
  /** The database is embedded: the tables of the shipped workflows are created in it. */
  isOwnDatabase?: boolean;
};

/** Receives the events of the plane, for metrics, history, alerts and traces. */
export interface RecordsListener extends RecordObserver {
  loopCrashed?(loop: string): void;
  /** A command to the store, which has the spool. */
  storeAnswered?(operation: string, outcome: StoreOutcome, seconds: number): void;
}

export interface RecordsParts {
  clock: Clock;
  log: Logger;
  listener: RecordsListener;
}

export interface RecordsPlane extends RecordsAdmin {
  /** Returns at once. */
  start(): void;
  stop(): Promise<void>;
}

/** With ZOMBIE_CLEANUP_ENABLED=false no sweep counts stuck records. */
const lookEveryMs = 60_000;

/** Exists once the database has answered, for the workflows that fit it. */
interface Work {
  loop: RecordLoop;
  recovery: Recovery;
  operations: RecordOperations;
}

export class Plane implements RecordsPlane {
  readonly #config: RecordsConfig;
  readonly #parts: RecordsParts;
  #workflows: readonly Workflow[];
  /** Why a shipped workflow does not run. */
  #disabled: readonly string[] = [];
  readonly #pool: pg.Pool;
  readonly #tracker: RecordsStatusTracker;
  readonly #reporter: Reporter | undefined;
  readonly #observer: RecordObserver;
  readonly #look: SupervisedLoop;
  readonly #connection: StoreConnection;
  readonly #stopping = new AbortController();
  #work: Work | undefined;
  #opening: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;
  #isOpen = false;
  /** Of the last attempt to open the database. */
  #error: string | null = null;

  /** Loads the workflows, without a server; throws a ConfigError with their problems. */
  static async create(config: RecordsConfig, parts: RecordsParts): Promise<Plane> {
    return new Plane(config, await loadWorkflows(config, parts.clock), parts);
  }

  private constructor(config: RecordsConfig, workflows: readonly Workflow[], parts: RecordsParts) {
    const { clock, listener } = parts;
    this.#config = config;
    this.#parts = parts;
    this.#workflows = workflows;
    this.#connection = new StoreConnection({
      url: config.redisUrl,
      keyPrefix: config.redisKeyPrefix,
      commandTimeoutMs: config.redisCommandTimeoutMs,
      clock,
      observe: (...command) => listener.storeAnswered?.(...command),
    });
    this.#pool = new pg.Pool({
      connectionString: config.databaseUrl,
      max: config.recordsPoolSize,
      connectionTimeoutMillis: 5000,
      keepAlive: true,
      application_name: 'smart-router',
    });
    this.#tracker = new RecordsStatusTracker(clock);
    this.#reporter = config.recordsReportEnabled ? this.#newReporter() : undefined;
    this.#observer = combineObservers([
      listener,
      this.#tracker.observer,
      ...(this.#reporter ? [this.#reporter.observer] : []),
    ]);
    this.#look = new SupervisedLoop({
      ...parts,
      name: 'records-look',
      intervalMs: lookEveryMs,
      runOnce: () => this.#countStuck(),
      onCrash: listener.loopCrashed,
    });
  }

  get loops(): LoopState[] {
    const own = this.#config.zombieCleanupEnabled ? (this.#work?.recovery.loops ?? []) : [this.#look.state];
    return [...own, ...(this.#reporter?.loops ?? [])];
  }

  get longestTimeoutMs(): number {
    return Math.max(0, ...this.#workflows.map(({ timeoutMs }) => timeoutMs));
  }

  status(): RecordsStatus {
    const { isUp, isPaused, isBraked, stuck } = this.gauges();
    const lastError = isUp ? null : (this.loops.find(({ last_error }) => last_error)?.last_error ?? null);
    return {
      database: isUp ? 'up' : 'down',
      paused: isPaused,
      braked: isBraked,
      cleanup: this.#config.zombieCleanupEnabled,
      error: this.#problem ?? lastError ?? (this.#disabled.length > 0 ? this.#disabled.join('; ') : null),
      workflows: this.#workflows.map(({ name }) => {
        const found = stuck?.get(name);
        return {
          name,
          stuck: found?.records ?? null,
          oldest_stuck_seconds: found && found.records > 0 ? Math.round(found.oldestSeconds) : null,
        };
      }),
    };
  }

  gauges(): RecordGauges {
    return { ...this.#tracker.gauges(), isPaused: this.#work?.loop.isPaused ?? false };
  }

  operations(): RemoteOperations {
    if (!this.#isOpen || !this.#work) {
      throw new AppError('database_unavailable', `the database is not open: ${this.#problem}`, {
        retryAfterSeconds: 5,
      });
    }
    return this.#work.operations;
  }

  get #problem(): string | null {
    return this.#error ?? (this.#isOpen ? null : 'the database has not been opened yet');
  }

  start(): void {
    this.#opening ??= this.#openUntilDone();
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#end();
    return this.#stopped;
  }

  async #openUntilDone(): Promise<void> {
    const { clock, log } = this.#parts;
    const { signal } = this.#stopping;
    for (const backoff = new Backoff(); !signal.aborted; ) {
      const pauseMs = backoff.after(0);
      try {
        await this.#open();
        this.#error = null;
        return;
      } catch (error) {
        if (signal.aborted) return;
        this.#error = error instanceof ConfigError ? error.problems.join('; ') : messageOf(error);
        // A database that refuses is up.
        this.#tracker.answered(!isSessionFault(error));
        log.error(
          { err: error, database: hidePassword(this.#config.databaseUrl), retry_in_ms: pauseMs },
          'records are not processed: the database cannot be used; retrying; calls are not affected; run `smart-router doctor`',
        );
      }
      await clock.sleep(pauseMs, signal);
    }
  }

  async #open(): Promise<void> {
    const { log } = this.#parts;
    const { applied, kept } = await migrateRecords(this.#pool, {
      withWorkflows: this.#config.isOwnDatabase ?? false,
    });
    if (applied.length > 0) log.info({ migrations: applied }, 'database migrated');
    if (kept.length > 0) log.info({ tables: kept }, 'existing tables used unchanged');
    this.#tracker.answered(true);
    this.#work ??= await this.#createWork();
    const { loop, recovery } = this.#work;
    await loop.start();
    this.#isOpen = true;
    if (this.#config.zombieCleanupEnabled) await recovery.start();
    else this.#look.start();
    this.#reporter?.start();
  }

  /** For the workflows that fit; a shipped one that does not is disabled until the next start. */
  async #createWork(): Promise<Work> {
    const { clock, log, listener } = this.#parts;
    const config = this.#config;
    const workflows: Workflow[] = [];
    const disabled: string[] = [];
    for (const workflow of this.#workflows) {
      const problem = await shippedProblem(this.#pool, config, workflow);
      if (problem === undefined) workflows.push(workflow);
      else {
        log.error(`shipped workflow is off: ${problem.text}. ${problem.advice} Then restart the router.`);
        disabled.push(problem.text);
      }
    }
    this.#disabled = disabled;
    this.#workflows = workflows;
    const stuckAfterMs = config.zombieStuckThresholdMs;
    const shared = { pool: this.#pool, workflows, log, observer: this.#observer, clock };
    return {
      loop: createRecordLoop({
        ...shared,
        redis: spoolIn(this.#connection),
        ...(config.recordsSpoolFolder === undefined ? {} : { spoolFolder: config.recordsSpoolFolder }),
      }),
      recovery: createRecovery({
        ...shared,
        stuckAfter: stuckAfterMs,
        slowEvery: config.zombieCleanupIntervalMs,
        onCrash: listener.loopCrashed,
      }),
      operations: new RecordOperations({ ...shared, stuckAfterMs, p99: (name) => this.#tracker.p99(name) }),
    };
  }

  #newReporter(): Reporter {
    const { clock, log, listener } = this.#parts;
    const { recordsReportFolder: folder, recordsReportWebhookUrl: url, podName } = this.#config;
    const secret = this.#config.recordsReportWebhookSecret;
    return new Reporter({
      pool: this.#pool,
      clock,
      log,
      source: podName,
      to: { folder, webhook: url === undefined ? undefined : { url, secret } },
      onCrash: listener.loopCrashed,
    });
  }

  async #countStuck(): Promise<Record<string, number>> {
    let total = 0;
    for (const { workflow, stuck, oldestStuckSeconds } of (await this.#work?.operations.list()) ?? []) {
      this.#observer.stuck?.(workflow, stuck, oldestStuckSeconds);
      total += stuck;
    }
    return { stuck: total };
  }

  async #end(): Promise<void> {
    const { clock, log } = this.#parts;
    this.#stopping.abort();
    const ended = (async () => {
      await this.#opening;
      await Promise.all([
        this.#work?.loop.stop(),
        this.#work?.recovery.stop(),
        this.#look.stop(),
        this.#reporter?.stop(),
      ]);
      await this.#pool.end();
    })();
    try {
      await within(clock, this.#config.shutdownTimeoutMs, ended, () =>
        log.warn('records still running at the shutdown timeout: the recovery requeues them'),
      );
    } catch (error) {
      log.error({ err: error }, 'record plane did not stop cleanly');
    }
    this.#connection.close();
  }
}

/** Uses the key prefix of the store: two installations on one Redis keep their outcomes apart. */
function spoolIn(connection: StoreConnection): SpoolRedis {
  const key = (name: string) => connection.keyPrefix + name;
  const run = connection.command.bind(connection);
  return {
    rpush: (name, ...values) => run('spool_add', (client) => client.rpush(key(name), ...values)),
    llen: (name) => run('spool_length', (client) => client.llen(key(name))),
    lrange: (name, start, stop) => run('spool_read', (client) => client.lrange(key(name), start, stop)),
    lrem: (name, count, value) => run('spool_remove', (client) => client.lrem(key(name), count, value)),
  };
}
