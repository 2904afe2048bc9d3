/** Parses the keys of the store, or a part of them, into pods, pools and calls. */
import { availableKey, identifyKey, keysOf } from '../store/keys.js';
import { parseKind } from '../store/replies.js';
import type { Finding } from './findings.js';

export interface Keyspace {
  prefix: string;
  nowMs: number;
  keys: Map<string, KeyContent>;
}

export interface KeyFacts {
  type: string;
  /** -1: no TTL. */
  ttlMs: number;
}

export interface KeyContent extends KeyFacts {
  /** string: one item; set: members; hash and zset: pairs, flat; stream: nothing. */
  items: string[];
}

export interface PodState {
  name: string;
  /** `pool:gold`, `merchant:acme`; undefined for an unregistered pod. */
  pool: string | undefined;
  /** Why it may not take a call, or empty. */
  block: string;
  drainingUntil: string | undefined;
  suspended: string;
  lease: string | undefined;
  /** Live calls with their deadlines. */
  calls: Map<string, number>;
  fields: Map<string, string>;
  hasMetadata: boolean;
}

export interface PoolState {
  id: string;
  /** The stored kind; undefined for a pool that is missing in `pools`. */
  value: string | undefined;
  kind?: 'exclusive' | 'shared';
  max: number;
  assigned: Set<string>;
  /** Member to score (0 in a set). */
  available: Map<string, number>;
  availableType: string;
  index: Map<string, number>;
}

export interface QueueState {
  /** The merchant, or '' for all merchants without a configuration. */
  name: string;
  rules: Map<string, string>;
  /** The key of its rules was read; an audit reads it together with everything about the queue. */
  isRead: boolean;
  /** Call to the time of its arrival. */
  calls: Map<string, number>;
  /** It is in the set of all queues. */
  isKnown: boolean;
}

export interface State {
  nowMs: number;
  pods: Map<string, PodState>;
  pools: Map<string, PoolState>;
  records: Map<string, Map<string, string>>;
  tombstones: Map<string, number>;
  fence: number;
  queues: Map<string, QueueState>;
  /** Pool to the queues that may have a pod of it, with their scores. */
  listed: Map<string, Map<string, number>>;
  /** When waiting calls expire or count as abandoned. */
  due: Map<string, number>;
  /** `max_calls` of merchants, and the calls that these limits count. */
  limits: Map<string, number>;
  limited: Map<string, Set<string>>;
}

/** A mark written by an operator (`yes`, `1`) has no deadline: see deadline_of in lua/lib/pods.lua. */
export function isMarkByHand(mark: string): boolean {
  return !/^\d{12,14}$/.test(mark);
}

/** Key names without the prefix. */
const names = keysOf('');

/** Checks the name, the type and the TTL of a key, regardless of its content. */
export function checkKey(key: string, { type, ttlMs }: KeyFacts, prefix: string): Finding | undefined {
  const known = identifyKey(key);
  const name = `key ${prefix}${key}`;
  if (!known) return { kind: 'unknown_key', text: `${name} (${type}) is in no list of keys` };
  const { types, ttl } = known.shape;
  const finding = (kind: Finding['kind'], text: string): Finding => ({ kind, text, ...known.subject });
  if (!types.includes(type))
    return finding('wrong_type', `${name} is a ${type}, not a ${types.join(' or ')}`);
  if (ttl === 'required' && ttlMs < 0) return finding('no_end', `${name} has no time to live`);
  if (ttl === undefined && ttlMs >= 0) return finding('vanishes', `${name} vanishes in ${ttlMs} ms`);
  return undefined;
}

export function parseState(keyspace: Keyspace, nowMs = keyspace.nowMs): State {
  const { keys } = keyspace;
  const text = (key: string) => keys.get(key)?.items[0];
  const flat = (key: string) => {
    const items = keys.get(key)?.items ?? [];
    return new Map(items.flatMap((item, i) => (i % 2 === 0 ? [[item, items[i + 1] ?? '']] : [])));
  };
  const scores = (key: string) => new Map([...flat(key)].map(([member, score]) => [member, Number(score)]));
  const valuesAfter = (prefix: string) =>
    [...keys.keys()].filter((key) => key.startsWith(prefix)).map((key) => key.slice(prefix.length));

  const kinds = flat(names.pools);
  const metadata = flat(names.podMetadata);
  const poolIds = new Set(kinds.keys());
  const podNames = new Set(metadata.keys());
  const listed = new Map<string, Map<string, number>>();
  const known = new Set(keys.get(names.waitingQueues)?.items);
  const merchants = new Set(known);
  for (const key of keys.keys()) {
    const { pod, pool, merchant } = identifyKey(key)?.subject ?? {};
    if (pod !== undefined) podNames.add(pod);
    if (merchant !== undefined) merchants.add(merchant);
    if (pool === undefined) continue;
    // A queue may wait for a pool that does not exist.
    if (key !== names.waiting(pool)) poolIds.add(pool);
    else {
      listed.set(pool, scores(key));
      for (const queue of scores(key).keys()) merchants.add(queue);
    }
  }
  const pools = new Map<string, PoolState>();
  for (const id of poolIds) {
    const key = availableKey(names, id);
    const content = keys.get(key);
    const available =
      content?.type === 'zset' ? scores(key) : new Map((content?.items ?? []).map((pod) => [pod, 0]));
    pools.set(id, {
      id,
      value: kinds.get(id),
      ...parseKind(kinds.get(id)),
      assigned: new Set(keys.get(names.assigned(id))?.items),
      available,
      availableType: content?.type ?? 'none',
      index: scores(names.poolCalls(id)),
    });
  }
  const pods = new Map<string, PodState>();
  for (const name of podNames) {
    const tier = text(names.podTier(name));
    const drainingUntil = text(names.podDraining(name));
    const suspended = text(names.podSuspended(name)) ?? '';
    const draining =
      drainingUntil !== undefined && (isMarkByHand(drainingUntil) || Number(drainingUntil) > nowMs);
    pods.set(name, {
      name,
      pool: tier === undefined || tier.startsWith('merchant:') ? tier : `pool:${tier}`,
      block: suspended || (draining ? 'draining' : ''),
      drainingUntil,
      suspended,
      lease: text(names.lease(name)),
      calls: scores(names.podCalls(name)),
      fields: flat(names.pod(name)),
      hasMetadata: metadata.has(name),
    });
  }
  return {
    nowMs,
    pods,
    pools,
    records: new Map(valuesAfter(names.call('')).map((sid) => [sid, flat(names.call(sid))])),
    // A call may have ended in several slices: the last deadline counts.
    tombstones: valuesAfter(names.tombstones(''))
      .flatMap((slot) => [...flat(names.tombstones(slot))])
      .reduce(
        (all, [sid, until]) => all.set(sid, Math.max(all.get(sid) ?? 0, Number(until))),
        new Map<string, number>(),
      ),
    fence: Number(text(names.fence) ?? 0),
    queues: new Map(
      [...merchants].map((name) => [
        name,
        {
          name,
          rules: flat(names.waitingQueue(name)),
          isRead: keys.has(names.waitingQueue(name)),
          calls: scores(names.waitingCalls(name)),
          isKnown: known.has(name),
        },
      ]),
    ),
    listed,
    due: scores(names.waitingDue),
    limits: scores(names.limits),
    limited: new Map([...merchants].map((name) => [name, new Set(keys.get(names.limited(name))?.items)])),
  };
}
