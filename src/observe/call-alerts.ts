/**
 * When somebody should look at this router, above all at its calls: conditions in the form of alerts-rules.ts, judged by
 * what one look at a time has shown. All are what this replica knows; the history brings them to the others.
 */
import type { LoopState } from '../supervised-loop.js';
import { type Condition, condition } from './alerts-rules.js';
import { Tally } from './alerts-samples.js';

export interface CallLook {
  isStoreUp: boolean;
  /** Calls that got no pod since the last look. */
  noPods: number;
  leader: string | null;
  loops: readonly LoopState[];
}

const minuteMs = 60_000;
/** One look that failed may have met a failover; the second is 10 s later. */
const storeForMs = 5_000;
/** An election after a crash takes 20 s. */
const leaderForMs = 30_000;
const noPodsMs = 5 * minuteMs;
const crashesMs = 10 * minuteMs;
/** One crash is mended by the next try. */
const mostCrashes = 3;

interface Seen {
  crashes: number;
  crashed: Tally;
  lastRoundAt: string | null;
  changedMs: number;
}

export class CallWatch {
  readonly #stallsAfterMs: ReadonlyMap<string, number>;
  readonly #noPods = new Tally();
  readonly #loops = new Map<string, Seen>();
  #last: CallLook | undefined;

  /** `stallsAfterMs`: how long a sweep may be without a finished round, by the name of its loop. */
  constructor(stallsAfterMs: ReadonlyMap<string, number>) {
    this.#stallsAfterMs = stallsAfterMs;
  }

  look(look: CallLook, nowMs: number): void {
    this.#last = look;
    if (look.noPods > 0) this.#noPods.add(look.noPods, nowMs);
    const names = new Set(look.loops.map(({ name }) => name));
    // A loop of a term that is over: the next term counts from 0.
    for (const name of this.#loops.keys()) if (!names.has(name)) this.#loops.delete(name);
    for (const { name, crashes, last_round_at } of look.loops) {
      const seen = this.#loops.get(name);
      if (!seen) {
        const first = { crashes, crashed: new Tally(), lastRoundAt: last_round_at, changedMs: nowMs };
        this.#loops.set(name, first);
        continue;
      }
      if (crashes > seen.crashes) seen.crashed.add(crashes - seen.crashes, nowMs);
      seen.crashes = crashes;
      // Without the store no sweep can end: what it has missed is counted from when the store is back.
      const waitsForStore = !look.isStoreUp && !isOfRecords(name);
      if (last_round_at !== seen.lastRoundAt || waitsForStore) seen.changedMs = nowMs;
      seen.lastRoundAt = last_round_at;
    }
  }

  conditions(nowMs: number): Condition[] {
    const last = this.#last;
    if (!last) return [];
    const noPods = this.#noPods.within(noPodsMs, nowMs);
    const crashing = [...this.#loops].flatMap(([name, { crashed }]) =>
      crashed.within(crashesMs, nowMs) >= mostCrashes ? [name] : [],
    );
    const stalled = [...this.#loops].flatMap(([name, { changedMs }]) =>
      nowMs - changedMs > (this.#stallsAfterMs.get(name) ?? Number.POSITIVE_INFINITY) ? [name] : [],
    );
    const violations = last.loops.find(({ name }) => name === 'audit')?.counts.violations ?? 0;
    const stalledOfRecords = stalled.filter(isOfRecords);
    const isSweepStalled = stalled.length > stalledOfRecords.length;
    return [
      condition({
        name: 'calls.store_down',
        scope: 'local',
        severity: 'page',
        forMs: storeForMs,
        holds: () => !last.isStoreUp,
        summary: 'the store does not answer: calls get 503 until it is back',
        details: {},
        runbook: 'smartrouterstoredown',
      }),
      condition({
        name: 'calls.no_pods',
        scope: 'local',
        severity: 'page',
        holds: () => noPods > 0,
        summary: `${noPods} ${noPods === 1 ? 'call' : 'calls'} got no pod in the last 5 minutes: nothing in their chain was free`,
        details: { calls: noPods },
        runbook: 'smartrouternocapacity',
      }),
      condition({
        name: 'calls.no_leader',
        scope: 'local',
        severity: 'critical',
        forMs: leaderForMs,
        // Without the store nobody can say, where the lock is in it.
        holds: () => (last.leader !== null ? false : last.isStoreUp ? true : undefined),
        summary: 'no replica leads: calls are served, but pods do not come and go',
        details: {},
        runbook: 'smartrouternoleader',
      }),
      condition({
        name: 'calls.sweeps_stalled',
        scope: 'local',
        severity: 'critical',
        holds: () => (last.isStoreUp ? isSweepStalled : undefined),
        summary:
          'calls and pods that lost their owner do not come back: the sweep has finished no round for long',
        details: {},
        runbook: 'smartroutersweepstalled',
      }),
      condition({
        name: 'calls.invariant_violations',
        scope: 'local',
        severity: 'critical',
        // Without the store the last audit is what is known; only the leader has one.
        holds: () => violations > 0,
        summary: `the last audit found ${violations} ${violations === 1 ? 'contradiction' : 'contradictions'} among calls and pods that must never be: \`smart-router audit\` lists them`,
        details: { violations },
        runbook: 'smartrouterinvariantviolations',
      }),
      condition({
        name: 'records.sweeps_stalled',
        scope: 'local',
        severity: 'critical',
        holds: () => stalledOfRecords.length > 0,
        summary: `stuck records do not come back: no round of ${stalledOfRecords.join(' and ')} has ended for long`,
        details: { loops: stalledOfRecords.join(', ') },
        runbook: 'stuck-records',
      }),
      condition({
        name: 'calls.loop_crashes',
        scope: 'local',
        severity: 'warning',
        holds: () => crashing.length > 0,
        summary: `a background loop keeps crashing: ${crashing.join(', ')}; its last error is in the status`,
        details: { loops: crashing.join(', ') },
        runbook: 'smartrouterloopcrashing',
      }),
    ];
  }
}

/** Their sweeps need the database, not the store. */
function isOfRecords(loop: string): boolean {
  return loop.startsWith('records-');
}
