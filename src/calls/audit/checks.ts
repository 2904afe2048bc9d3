/**
 * The one set of invariant checks: in which ways do the calls and pods of the store contradict each other or the
 * contract? Tests give them every key at one moment; the live audit (auditor.ts) gives them parts of the keys, each cut
 * so that what it holds can be judged alone.
 *
 * They know nothing of what was done before, so what depends on history is told by the caller: a sweep has just
 * run (`settled`), somebody changed keys by hand since the last sweep (`tampered`), `max_concurrent` may have been
 * lowered or a pod moved (`maxLowered`). An audit of a running system (`live`) asks everything, also what only a sweep
 * makes true, and every finding says by its kind which of the two it is.
 *
 * Weakness: an allocation that was wrong and has already ended leaves nothing to see here; the tests' model and their
 * replay of the event stream look at that.
 */
import type { Finding } from './findings.js';
import {
  checkKey,
  isMarkByHand,
  type Keyspace,
  type PodState,
  type PoolState,
  parseState,
  type State,
} from './keyspace.js';

export interface CheckOptions {
  prefix?: string;
  /** The store's time; only needed with virtual time. */
  nowMs?: number;
  /** Every pool has just been swept: derived keys must be exact. */
  settled?: boolean;
  /** Keys were changed by hand since the last full sweep: what only a sweep repairs is not held against it. */
  tampered?: boolean;
  /** A limit may be lower today than it was when the calls were given. */
  maxLowered?: boolean;
  live?: {
    /** Since when surely nobody has changed a limit, by the store's clock; undefined = unknown. */
    limitsSinceMs: number | undefined;
  };
}

/** Every key at one moment, in words; an empty list is good. */
export function violations(keyspace: Keyspace, options: CheckOptions = {}): string[] {
  const strange = [...keyspace.keys].flatMap(([key, facts]) => checkKey(key, facts, keyspace.prefix) ?? []);
  return [...strange, ...contradictions(keyspace, options)].map(({ text }) => text);
}

/** What the content of the keys says against itself; the keys themselves are checked by `checkKey`. */
export function contradictions(keyspace: Keyspace, options: CheckOptions = {}): Finding[] {
  const state = parseState(keyspace, options.nowMs);
  const settled = options.settled === true || options.live !== undefined;
  const exact = settled || options.tampered !== true;
  return [
    ...loads(state, options),
    ...holders(state, exact),
    ...records(state, options.live !== undefined),
    ...assignments(state, options.live !== undefined),
    ...indexes(state, exact),
    ...[...state.pools.values()].flatMap((pool) => availability(state, pool, exact, settled)),
    ...[...state.pods.values()].flatMap((pod) => mirrors(state, pod, settled)),
    ...(options.live ? pastLease(state) : []),
  ];
}

/** Invariants 1 and 3. An entry without a record still occupies its pod until the sweep. */
function loads({ pods, pools, records }: State, { maxLowered, live }: CheckOptions): Finding[] {
  const found: Finding[] = [];
  for (const pod of pods.values()) {
    const pool = pools.get(pod.pool ?? '');
    const names = [...pod.calls.keys()].join(', ');
    if (pool?.kind === 'exclusive' && pod.calls.size > 1) {
      const text = `1: exclusive pod ${pod.name} of ${pool.id} has ${pod.calls.size} calls: ${names}`;
      found.push({ kind: 'two_calls', text, pod: pod.name, pool: pool.id });
    }
    if (pool?.kind === 'shared' && pod.calls.size > pool.max && !maxLowered) {
      const text = `3: pod ${pod.name} of ${pool.id} has ${pod.calls.size} calls, max ${pool.max}: ${names}`;
      const isLater = !live || isGivenAfter(pod, records, live.limitsSinceMs);
      found.push({ kind: isLater ? 'over_limit' : 'lowered_limit', text, pod: pod.name, pool: pool.id });
    }
  }
  return found;
}

/** An event is stamped with the millisecond in which its script began, a fence with the microsecond. */
const stampSlackMs = 1000;

/** All other calls were there when the newest was given (its fence is that moment): it alone was one too many. */
function isGivenAfter(pod: PodState, records: State['records'], sinceMs: number | undefined): boolean {
  const fences = [...pod.calls.keys()].map((sid) => Number(records.get(sid)?.get('fence') ?? 0));
  return sinceMs !== undefined && Math.max(...fences) / 1000 > sinceMs + stampSlackMs;
}

function holdersOf({ pods }: State): Map<string, string[]> {
  const holders = new Map<string, string[]>();
  for (const pod of pods.values()) {
    for (const sid of pod.calls.keys()) holders.set(sid, [...(holders.get(sid) ?? []), pod.name]);
  }
  return holders;
}

/** Invariant 2, from the side of the pods. */
function holders(state: State, exact: boolean): Finding[] {
  const found: Finding[] = [];
  for (const [sid, names] of exact ? holdersOf(state) : []) {
    const [pod = ''] = names;
    if (names.length > 1)
      found.push({ kind: 'two_pods', text: `2: call ${sid} is on ${names.join(' and ')}`, pod, call: sid });
    if (state.records.get(sid)?.get('pod_name') === undefined) {
      const text = `2: call ${sid} on ${names.join(', ')} has no record`;
      found.push({ kind: 'no_record', text, pod, call: sid });
    }
  }
  return found;
}

/** Invariant 2, from the side of the records, and what else a record must say. */
function records(state: State, live: boolean): Finding[] {
  const found: Finding[] = [];
  const holders = holdersOf(state);
  const fences = new Map<string, string>();
  for (const [sid, record] of state.records) {
    const owner = record.get('pod_name') ?? '';
    const own = record.get('fence') ?? '';
    const say = (kind: Finding['kind'], text: string) => found.push({ kind, text, pod: owner, call: sid });
    if (!holders.get(sid)?.includes(owner)) {
      // Every record of ours has a fence; the Go router's had none, and those that were no live calls were not imported.
      const isOurs = own !== '' || !live;
      say(
        isOurs ? 'orphan_record' : 'earlier_router',
        `2: call ${sid} says it is on ${owner}, which has it not`,
      );
      if (!isOurs) continue;
    }
    if (!/^\d+$/.test(own) || Number(own) > state.fence)
      say('fence_ahead', `call ${sid} has the fence ${own} beyond ${state.fence}`);
    if (fences.has(own)) say('same_fence', `calls ${sid} and ${fences.get(own)} have the same fence ${own}`);
    fences.set(own, sid);
    if (Number.isNaN(Date.parse(record.get('allocated_at') ?? '')))
      say('broken_record', `call ${sid} has no allocated_at`);
    if (!record.get('source_pool')) say('broken_record', `call ${sid} has no source_pool`);
  }
  return found;
}

/** Every pod in one pool, and nothing left of pods that were removed. */
function assignments({ pods, pools }: State, live: boolean): Finding[] {
  const found: Finding[] = [];
  for (const pod of pods.values()) {
    const homes = [...pools.values()].filter((pool) => pool.assigned.has(pod.name)).map(({ id }) => id);
    const say = (kind: Finding['kind'], text: string) => found.push({ kind, text, pod: pod.name });
    if (pod.pool === undefined) {
      const kind = live && homes.length === 0 && endsByItself(pod) ? 'left_to_expire' : 'left_behind';
      say(kind, `pod ${pod.name} is not registered and has left something behind`);
    } else if (homes.length !== 1 || homes[0] !== pod.pool) {
      const where = homes.join(', ') || 'nothing';
      say('wrong_pool', `pod ${pod.name} has tier ${pod.pool} and is assigned to ${where}`);
    } else if (pools.get(pod.pool)?.value === undefined) {
      say('no_such_pool', `pod ${pod.name} is in ${pod.pool}, which is no pool`);
    }
  }
  for (const pool of pools.values()) {
    for (const name of pool.assigned) {
      const text = `${pool.id} has the pod ${name} assigned, which is not registered`;
      if (!pods.has(name)) found.push({ kind: 'assigned_unregistered', text, pod: name, pool: pool.id });
    }
    if (pool.value === undefined)
      found.push({ kind: 'pool_unknown', text: `${pool.id} has keys and is no pool`, pool: pool.id });
  }
  return found;
}

/** Nothing but keys with a time to live, as an earlier router leaves them: the lease, the draining mark. */
function endsByItself({ calls, fields, suspended, hasMetadata }: PodState): boolean {
  return calls.size === 0 && fields.size === 0 && suspended === '' && !hasMetadata;
}

/** Invariant 4: the index of a pool is the union of the call sets of its pods, deadlines included. */
function indexes({ pods, pools }: State, exact: boolean): Finding[] {
  if (!exact) return [];
  const found: Finding[] = [];
  for (const pool of pools.values()) {
    const members = [...pods.values()].filter((pod) => pod.pool === pool.id);
    const truth = new Map(members.flatMap((pod) => [...pod.calls]));
    for (const [sid, deadline] of truth) {
      const indexed = pool.index.get(sid);
      if (indexed !== deadline) {
        const where = `the index of ${pool.id}`;
        const text =
          indexed === undefined
            ? `4: call ${sid} is on its pod, and not in ${where}`
            : `4: call ${sid} ends at ${deadline} on its pod, at ${indexed} in ${where}`;
        found.push({ kind: 'index_differs', text, call: sid, pool: pool.id });
      }
    }
    for (const sid of pool.index.keys()) {
      const text = `4: the index of ${pool.id} has the call ${sid}, which none of its pods has`;
      if (!truth.has(sid)) found.push({ kind: 'index_extra', text, call: sid, pool: pool.id });
    }
  }
  return found;
}

/** Invariants 4 and 6: who is in `available` may take a call; after a sweep, who may is in it. */
function availability({ pods }: State, pool: PoolState, exact: boolean, settled: boolean): Finding[] {
  const found: Finding[] = [];
  const say = (kind: Finding['kind'], text: string, pod?: string) =>
    found.push({
      kind,
      text: `available of ${pool.id}: ${text}`,
      ...(pod === undefined ? {} : { pod }),
      pool: pool.id,
    });
  const type = pool.kind === 'shared' ? 'zset' : 'set';
  if (pool.availableType !== 'none' && (!pool.kind || pool.availableType !== type)) {
    say('available_type', `is a ${pool.availableType}, the pool is ${pool.value ?? 'not there'}`);
  }
  for (const [name, score] of exact ? pool.available : []) {
    const pod = pods.get(name);
    if (pod?.pool !== pool.id)
      say('available_stranger', `has ${name}, a pod of ${pod?.pool ?? 'nowhere'}`, name);
    else if (pod.block !== '') {
      const byHand = pod.suspended === '' && isMarkByHand(pod.drainingUntil ?? '');
      say(byHand ? 'available_by_hand' : 'available_blocked', `6: has ${name}, which is ${pod.block}`, name);
    } else if (pool.kind === 'exclusive' && pod.calls.size > 0) {
      say('available_busy', `4: has ${name}, which has a call`, name);
    } else if (pool.kind === 'shared' && score !== pod.calls.size) {
      say('available_score', `4: has ${name} with score ${score}, it has ${pod.calls.size} calls`, name);
    }
  }
  for (const name of settled && pool.kind ? pool.assigned : []) {
    const pod = pods.get(name);
    const can = pod?.block === '' && (pool.kind === 'shared' || pod.calls.size === 0);
    if (can && !pool.available.has(name))
      say('not_available', `8: lacks ${name}, which may take a call`, name);
  }
  return found;
}

/** What operators read: the lease key and the status of the pod. */
function mirrors({ nowMs }: State, pod: PodState, settled: boolean): Finding[] {
  const found: Finding[] = [];
  const say = (text: string) => found.push({ kind: 'mirror', text, pod: pod.name });
  const load = pod.calls.size;
  if (pod.lease !== undefined && !pod.calls.has(pod.lease)) {
    say(`lease of ${pod.name} names ${pod.lease}, which is not on it`);
  }
  // The key's own life is real time: near its end it may be gone before the call is.
  if (settled && pod.lease === undefined && Math.max(...pod.calls.values()) > nowMs + 20_000) {
    say(`lease of ${pod.name} is missing, it has ${load} calls`);
  }
  const status = pod.block ? 'draining' : load > 0 ? 'allocated' : 'available';
  if (settled && pod.fields.get('status') !== status) {
    say(`pod ${pod.name} has the status ${pod.fields.get('status')}, it is ${status}`);
  }
  const shown = pod.fields.get('allocated_call_sid') ?? '';
  if (settled && shown !== '' && !pod.calls.has(shown)) {
    say(`pod ${pod.name} shows the call ${shown}, which is not on it`);
  }
  return found;
}

/** Invariant 8, on its way: the sweep or an allocate will end them. */
function pastLease({ nowMs, pods, records }: State): Finding[] {
  return [...pods.values()].flatMap((pod) =>
    [...pod.calls]
      .filter(([sid, deadline]) => deadline <= nowMs && records.has(sid))
      .map(([sid, deadline]): Finding => {
        const text = `8: call ${sid} on ${pod.name} is ${nowMs - deadline} ms past its lease`;
        return { kind: 'past_lease', text, pod: pod.name, call: sid };
      }),
  );
}
