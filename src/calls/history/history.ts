/**
 * The history: the numbers of the last hours and the active alerts of all replicas, from any replica.
 *
 * Every 10 s each replica checks its counters, the pools in the store, the leader and its loops. It evaluates its alerts
 * with that and appends one row to a capped stream in the store. A reader gets the rows of all replicas.
 *
 * Guarantees: a call costs nothing more. When the store does not take a row, the next row covers both; a row that the
 * store took although the reply was lost is counted once. Times are of the store. A replica without a row for 30 s is not
 * listed, nor are its alerts.
 *
 * Weakness: a process that crashes loses its counts since its last row, at most 10 s.
 */
import type { Clock } from '../../clock.js';
import { sharedVariables } from '../../config/fields.js';
import { AppError, isStoreDown } from '../../errors.js';
import { type LoopState, SupervisedLoop } from '../../loop.js';
import type { ActiveAlert, Alerts } from '../../observe/alerts.js';
import { countsRefused, refusedMs, refusedSummary, waitsMs } from '../../observe/call-alerts.js';
import type { Logger } from '../../observe/log.js';
import { version } from '../../version.js';
import type { Metrics } from '../metrics.js';
import type { StoreConnection } from '../store/connection.js';
import { keysOf } from '../store/keys.js';
import { pairs, type Snapshot } from '../store/replies.js';
import type { CallStore } from '../store/store.js';
import { addCounts, type Counts, countsSince, noCounts, readCounts } from './counts.js';
import { liveMs, liveRows, type Point, pointsOf, type Replica, replicasOf } from './points.js';
import { type Gauges, parseRow, toFields, type WrittenRow, withoutDuplicates } from './rows.js';

export interface HistoryOptions {
  connection: StoreConnection;
  store: Pick<CallStore, 'snapshot'>;
  metrics: Metrics;
  /** The alerts of this replica. */
  alerts: Alerts;
  clock: Clock;
  log: Logger;
  /** Of this replica. */
  name: string;
  /** A hash of the `sharedVariables`. */
  setup: string;
  leadership: { readonly isLeader: boolean; readonly leader: string | null };
  /** False until the store is prepared: until then nothing is written. */
  isPrepared(): boolean;
  loops(): readonly LoopState[];
  /** Undefined without records. */
  records(): { isUp: boolean; isPaused: boolean } | undefined;
  onCrash(loop: string): void;
}

interface HistoryReply {
  step_seconds: number;
  replicas: Replica[];
  points: Point[];
}

const checkIntervalMs = 10_000;
/** Six hours of five replicas. */
const maxRows = 11_000;
/** A page takes the store about 2 ms. */
const pageRows = 250;
/** Six hours take some 100 ms of work: requests for the same range share one reply, and the others wait. */
const maxReads = 4;
const maxAlertsInRow = 20;
const severities = ['page', 'critical', 'warning'];

export class History {
  /** The alerts of this replica. */
  readonly own: Alerts;
  readonly loop: SupervisedLoop;
  readonly #options: HistoryOptions;
  readonly #key: string;
  readonly #startedAtMs: number;
  readonly #reads = new Map<number, Promise<HistoryReply>>();
  #check = 0;
  #differing: string[] = [];
  /** At the last check, and in the last written row. */
  #checked = noCounts();
  #written: { counts: Counts; check: number; atMs: number };

  constructor(options: HistoryOptions) {
    const { connection, alerts, clock } = options;
    this.#options = options;
    this.own = alerts;
    this.#key = keysOf(connection.keyPrefix).history;
    this.#startedAtMs = clock.now();
    this.#written = { counts: noCounts(), check: 0, atMs: clock.monotonic() };
    this.loop = new SupervisedLoop({
      ...options,
      name: 'history',
      intervalMs: checkIntervalMs,
      runOnce: () => this.runOnce(),
    });
  }

  async runOnce(): Promise<Record<string, number>> {
    const { connection, store, metrics, clock, name, setup, leadership, isPrepared } = this.#options;
    this.#check += 1;
    const counts = await readCounts(metrics);
    let storeError: string | undefined;
    const snapshot = await unlessStoreFails(store.snapshot(), (error) => {
      if (isStoreDown(error)) storeError = error.message;
    });
    const atMs = clock.monotonic();
    await this.#evaluateAlerts(snapshot, storeError, counts, atMs);
    const alerts = this.own.active;
    if (!snapshot || !isPrepared()) return { rows: 0, alerts: alerts.length };
    const fields = toFields({
      name,
      version,
      setup,
      isLeader: leadership.isLeader,
      startedAtMs: this.#startedAtMs,
      check: this.#check,
      firstCheck: this.#written.check + 1,
      ms: atMs - this.#written.atMs,
      counts: countsSince(counts, this.#written.counts),
      gauges: gaugesOf(snapshot),
      alerts: alerts.slice(0, maxAlertsInRow),
    });
    await unlessStoreFails(this.#compareSetups());
    const id = await unlessStoreFails(
      connection.command('history', (client) =>
        client.xadd(this.#key, 'MAXLEN', '~', maxRows, '*', ...fields),
      ),
    );
    if (id === undefined) return { rows: 0, alerts: alerts.length };
    this.#written = { counts, check: this.#check, atMs };
    return { rows: 1, alerts: alerts.length };
  }

  /** Live replicas with other `sharedVariables`: each would lead with its own pods and end calls by its own times. */
  get differing(): readonly string[] {
    return this.#differing;
  }

  async #compareSetups(): Promise<void> {
    const { name, setup, log } = this.#options;
    const { rows, nowMs } = await this.#read(liveMs);
    const differing = [...liveRows(rows, nowMs).values()]
      .filter((row) => row.name !== name && row.setup !== setup)
      .map((row) => row.name);
    const isNew = differing.some((one) => !this.#differing.includes(one));
    this.#differing = differing.sort();
    if (isNew)
      log.warn(
        { replicas: this.#differing },
        `replicas differ in ${sharedVariables}: set the same values on all replicas`,
      );
  }

  async read(minutes: number): Promise<HistoryReply> {
    const shared = this.#reads.get(minutes);
    if (shared) return shared;
    if (this.#reads.size >= maxReads) {
      throw new AppError(
        'too_many_requests',
        `this router already reads the history for ${maxReads} requests; retry in a moment`,
        { retryAfterSeconds: 1 },
      );
    }
    const reading = this.#readPoints(minutes).finally(() => this.#reads.delete(minutes));
    this.#reads.set(minutes, reading);
    return reading;
  }

  async #readPoints(minutes: number): Promise<HistoryReply> {
    const lastMs = minutes * 60_000;
    // At most 360 points.
    const stepMs = minutes <= 60 ? 10_000 : minutes <= 180 ? 30_000 : 60_000;
    const { nowMs, rows } = await this.#read(lastMs);
    const live = liveRows(rows, nowMs);
    return {
      step_seconds: stepMs / 1000,
      replicas: replicasOf(live),
      points: pointsOf(rows, live, nowMs - lastMs, stepMs),
    };
  }

  /** The alerts of this replica as of now, and those in the last rows of the others; without the store only its own. */
  async alerts(): Promise<ActiveAlert[]> {
    const { name: ownName, leadership } = this.#options;
    const found = await unlessStoreFails(this.#read(liveMs));
    const others = found
      ? [...liveRows(found.rows, found.nowMs).values()].filter(({ name }) => name !== ownName)
      : [];
    const hasLeader = leadership.isLeader || others.some(({ isLeader }) => isLeader);
    const merged = new Map<string, ActiveAlert>();
    for (const alert of [...this.own.active, ...others.flatMap(({ alerts }) => alerts)]) {
      // A replica that cannot see the leader, although there is one.
      if (hasLeader && alert.name === 'calls.no_leader') continue;
      const key = `${alert.name} ${alert.workflow ?? ''}`;
      const known = merged.get(key);
      if (!known) merged.set(key, alert);
      else if (alert.since < known.since) merged.set(key, { ...known, since: alert.since });
    }
    const alerts = await this.#withTotals([...merged.values()]);
    return alerts.sort(
      (a, b) =>
        severities.indexOf(a.severity) - severities.indexOf(b.severity) || (a.since < b.since ? -1 : 1),
    );
  }

  /** Counts refused calls now, so that every replica gives the same number. */
  async #withTotals(alerts: ActiveAlert[]): Promise<ActiveAlert[]> {
    if (!alerts.some(({ name }) => countsRefused(name))) return alerts;
    const refused = await unlessStoreFails(this.#everywhere(this.#checked, refusedMs));
    if (!refused) return alerts;
    return alerts.map((alert) => ({
      ...alert,
      summary: refusedSummary(alert.name, refused) ?? alert.summary,
    }));
  }

  /** The counts of all replicas: those in the rows, and those of this replica since its last row. */
  async #everywhere(counts: Counts, lastMs: number): Promise<Counts> {
    const { check, counts: before } = this.#written;
    const sum = countsSince(counts, before);
    const { rows } = await this.#read(lastMs);
    // A row of this process whose reply was lost is contained in its own counts.
    const written = rows.filter(
      (row) => row.name !== this.#options.name || row.startedAtMs !== this.#startedAtMs || row.check <= check,
    );
    for (const row of written) addCounts(sum, row.counts, 1);
    return sum;
  }

  async #evaluateAlerts(
    snapshot: Snapshot | undefined,
    storeError: string | undefined,
    counts: Counts,
    nowMs: number,
  ): Promise<void> {
    const { connection, leadership, loops, records, metrics } = this.#options;
    const { no_pods: noPods, shed, full, ...ended } = countsSince(counts, this.#checked);
    const unserved = ended.waits_abandoned + ended.waits_expired;
    const { calls } = this.own;
    const sum = async (isNeeded: boolean, lastMs: number) =>
      snapshot && isNeeded ? unlessStoreFails(this.#everywhere(counts, lastMs)) : undefined;
    const everywhere = await sum(noPods + shed > 0 || calls.hasRefused(nowMs), refusedMs);
    const waits = await sum(unserved > 0 || calls.hasUnserved(nowMs), waitsMs);
    this.#checked = counts;
    // The store responds but gives no snapshot: the index of the pools itself has a wrong type.
    const unreadable = snapshot
      ? snapshot.pools.flatMap(({ unreadableKey }) => (unreadableKey === '' ? [] : [unreadableKey]))
      : storeError === undefined
        ? [keysOf(connection.keyPrefix).pools]
        : undefined;
    const { leader } = leadership;
    const state = { unreadable, setBack: snapshot?.setBack, removalsHeld: snapshot?.removalsHeld, leader };
    const oldestWaitMs = snapshot && (snapshot.waitingCalls === 0 ? 0 : metrics.oldestWaitMs);
    const counted = { noPods, shed, full, everywhere, unserved, waits, oldestWaitMs };
    calls.update({ storeError, ...counted, ...state, loops: loops() }, nowMs);
    const database = records();
    // Not only the breaker: a record loop whose database was never reachable has none.
    if (database) this.own.records.observer.breaker(database.isPaused || !database.isUp);
    await this.own.runOnce();
  }

  /** In pages: no command blocks the store for long. */
  async #read(lastMs: number): Promise<{ nowMs: number; rows: WrittenRow[] }> {
    const { connection } = this.#options;
    const [seconds, micros] = await connection.command('history', (client) => client.time());
    const nowMs = Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
    const rows: WrittenRow[] = [];
    let from = String(Math.max(0, nowMs - lastMs));
    for (;;) {
      const page = await connection.command('history', (client) =>
        client.xrange(this.#key, from, '+', 'COUNT', pageRows),
      );
      for (const [id, fields] of page) {
        const row = parseRow(id, new Map(pairs(fields)));
        if (row) rows.push(row);
      }
      if (page.length < pageRows) return { nowMs, rows: withoutDuplicates(rows) };
      from = `(${page.at(-1)?.[0]}`;
    }
  }
}

function gaugesOf({ activeCalls, waitingCalls, pools }: Snapshot): Gauges {
  const sum = (name: 'available' | 'assigned' | 'capacity') =>
    pools.reduce((total, pool) => total + pool[name], 0);
  const ofPools = { available: sum('available'), assigned: sum('assigned'), capacity: sum('capacity') };
  return { active_calls: activeCalls, ...ofPools, waiting: waitingCalls };
}

/** Undefined when the store fails. */
async function unlessStoreFails<T>(
  work: Promise<T>,
  onError?: (error: AppError) => void,
): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    onError?.(error);
    return undefined;
  }
}
