/**
 * The alert conditions of calls, pods and loops, from the periodic check of this replica (calls/history).
 *
 * An alert about refused calls fires on the replicas that refused them, so that a receiver gets it once per replica.
 * Its number counts the refused calls of all replicas.
 */
import type { LoopState } from '../loop.js';
import { type Condition, condition } from './alert-rules.js';
import { EventCount } from './alert-samples.js';

/** Refused calls by reason, named as in the history. */
type Refused = Record<keyof typeof refusedSummaries, number>;
/** Waits for a pod by their end. */
type EndedWaits = Record<'waits_served' | 'waits_abandoned' | 'waits_expired', number>;

export interface CheckResult {
  /** Why the store is unreachable; undefined when it responds. */
  storeError: string | undefined;
  /** Calls that got no pod since the last check. */
  noPods: number;
  /** Calls rejected for overload since the last check. */
  shed: number;
  /** Store operations rejected since the last check because Redis is out of memory. */
  full: number;
  /** Refused calls of all replicas within `refusedMs`; undefined when unknown. */
  everywhere?: Refused | undefined;
  /** Waits for a pod that were abandoned or expired since the last check. */
  unserved?: number | undefined;
  /** Waits of all replicas that ended within `waitsMs`; undefined when unknown. */
  waits?: EndedWaits | undefined;
  /** How long the oldest waiting call has waited; 0 if none waits, undefined when unknown. */
  oldestWaitMs?: number | undefined;
  /** Keys of pools with a wrong type; undefined when unknown. */
  unreadable?: readonly string[] | undefined;
  /** Pods that are set back because calls failed on them; undefined when unknown. */
  setBack?: readonly string[] | undefined;
  /** Pods that the removal brake holds; undefined when unknown. */
  removalsHeld?: number | undefined;
  leader: string | null;
  loops: readonly LoopState[];
}

const minuteMs = 60_000;
export const refusedMs = 5 * minuteMs;
const crashesMs = 10 * minuteMs;
export const waitsMs = 10 * minuteMs;
/** As in the expressions of the rules. */
const maxOldestWaitMs = 30_000;
const maxUnservedShare = 0.1;
const minWaits = 10;
/** After one crash the next try usually succeeds. */
const minCrashes = 3;

const refusedSummaries = {
  no_pods: (calls: number) =>
    calls === 1
      ? '1 call got no pod in the last 5 minutes: nothing in its chain was free'
      : `${calls} calls got no pod in the last 5 minutes: nothing in their chain was free`,
  shed: (calls: number) =>
    `${calls} ${calls === 1 ? 'call was' : 'calls were'} rejected in the last 5 minutes because a router was overloaded`,
};
const refusedReasons = new Map<string, keyof Refused>([
  ['calls.no_pods', 'no_pods'],
  ['calls.overloaded', 'shed'],
]);

/** Whether the summary of an alert counts refused calls. */
export const countsRefused = (alert: string) => refusedReasons.has(alert);

/** The summary with the number of all replicas; undefined without refused calls, and for other alerts. */
export function refusedSummary(alert: string, everywhere: Refused): string | undefined {
  const reason = refusedReasons.get(alert);
  return reason && everywhere[reason] > 0 ? refusedSummaries[reason](everywhere[reason]) : undefined;
}

interface LoopHistory {
  crashes: number;
  crashed: EventCount;
  lastRoundAt: string | null;
  changedMs: number;
}

export class CallAlerts {
  readonly #noPods = new EventCount();
  readonly #shed = new EventCount();
  readonly #full = new EventCount();
  readonly #unserved = new EventCount();
  readonly #loops = new Map<string, LoopHistory>();
  #last: CheckResult | undefined;
  #atMs = 0;

  /** `stallsAfterMs`: how long a sweep may run without a finished round, by loop name. */
  constructor(private readonly stallsAfterMs: ReadonlyMap<string, number>) {}

  update(result: CheckResult, nowMs: number): void {
    this.#last = result;
    this.#atMs = nowMs;
    if (result.noPods > 0) this.#noPods.add(result.noPods, nowMs);
    if (result.shed > 0) this.#shed.add(result.shed, nowMs);
    if (result.full > 0) this.#full.add(result.full, nowMs);
    if (result.unserved) this.#unserved.add(result.unserved, nowMs);
    const names = new Set(result.loops.map(({ name }) => name));
    // The loops of an ended leadership: the next leadership counts from 0.
    for (const name of this.#loops.keys()) if (!names.has(name)) this.#loops.delete(name);
    for (const loop of result.loops) this.#updateLoop(loop, result.storeError === undefined);
  }

  #updateLoop({ name, crashes, last_round_at }: LoopState, isStoreUp: boolean): void {
    const known = this.#loops.get(name);
    if (!known) {
      const first = { crashes, crashed: new EventCount(), lastRoundAt: last_round_at, changedMs: this.#atMs };
      this.#loops.set(name, first);
      return;
    }
    if (crashes > known.crashes) known.crashed.add(crashes - known.crashes, this.#atMs);
    known.crashes = crashes;
    // Without the store no sweep can finish: the time counts from when the store responds again.
    const waitsForStore = !isStoreUp && !isRecordLoop(name);
    if (last_round_at !== known.lastRoundAt || waitsForStore) known.changedMs = this.#atMs;
    known.lastRoundAt = last_round_at;
  }

  /** Whether this replica refused calls lately; only then the numbers of the other replicas matter. */
  hasRefused(nowMs: number): boolean {
    return [this.#noPods, this.#shed].some((tally) => tally.within(refusedMs, nowMs) > 0);
  }

  /** The same for waits that ended without a pod. */
  hasUnserved(nowMs: number): boolean {
    return this.#unserved.within(waitsMs, nowMs) > 0;
  }

  /** As of the last check. */
  conditions(): Condition[] {
    const last = this.#last;
    if (!last) return [];
    const nowMs = this.#atMs;
    const isStoreUp = last.storeError === undefined;
    const own = { noPods: this.#noPods.within(refusedMs, nowMs), shed: this.#shed.within(refusedMs, nowMs) };
    const noPods = Math.max(own.noPods, last.everywhere?.no_pods ?? 0);
    const shed = Math.max(own.shed, last.everywhere?.shed ?? 0);
    const full = this.#full.within(refusedMs, nowMs);
    const loops = [...this.#loops];
    const crashing = loops
      .filter(([, { crashed }]) => crashed.within(crashesMs, nowMs) >= minCrashes)
      .map(([name]) => name)
      .join(', ');
    const stalled = loops
      .filter(([name, { changedMs }]) => nowMs - changedMs > (this.stallsAfterMs.get(name) ?? Infinity))
      .map(([name]) => name);
    const stalledOfRecords = stalled.filter(isRecordLoop);
    const violations = last.loops.find(({ name }) => name === 'audit')?.counts.violations ?? 0;
    const unreadable = last.unreadable?.join(', ') ?? '';
    const setBack = namesOf(last.setBack ?? []);
    const { waits_served = 0, waits_abandoned: abandoned = 0, waits_expired: expired = 0 } = last.waits ?? {};
    const unserved = abandoned + expired;
    const waits = waits_served + unserved;
    const oldestSeconds = Math.round((last.oldestWaitMs ?? 0) / 1000);
    return [
      condition('calls.store_down', nowMs, {
        holds: () => !isStoreUp,
        summary: `calls get 503: ${last.storeError ?? 'the store does not respond'}`,
      }),
      condition('calls.store_full', nowMs, {
        holds: () => full > 0,
        summary: 'Redis is out of memory: live calls continue, new calls get 503 store_full',
        details: { operations: full },
      }),
      condition('calls.no_pods', nowMs, {
        holds: () => own.noPods > 0,
        summary: refusedSummaries.no_pods(noPods),
        details: { calls: noPods },
      }),
      condition('calls.overloaded', nowMs, {
        holds: () => own.shed > 0,
        summary: refusedSummaries.shed(shed),
        details: { calls: shed },
      }),
      condition('calls.wait_long', nowMs, {
        holds: () => (last.oldestWaitMs === undefined ? undefined : last.oldestWaitMs > maxOldestWaitMs),
        summary: `a call has waited ${oldestSeconds} s for a pod`,
        details: { seconds: oldestSeconds },
      }),
      condition('calls.waits_unserved', nowMs, {
        holds: () => waits >= minWaits && unserved > maxUnservedShare * waits,
        summary: `${unserved} of ${waits} calls that waited for a pod in the last 10 minutes got none`,
        details: { waits, abandoned, expired },
      }),
      condition('calls.no_leader', nowMs, {
        // The lock may be in the store: without the store the leader is unknown.
        holds: () => (last.leader !== null ? false : isStoreUp ? true : undefined),
        summary: 'no replica is the leader: calls are served, but pods are neither added nor removed',
      }),
      condition('calls.sweeps_stalled', nowMs, {
        holds: () => (isStoreUp ? stalled.length > stalledOfRecords.length : undefined),
        summary: 'lost calls and pods are not recovered: the sweep is stalled',
      }),
      condition('calls.invariant_violations', nowMs, {
        // Only the leader audits. Without the store the last audit counts.
        holds: () => violations > 0,
        summary: `the last audit found ${violations} invariant ${violations === 1 ? 'violation' : 'violations'} among calls and pods: \`smart-router audit\` lists them`,
        details: { violations },
      }),
      condition('calls.pool_unreadable', nowMs, {
        holds: () => last.unreadable && last.unreadable.length > 0,
        summary: `pools cannot be read, keys of a wrong type: ${unreadable}; the other pools are not affected`,
        details: { keys: unreadable },
      }),
      condition('calls.pods_set_back', nowMs, {
        holds: () => last.setBack && last.setBack.length > 0,
        summary: `calls fail again and again on ${setBack}: set back behind the other pods`,
        details: { pods: setBack },
      }),
      condition('pool.removals_held', nowMs, {
        holds: () => (last.removalsHeld === undefined ? undefined : last.removalsHeld > 0),
        summary: `${last.removalsHeld ?? 0} pods are missing from the cluster: the removal brake holds them`,
        details: { pods: last.removalsHeld ?? 0 },
      }),
      condition('records.sweeps_stalled', nowMs, {
        holds: () => stalledOfRecords.length > 0,
        summary: `stuck records are not requeued: ${stalledOfRecords.join(' and ')} finished no round in time`,
        details: { loops: stalledOfRecords.join(', ') },
      }),
      condition('calls.loop_crashes', nowMs, {
        holds: () => crashing !== '',
        summary: `a background loop keeps crashing: ${crashing}; status shows its last error`,
        details: { loops: crashing },
      }),
    ];
  }
}

const maxNames = 10;

/** The first ten names, and the number of the others. */
function namesOf(pods: readonly string[]): string {
  const names = [...pods].sort();
  const more = names.length - maxNames;
  return names.slice(0, maxNames).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

/** Their sweeps need the database, not the store. */
function isRecordLoop(loop: string): boolean {
  return loop.startsWith('records-');
}
