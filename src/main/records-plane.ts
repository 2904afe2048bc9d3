/**
 * The record plane of a router: job loop, recovery, and what listens to them, on the database of DATABASE_URL.
 * `serve` runs it in a process of its own (records-process.ts); nothing here knows about that.
 *
 * Promises: it never keeps calls from being served. A database that is away, or does not fit, is tried again after
 * 1, 2, 4 ... 30 s, and `/status` says why; once it has been opened, the loop's breaker and the sweeps' supervisor deal
 * with outages. `stop` finishes what runs and gives back the rest, within SHUTDOWN_TIMEOUT; what takes longer is left
 * to the recovery of the others, a minute after this process has ended.
 */
import pg from 'pg';
import { StoreConnection, type StoreOutcome } from '../calls/store/connection.js';
import type { Clock } from '../clock.js';
import { type Config, hidePassword } from '../config/config.js';
import { AppError, ConfigError, messageOf } from '../errors.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import type { Logger } from '../observe/log.js';
import { showNumbers } from '../records/documents.js';
import { createRecordLoop, createRecovery, type RecordLoop, type Recovery } from '../records/index.js';
import type { RecordGauges } from '../records/metrics.js';
import type { RecordObserver } from '../records/observer.js';
import { Desk } from '../records/operations.js';
import { isSessionFault } from '../records/sessions.js';
import type { SpoolRedis } from '../records/spool.js';
import { adviseTimes } from '../records/timeout-advice.js';
import type { Workflow } from '../records/workflow.js';
import { prepareReporter } from './alerts.js';
import { RecordsPulse, tellAll } from './records-status.js';
import { loadWorkflows, migrateRecords, shippedProblem } from './workflows.js';

/** What the plane needs of the configuration; both addresses are those of running servers. */
export type RecordsConfig = Config & {
  databaseUrl: string;
  /** The database is ours: the tables of the shipped workflows are created in it. */
  isOwnDatabase?: boolean;
};

/** Hears what the plane does: for metrics, history, alerts and traces. */
export interface RecordsListener extends RecordObserver {
  loopCrashed?(loop: string): void;
  /** A command to the store, where outcomes wait while the database is away. */
  storeAnswered?(operation: string, outcome: StoreOutcome, seconds: number): void;
}

export interface RecordsParts {
  clock: Clock;
  log: Logger;
  listener: RecordsListener;
  /** What runs beside loop and recovery and needs the database: the weekly report. */
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

/** What operators do with records. Every operation may cross to another process: arguments and results are data. */
export interface RecordsDesk extends Pick<Desk, 'look' | 'failed' | 'recent' | 'reset' | 'retry'> {
  /** Every workflow's numbers, with advice. */
  numbers(): Promise<ReturnType<typeof showNumbers>[]>;
}

/** What the API needs of it. */
export interface RecordsAdmin {
  readonly loops: LoopState[];
  status(): RecordsStatus;
  gauges(): RecordGauges;
  /** 503 `database_unavailable` until the database has been opened. */
  desk(): RecordsDesk;
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

/** Resolves when everything is read that needs no server; throws a ConfigError for what is wrong there. */
export async function prepareRecords(config: RecordsConfig, parts: RecordsParts): Promise<Plane> {
  const { clock, log, listener, companions = [] } = parts;
  const workflows = await loadWorkflows(config, clock);
  const onCrash = (loop: string) => listener.loopCrashed?.(loop);
  const reporter = await prepareReporter(config, { clock, log, onCrash });
  return new Plane(config, workflows, {
    ...parts,
    companions: reporter ? [...companions, reporter] : companions,
  });
}

interface Work {
  loop: RecordLoop;
  recovery: Recovery;
  desk: Desk;
}

export class Plane implements RecordsPlane {
  readonly #config: RecordsConfig;
  readonly #parts: RecordsParts;
  readonly #address: string;
  #workflows: readonly Workflow[];
  /** Why a shipped workflow does not run. */
  readonly #off: string[] = [];
  readonly #pool: pg.Pool;
  readonly #pulse: RecordsPulse;
  readonly #observer: RecordObserver;
  readonly #look: SupervisedLoop;
  /** Made when the database has answered, for the workflows that fit it. */
  #work: Work | undefined;
  readonly #connection: StoreConnection;
  readonly #stopping = new AbortController();
  readonly #started = new Set<RecordsCompanion>();
  #opening: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;
  #isOpen = false;
  #error: string | null = 'the database has not been opened yet';

  constructor(config: RecordsConfig, workflows: readonly Workflow[], parts: RecordsParts) {
    const { clock, log, listener, companions = [] } = parts;
    this.#config = config;
    this.#parts = parts;
    this.#address = hidePassword(config.databaseUrl);
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
    this.#pulse = new RecordsPulse(clock);
    const heard = companions.flatMap(({ observer }) => (observer ? [observer] : []));
    this.#observer = tellAll([listener, this.#pulse.observer, ...heard]);
    this.#look = new SupervisedLoop({
      name: 'records-look',
      intervalMs: lookEveryMs,
      clock,
      log,
      runOnce: () => this.#lookOnce(),
      onCrash: () => listener.loopCrashed?.('records-look'),
    });
  }

  get loops(): LoopState[] {
    const { companions = [] } = this.#parts;
    const own = this.#config.zombieCleanupEnabled ? (this.#work?.recovery.loops ?? []) : [this.#look.state];
    return [...own, ...companions.flatMap(({ loops = [] }) => loops)];
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
      error: this.#error ?? lastError ?? (this.#off.length > 0 ? this.#off.join('; ') : null),
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
    return { ...this.#pulse.gauges(), isPaused: this.#work?.loop.isPaused ?? false };
  }

  desk(): RecordsDesk {
    if (!this.#isOpen || !this.#work) {
      throw new AppError('database_unavailable', `the database is not open: ${this.#error}`, {
        retryAfterSeconds: 5,
      });
    }
    const { desk } = this.#work;
    return {
      numbers: () => this.#numbers(desk),
      look: (...args) => desk.look(...args),
      failed: (...args) => desk.failed(...args),
      recent: (...args) => desk.recent(...args),
      reset: (...args) => desk.reset(...args),
      retry: (...args) => desk.retry(...args),
    };
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
    const { applied, kept } = await migrateRecords(this.#pool, {
      withWorkflows: this.#config.isOwnDatabase ?? false,
    });
    if (applied.length > 0) log.info({ migrations: applied }, 'the database was brought up to date');
    if (kept.length > 0) log.info({ tables: kept }, 'tables that were there before are used as they are');
    this.#pulse.answered(true);
    this.#work ??= await this.#prepare();
    const { loop, recovery } = this.#work;
    await loop.start();
    this.#isOpen = true;
    if (this.#config.zombieCleanupEnabled) await recovery.start();
    else this.#look.start();
    const database = {
      pool: this.#pool,
      workflows: this.#workflows,
      stuckAfterMs: this.#config.zombieStuckThresholdMs,
    };
    for (const companion of companions) {
      if (this.#started.has(companion)) continue;
      await companion.start?.(database);
      this.#started.add(companion);
    }
  }

  /** Loop, recovery and desk of the workflows that fit; a shipped one that does not is off until the next start. */
  async #prepare(): Promise<Work> {
    const { clock, log, listener } = this.#parts;
    const config = this.#config;
    const workflows: Workflow[] = [];
    const off: string[] = [];
    for (const workflow of this.#workflows) {
      const problem = await shippedProblem(this.#pool, config, workflow);
      if (problem === undefined) workflows.push(workflow);
      else off.push(problem);
    }
    for (const problem of off) {
      log.error(
        `shipped workflow is off: ${problem}; create its tables with \`smart-router records migrate --with-workflows\`, or take it out of RECORDS_WORKFLOWS, then restart`,
      );
    }
    this.#off.push(...off);
    this.#workflows = workflows;
    const shared = { pool: this.#pool, workflows, log, observer: this.#observer, clock };
    return {
      loop: createRecordLoop({
        ...shared,
        redis: spoolIn(this.#connection),
        ...(config.recordsSpoolFolder === undefined ? {} : { spoolFolder: config.recordsSpoolFolder }),
      }),
      recovery: createRecovery({
        ...shared,
        stuckAfter: config.zombieStuckThresholdMs,
        slowEvery: config.zombieCleanupIntervalMs,
        onCrash: (loop) => listener.loopCrashed?.(loop),
      }),
      desk: new Desk({ ...shared, stuckAfterMs: config.zombieStuckThresholdMs }),
    };
  }

  async #numbers(desk: Desk): ReturnType<RecordsDesk['numbers']> {
    const found = await desk.list();
    return Promise.all(
      found.map(async (inspection) => {
        const { workflow: name } = inspection;
        const p99 = this.#pulse.p99(name);
        const history = await desk.history(name);
        const workflow = desk.workflow(name);
        const times = adviseTimes(workflow, history, this.#config.zombieStuckThresholdMs, p99);
        return showNumbers(inspection, p99, times);
      }),
    );
  }

  async #lookOnce(): Promise<Record<string, number>> {
    let total = 0;
    for (const { workflow, stuck, oldestStuckSeconds } of (await this.#work?.desk.list()) ?? []) {
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
        this.#work?.loop.stop(),
        this.#work?.recovery.stop(),
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
    this.#connection.close();
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
