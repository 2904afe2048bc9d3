/**
 * The invariant checks, the same for tests and the live audit: do calls and pods contradict each other or the contract?
 * Tests pass every key at one moment; the live audit (auditor.ts) passes parts that can be checked on their own.
 *
 * The checks do not know the past, so the caller passes it: a sweep has just run (`settled`), keys were changed by hand
 * since the last sweep (`tampered`), `max_concurrent` may have been lowered or a pod moved (`maxLowered`). An audit of a
 * running system (`live`) runs all checks, also those that only a sweep makes true; the kind of a finding tells them apart.
 *
 * Weakness: a wrong allocation that has already ended leaves no trace here. The tests' model and their replay of the event
 * stream find it.
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
import { isAllocatedAfter, waitFindings } from './wait-checks.js';

export interface CheckOptions {
  prefix?: string;
  /** The store's time; needed only with virtual time. */
  nowMs?: number;
  /** Every pool was just swept: derived keys must be exact. */
  settled?: boolean;
  /** Keys were changed by hand since the last full sweep: skips checks of state that a sweep repairs. */
  tampered?: boolean;
  /** A limit may be lower now than when calls were allocated. */
  maxLowered?: boolean;
  /** The same for `max_calls` of a merchant. */
  maxCallsLowered?: boolean;
  live?: {
    /** Limits have not changed since then, by the store's clock; undefined = unknown. */
    limitsSinceMs: number | undefined;
  };
}

/** The findings about every key at one moment, as text. */
export function violations(keyspace: Keyspace, options: CheckOptions = {}): string[] {
  const strange = [...keyspace.keys].flatMap(([key, facts]) => checkKey(key, facts, keyspace.prefix) ?? []);
  return [...strange, ...contradictions(keyspace, options)].map(({ text }) => text);
}

/** Contradictions between the contents of keys; `checkKey` checks each key on its own. */
export function* contradictions(keyspace: Keyspace, options: CheckOptions = {}): Generator<Finding> {
  const state = parseState(keyspace, options.nowMs);
  const isLive = options.live !== undefined;
  const settled = options.settled === true || isLive;
  const exact = settled || options.tampered !== true;
  yield* loads(state, options);
  if (exact) yield* holders(state);
  yield* records(state, isLive);
  yield* assignments(state, isLive);
  if (exact) yield* indexes(state);
  for (const pool of state.pools.values()) yield* availability(state, pool, exact, settled);
  for (const pod of state.pods.values()) yield* mirrors(state, pod, settled);
  if (isLive) yield* pastLease(state);
  yield* waitFindings(state, {
    isPart: isLive,
    exact,
    maxLowered: options.maxLowered === true || options.maxCallsLowered === true,
    limitsSinceMs: options.live?.limitsSinceMs,
  });
}

/** Invariants 1 and 3. An entry without a record still occupies its pod until the sweep. */
function* loads({ pods, pools, records }: State, { maxLowered, live }: CheckOptions): Generator<Finding> {
  for (const pod of pods.values()) {
    const pool = pools.get(pod.pool ?? '');
    const names = [...pod.calls.keys()].join(', ');
    if (pool?.kind === 'exclusive' && pod.calls.size > 1) {
      const text = `1: exclusive pod ${pod.name} of ${pool.id} has ${pod.calls.size} calls: ${names}`;
      yield { kind: 'two_calls', text, pod: pod.name, pool: pool.id };
    }
    if (pool?.kind === 'shared' && pod.calls.size > pool.max && !maxLowered) {
      const text = `3: pod ${pod.name} of ${pool.id} has ${pod.calls.size} calls, max ${pool.max}: ${names}`;
      const isLater = !live || isAllocatedAfter(pod.calls.keys(), records, live.limitsSinceMs);
      yield { kind: isLater ? 'over_limit' : 'lowered_limit', text, pod: pod.name, pool: pool.id };
    }
  }
}

function holdersOf({ pods }: State): Map<string, string[]> {
  const holders = new Map<string, string[]>();
  for (const pod of pods.values()) {
    for (const sid of pod.calls.keys()) holders.set(sid, [...(holders.get(sid) ?? []), pod.name]);
  }
  return holders;
}

/** Invariant 2, by pod. */
function* holders(state: State): Generator<Finding> {
  for (const [sid, names] of holdersOf(state)) {
    const [pod = ''] = names;
    if (names.length > 1)
      yield { kind: 'two_pods', text: `2: call ${sid} is on ${names.join(' and ')}`, pod, call: sid };
    if (state.records.get(sid)?.get('pod_name') === undefined) {
      const text = `2: call ${sid} on ${names.join(', ')} has no record`;
      yield { kind: 'no_record', text, pod, call: sid };
    }
  }
}

/** Invariant 2, by record, and the other fields of a record. */
function* records(state: State, live: boolean): Generator<Finding> {
  const holders = holdersOf(state);
  const fences = new Map<string, string>();
  for (const [sid, record] of state.records) {
    // A waiting call has no pod and no fence: see wait-checks.ts.
    if (record.get('hold') === 'waiting' && !record.has('pod_name')) continue;
    const owner = record.get('pod_name') ?? '';
    const own = record.get('fence') ?? '';
    const about = (kind: Finding['kind'], text: string): Finding => ({ kind, text, pod: owner, call: sid });
    if (!holders.get(sid)?.includes(owner)) {
      // The records of the Go router have no fence, and only those of live calls were imported.
      const isOurs = own !== '' || !live;
      const text = `2: the record of call ${sid} names ${owner}, which does not have the call`;
      yield about(isOurs ? 'orphan_record' : 'earlier_router', text);
      if (!isOurs) continue;
    }
    if (!/^\d+$/.test(own) || Number(own) > state.fence)
      yield about('fence_ahead', `call ${sid} has fence ${own}, above the counter ${state.fence}`);
    if (fences.has(own))
      yield about('same_fence', `calls ${sid} and ${fences.get(own)} have the same fence ${own}`);
    fences.set(own, sid);
    if (Number.isNaN(Date.parse(record.get('allocated_at') ?? '')))
      yield about('broken_record', `call ${sid} has no allocated_at`);
    if (!record.get('source_pool')) yield about('broken_record', `call ${sid} has no source_pool`);
  }
}

/** Every pod is in one pool, and removed pods have no keys. */
function* assignments({ pods, pools }: State, live: boolean): Generator<Finding> {
  for (const pod of pods.values()) {
    const homes = [...pools.values()].filter((pool) => pool.assigned.has(pod.name)).map(({ id }) => id);
    const about = (kind: Finding['kind'], text: string): Finding => ({ kind, text, pod: pod.name });
    if (pod.pool === undefined) {
      const kind = live && homes.length === 0 && expires(pod) ? 'left_to_expire' : 'left_behind';
      yield about(kind, `pod ${pod.name} is not registered but has keys`);
    } else if (homes.length !== 1 || homes[0] !== pod.pool) {
      const where = homes.join(', ') || 'nothing';
      yield about('wrong_pool', `pod ${pod.name} has tier ${pod.pool} but is assigned to ${where}`);
    } else if (pools.get(pod.pool)?.value === undefined) {
      yield about('no_such_pool', `pod ${pod.name} is in ${pod.pool}, which does not exist`);
    }
  }
  for (const pool of pools.values()) {
    for (const name of pool.assigned) {
      const text = `${pool.id} has the unregistered pod ${name} assigned`;
      if (!pods.has(name)) yield { kind: 'assigned_unregistered', text, pod: name, pool: pool.id };
    }
    if (pool.value === undefined)
      yield { kind: 'pool_unknown', text: `${pool.id} has keys but is not configured`, pool: pool.id };
  }
}

/** Only keys with a TTL are left, as by an earlier router: the lease, the draining mark. */
function expires({ calls, fields, suspended, hasMetadata }: PodState): boolean {
  return calls.size === 0 && fields.size === 0 && suspended === '' && !hasMetadata;
}

/** Invariant 4: the index of a pool is the union of the call sets of its pods, deadlines included. */
function* indexes({ pods, pools }: State): Generator<Finding> {
  for (const pool of pools.values()) {
    const members = [...pods.values()].filter((pod) => pod.pool === pool.id);
    const truth = new Map(members.flatMap((pod) => [...pod.calls]));
    for (const [sid, deadline] of truth) {
      const indexed = pool.index.get(sid);
      const where = `the index of ${pool.id}`;
      const text =
        indexed === undefined
          ? `4: call ${sid} is on its pod but not in ${where}`
          : `4: the lease of call ${sid} ends at ${deadline} on its pod, at ${indexed} in ${where}`;
      if (indexed !== deadline) yield { kind: 'index_differs', text, call: sid, pool: pool.id };
    }
    for (const sid of pool.index.keys()) {
      const text = `4: the index of ${pool.id} has call ${sid}, which is on none of its pods`;
      if (!truth.has(sid)) yield { kind: 'index_extra', text, call: sid, pool: pool.id };
    }
  }
}

/** Invariants 4 and 6: a pod in `available` can take a call; after a sweep, every pod that can is in it. */
function* availability(
  { pods }: State,
  pool: PoolState,
  exact: boolean,
  settled: boolean,
): Generator<Finding> {
  const about = (kind: Finding['kind'], text: string, pod?: string): Finding => ({
    kind,
    text: `available of ${pool.id}: ${text}`,
    ...(pod === undefined ? {} : { pod }),
    pool: pool.id,
  });
  const type = pool.kind === 'shared' ? 'zset' : 'set';
  if (pool.availableType !== 'none' && (!pool.kind || pool.availableType !== type)) {
    yield about(
      'available_type',
      `is a ${pool.availableType}, the pool is ${pool.value ?? 'not configured'}`,
    );
  }
  for (const [name, score] of exact ? pool.available : []) {
    const pod = pods.get(name);
    if (pod?.pool !== pool.id)
      yield about('available_stranger', `has ${name}, a pod of ${pod?.pool ?? 'nowhere'}`, name);
    else if (pod.block !== '') {
      const byHand = pod.suspended === '' && isMarkByHand(pod.drainingUntil ?? '');
      const kind = byHand ? 'available_by_hand' : 'available_blocked';
      yield about(kind, `6: has ${name}, which is ${pod.block}`, name);
    } else if (pool.kind === 'exclusive' && pod.calls.size > 0) {
      yield about('available_busy', `4: has ${name}, which has a call`, name);
    } else if (pool.kind === 'shared' && score !== pod.calls.size) {
      yield about(
        'available_score',
        `4: has ${name} with score ${score}, it has ${pod.calls.size} calls`,
        name,
      );
    }
  }
  for (const name of settled && pool.kind ? pool.assigned : []) {
    const pod = pods.get(name);
    const can = pod?.block === '' && (pool.kind === 'shared' || pod.calls.size === 0);
    if (can && !pool.available.has(name))
      yield about('not_available', `8: lacks ${name}, which can take a call`, name);
  }
}

/** Keys for operators: the lease and the status of the pod. */
function* mirrors({ nowMs }: State, pod: PodState, settled: boolean): Generator<Finding> {
  const about = (text: string): Finding => ({ kind: 'mirror', text, pod: pod.name });
  const load = pod.calls.size;
  if (pod.lease !== undefined && !pod.calls.has(pod.lease))
    yield about(`lease of ${pod.name} names ${pod.lease}, which is not on it`);
  if (!settled) return;
  // The TTL of the key is real time: near its end it may expire before the call.
  if (pod.lease === undefined && Math.max(...pod.calls.values()) > nowMs + 20_000)
    yield about(`lease of ${pod.name} is missing, it has ${load} calls`);
  const status = pod.block ? 'draining' : load > 0 ? 'allocated' : 'available';
  if (pod.fields.get('status') !== status)
    yield about(`pod ${pod.name} has status ${pod.fields.get('status')}, expected ${status}`);
  const shown = pod.fields.get('allocated_call_sid') ?? '';
  if (shown !== '' && !pod.calls.has(shown))
    yield about(`pod ${pod.name} shows call ${shown}, which is not on it`);
}

/** Invariant 8, pending: the sweep or an allocate ends these calls. */
function* pastLease({ nowMs, pods, records }: State): Generator<Finding> {
  for (const pod of pods.values()) {
    for (const [sid, deadline] of pod.calls) {
      const text = `8: call ${sid} on ${pod.name} is ${nowMs - deadline} ms past its lease`;
      if (deadline <= nowMs && records.has(sid)) yield { kind: 'past_lease', text, pod: pod.name, call: sid };
    }
  }
}
