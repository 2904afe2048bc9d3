/**
 * When somebody should look at this router, above all at its calls: conditions in the form of alerts-rules.ts, judged by
 * what one look at a time has shown. All are what this replica knows; the history brings them to the others.
 *
 * Calls that were refused begin and end an alert where they were refused, so that each replica tells of its own and no
 * receiver hears the same from all of them. How many they were is said of all replicas together: whichever is asked, and
 * whichever tells, the number is that of the installation.
 */
import type { LoopState } from '../loop.js';
import { type Condition, condition } from './alerts-rules.js';
import { Tally } from './alerts-samples.js';

/** Calls, by why they were refused. */
export type Refused = Record<keyof typeof refusedWords, number>;

export interface CallLook {
  isStoreUp: boolean;
  /** Calls that got no pod since the last look. */
  noPods: number;
  /** Calls that were refused since then because there was too much to do. */
  shed: number;
  /** Store operations that were refused since then because Redis is out of memory. */
  full: number;
  /** Of all replicas within `refusedMs`; undefined where that could not be read. */
  everywhere?: Refused | undefined;
  /** Keys of pools that are of a wrong type; undefined while that is not known. */
  unreadable?: readonly string[] | undefined;
  /** Pods that are set back because calls failed on them; undefined while that is not known. */
  setBack?: readonly string[] | undefined;
  leader: string | null;
  loops: readonly LoopState[];
}

const minuteMs = 60_000;
/** One look that failed may have met a failover; the second is 10 s later. */
const storeForMs = 5_000;
/** An election after a crash takes 20 s. */
const leaderForMs = 30_000;
export const refusedMs = 5 * minuteMs;
const crashesMs = 10 * minuteMs;
/** One crash is mended by the next try. */
const mostCrashes = 3;

const refusedWords = {
  noPods: (calls: number) =>
    calls === 1
      ? '1 call got no pod in the last 5 minutes: nothing in its chain was free'
      : `${calls} calls got no pod in the last 5 minutes: nothing in their chain was free`,
  shed: (calls: number) =>
    `${calls} ${calls === 1 ? 'call was' : 'calls were'} refused in the last 5 minutes because a router was overloaded`,
};
const refusedNames: Readonly<Record<string, keyof Refused | undefined>> = {
  'calls.no_pods': 'noPods',
  'calls.overloaded': 'shed',
};

export function isOfRefused(alert: string): boolean {
  return Object.hasOwn(refusedNames, alert);
}

/** With the number of all replicas; undefined where there is none, and for alerts about anything else. */
export function refusedSummary(alert: string, everywhere: Refused): string | undefined {
  const why = isOfRefused(alert) ? refusedNames[alert] : undefined;
  return why && everywhere[why] > 0 ? refusedWords[why](everywhere[why]) : undefined;
}

interface Seen {
  crashes: number;
  crashed: Tally;
  lastRoundAt: string | null;
  changedMs: number;
}

export class CallWatch {
  readonly #stallsAfterMs: ReadonlyMap<string, number>;
  readonly #noPods = new Tally();
  readonly #shed = new Tally();
  readonly #full = new Tally();
  readonly #loops = new Map<string, Seen>();
  #last: CallLook | undefined;

  /** `stallsAfterMs`: how long a sweep may be without a finished round, by the name of its loop. */
  constructor(stallsAfterMs: ReadonlyMap<string, number>) {
    this.#stallsAfterMs = stallsAfterMs;
  }

  look(look: CallLook, nowMs: number): void {
    this.#last = look;
    if (look.noPods > 0) this.#noPods.add(look.noPods, nowMs);
    if (look.shed > 0) this.#shed.add(look.shed, nowMs);
    if (look.full > 0) this.#full.add(look.full, nowMs);
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

  /** Whether this replica has lately: only then it matters how many the others have. */
  hasRefused(nowMs: number): boolean {
    return [this.#noPods, this.#shed].some((tally) => tally.within(refusedMs, nowMs) > 0);
  }

  conditions(nowMs: number): Condition[] {
    const last = this.#last;
    if (!last) return [];
    const own = { noPods: this.#noPods.within(refusedMs, nowMs), shed: this.#shed.within(refusedMs, nowMs) };
    const refused = {
      noPods: Math.max(own.noPods, last.everywhere?.noPods ?? 0),
      shed: Math.max(own.shed, last.everywhere?.shed ?? 0),
    };
    const full = this.#full.within(refusedMs, nowMs);
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
        name: 'calls.store_full',
        scope: 'local',
        severity: 'page',
        holds: () => full > 0,
        summary: 'Redis is out of memory: live calls go on, new calls are refused with 503 store_full',
        details: { operations: full },
        runbook: 'smartrouterstorefull',
      }),
      condition({
        name: 'calls.no_pods',
        scope: 'local',
        severity: 'page',
        holds: () => own.noPods > 0,
        summary: refusedWords.noPods(refused.noPods),
        details: { calls: refused.noPods },
        runbook: 'smartrouternocapacity',
      }),
      condition({
        name: 'calls.overloaded',
        scope: 'local',
        severity: 'page',
        holds: () => own.shed > 0,
        summary: refusedWords.shed(refused.shed),
        details: { calls: refused.shed },
        runbook: 'smartrouteroverloaded',
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
        name: 'calls.pool_unreadable',
        scope: 'shared',
        severity: 'critical',
        holds: () => last.unreadable && last.unreadable.length > 0,
        summary: `pools cannot be read, keys of a wrong type: ${(last.unreadable ?? []).join(', ')}; the other pools are not affected`,
        details: { keys: (last.unreadable ?? []).join(', ') },
        runbook: 'smartrouterpoolunreadable',
      }),
      condition({
        name: 'calls.pods_set_back',
        scope: 'shared',
        severity: 'warning',
        holds: () => last.setBack && last.setBack.length > 0,
        summary: `calls fail again and again on ${named(last.setBack ?? [])}: set back behind the other pods`,
        details: { pods: named(last.setBack ?? []) },
        runbook: 'smartrouterpodsetback',
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

const mostNamed = 10;

/** The first ten by name, and how many there are beside them. */
function named(pods: readonly string[]): string {
  const names = [...pods].sort();
  const more = names.length - mostNamed;
  return names.slice(0, mostNamed).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

/** Their sweeps need the database, not the store. */
function isOfRecords(loop: string): boolean {
  return loop.startsWith('records-');
}
