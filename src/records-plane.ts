/**
 * The record plane of a router: job loop, recovery, and whatever listens to them, on the database of DATABASE_URL.
 *
 * Promises: it never keeps calls from being served. A database that is away, or does not fit, is tried again after
 * 1, 2, 4 ... 30 s, and `/status` says why; once it has been opened, the loop's breaker and the sweeps' supervisor deal
 * with outages. `stop` finishes what runs and gives back the rest, within SHUTDOWN_TIMEOUT; what takes longer is left
 * to the recovery of the others, a minute after this process has ended.
 */
import pg from 'pg';
import type { StoreConnection } from './calls/store/connection.js';
import type { Clock } from './clock.js';
import { type Config, hidePassword } from './config.js';
import { startEmbeddedPostgres } from './embedded/postgres.js';
import { AppError, ConfigError, messageOf } from './errors.js';
import type { Logger } from './observe/log.js';
import type { RecordGauges, RecordMetrics } from './observe/record-metrics.js';
import { Desk } from './records/by-hand.js';
import { createRecordLoop, createRecovery, type RecordLoop, type Recovery } from './records/index.js';
import type { RecordObserver } from './records/observer.js';
import { isSessionFault } from './records/sessions.js';
import type { SpoolRedis } from './records/spool.js';
import type { Workflow } from './records/workflow.js';
import { RecordsPulse, tellAll } from './records-pulse.js';
import { loadWorkflows, migrateRecords } from './records-workflows.js';
import { type LoopState, SupervisedLoop } from './supervised-loop.js';

export interface RecordsParts {
  /** Where outcomes wait while the database is away. */
  connection: StoreConnection;
  metrics: RecordMetrics;
  clock: Clock;
  log: Logger;
  onCrash(loop: string): void;
  /** What runs beside loop and recovery: alerts, reports. */
  companions?: readonly RecordsCompanion[];
}

/** Hears what the plane does from the beginning, and is started once the database has been opened. */
export interface RecordsCompanion {
  readonly observer?: RecordObserver;
  readonly loops?: readonly LoopState[];
  start?(database: {
    pool: pg.Pool;
    workflows: readonly Workflow[];
    stuckAfterMs: number;
  }): Promise<void> | void;
  stop?(): Promise<void>;
}

export interface RecordsStatus {
  database: 'up' | 'down';
  /** Nothing is claimed because sessions fail. */
  paused: boolean;
  /** The fast sweep waits because most workers fell silent at once. */
  braked: boolean;
  /** Whether stuck records are brought back (ZOMBIE_CLEANUP_ENABLED). */
  cleanup: boolean;
  /** Why records are not processed. */
  error: string | null;
  /** As the last sweep found them; null while that is not known. */
  workflows: { name: string; stuck: number | null; oldest_stuck_seconds: number | null }[];
}

/** What the API needs of it. */
export interface RecordsAdmin {
  readonly loops: LoopState[];
  readonly stuckAfterMs: number;
  status(): RecordsStatus;
  gauges(): RecordGauges;
  /** In seconds; null before enough records have been seen. */
  p99(workflow: string): number | null;
  /** Throws 503 `database_unavailable` until the database has been opened. */
  desk(): Desk;
}

export interface RecordsPlane extends RecordsAdmin {
  /** Returns at once. */
  start(): void;
  stop(): Promise<void>;
}

const firstPauseMs = 1000;
const longestPauseMs = 30_000;
/** With ZOMBIE_CLEANUP_ENABLED=false nobody else counts what is stuck. */
const lookEveryMs = 60_000;

/** Resolves when everything is read that needs no database server; throws a ConfigError for what is wrong there. */
export async function prepareRecords(
  config: Config & { databaseUrl: string },
  parts: RecordsParts,
): Promise<RecordsPlane> {
  const workflows = await loadWorkflows(config, parts.clock);
  const isEmbedded = config.databaseUrl === 'embedded';
  const engine = isEmbedded
    ? await startEmbeddedPostgres({
        ...(config.databaseFolder === undefined ? {} : { folder: config.databaseFolder }),
        clock: parts.clock,
        log: (line) => parts.log.debug({ line }, 'embedded PostgreSQL'),
        onCrash: (error) =>
          parts.log.fatal({ err: error }, 'the embedded database has ended: restart the router'),
      })
    : undefined;
  return new Plane(config, engine?.url ?? config.databaseUrl, workflows, parts, async () => engine?.stop());
}

class Plane implements RecordsPlane {
  readonly #config: Config;
  readonly #parts: RecordsParts;
  readonly #address: string;
  readonly #workflows: readonly Workflow[];
  readonly #pool: pg.Pool;
  readonly #pulse: RecordsPulse;
  readonly #observer: RecordObserver;
  readonly #loop: RecordLoop;
  readonly #recovery: Recovery;
  readonly #look: SupervisedLoop;
  readonly #desk: Desk;
  readonly #endEngine: () => Promise<void>;
  readonly #stopping = new AbortController();
  readonly #started = new Set<RecordsCompanion>();
  #opening: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;
  #isOpen = false;
  #error: string | null = 'the database has not been opened yet';

  constructor(
    config: Config,
    url: string,
    workflows: readonly Workflow[],
    parts: RecordsParts,
    endEngine: () => Promise<void>,
  ) {
    const { clock, log, metrics, companions = [] } = parts;
    this.#config = config;
    this.#parts = parts;
    this.#address = hidePassword(url);
    this.#workflows = workflows;
    this.#endEngine = endEngine;
    this.#pool = new pg.Pool({
      connectionString: url,
      max: config.recordsPoolSize,
      connectionTimeoutMillis: 5000,
      keepAlive: true,
      application_name: 'smart-router',
    });
    this.#pulse = new RecordsPulse(clock);
    metrics.expect(workflows.map(({ name }) => name));
    const heard = companions.flatMap(({ observer }) => (observer ? [observer] : []));
    this.#observer = tellAll([metrics.observer, this.#pulse.observer, ...heard]);
    const shared = { pool: this.#pool, workflows, log, observer: this.#observer, clock };
    this.#loop = createRecordLoop({
      ...shared,
      redis: spoolIn(parts.connection),
      ...(config.recordsSpoolFolder === undefined ? {} : { spoolFolder: config.recordsSpoolFolder }),
    });
    this.#recovery = createRecovery({
      ...shared,
      stuckAfter: config.zombieStuckThresholdMs,
      slowEvery: config.zombieCleanupIntervalMs,
      onCrash: parts.onCrash,
    });
    this.#desk = new Desk({ ...shared, stuckAfterMs: config.zombieStuckThresholdMs });
    this.#look = new SupervisedLoop({
      name: 'records-look',
      intervalMs: lookEveryMs,
      clock,
      log,
      runOnce: () => this.#lookOnce(),
      onCrash: () => parts.onCrash('records-look'),
    });
  }

  get loops(): LoopState[] {
    const { companions = [] } = this.#parts;
    const own = this.#config.zombieCleanupEnabled ? this.#recovery.loops : [this.#look.state];
    return [...own, ...companions.flatMap(({ loops = [] }) => loops)];
  }

  get stuckAfterMs(): number {
    return this.#config.zombieStuckThresholdMs;
  }

  status(): RecordsStatus {
    const { isUp, isPaused, isBraked, stuck } = this.gauges();
    const lastError = isUp ? null : (this.loops.find(({ last_error }) => last_error)?.last_error ?? null);
    return {
      database: isUp ? 'up' : 'down',
      paused: isPaused,
      braked: isBraked,
      cleanup: this.#config.zombieCleanupEnabled,
      error: this.#error ?? lastError,
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
    return { ...this.#pulse.gauges(), isPaused: this.#loop.isPaused };
  }

  p99(workflow: string): number | null {
    return this.#pulse.p99(workflow);
  }

  desk(): Desk {
    if (this.#isOpen) return this.#desk;
    throw new AppError('database_unavailable', `the database is not open: ${this.#error}`, {
      retryAfterSeconds: 5,
    });
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
    for (let pauseMs = firstPauseMs; !signal.aborted; pauseMs = Math.min(2 * pauseMs, longestPauseMs)) {
      try {
        await this.#open();
        this.#error = null;
        return;
      } catch (error) {
        if (signal.aborted) return;
        this.#error = error instanceof ConfigError ? error.problems.join('; ') : messageOf(error);
        // Whoever answers with a refusal is there.
        this.#pulse.answered(!isSessionFault(error));
        log.error(
          { err: error, database: this.#address, retry_in_ms: pauseMs },
          'records are not processed: the database cannot be used yet; calls are served all the same, and `smart-router doctor` tells more',
        );
      }
      await clock.sleep(pauseMs, signal);
    }
  }

  async #open(): Promise<void> {
    const { log, companions = [] } = this.#parts;
    const { applied, kept } = await migrateRecords(this.#pool, this.#config);
    if (applied.length > 0) log.info({ migrations: applied }, 'the database was brought up to date');
    if (kept.length > 0) log.info({ tables: kept }, 'tables that were there before are used as they are');
    this.#pulse.answered(true);
    await this.#loop.start();
    this.#isOpen = true;
    if (this.#config.zombieCleanupEnabled) await this.#recovery.start();
    else this.#look.start();
    const database = { pool: this.#pool, workflows: this.#workflows, stuckAfterMs: this.stuckAfterMs };
    for (const companion of companions) {
      if (this.#started.has(companion)) continue;
      await companion.start?.(database);
      this.#started.add(companion);
    }
  }

  async #lookOnce(): Promise<Record<string, number>> {
    let total = 0;
    for (const { workflow, stuck, oldestStuckSeconds } of await this.#desk.list()) {
      this.#observer.stuck?.(workflow, stuck, oldestStuckSeconds);
      total += stuck;
    }
    return { stuck: total };
  }

  async #end(): Promise<void> {
    const { clock, log, companions = [] } = this.#parts;
    this.#stopping.abort();
    const ended = (async () => {
      await this.#opening;
      await Promise.all([
        this.#loop.stop(),
        this.#recovery.stop(),
        this.#look.stop(),
        ...companions.map((companion) => companion.stop?.()),
      ]);
      await this.#pool.end();
      return 'ended';
    })();
    const patience = new AbortController();
    const late = clock.sleep(this.#config.shutdownTimeoutMs, patience.signal).then(() => 'late');
    try {
      if ((await Promise.race([ended, late])) === 'late')
        log.warn('some records did not finish in time: the recovery brings them back');
    } catch (error) {
      log.error({ err: error }, 'the record plane did not stop cleanly');
    } finally {
      patience.abort();
    }
    await this.#endEngine();
  }
}

/** Under the store's own prefix: two installations on one Redis do not write each other's outcomes. */
function spoolIn(connection: StoreConnection): SpoolRedis {
  const key = (name: string) => connection.keyPrefix + name;
  return {
    rpush: (name, ...values) =>
      connection.command('spool_add', (client) => client.rpush(key(name), ...values)),
    llen: (name) => connection.command('spool_length', (client) => client.llen(key(name))),
    lrange: (name, start, stop) =>
      connection.command('spool_read', (client) => client.lrange(key(name), start, stop)),
    lrem: (name, count, value) =>
      connection.command('spool_remove', (client) => client.lrem(key(name), count, value)),
  };
}
