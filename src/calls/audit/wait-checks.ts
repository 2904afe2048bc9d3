/** The checks of waiting calls and of the limits of merchants: promises 12, 14 and 15, and what is derived from them. */
import type { Finding } from './findings.js';
import type { PoolState, QueueState, State } from './keyspace.js';

export interface WaitOptions {
  /** An audit of a running system passes a part of the keys: a queue and a limit are checked only where they were read. */
  isPart: boolean;
  /** Keys were changed by hand: derived keys are not checked. */
  exact: boolean;
  /** A limit may be lower than when its calls were allocated. */
  maxLowered: boolean;
  /** The limits have not changed since then, by the store's clock. */
  limitsSinceMs?: number | undefined;
}

export function* waitFindings(state: State, options: WaitOptions): Generator<Finding> {
  const isRead = (merchant: string) => !options.isPart || state.queues.get(merchant)?.isRead === true;
  yield* waitingRecords(state);
  if (options.exact) {
    for (const pool of state.pools.values()) yield* unserved(state, pool);
    for (const queue of state.queues.values()) {
      if (!isRead(queue.name)) continue;
      yield* entries(state, queue);
      yield* listings(state, queue);
    }
    yield* counted(state);
  }
  for (const [merchant, max] of state.limits)
    if (isRead(merchant)) yield* overLimit(state, merchant, max, options);
}

/** Promise 12: an unblocked pod with room is in `available` only while no queue is listed for its pool. */
function* unserved({ pods, listed }: State, pool: PoolState): Generator<Finding> {
  const [queue] = listed.get(pool.id)?.keys() ?? [];
  for (const name of queue === undefined ? [] : pool.available.keys()) {
    const pod = pods.get(name);
    const isFree = pod?.pool === pool.id && pod.block === '' && pod.calls.size < pool.max;
    const text = `12: pod ${name} of ${pool.id} is available while calls of ${nameOf(queue ?? '')} wait for it`;
    if (isFree) yield { kind: 'not_handed_over', text, pod: name, pool: pool.id };
  }
}

/** Promise 14, by record. */
function* waitingRecords({ pods, queues, records, due }: State): Generator<Finding> {
  const holders = new Map(
    [...pods.values()].flatMap((pod) => [...pod.calls.keys()].map((sid) => [sid, pod.name])),
  );
  for (const [sid, record] of records) {
    if (record.get('hold') !== 'waiting') continue;
    const pod = record.get('pod_name') ?? holders.get(sid);
    if (pod !== undefined)
      yield { kind: 'waiting_with_pod', text: `14: call ${sid} waits, but has pod ${pod}`, call: sid, pod };
    const queue = record.get('queue') ?? '';
    const text = `14: call ${sid} waits, but is not in the queue of ${nameOf(queue)}`;
    if (queues.get(queue)?.calls.has(sid) !== true || !due.has(sid))
      yield { kind: 'not_queued', text, call: sid };
  }
}

/** Promise 14, by queue. */
function* entries({ records }: State, { name, calls }: QueueState): Generator<Finding> {
  for (const sid of calls.keys()) {
    const record = records.get(sid);
    const waits = record?.get('hold') === 'waiting';
    if (waits && (record.get('queue') ?? '') === name) continue;
    const where = waits ? 'waits in another one' : 'does not wait';
    const text = `14: the queue of ${nameOf(name)} has call ${sid}, which ${where}`;
    yield { kind: 'wrong_entry', text, call: sid };
  }
}

/** As PRIORITY_SPAN in lua/lib/queues.lua; a score has about two digits after the point. */
const prioritySpan = 2 ** 42;
const scoreSlack = 0.02;

/** A queue is listed for the pools of its chain exactly if it has calls and its merchant is below its limit. */
function* listings(
  { listed, limits, limited }: State,
  { name, rules, calls, isKnown }: QueueState,
): Generator<Finding> {
  const about = (kind: Finding['kind'], text: string, pool?: string): Finding => ({
    kind,
    text: `the queue of ${nameOf(name)} ${text}`,
    ...(pool === undefined ? {} : { pool }),
  });
  const chain = new Set((rules.get('chain') ?? '').split(' ').filter((pool) => pool !== ''));
  const isAtLimit = (limited.get(name)?.size ?? 0) >= (limits.get(name) ?? Number.POSITIVE_INFINITY);
  const why = calls.size === 0 ? 'has no calls' : isAtLimit ? 'is at its limit' : undefined;
  if (calls.size > 0 && !isKnown) yield about('not_listed', 'has calls, but is missing in waiting:queues');
  if (calls.size === 0 && isKnown) yield about('listed', 'has no calls, but is in waiting:queues');
  const tag = Number(rules.get('tag') ?? 0) + 1000 / Number(rules.get('weight') ?? 1);
  const score = (9 - Number(rules.get('priority') ?? 0)) * prioritySpan + tag;
  for (const [pool, queues] of listed) {
    const actual = queues.get(name);
    if (actual === undefined) continue;
    if (why !== undefined) yield about('listed', `${why}, but is listed for ${pool}`, pool);
    else if (!chain.has(pool))
      yield about('listed', `is listed for ${pool}, which is not in its chain`, pool);
    else if (Math.abs(actual - score) > scoreSlack)
      yield about('listed_score', `is listed for ${pool} with score ${actual}, not ${score}`, pool);
  }
  for (const pool of why === undefined ? chain : [])
    if (!listed.get(pool)?.has(name))
      yield about('not_listed', `has calls, but is not listed for ${pool}`, pool);
}

/** Promise 15: the set of a limit has exactly the live calls of its merchant. */
function* counted({ pods, records, limits, limited }: State): Generator<Finding> {
  const isLive = (sid: string) => pods.get(records.get(sid)?.get('pod_name') ?? '')?.calls.has(sid) === true;
  for (const [merchant, calls] of limited) {
    for (const sid of calls) {
      const text = `15: the limit of ${merchant} counts call ${sid}, which has ended`;
      if (limits.has(merchant) && !isLive(sid)) yield { kind: 'limit_extra', text, call: sid };
    }
  }
  for (const [sid, record] of records) {
    const merchant = record.get('merchant_id') ?? '';
    const text = `15: the limit of ${merchant} does not count call ${sid}`;
    if (limits.has(merchant) && isLive(sid) && !limited.get(merchant)?.has(sid))
      yield { kind: 'limit_missing', text, call: sid };
  }
}

/** The id of an event has the millisecond in which its script started, as has `allocated_at`. */
const stampSlackMs = 1000;

/**
 * Whether one of the calls got its pod after the limits last changed. Not by its fence: a call that waited gets a new one when
 * its caller picks up the pod.
 */
export function isAllocatedAfter(
  sids: Iterable<string>,
  records: State['records'],
  sinceMs: number | undefined,
): boolean {
  const times = [...sids].map((sid) => Date.parse(records.get(sid)?.get('allocated_at') ?? '') || 0);
  return sinceMs !== undefined && Math.max(...times) > sinceMs + stampSlackMs;
}

/** Promise 15: more calls than the limit are legal only if it was lowered since. */
function* overLimit(state: State, merchant: string, max: number, options: WaitOptions): Generator<Finding> {
  const calls = [...(state.limited.get(merchant) ?? [])];
  if (calls.length <= max || options.maxLowered) return;
  const text = `15: merchant ${merchant} has ${calls.length} calls, max_calls ${max}: ${calls.join(', ')}`;
  const isLater = !options.isPart || isAllocatedAfter(calls, state.records, options.limitsSinceMs);
  yield { kind: isLater ? 'over_max_calls' : 'lowered_max_calls', text };
}

function nameOf(queue: string): string {
  return queue === '' ? 'merchants without a configuration' : queue;
}
