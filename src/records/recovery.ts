/**
 * Recovers records that lost their worker, on one replica at a time (a lock per batch), by the database's clock.
 *
 * The fast sweep takes claims whose worker's heartbeat is dead, within about a minute of the death, and claims older than
 * their timeout and 30 s regardless of the heartbeat. It starts only after the database has answered for `deadAfter`
 * without a break: after an outage every heartbeat and every claim is old, and spooled outcomes must be written first.
 * The slow sweep takes rows in Processing without a claim, by their timestamp column.
 *
 * Mass stall: if at least three workers, and more than half of all, miss their heartbeats within one `deadAfter`, the
 * cause is rather the database or the network. Then the fast sweep alerts and, for one `deadAfter`, takes only claims past
 * their timeout.
 *
 * `runOnce` judges heartbeats at once: its caller has looked.
 */
import type { Pool } from 'pg';
import { pino } from 'pino';
import { type Clock, systemClock } from '../clock.js';
import { formatDuration } from '../config/durations.js';
import { ConfigError, messageOf } from '../errors.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import type { Logger } from '../observe/log.js';
import { notify } from './listener.js';
import { assertMigrated } from './migrate.js';
import type { RecordObserver } from './observer.js';
import { explainDatabaseErrors } from './permissions.js';
import { Sessions } from './sessions.js';
import { RecordStore, type Recovered } from './store.js';
import { Sweeps } from './sweeps.js';
import { openTables } from './table.js';
import {
  type AnyWorkflow,
  type Bounds,
  type DurationLike,
  defaultBounds,
  durationMs,
  stuckAfterOf,
  type Workflow,
} from './workflow.js';

export interface RecoveryOptions {
  pool: Pool;
  workflows: readonly AnyWorkflow[];
  log?: Logger;
  observer?: RecordObserver;
  /** A worker without a heartbeat for this long is dead. Default: 45 s. */
  deadAfter?: DurationLike;
  /** Added to a claim's timeout before it is taken. Default: 30 s. */
  timeoutGrace?: DurationLike;
  /** For workflows without `stuck.after`. Default: 1 h. */
  stuckAfter?: DurationLike;
  /** Default: 20 s. At most half of `deadAfter`. */
  fastEvery?: DurationLike;
  /** Default: 15 min. */
  slowEvery?: DurationLike;
  /** An operator asked for it: resets are noted as `by_hand`. */
  byHand?: boolean;
  /** Rows per statement. Default: 500. */
  batchSize?: number;
  clock?: Clock;
  onCrash?: ((loop: string) => void) | undefined;
}

export interface RecoveryCounts {
  requeued: number;
  failed: number;
  held: number;
  /** At most 1,000. With `dryRun`: what would be done. */
  records: (Recovered & { workflow: string })[];
}

export interface Recovery {
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Runs both sweeps. */
  runOnce(options?: { dryRun?: boolean; workflow?: string }): Promise<RecoveryCounts>;
  readonly loops: LoopState[];
}

export function createRecovery(options: RecoveryOptions): Recovery {
  return new RecordRecovery(options);
}

interface Part {
  workflow: Workflow;
  store: RecordStore;
  bounds: Bounds;
  /** The last count of a table that takes long to count. */
  lastCount?: { total: number; oldestSeconds: number; atMs: number };
}

const defaultSlowEveryMs = 900_000;
const maxShown = 1000;
const keepResetsDays = 90;

class RecordRecovery implements Recovery {
  readonly #options: RecoveryOptions;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #observer: RecordObserver;
  readonly #sessions: Sessions;
  readonly #bounds: Bounds;
  readonly #slowMs: number;
  readonly #loops: SupervisedLoop[];
  #parts: Promise<Part[]> | undefined;
  /** By our clock: since when the database has answered without a break, and when it last did. */
  #answersSinceMs: number | undefined;
  #answeredMs = 0;
  #holdUntilMs: number | undefined;
  #hasReportedStall = false;
  /** Which claims may be taken and counted. */
  #judging: 'none' | 'timed out' | 'all' = 'none';

  constructor(options: RecoveryOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#log = options.log ?? pino({ name: 'smart-router-records' });
    this.#observer = options.observer ?? {};
    this.#bounds = {
      deadAfterMs: durationMs(options.deadAfter, defaultBounds.deadAfterMs),
      timeoutGraceMs: durationMs(options.timeoutGrace, defaultBounds.timeoutGraceMs),
      stuckAfterMs: durationMs(options.stuckAfter, defaultBounds.stuckAfterMs),
    };
    this.#sessions = new Sessions({
      pool: options.pool,
      clock: this.#clock,
      observe: (outcome) => this.#observer.session?.(outcome),
    });
    const { deadAfterMs } = this.#bounds;
    const fastMs = durationMs(options.fastEvery, Math.min(20_000, deadAfterMs / 2));
    // An outage between two rounds would go unnoticed, and every heartbeat would look dead.
    if (2 * fastMs > deadAfterMs)
      throw new ConfigError([
        `fastEvery (${formatDuration(fastMs)}) must be at most half of deadAfter (${formatDuration(deadAfterMs)})`,
      ]);
    this.#slowMs = durationMs(options.slowEvery, defaultSlowEveryMs);
    this.#loops = [
      this.#loop('records-fast-sweep', fastMs, (signal) => this.#fastRound(signal)),
      this.#loop('records-slow-sweep', this.#slowMs, (signal) => this.#slowRound(signal)),
    ];
  }

  get loops(): LoopState[] {
    return this.#loops.map((loop) => loop.state);
  }

  async start(): Promise<void> {
    await this.#open();
    this.#log.info(
      {
        workflows: this.#options.workflows.map(({ name }) => name),
        stuck_after_minutes: this.#bounds.stuckAfterMs / 60_000,
        slow_sweep_minutes: this.#slowMs / 60_000,
      },
      'record recovery started',
    );
    for (const loop of this.#loops) loop.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#loops.map((loop) => loop.stop()));
  }

  async runOnce(options: { dryRun?: boolean; workflow?: string } = {}): Promise<RecoveryCounts> {
    const { dryRun = false, workflow } = options;
    const parts = await this.#open();
    const chosen = parts.filter((part) => workflow === undefined || part.workflow.name === workflow);
    const counts = nothingRecovered();
    const never = new AbortController().signal;
    await each(chosen, async (part) => {
      if (dryRun) return await this.#preview(part, counts);
      const sweeps = this.#sweeps(part, counts);
      await sweeps.claims(true, never);
      await sweeps.unclaimed(never);
    });
    return counts;
  }

  #loop(
    name: string,
    intervalMs: number,
    runOnce: (signal: AbortSignal) => Promise<RecoveryCounts>,
  ): SupervisedLoop {
    return new SupervisedLoop({
      name,
      intervalMs,
      clock: this.#clock,
      log: this.#log,
      runOnce: async (signal) => {
        const { records: _, ...counts } = await runOnce(signal);
        return counts;
      },
      onCrash: this.#options.onCrash,
    });
  }

  #open(): Promise<Part[]> {
    this.#parts ??= explainDatabaseErrors(async () => {
      const { workflows, byHand } = this.#options;
      await assertMigrated(this.#sessions);
      const tables = await openTables(this.#sessions, workflows);
      return workflows.flatMap((workflow, i) => {
        const table = tables[i];
        if (!table) return [];
        const stuckAfterMs = stuckAfterOf(workflow, this.#bounds.stuckAfterMs);
        const store = new RecordStore(this.#sessions, table, byHand);
        return [{ workflow, store, bounds: { ...this.#bounds, stuckAfterMs } }];
      });
    }).catch((error: unknown) => {
      this.#parts = undefined;
      throw error;
    });
    return this.#parts;
  }

  async #preview({ workflow, store, bounds }: Part, counts: RecoveryCounts): Promise<void> {
    const { records, wouldBe } = await store.stuck(maxShown, bounds);
    for (const key of ['requeued', 'failed', 'held'] as const) counts[key] += wouldBe[key];
    for (const { isHeld, ...record } of records)
      if (!isHeld && counts.records.length < maxShown)
        counts.records.push({ workflow: workflow.name, ...record });
  }

  #sweeps({ workflow, store, bounds }: Part, counts: RecoveryCounts): Sweeps {
    return new Sweeps({
      workflow: workflow.name,
      store,
      bounds,
      batchSize: this.#options.batchSize ?? 500,
      log: this.#log,
      onRecovered: (recovered) => this.#count(workflow.name, recovered, counts),
    });
  }

  async #fastRound(signal: AbortSignal): Promise<RecoveryCounts> {
    const counts = nothingRecovered();
    const parts = await this.#open();
    this.#judging = 'none';
    if (await this.#mayJudge()) this.#judging = (await this.#isMassStall()) ? 'timed out' : 'all';
    await each(parts, async (part) => {
      if (this.#judging !== 'none') await this.#sweeps(part, counts).claims(this.#judging === 'all', signal);
      const { name, retry, limit } = part.workflow;
      if ((retry || limit) && this.#observer.waiting)
        this.#observer.waiting(name, await part.store.waiting());
      if (await part.store.isQuicklyRead()) await this.#reportStuck(part, false);
      else this.#repeatLastCount(part);
    });
    return counts;
  }

  async #slowRound(signal: AbortSignal): Promise<RecoveryCounts> {
    const counts = nothingRecovered();
    const parts = await this.#open();
    await this.#deleteOld();
    await each(parts, async (part) => {
      try {
        await this.#sweeps(part, counts).unclaimed(signal);
      } finally {
        // After the sweep, because this count is repeated until the next one.
        if (!(await part.store.isQuicklyRead()))
          await this.#reportStuck(part, part.store.table.hasBlocks).catch((error: unknown) =>
            this.#log.warn(
              { workflow: part.workflow.name, reason: messageOf(error) },
              'stuck records not counted',
            ),
          );
      }
    });
    return counts;
  }

  async #deleteOld(): Promise<void> {
    await this.#sessions.query(
      `DELETE FROM smart_router.resets WHERE at < now() - interval '${keepResetsDays} days'`,
    );
    // After a day its claims were taken long ago.
    await this.#sessions.query(
      `DELETE FROM smart_router.workers AS w WHERE w.heartbeat_at < now() - interval '1 day'
         AND NOT EXISTS (SELECT FROM smart_router.claims AS c WHERE c.worker = w.id)`,
    );
  }

  async #mayJudge(): Promise<boolean> {
    const { deadAfterMs } = this.#bounds;
    try {
      await this.#sessions.query('SELECT 1');
    } catch (error) {
      this.#answersSinceMs = undefined;
      throw error;
    }
    const nowMs = this.#clock.monotonic();
    // This process may have been suspended.
    if (nowMs - this.#answeredMs > deadAfterMs) this.#answersSinceMs = undefined;
    this.#answeredMs = nowMs;
    this.#answersSinceMs ??= nowMs;
    return nowMs - this.#answersSinceMs >= deadAfterMs;
  }

  async #isMassStall(): Promise<boolean> {
    const { deadAfterMs } = this.#bounds;
    const { rows } = await this.#sessions.query<{ stalled: number; all: number }>(
      `SELECT count(*) FILTER (WHERE heartbeat_at < now() - $1::bigint * interval '1 ms')::int AS stalled, count(*)::int AS all
       FROM smart_router.workers WHERE heartbeat_at > now() - 2 * $1::bigint * interval '1 ms'`,
      [deadAfterMs],
    );
    const { stalled = 0, all = 0 } = rows[0] ?? {};
    const nowMs = this.#clock.monotonic();
    const isMass = stalled >= 3 && stalled > all / 2;
    if (isMass && this.#holdUntilMs === undefined) {
      this.#holdUntilMs = nowMs + deadAfterMs;
      this.#reportStall(true);
      this.#log.error(
        { stalled, all, hold_ms: deadAfterMs },
        'most workers missed their heartbeats at once: their records are held; check the database and the network',
      );
    }
    if (this.#holdUntilMs === undefined) {
      // An alert from before a restart must end.
      if (!this.#hasReportedStall) this.#reportStall(false);
      return false;
    }
    if (nowMs < this.#holdUntilMs) return true;
    // After the hold, the same stall does not start another one.
    if (!isMass) {
      this.#holdUntilMs = undefined;
      this.#reportStall(false);
    }
    return false;
  }

  #reportStall(isHolding: boolean): void {
    this.#hasReportedStall = true;
    this.#observer.massStall?.(isHolding);
  }

  async #count(name: string, recovered: readonly Recovered[], counts: RecoveryCounts): Promise<void> {
    if (recovered.length === 0) return;
    const groups = new Map<string, string[]>();
    for (const record of recovered) {
      counts[record.outcome] += 1;
      if (counts.records.length < maxShown) counts.records.push({ workflow: name, ...record });
      const key = `${record.reason} ${record.outcome}`;
      groups.set(key, [...(groups.get(key) ?? []), record.id]);
    }
    for (const [key, ids] of groups) {
      const [reason = '', outcome = ''] = key.split(' ');
      this.#observer.recovered?.(name, reason, outcome, ids.length);
      this.#log.warn(
        { workflow: name, reason, outcome, records: ids.length, ids: ids.slice(0, 10) },
        'stuck records recovered',
      );
    }
    if (recovered.some(({ outcome }) => outcome === 'requeued'))
      await notify(this.#sessions, name).catch((error: unknown) =>
        this.#log.debug({ reason: messageOf(error) }, 'NOTIFY failed after requeue'),
      );
  }

  /** Between two counts, so that the last one does not become stale. */
  #repeatLastCount({ workflow, lastCount }: Part): void {
    if (!lastCount) return;
    const { total, oldestSeconds, atMs } = lastCount;
    const agedSeconds = total > 0 ? (this.#clock.monotonic() - atMs) / 1000 : 0;
    this.#observer.stuck?.(workflow.name, total, oldestSeconds + agedSeconds);
  }

  async #reportStuck(part: Part, byBlocks: boolean): Promise<void> {
    const { workflow, store, bounds } = part;
    if (!this.#observer.stuck) return;
    // Claims that may not be judged yet do not count: right after an outage every worker would look dead.
    const filter =
      this.#judging === 'none' ? { unclaimed: true } : { judgesHeartbeats: this.#judging === 'all' };
    const { total, oldestSeconds } = await (byBlocks
      ? store.stuckByBlocks(bounds, filter)
      : store.stuck(1, bounds, filter));
    part.lastCount = { total, oldestSeconds, atMs: this.#clock.monotonic() };
    this.#observer.stuck(workflow.name, total, oldestSeconds);
  }
}

const nothingRecovered = (): RecoveryCounts => ({ requeued: 0, failed: 0, held: 0, records: [] });

/** In sequence; an error of one item does not stop the others, and the first one is thrown at the end. */
async function each<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const errors: unknown[] = [];
  for (const item of items) await work(item).catch((error: unknown) => errors.push(error));
  if (errors.length > 0) throw errors[0];
}
