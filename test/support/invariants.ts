/**
 * The one invariant checker: reads every key of the store at one moment and says in which ways the calls and
 * pods in it contradict each other or the contract (section 7 of the specification). An empty list is good.
 *
 * It knows nothing of what was done before, so what depends on history is told by the caller: a sweep has just
 * run (`settled`), somebody changed keys by hand since the last sweep (`tampered`), `max_concurrent` may have been
 * lowered or a pod moved (`maxLowered`).
 *
 * Weakness: an allocation that was wrong and has already ended leaves nothing to see here; the model
 * (model/) and the replay of the event stream (interleavings.test.ts) look at that.
 */
import type { Cluster, Redis } from 'ioredis';

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
}

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

/** One script, so that it sees one moment even while routers work. */
const dump = `
local result, time = {}, redis.call('TIME')
local pattern = string.gsub(KEYS[1], '[%*%?%[%]\\\\]', '\\\\%0') .. '*'
for _, key in ipairs(redis.call('KEYS', pattern)) do
  local type, items = redis.call('TYPE', key).ok, {}
  if type == 'string' then items = { redis.call('GET', key) }
  elseif type == 'set' then items = redis.call('SMEMBERS', key)
  elseif type == 'hash' then items = redis.call('HGETALL', key)
  elseif type == 'zset' then items = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  result[#result + 1] = { key, type, redis.call('PTTL', key), items }
end
return { time[1] * 1000 + math.floor(time[2] / 1000), result }`;

export async function readKeyspace(redis: Redis | Cluster, prefix = 'voice:'): Promise<Keyspace> {
  const [nowMs, rows] = (await redis.eval(dump, 1, prefix)) as [number, [string, string, number, string[]][]];
  const keys = new Map(
    rows.map(([key, type, ttlMs, items]) => [key.slice(prefix.length), { type, ttlMs, items }]),
  );
  return { prefix, nowMs, keys };
}

export async function checkInvariants(redis: Redis | Cluster, options: CheckOptions = {}): Promise<string[]> {
  return violations(await readKeyspace(redis, options.prefix), options);
}

// --- The key space as the checks see it ---

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
  /** Keys that nothing accounts for, or of a wrong type, or with a wrong time to live. */
  strange: string[];
}

type Shape = readonly [pattern: RegExp, types: readonly string[], ttl: 'ttl' | 'for ever' | 'any'];
const shapes: readonly Shape[] = [
  [/^(tier:config|tier:version|fence|leader:epoch|data:version)$/, ['string'], 'for ever'],
  [/^(merchant:config|pools|pod:metadata)$/, ['hash'], 'for ever'],
  [/^leader$/, ['hash'], 'for ever'],
  [/^reported$/, ['zset'], 'for ever'],
  [/^removals:(held|confirmed)$/, ['set'], 'for ever'],
  [/^(events|journal|history)$/, ['stream'], 'for ever'],
  [/^call:/, ['hash'], 'ttl'],
  [/^tombstones:\d+$/, ['hash'], 'ttl'],
  [/^lease:/, ['string'], 'ttl'],
  // An operator may write the mark by hand, without a time.
  [/^pod:draining:/, ['string'], 'any'],
  [/^pod:(tier|suspended):/, ['string'], 'for ever'],
  [/^pod:calls:/, ['zset'], 'for ever'],
  [/^pod:[^:]+$/, ['hash'], 'for ever'],
  [/^pool:[^:]+:assigned$/, ['set'], 'for ever'],
  [/^pool:[^:]+:available$/, ['set', 'zset'], 'for ever'],
  [/^pool:[^:]+:calls$/, ['zset'], 'for ever'],
  [/^merchant:[^:]+:(assigned|pods)$/, ['set'], 'for ever'],
  [/^merchant:[^:]+:calls$/, ['zset'], 'for ever'],
];

function strangeKeys(keys: Keyspace['keys']): string[] {
  const found: string[] = [];
  for (const [key, { type, ttlMs }] of keys) {
    const shape = shapes.find(([pattern]) => pattern.test(key));
    if (!shape) found.push(`key ${key} (${type}) is in no list of keys`);
    else if (!shape[1].includes(type)) found.push(`key ${key} is a ${type}, not a ${shape[1].join(' or ')}`);
    else if (shape[2] === 'ttl' && ttlMs < 0) found.push(`key ${key} has no time to live`);
    else if (shape[2] === 'for ever' && ttlMs >= 0) found.push(`key ${key} vanishes in ${ttlMs} ms`);
  }
  return found;
}

export function parseKind(value: string | undefined): { kind: PoolState['kind']; max: number } {
  if (value === 'exclusive' || value === 'label') return { kind: 'exclusive', max: 1 };
  const shared = /^shared:(\d+)$/.exec(value ?? '');
  return shared ? { kind: 'shared', max: Number(shared[1]) } : { kind: undefined, max: 0 };
}

/** What an operator wrote (`yes`, `1`) is no deadline: it holds as long as it is there. */
export function isMarkByHand(mark: string): boolean {
  return !(Number(mark) >= 1e11);
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
  const poolIds = new Set(kinds.keys());
  for (const key of keys.keys()) {
    const id = /^((?:pool|merchant):[^:]+):(?:assigned|available|pods|calls)$/.exec(key)?.[1];
    if (id !== undefined) poolIds.add(id);
  }
  const pools = new Map<string, PoolState>();
  for (const id of poolIds) {
    const content = keys.get(id.startsWith('merchant:') ? `${id}:pods` : `${id}:available`);
    const available =
      content?.type === 'zset'
        ? scores(`${id}:available`)
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

  const names = new Set([
    ...['pod:tier:', 'pod:draining:', 'pod:suspended:', 'pod:calls:', 'lease:'].flatMap(tails),
    ...tails('pod:').filter((name) => !name.includes(':') && name !== 'metadata'),
    ...flat('pod:metadata').keys(),
  ]);
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
    strange: strangeKeys(keys),
  };
}

// --- The checks ---

export function violations(keyspace: Keyspace, options: CheckOptions = {}): string[] {
  const state = parseState(keyspace, options.nowMs);
  const exact = options.settled === true || options.tampered !== true;
  return [
    ...state.strange,
    ...loads(state, options),
    ...records(state, exact),
    ...assignments(state),
    ...indexes(state, exact),
    ...[...state.pools.values()].flatMap((pool) =>
      availability(state, pool, exact, options.settled === true),
    ),
    ...[...state.pods.values()].flatMap((pod) => mirrors(state, pod, options.settled === true)),
  ];
}

/** Invariants 1 and 3. An entry without a record still occupies its pod until the sweep. */
function loads({ pods, pools }: State, options: CheckOptions): string[] {
  const found: string[] = [];
  for (const pod of pods.values()) {
    const pool = pools.get(pod.pool ?? '');
    const names = [...pod.calls.keys()].join(', ');
    if (pool?.kind === 'exclusive' && pod.calls.size > 1) {
      found.push(`1: exclusive pod ${pod.name} of ${pool.id} has ${pod.calls.size} calls: ${names}`);
    }
    if (pool?.kind === 'shared' && pod.calls.size > pool.max && !options.maxLowered) {
      found.push(`3: pod ${pod.name} of ${pool.id} has ${pod.calls.size} calls, max ${pool.max}: ${names}`);
    }
  }
  return found;
}

/** Invariant 2, and that a call's record and its pod's entry go together. */
function records({ pods, records, fence }: State, exact: boolean): string[] {
  const found: string[] = [];
  const holders = new Map<string, string[]>();
  for (const pod of pods.values()) {
    for (const sid of pod.calls.keys()) holders.set(sid, [...(holders.get(sid) ?? []), pod.name]);
  }
  for (const [sid, names] of holders) {
    const owner = records.get(sid)?.get('pod_name');
    if (exact && names.length > 1) found.push(`2: call ${sid} is on ${names.join(' and ')}`);
    if (exact && owner === undefined) found.push(`2: call ${sid} on ${names.join(', ')} has no record`);
  }
  const fences = new Map<string, string>();
  for (const [sid, record] of records) {
    const owner = record.get('pod_name') ?? '';
    const own = record.get('fence') ?? '';
    if (!holders.get(sid)?.includes(owner))
      found.push(`2: call ${sid} says it is on ${owner}, which has it not`);
    if (!/^\d+$/.test(own) || Number(own) > fence)
      found.push(`call ${sid} has the fence ${own} beyond ${fence}`);
    if (fences.has(own)) found.push(`calls ${sid} and ${fences.get(own)} have the same fence ${own}`);
    fences.set(own, sid);
    if (Number.isNaN(Date.parse(record.get('allocated_at') ?? '')))
      found.push(`call ${sid} has no allocated_at`);
    if (!record.get('source_pool')) found.push(`call ${sid} has no source_pool`);
  }
  return found;
}

/** Every pod in one pool, and nothing left of pods that were removed. */
function assignments({ pods, pools }: State): string[] {
  const found: string[] = [];
  for (const pod of pods.values()) {
    const homes = [...pools.values()].filter((pool) => pool.assigned.has(pod.name)).map(({ id }) => id);
    if (pod.pool === undefined) {
      found.push(`pod ${pod.name} is not registered and has left something behind`);
    } else if (homes.length !== 1 || homes[0] !== pod.pool) {
      found.push(`pod ${pod.name} has tier ${pod.pool} and is assigned to ${homes.join(', ') || 'nothing'}`);
    } else if (pools.get(pod.pool)?.value === undefined) {
      found.push(`pod ${pod.name} is in ${pod.pool}, which is no pool`);
    }
  }
  for (const pool of pools.values()) {
    for (const name of pool.assigned) {
      if (!pods.has(name)) found.push(`${pool.id} has the pod ${name} assigned, which is not registered`);
    }
    if (pool.value === undefined) found.push(`${pool.id} has keys and is no pool`);
  }
  return found;
}

/** Invariant 4: the index of a pool is the union of the call sets of its pods, deadlines included. */
function indexes({ pods, pools }: State, exact: boolean): string[] {
  if (!exact) return [];
  const found: string[] = [];
  for (const pool of pools.values()) {
    const truth = new Map(
      [...pods.values()].filter((pod) => pod.pool === pool.id).flatMap((pod) => [...pod.calls]),
    );
    for (const [sid, deadline] of truth) {
      const indexed = pool.index.get(sid);
      if (indexed !== deadline) {
        found.push(`4: call ${sid} ends ${deadline} on its pod, ${indexed} in the index of ${pool.id}`);
      }
    }
    for (const sid of pool.index.keys()) {
      if (!truth.has(sid))
        found.push(`4: the index of ${pool.id} has the call ${sid}, which none of its pods has`);
    }
  }
  return found;
}

/** Invariants 4 and 6: who is in `available` may take a call; after a sweep, who may is in it. */
function availability({ pods }: State, pool: PoolState, exact: boolean, settled: boolean): string[] {
  const found: string[] = [];
  const say = (text: string) => found.push(`available of ${pool.id}: ${text}`);
  const type = pool.kind === 'shared' ? 'zset' : 'set';
  if (pool.availableType !== 'none' && (!pool.kind || pool.availableType !== type)) {
    say(`is a ${pool.availableType}, the pool is ${pool.value ?? 'not there'}`);
  }
  for (const [name, score] of exact ? pool.available : []) {
    const pod = pods.get(name);
    if (pod?.pool !== pool.id) say(`has ${name}, a pod of ${pod?.pool ?? 'nowhere'}`);
    else if (pod.block !== '') say(`6: has ${name}, which is ${pod.block}`);
    else if (pool.kind === 'exclusive' && pod.calls.size > 0) say(`4: has ${name}, which has a call`);
    else if (pool.kind === 'shared' && score !== pod.calls.size) {
      say(`4: has ${name} with score ${score}, it has ${pod.calls.size} calls`);
    }
  }
  for (const name of settled && pool.kind ? pool.assigned : []) {
    const pod = pods.get(name);
    const can = pod?.block === '' && (pool.kind === 'shared' || pod.calls.size === 0);
    if (can && !pool.available.has(name)) say(`8: lacks ${name}, which may take a call`);
  }
  return found;
}

/** What operators read: the lease key and the status of the pod. */
function mirrors({ nowMs }: State, pod: PodState, settled: boolean): string[] {
  const found: string[] = [];
  const load = pod.calls.size;
  if (pod.lease !== undefined && !pod.calls.has(pod.lease)) {
    found.push(`lease of ${pod.name} names ${pod.lease}, which is not on it`);
  }
  // The key's own life is real time: near its end it may be gone before the call is.
  if (settled && pod.lease === undefined && Math.max(...pod.calls.values()) > nowMs + 20_000) {
    found.push(`lease of ${pod.name} is missing, it has ${load} calls`);
  }
  const status = pod.block ? 'draining' : load > 0 ? 'allocated' : 'available';
  if (settled && pod.fields.get('status') !== status) {
    found.push(`pod ${pod.name} has the status ${pod.fields.get('status')}, it is ${status}`);
  }
  const shown = pod.fields.get('allocated_call_sid') ?? '';
  if (settled && shown !== '' && !pod.calls.has(shown)) {
    found.push(`pod ${pod.name} shows the call ${shown}, which is not on it`);
  }
  return found;
}
