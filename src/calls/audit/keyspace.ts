/** The keys of the store, or a part of them, as the checks see them: pods, pools, calls. Read by reader.ts, at one moment. */
import { subjectOf } from './key-shapes.js';

export interface Keyspace {
  prefix: string;
  nowMs: number;
  keys: Map<string, KeyContent>;
}

export interface KeyContent {
  type: string;
  /** -1 = for ever. */
  ttlMs: number;
  /** string: one item; set: members; hash and zset: pairs, flat; stream: nothing. */
  items: string[];
}

export interface PodState {
  name: string;
  /** `pool:gold`, `merchant:acme`; undefined for a pod that is not registered. */
  pool: string | undefined;
  /** Why it may not take a call, or empty. */
  block: string;
  drainingUntil: string | undefined;
  suspended: string;
  lease: string | undefined;
  /** Entries of its call set with their deadlines. */
  calls: Map<string, number>;
  fields: Map<string, string>;
  hasMetadata: boolean;
}

export interface PoolState {
  id: string;
  /** As `pools` says it; undefined for a pool that is not there. */
  value: string | undefined;
  kind: 'exclusive' | 'shared' | undefined;
  max: number;
  assigned: Set<string>;
  /** Member to score (0 in a set). */
  available: Map<string, number>;
  availableType: string;
  index: Map<string, number>;
}

export interface State {
  nowMs: number;
  pods: Map<string, PodState>;
  pools: Map<string, PoolState>;
  records: Map<string, Map<string, string>>;
  tombstones: Map<string, number>;
  fence: number;
}

export function parseKind(value: string | undefined): { kind: PoolState['kind']; max: number } {
  if (value === 'exclusive' || value === 'label') return { kind: 'exclusive', max: 1 };
  const shared = /^shared:(\d+)$/.exec(value ?? '');
  return shared ? { kind: 'shared', max: Number(shared[1]) } : { kind: undefined, max: 0 };
}

/** What an operator wrote (`yes`, `1`) is no deadline: it holds as long as it is there. See deadline_of in lua/lib/pods.lua. */
export function isMarkByHand(mark: string): boolean {
  return !/^\d{12,14}$/.test(mark);
}

export function parseState(keyspace: Keyspace, nowMs = keyspace.nowMs): State {
  const { keys } = keyspace;
  const text = (key: string) => keys.get(key)?.items[0];
  const flat = (key: string) => {
    const items = keys.get(key)?.items ?? [];
    return new Map(items.flatMap((item, i) => (i % 2 === 0 ? [[item, items[i + 1] ?? '']] : [])));
  };
  const scores = (key: string) => new Map([...flat(key)].map(([member, score]) => [member, Number(score)]));
  const tails = (prefix: string) =>
    [...keys.keys()].filter((key) => key.startsWith(prefix)).map((key) => key.slice(prefix.length));

  const kinds = flat('pools');
  const metadata = flat('pod:metadata');
  const poolIds = new Set(kinds.keys());
  const names = new Set(metadata.keys());
  for (const key of keys.keys()) {
    const { pod, pool } = subjectOf(key);
    if (pod !== undefined) names.add(pod);
    if (pool !== undefined) poolIds.add(pool);
  }
  const pools = new Map<string, PoolState>();
  for (const id of poolIds) {
    const availableKey = id.startsWith('merchant:') ? `${id}:pods` : `${id}:available`;
    const content = keys.get(availableKey);
    const available =
      content?.type === 'zset'
        ? scores(availableKey)
        : new Map((content?.items ?? []).map((pod) => [pod, 0]));
    pools.set(id, {
      id,
      value: kinds.get(id),
      ...parseKind(kinds.get(id)),
      assigned: new Set(keys.get(`${id}:assigned`)?.items),
      available,
      availableType: content?.type ?? 'none',
      index: scores(`${id}:calls`),
    });
  }
  const pods = new Map<string, PodState>();
  for (const name of names) {
    const tier = text(`pod:tier:${name}`);
    const drainingUntil = text(`pod:draining:${name}`);
    const suspended = text(`pod:suspended:${name}`) ?? '';
    const draining =
      drainingUntil !== undefined && (isMarkByHand(drainingUntil) || Number(drainingUntil) > nowMs);
    pods.set(name, {
      name,
      pool: tier === undefined || tier.startsWith('merchant:') ? tier : `pool:${tier}`,
      block: suspended || (draining ? 'draining' : ''),
      drainingUntil,
      suspended,
      lease: text(`lease:${name}`),
      calls: scores(`pod:calls:${name}`),
      fields: flat(`pod:${name}`),
      hasMetadata: metadata.has(name),
    });
  }
  return {
    nowMs,
    pods,
    pools,
    records: new Map(tails('call:').map((sid) => [sid, flat(`call:${sid}`)])),
    // The same call may have ended in several slices of time: the last one counts.
    tombstones: tails('tombstones:')
      .flatMap((slot) => [...flat(`tombstones:${slot}`)])
      .reduce(
        (all, [sid, until]) => all.set(sid, Math.max(all.get(sid) ?? 0, Number(until))),
        new Map<string, number>(),
      ),
    fence: Number(text('fence') ?? 0),
  };
}
