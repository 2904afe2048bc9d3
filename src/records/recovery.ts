/**
 * Brings back what lost its owner, on one replica at a time (a lock per batch), by the database's clock.
 *
 * Fast sweep: claims whose worker's heartbeat is dead, within about a minute of the death, and claims older than their
 * timeout and 30 s, whatever the heartbeat. It begins only after the database has answered for one full bound: after an
 * outage everybody's heartbeat and every claim is old, and what they finished meanwhile comes first. Slow sweep: rows
 * in Processing that carry no claim of ours, by their timestamp column.
 *
 * Mass-stall brake: if at least three workers, and more than half of all, fall silent within one bound, it is rather
 * the database or the network than the workers: the fast sweep holds for one bound, tells, and then goes on.
 *
 * Called by hand (`runOnce`) it judges at once: whoever asks has looked.
 */
import type { Pool } from 'pg';
import { pino } from 'pino';
import { type Clock, systemClock } from '../clock.js';
import { formatDuration } from '../config/durations.js';
import { ConfigError, messageOf } from '../errors.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import type { Logger } from '../observe/log.js';
import { defaultBounds, stuckAfterOf } from './bounds.js';
import { notify } from './listener.js';
import { assertMigrated, ms, openTables } from './loop.js';
import type { RecordObserver } from './observer.js';
import { opening } from './permissions.js';
import { Sessions } from './sessions.js';
import { type Bounds, RecordStore, type Recovered } from './store.js';
import { Sweeps } from './sweeps.js';
import type { DurationLike, Workflow } from './workflow.js';

export interface RecoveryOptions {
  pool: Pool;
  // biome-ignore lint/suspicious/noExplicitAny: workflows of different rows in one recovery.
  workflows: readonly Workflow<any>[];
  log?: Logger;
  observer?: RecordObserver;
  /** A worker without a heartbeat for this long is dead. Default: 45 s. */
  deadAfter?: DurationLike;
  /** Added to a claim's timeout before it is taken away. Default: 30 s. */
  timeoutGrace?: DurationLike;
  /** For workflows that do not say it themselves. Default: 1 h. */
  stuckAfter?: DurationLike;
  /** Default: 20 s. At most half of `deadAfter`. */
  fastEvery?: DurationLike;
  /** Default: 15 min. */
  slowEvery?: DurationLike;
  /** A person asks for it: what comes back is noted as `by_hand`. */
  byHand?: boolean;
  /** Rows per statement. Default: 500. */
  batchSize?: number;
  clock?: Clock;
  onCrash?: (loop: string) => void;
}

export interface RecoveryCounts {
  requeued: number;
  failed: number;
  held: number;
  /** With `dryRun`: what would be done; otherwise what was done, at most 1,000 of them. */
  records: (Recovered & { workflow: string })[];
}

export interface Recovery {
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Both sweeps. */
  runOnce(options?: { dryRun?: boolean; workflow?: string }): Promise<RecoveryCounts>;
  readonly loops: LoopState[];
}

export function createRecovery(options: RecoveryOptions): Recovery {
  return new Recoverer(options);
}

interface Part {
  workflow: Workflow;
  store: RecordStore;
  bounds: Bounds;
  /** Of a table that takes long to count: what was told of it last, and when. */
  told?: { total: number; oldestSeconds: number; atMs: number };
}

const defaultSlowEveryMs = 900_000;
const mostShown = 1000;
const keepResetsDays = 90;

class Recoverer implements Recovery {
  readonly #options: RecoveryOptions;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #observer: RecordObserver;
  readonly #sessions: Sessions;
  readonly #deadMs: number;
  readonly #graceMs: number;
  readonly #batchSize: number;
  readonly #loops: SupervisedLoop[];
  #parts: Promise<Part[]> | undefined;
  /** By our clock, since when the database has answered without a break, and when it last did. */
  #answersSinceMs: number | undefined;
  #answeredMs = 0;
  #brakeUntilMs: number | undefined;
  #isBrakeTold = false;
  /** Which claims may be taken, and are told of. */
  #judging: 'none' | 'timed out' | 'all' = 'none';

  constructor(options: RecoveryOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#log = options.log ?? pino({ name: 'smart-router-records' });
    this.#observer = options.observer ?? {};
    this.#deadMs = ms(options.deadAfter, defaultBounds.deadAfterMs);
    this.#graceMs = ms(options.timeoutGrace, defaultBounds.timeoutGraceMs);
    this.#batchSize = options.batchSize ?? 500;
    this.#sessions = new Sessions({
      pool: options.pool,
      clock: this.#clock,
      observe: (outcome) => this.#observer.session?.(outcome),
    });
    const fastMs = ms(options.fastEvery, Math.min(20_000, this.#deadMs / 2));
    // An outage between two looks would go unseen, and everybody's heartbeat would look dead.
    if (2 * fastMs > this.#deadMs)
      throw new ConfigError([
        `fastEvery (${formatDuration(fastMs)}) must be at most half of deadAfter (${formatDuration(this.#deadMs)})`,
      ]);
    this.#loops = [
      this.#loop('records-fast-sweep', fastMs, (signal) => this.#fastRound(signal)),
      this.#loop('records-slow-sweep', ms(options.slowEvery, defaultSlowEveryMs), (signal) =>
        this.#slowRound(signal),
      ),
    ];
  }

  get loops(): LoopState[] {
    return this.#loops.map((loop) => loop.state);
  }

  async start(): Promise<void> {
    await this.#open();
    const { workflows, stuckAfter, slowEvery } = this.#options;
    this.#log.info(
      {
        workflows: workflows.map(({ name }) => name),
        stuck_after_minutes: ms(stuckAfter, defaultBounds.stuckAfterMs) / 60_000,
        slow_sweep_minutes: ms(slowEvery, defaultSlowEveryMs) / 60_000,
      },
      'the record recovery runs',
    );
    for (const loop of this.#loops) loop.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#loops.map((loop) => loop.stop()));
  }

  async runOnce({
    dryRun = false,
    workflow,
  }: {
    dryRun?: boolean;
    workflow?: string;
  } = {}): Promise<RecoveryCounts> {
    const parts = (await this.#open()).filter(
      (part) => workflow === undefined || part.workflow.name === workflow,
    );
    const counts = nothingRecovered();
    const never = new AbortController().signal;
    await each(parts, async (part) => {
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
    runOnce: (signal: AbortSignal) => Promise<Record<string, number>>,
  ): SupervisedLoop {
    const { onCrash } = this.#options;
    return new SupervisedLoop({
      name,
      intervalMs,
      clock: this.#clock,
      log: this.#log,
      runOnce,
      ...(onCrash ? { onCrash: () => onCrash(name) } : {}),
    });
  }

  #open(): Promise<Part[]> {
    this.#parts ??= opening(async () => {
      const { workflows, stuckAfter, byHand } = this.#options;
      await assertMigrated(this.#sessions);
      const tables = await openTables(this.#sessions, workflows);
      return workflows.flatMap((workflow, i) => {
        const table = tables[i];
        if (!table) return [];
        const afterMs = stuckAfterOf(workflow, ms(stuckAfter, defaultBounds.stuckAfterMs));
        const bounds = { deadMs: this.#deadMs, graceMs: this.#graceMs, afterMs };
        return [{ workflow, store: new RecordStore(this.#sessions, table, byHand), bounds }];
      });
    }).catch((error: unknown) => {
      this.#parts = undefined;
      throw error;
    });
    return this.#parts;
  }

  async #preview({ workflow, store, bounds }: Part, counts: RecoveryCounts): Promise<void> {
    const { records, wouldBe } = await store.stuck(mostShown, bounds);
    for (const key of ['requeued', 'failed', 'held'] as const) counts[key] += wouldBe[key];
    for (const { isHeld, ...record } of records)
      if (!isHeld && counts.records.length < mostShown)
        counts.records.push({ workflow: workflow.name, ...record });
  }

  #sweeps({ workflow, store, bounds }: Part, counts: RecoveryCounts): Sweeps {
    return new Sweeps({
      workflow: workflow.name,
      store,
      bounds,
      batchSize: this.#batchSize,
      log: this.#log,
      onRecovered: (recovered) => this.#count(workflow.name, recovered, counts),
    });
  }

  async #fastRound(signal: AbortSignal): Promise<Record<string, number>> {
    const counts = nothingRecovered();
    const parts = await this.#open();
    this.#judging = 'none';
    if (await this.#mayJudge()) this.#judging = (await this.#isBraked()) ? 'timed out' : 'all';
    await each(parts, async (part) => {
      if (this.#judging !== 'none') await this.#sweeps(part, counts).claims(this.#judging === 'all', signal);
      if (await part.store.isQuicklyRead()) await this.#tell(part);
      else this.#tellAgain(part);
    });
    return { requeued: counts.requeued, failed: counts.failed, held: counts.held };
  }

  async #slowRound(signal: AbortSignal): Promise<Record<string, number>> {
    const counts = nothingRecovered();
    const parts = await this.#open();
    await this.#forgetOld();
    await each(parts, async (part) => {
      try {
        await this.#sweeps(part, counts).unclaimed(signal);
      } finally {
        // Afterwards, because it is told again until the next time: what came back by then would still be stuck.
        if (!(await part.store.isQuicklyRead()))
          await this.#tell(part).catch((error: unknown) =>
            this.#log.warn(
              { workflow: part.workflow.name, reason: messageOf(error) },
              'stuck records were not counted',
            ),
          );
      }
    });
    return { requeued: counts.requeued, failed: counts.failed, held: counts.held };
  }

  async #forgetOld(): Promise<void> {
    await this.#sessions.query(
      `DELETE FROM smart_router.resets WHERE at < now() - interval '${keepResetsDays} days'`,
      [],
    );
    // A day is long after everybody has taken its claims.
    await this.#sessions.query(
      `DELETE FROM smart_router.workers AS w WHERE w.heartbeat_at < now() - interval '1 day'
         AND NOT EXISTS (SELECT FROM smart_router.claims AS c WHERE c.worker = w.id)`,
      [],
    );
  }

  async #mayJudge(): Promise<boolean> {
    try {
      await this.#sessions.query('SELECT 1', []);
    } catch (error) {
      this.#answersSinceMs = undefined;
      throw error;
    }
    const nowMs = this.#clock.monotonic();
    // We may have been asleep ourselves.
    if (nowMs - this.#answeredMs > this.#deadMs) this.#answersSinceMs = undefined;
    this.#answeredMs = nowMs;
    this.#answersSinceMs ??= nowMs;
    return nowMs - this.#answersSinceMs >= this.#deadMs;
  }

  async #isBraked(): Promise<boolean> {
    const { rows } = await this.#sessions.query<{ silent: string; all: string }>(
      `SELECT count(*) FILTER (WHERE heartbeat_at < now() - $1::bigint * interval '1 ms') AS silent, count(*) AS all
       FROM smart_router.workers WHERE heartbeat_at > now() - 2 * $1::bigint * interval '1 ms'`,
      [this.#deadMs],
    );
    const silent = Number(rows[0]?.silent ?? 0);
    const all = Number(rows[0]?.all ?? 0);
    const nowMs = this.#clock.monotonic();
    const isMass = silent >= 3 && silent > all / 2;
    if (isMass && this.#brakeUntilMs === undefined) {
      this.#brakeUntilMs = nowMs + this.#deadMs;
      this.#tellBrake(true);
      this.#log.error(
        { silent, all },
        'most workers fell silent at once: their records are left alone for one more bound; look at the database and the network',
      );
    }
    if (this.#brakeUntilMs === undefined) {
      // Whoever heard of one before a restart hears that it is over.
      if (!this.#isBrakeTold) this.#tellBrake(false);
      return false;
    }
    if (nowMs < this.#brakeUntilMs) return true;
    // Once the hold is over it does not start again for the same silence.
    if (!isMass) {
      this.#brakeUntilMs = undefined;
      this.#tellBrake(false);
    }
    return false;
  }

  #tellBrake(isHolding: boolean): void {
    this.#isBrakeTold = true;
    this.#observer.brake?.(isHolding);
  }

  async #count(name: string, recovered: readonly Recovered[], counts: RecoveryCounts): Promise<void> {
    if (recovered.length === 0) return;
    const groups = new Map<string, string[]>();
    for (const record of recovered) {
      counts[record.outcome] += 1;
      if (counts.records.length < mostShown) counts.records.push({ workflow: name, ...record });
      const key = `${record.reason} ${record.outcome}`;
      groups.set(key, [...(groups.get(key) ?? []), record.id]);
    }
    for (const [key, ids] of groups) {
      const [reason = '', outcome = ''] = key.split(' ');
      this.#observer.recovered?.(name, reason, outcome, ids.length);
      this.#log.warn(
        { workflow: name, reason, outcome, records: ids.length, ids: ids.slice(0, 10) },
        'stuck records were found',
      );
    }
    if (recovered.some(({ outcome }) => outcome === 'requeued'))
      await notify(this.#sessions, name).catch((error: unknown) =>
        this.#log.debug({ reason: messageOf(error) }, 'nobody was told of the records that came back'),
      );
  }

  /** Between two counts, so that nobody takes the last one for a word of a database that is gone. */
  #tellAgain({ workflow, told }: Part): void {
    if (!told) return;
    const { total, oldestSeconds, atMs } = told;
    const agedSeconds = total > 0 ? (this.#clock.monotonic() - atMs) / 1000 : 0;
    this.#observer.stuck?.(workflow.name, total, oldestSeconds + agedSeconds);
  }

  async #tell(part: Part): Promise<void> {
    const { workflow, store, bounds } = part;
    if (!this.#observer.stuck) return;
    // What may not be judged yet is not told either: right after an outage everybody would look dead.
    const which = this.#judging === 'none' ? { unclaimed: true } : { judges: this.#judging === 'all' };
    const inPieces = store.table.hasBlocks && !(await store.isQuicklyRead());
    const { total, oldestSeconds } = await (inPieces
      ? store.stuckByPieces(bounds, which)
      : store.stuck(1, bounds, which));
    part.told = { total, oldestSeconds, atMs: this.#clock.monotonic() };
    this.#observer.stuck(workflow.name, total, oldestSeconds);
  }
}

const nothingRecovered = (): RecoveryCounts => ({ requeued: 0, failed: 0, held: 0, records: [] });

/** One after the other; what is wrong with one keeps nobody else from being looked after, and is thrown at the end. */
async function each<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const errors: unknown[] = [];
  for (const item of items) await work(item).catch((error: unknown) => errors.push(error));
  if (errors.length > 0) throw errors[0];
}
