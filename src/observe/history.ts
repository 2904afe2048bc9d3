/**
 * The history: numbers of the last hours and what is wrong now, of all replicas, told by any of them.
 *
 * Every replica looks every 10 s: at what it has counted, at the store's pools, at its leader and its loops. It judges
 * its alerts by that and writes one row into a capped stream of the store. Whoever asks gets the rows of all.
 *
 * Promises: nothing is added to the way of a call. A store that does not take a row gets it with the next one, which
 * then covers both; a row that was taken although nobody heard so is counted once. Times are the store's. A replica
 * that has written nothing for 30 s is not listed, and its alerts with it.
 *
 * Weakness: what a process counted since its last row goes with it, at most 10 s.
 */
import type { StoreConnection } from '../calls/store/connection.js';
import { keysOf } from '../calls/store/keys.js';
import { pairs, type Snapshot } from '../calls/store/replies.js';
import type { CallStore } from '../calls/store/store.js';
import type { Clock } from '../clock.js';
import { AppError, isStoreDown } from '../errors.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import type { RecordGauges } from '../records/metrics.js';
import type { RecordObserver } from '../records/observer.js';
import { version } from '../version.js';
import { Alerts } from './alerts.js';
import type { Condition } from './alerts-rules.js';
import { CallWatch, isOfRefused, type Refused, refusedMs, refusedSummary } from './call-alerts.js';
import { type Counts, countsSince, noCounts, readCounts } from './history-counts.js';
import { livingOf, type Point, pointsOf, type Replica, replicasOf, seenWithinMs } from './history-points.js';
import {
  type Gauges,
  parseRow,
  type ToldAlert,
  toFields,
  type WrittenRow,
  withoutDoubles,
} from './history-rows.js';
import { type Logger, silentLogger } from './log.js';
import type { Metrics } from './metrics.js';

export interface HistoryOptions {
  connection: StoreConnection;
  store: Pick<CallStore, 'snapshot'>;
  metrics: Metrics;
  clock: Clock;
  log: Logger;
  /** Of this replica. */
  name: string;
  /** A hash of where its pods come from and of its tiers: the same on all replicas. */
  setup: string;
  leadership: { readonly isLeader: boolean; readonly leader: string | null };
  /** False until the store has been taken into use: before that it is looked at, and nothing is written. */
  isPrepared(): boolean;
  loops(): readonly LoopState[];
  /** Undefined without records. */
  records(): RecordGauges | undefined;
  /** How long a sweep may be without a finished round, by the name of its loop. */
  stallsAfterMs: ReadonlyMap<string, number>;
  onCrash(): void;
}

interface Told {
  step_seconds: number;
  replicas: Replica[];
  points: Point[];
}

export const lookEveryMs = 10_000;
/** Six hours of five replicas. */
const rowsKept = 11_000;
/** About 2 ms of the store. */
const rowsAtOnce = 250;
/** Six hours are some 100 ms of work: consoles that ask for the same share one answer, and others wait their turn. */
const mostReadings = 4;
const mostAlertsInRow = 20;
const ranks = ['page', 'critical', 'warning'];

export class History {
  readonly #options: HistoryOptions;
  readonly #key: string;
  readonly #loop: SupervisedLoop;
  readonly #watch: CallWatch;
  /** Nobody is told by it: it only knows. */
  readonly #alerts: Alerts;
  readonly #startedAtMs: number;
  readonly #readings = new Map<number, Promise<Told>>();
  #look = 0;
  #differing: string[] = [];
  #lookedAtMs = 0;
  /** What the last look saw, and what the last row that was taken covers. */
  #seen = noCounts();
  #written: { counts: Counts; look: number; atMs: number };

  constructor(options: HistoryOptions) {
    const { connection, clock, log, name, stallsAfterMs, onCrash } = options;
    this.#options = options;
    this.#key = keysOf(connection.keyPrefix).history;
    this.#watch = new CallWatch(stallsAfterMs);
    this.#alerts = new Alerts({
      sinks: [],
      source: name,
      clock,
      log: silentLogger,
      more: (nowMs) => this.#watch.conditions(nowMs),
    });
    this.#startedAtMs = clock.now();
    this.#written = { counts: noCounts(), look: 0, atMs: clock.monotonic() };
    this.#loop = new SupervisedLoop({
      name: 'history',
      intervalMs: lookEveryMs,
      clock,
      log,
      onCrash,
      runOnce: () => this.runOnce(),
    });
  }

  /** What sweeps and job loop notice, for the alerts of records. */
  get observer(): RecordObserver {
    return this.#alerts.observer;
  }

  get loops(): LoopState[] {
    return [this.#loop.state];
  }

  /**
   * What the last look says of calls, for those who tell somebody. They may judge more often than we look: what has to
   * last has to last over the next look, so that one that failed is no alert.
   */
  conditions(): Condition[] {
    return this.#watch
      .conditions(this.#lookedAtMs)
      .map((one) => (one.forMs === 0 ? one : { ...one, forMs: Math.max(one.forMs, lookEveryMs + 1000) }));
  }

  start(): void {
    this.#loop.start();
  }

  /** Looks now instead of at the end of the interval. */
  nudge(): void {
    this.#loop.nudge();
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    await this.#alerts.stop();
  }

  async runOnce(): Promise<Record<string, number>> {
    const { store, metrics, clock, name, setup, leadership, isPrepared } = this.#options;
    this.#look += 1;
    const counts = await readCounts(metrics);
    let isStoreUp = true;
    const snapshot = await unlessGone(store.snapshot(), (error) => {
      isStoreUp = !isStoreDown(error);
    });
    const atMs = clock.monotonic();
    await this.#judge(snapshot, isStoreUp, counts, atMs);
    const alerts = this.#alerts.active.length;
    if (!snapshot || !isPrepared()) return { rows: 0, alerts };
    const fields = toFields({
      name,
      version,
      setup,
      isLeader: leadership.isLeader,
      startedAtMs: this.#startedAtMs,
      look: this.#look,
      firstLook: this.#written.look + 1,
      ms: atMs - this.#written.atMs,
      counts: countsSince(counts, this.#written.counts),
      gauges: gaugesOf(snapshot),
      alerts: this.#own().slice(0, mostAlertsInRow),
    });
    await unlessGone(this.#compare());
    const { connection } = this.#options;
    const id = await unlessGone(
      connection.command('history', (client) =>
        client.xadd(this.#key, 'MAXLEN', '~', rowsKept, '*', ...fields),
      ),
    );
    if (id === undefined) return { rows: 0, alerts };
    this.#written = { counts, look: this.#look, atMs };
    return { rows: 1, alerts };
  }

  /** Live replicas with another pod source or other tiers: each would lead with its own. */
  get differing(): readonly string[] {
    return this.#differing;
  }

  async #compare(): Promise<void> {
    const { name, setup, log } = this.#options;
    const { rows, nowMs } = await this.#read(seenWithinMs);
    const others = [...livingOf(rows, nowMs).values()].filter((row) => row.name !== name && row.setup !== '');
    const differing = others.filter((row) => row.setup !== setup).map((row) => row.name);
    const isNews = differing.some((one) => !this.#differing.includes(one));
    this.#differing = differing.sort();
    if (isNews)
      log.warn(
        { replicas: this.#differing },
        'replicas differ in POD_SOURCE, STATIC_PODS or TIER_CONFIG: give all of them the same',
      );
  }

  async read(minutes: number): Promise<Told> {
    const shared = this.#readings.get(minutes);
    if (shared) return shared;
    if (this.#readings.size >= mostReadings) {
      throw new AppError(
        'too_many_requests',
        `${mostReadings} readings of the history are under way on this router: try again in a moment`,
        { retryAfterSeconds: 1 },
      );
    }
    const reading = this.#tell(minutes).finally(() => this.#readings.delete(minutes));
    this.#readings.set(minutes, reading);
    return reading;
  }

  async #tell(minutes: number): Promise<Told> {
    const lastMs = minutes * 60_000;
    // At most 360 points, whatever is asked for.
    const stepMs = minutes <= 60 ? 10_000 : minutes <= 180 ? 30_000 : 60_000;
    const { nowMs, rows } = await this.#read(lastMs);
    const living = livingOf(rows, nowMs);
    return {
      step_seconds: stepMs / 1000,
      replicas: replicasOf(living),
      points: pointsOf(rows, living, nowMs - lastMs, stepMs),
    };
  }

  /** Our own as they are now, those of the others as they last told; without the store our own alone. */
  async alerts(): Promise<ToldAlert[]> {
    const { name: ownName, leadership } = this.#options;
    const found = await unlessGone(this.#read(seenWithinMs));
    const others = found ? [...livingOf(found.rows, found.nowMs).values()] : [];
    const isLed = leadership.isLeader || others.some(({ name, isLeader }) => isLeader && name !== ownName);
    const told = new Map<string, ToldAlert>();
    for (const alert of [
      ...this.#own(),
      ...others.flatMap((row) => (row.name === ownName ? [] : row.alerts)),
    ]) {
      // Somebody cannot see the leader, who is there all the same.
      if (isLed && alert.name === 'calls.no_leader') continue;
      const key = `${alert.name} ${alert.workflow ?? ''}`;
      const known = told.get(key);
      if (!known) told.set(key, alert);
      else if (alert.since < known.since) told.set(key, { ...known, since: alert.since });
    }
    const numbered = await this.#withNumbers([...told.values()]);
    return numbered.sort(
      (a, b) => ranks.indexOf(a.severity) - ranks.indexOf(b.severity) || (a.since < b.since ? -1 : 1),
    );
  }

  /** Each replica told of what it knew when it looked: counted now, all answer alike. */
  async #withNumbers(told: ToldAlert[]): Promise<ToldAlert[]> {
    if (!told.some(({ name }) => isOfRefused(name))) return told;
    const refused = await unlessGone(this.#refused(this.#seen));
    if (!refused) return told;
    return told.map((alert) => ({ ...alert, summary: refusedSummary(alert.name, refused) ?? alert.summary }));
  }

  /** Calls that all replicas have refused lately: what they have written, and what we have counted since our last row. */
  async #refused(counts: Counts): Promise<Refused> {
    const { look, counts: before } = this.#written;
    const own = countsSince(counts, before);
    const { rows } = await this.#read(refusedMs);
    // A row of ours that we did not know to be written is in `own`.
    const written = rows.filter(
      (row) => row.name !== this.#options.name || row.startedAtMs !== this.#startedAtMs || row.look <= look,
    );
    const sum = (why: keyof Refused) => written.reduce((total, row) => total + row.counts[why], own[why]);
    return { noPods: sum('noPods'), shed: sum('shed') };
  }

  #own(): ToldAlert[] {
    return this.#alerts.active.map(({ condition, severity, summary, startedAtMs, workflow, runbook }) => ({
      name: condition,
      severity,
      summary,
      since: new Date(startedAtMs).toISOString(),
      workflow: workflow ?? null,
      runbook,
    }));
  }

  async #judge(
    snapshot: Snapshot | undefined,
    isStoreUp: boolean,
    counts: Counts,
    nowMs: number,
  ): Promise<void> {
    const { leadership, loops, records } = this.#options;
    const { noPods, shed, full } = countsSince(counts, this.#seen);
    const isRefusing = noPods + shed > 0 || this.#watch.hasRefused(nowMs);
    const everywhere = snapshot && isRefusing ? await unlessGone(this.#refused(counts)) : undefined;
    const { leader } = leadership;
    this.#seen = counts;
    this.#lookedAtMs = nowMs;
    const pools = keysOf(this.#options.connection.keyPrefix).pools;
    const unreadable = snapshot
      ? snapshot.pools.flatMap(({ unreadableKey }) => (unreadableKey === '' ? [] : [unreadableKey]))
      : isStoreUp
        ? [pools]
        : undefined;
    const known = { everywhere, unreadable, setBack: snapshot?.setBack };
    this.#watch.look({ isStoreUp, noPods, shed, full, ...known, leader, loops: loops() }, nowMs);
    if (snapshot) this.#alerts.observe({ kind: 'removals', held: snapshot.removalsHeld });
    const gauges = records();
    if (gauges) this.#alerts.observe({ kind: 'breaker', isOpen: gauges.isPaused || !gauges.isUp });
    await this.#alerts.runOnce();
  }

  /** Page by page: no command holds the store for long. */
  async #read(lastMs: number): Promise<{ nowMs: number; rows: WrittenRow[] }> {
    const { connection } = this.#options;
    const [seconds, micros] = await connection.command('history', (client) => client.time());
    const nowMs = Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
    const rows: WrittenRow[] = [];
    let from = String(Math.max(0, nowMs - lastMs));
    for (;;) {
      const page = await connection.command('history', (client) =>
        client.xrange(this.#key, from, '+', 'COUNT', rowsAtOnce),
      );
      for (const [id, fields] of page) {
        const row = parseRow(id, new Map(pairs(fields)));
        if (row) rows.push(row);
      }
      if (page.length < rowsAtOnce) return { nowMs, rows: withoutDoubles(rows) };
      from = `(${page.at(-1)?.[0]}`;
    }
  }
}

function gaugesOf({ activeCalls, pools }: Snapshot): Gauges {
  const sum = (of: (pool: Snapshot['pools'][number]) => number) =>
    pools.reduce((total, pool) => total + of(pool), 0);
  return {
    activeCalls,
    available: sum(({ available }) => available),
    assigned: sum(({ assigned }) => assigned),
    capacity: sum(({ capacity }) => capacity),
  };
}

/** Undefined: the store did not answer. */
async function unlessGone<T>(work: Promise<T>, onError?: (error: AppError) => void): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    onError?.(error);
    return undefined;
  }
}
