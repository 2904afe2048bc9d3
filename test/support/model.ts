/**
 * What the store must do, written a second time: small, in memory, one method for each operation.
 *
 * The truth (pods, calls, deadlines, marks) is predicted exactly. Membership in `available` is known as yes, no
 * or maybe: after somebody wrote into it by hand, the order in which a random SPOP meets bad members decides what
 * is left of them. A pod that surely is available must be given; one that may be, can be given; no other ever.
 */
import fc from 'fast-check';
import type { Redis } from 'ioredis';
import { EpochRefused } from '../../src/calls/store/pool-store.js';
import type { Allocation, LeaseTimes, Released, Report } from '../../src/calls/store/store.js';
import { type PoolId, parseTierConfig, poolsOf, serializeTierConfig } from '../../src/calls/tiers.js';
import { AppError } from '../../src/errors.js';
import {
  isMarkByHand,
  type Keyspace,
  parseKind,
  parseState,
  readKeyspace,
  violations,
} from './invariants.js';
import { openStore, registration, type TestStore, testTimes } from './store.js';

export interface ModelPod {
  name: string;
  pool: PoolId;
  uid: string;
  /** Until when; Infinity for a mark by hand. */
  drain: number | undefined;
  suspended: string;
  mustReport: boolean;
  calls: Map<string, number>;
  listed: 'yes' | 'no' | 'maybe';
}

interface ModelRecord {
  pod: string;
  pool: PoolId;
  fence: number;
  allocatedAt: string;
  claimed: boolean;
  missingSince: number | undefined;
}

export interface PodRequest {
  name: string;
  uid: string;
  pool: PoolId | '';
  suspended: '' | 'terminating' | 'not_ready';
  mustReport: boolean;
}

export class Model {
  now = 0;
  lastFence = 0;
  readonly pools = new Map<PoolId, string>();
  readonly pods = new Map<string, ModelPod>();
  readonly records = new Map<string, ModelRecord>();
  readonly tombstones = new Map<string, number>();
  readonly index = new Map<PoolId, Map<string, number>>();

  constructor(readonly times: LeaseTimes) {}

  // --- The operations of any replica ---

  /** Says what is wrong with the answer, and follows it. */
  allocate(sid: string, chain: readonly PoolId[], answer: Allocation | undefined): string[] {
    const { leaseTtlMs, noShowTimeoutMs } = this.times;
    const deadline = this.now + (noShowTimeoutMs > 0 ? Math.min(noShowTimeoutMs, leaseTtlMs) : leaseTtlMs);
    const record = this.records.get(sid);
    const held = record && this.pods.get(record.pod)?.calls.get(sid);
    if (record && held !== undefined) {
      this.#moveLease(sid, record.pod, Math.max(deadline, held));
      record.claimed = true;
      return same(answer, {
        podName: record.pod,
        sourcePool: record.pool,
        allocatedAt: record.allocatedAt,
        leaseExpiresAtMs: Math.max(deadline, held),
        fence: record.fence,
        wasExisting: true,
        reclaimed: 0,
      });
    }
    this.records.delete(sid);
    const problems: string[] = [];
    let reclaimed = 0;
    let pod: ModelPod | undefined;
    const known = chain.filter((pool) => parseKind(this.pools.get(pool)).kind);
    for (const pool of known) pod ??= this.#take(pool, answer, problems);
    for (const pool of pod ? [] : known) {
      for (const old of this.#expired(pool)) {
        if (pod) break;
        reclaimed += this.#reclaim(old, pool);
        pod = this.#take(pool, answer, problems);
      }
    }
    if (!answer || !pod) {
      if (answer) problems.push(`gave ${answer.podName}, which cannot take a call`);
      return problems;
    }
    if (answer.fence <= this.lastFence) problems.push(`fence ${answer.fence} after ${this.lastFence}`);
    this.lastFence = answer.fence;
    const allocatedAt = new Date(this.now).toISOString();
    this.#hold(sid, pod, deadline);
    this.records.set(sid, {
      pod: pod.name,
      pool: pod.pool,
      fence: answer.fence,
      allocatedAt,
      claimed: false,
      missingSince: undefined,
    });
    pod.listed = parseKind(this.pools.get(pod.pool)).kind === 'shared' ? 'yes' : 'no';
    const expected = {
      podName: pod.name,
      sourcePool: pod.pool,
      allocatedAt,
      leaseExpiresAtMs: deadline,
      fence: answer.fence,
      wasExisting: false,
      reclaimed,
    };
    return [...problems, ...same(answer, expected)];
  }

  release(sid: string, fence: number | undefined): Released | string {
    const record = this.records.get(sid);
    if (!record) return 'call_not_found';
    if (fence !== undefined && fence !== record.fence) return 'stale_fence';
    const pod = this.#pod(record.pod);
    this.#endCall(sid, pod);
    this.#settle(pod);
    const block = this.blockOf(pod);
    return {
      podName: pod.name,
      releasedToPool: block === '' && parseKind(this.pools.get(pod.pool)).kind ? pod.pool : null,
      wasDraining: block === 'draining' || block === 'terminating',
      activeCalls: pod.calls.size,
      pool: pod.pool,
    };
  }

  releaseUnclaimed(sid: string, fence: number): boolean {
    if (this.records.get(sid)?.claimed) return false;
    return typeof this.release(sid, fence) !== 'string';
  }

  renew(sid: string, fence: number | undefined): { leaseExpiresAtMs: number; podName: string } | string {
    const record = this.records.get(sid);
    if (!record) return 'call_not_found';
    if (fence !== undefined && fence !== record.fence) return 'stale_fence';
    const deadline = this.now + this.times.leaseTtlMs;
    this.#moveLease(sid, record.pod, deadline);
    record.claimed = true;
    return { leaseExpiresAtMs: deadline, podName: record.pod };
  }

  /** `fences` of the answer are taken over for calls that were adopted: they are new. */
  report(name: string, sids: readonly string[], uid: string, answer: Report | string): string[] {
    const pod = this.pods.get(name);
    if (!pod || (uid !== '' && pod.uid !== '' && uid !== pod.uid)) return same(answer, 'pod_not_found');
    const { leaseTtlMs, reportGraceMs } = this.times;
    const expected: Report = { renewed: [], adopted: [], ended: [], conflicts: [], fences: {} };
    const problems: string[] = [];
    pod.mustReport = false;
    if (pod.suspended === 'awaiting_report') pod.suspended = '';
    const reported = new Set(sids);
    const unknown: string[] = [];
    for (const sid of reported) {
      const record = this.records.get(sid);
      const live = record && this.pods.get(record.pod)?.calls.has(sid);
      if (live && record.pod === name) {
        this.#moveLease(sid, name, this.now + leaseTtlMs);
        record.claimed = true;
        record.missingSince = undefined;
        expected.renewed.push(sid);
        expected.fences[sid] = record.fence;
      } else if (live || (this.tombstones.get(sid) ?? 0) > this.now) expected.conflicts.push(sid);
      else unknown.push(sid);
    }
    for (const [sid, deadline] of inOrder(pod.calls)) {
      const record = this.records.get(sid);
      // Without its record it is the sweep's.
      if (reported.has(sid) || this.#dropLeftover(sid, pod) || !record) continue;
      record.missingSince ??= this.now;
      const end = record.missingSince + reportGraceMs;
      if (this.now >= end) {
        this.#endCall(sid, pod);
        expected.ended.push(sid);
      } else this.#moveLease(sid, name, Math.min(end, deadline));
    }
    const { kind, max } = parseKind(this.pools.get(pod.pool));
    for (const sid of unknown) {
      if (!pod.calls.has(sid) && pod.calls.size >= (kind ? max : 1)) {
        expected.conflicts.push(sid);
        continue;
      }
      const fence = typeof answer === 'string' ? 0 : (answer.fences[sid] ?? 0);
      if (fence <= this.lastFence)
        problems.push(`adopted ${sid} with fence ${fence} after ${this.lastFence}`);
      this.lastFence = Math.max(fence, this.lastFence);
      const allocatedAt = new Date(this.now).toISOString();
      this.records.set(sid, {
        pod: name,
        pool: pod.pool,
        fence,
        allocatedAt,
        claimed: true,
        missingSince: undefined,
      });
      this.#hold(sid, pod, this.now + leaseTtlMs);
      expected.adopted.push(sid);
      expected.fences[sid] = fence;
    }
    this.#settle(pod);
    return [...problems, ...same(answer, expected)];
  }

  drain(name: string, waitMs: number): { activeCalls: number; untilMs: number } | string {
    const pod = this.pods.get(name);
    if (!pod) return 'pod_not_found';
    const mark = Math.max(this.times.drainingTtlMs, waitMs > 0 ? waitMs + 30_000 : 0);
    const before = pod.drain === undefined || pod.drain === Number.POSITIVE_INFINITY ? 0 : pod.drain;
    pod.drain = Math.max(this.now + mark, before);
    this.#settle(pod);
    return { activeCalls: pod.calls.size, untilMs: pod.drain };
  }

  undrain(name: string): { activeCalls: number; blockedBy: string } | string {
    const pod = this.pods.get(name);
    if (!pod) return 'pod_not_found';
    pod.drain = undefined;
    this.#settle(pod);
    return { activeCalls: pod.calls.size, blockedBy: pod.suspended };
  }

  // --- The leader's operations ---

  register(request: PodRequest, candidates: readonly { pool: PoolId; target: number }[], last: PoolId) {
    const { name } = request;
    let pod = this.pods.get(name);
    let lostCalls: string[] = [];
    if (pod && pod.uid !== '' && request.uid !== '' && pod.uid !== request.uid) {
      lostCalls = this.#forget(pod);
      pod = undefined;
    }
    let pool = request.pool;
    if (pool === '') {
      const open = candidates.find((candidate) => this.podsOf(candidate.pool).length < candidate.target);
      pool = pod && parseKind(this.pools.get(pod.pool)).kind ? pod.pool : (open?.pool ?? last);
    }
    let outcome = 'known';
    if (!pod) {
      outcome = 'new';
      const { mustReport } = request;
      pod = {
        name,
        pool,
        uid: '',
        drain: undefined,
        suspended: '',
        mustReport,
        calls: new Map(),
        listed: 'no',
      };
      this.pods.set(name, pod);
    } else {
      const { kind, max } = parseKind(this.pools.get(pool));
      if (pool !== pod.pool && pod.calls.size > (kind ? max : 1)) {
        pool = pod.pool;
        outcome = 'waiting';
      } else if (pool !== pod.pool) {
        outcome = 'moved';
        this.#leave(pod);
        pod.pool = pool;
        pod.listed = 'no';
        for (const [sid, deadline] of pod.calls) this.#indexOf(pool).set(sid, deadline);
      }
    }
    const unknown = !parseKind(this.pools.get(pool)).kind;
    if (outcome !== 'waiting' && pool.startsWith('merchant:') && unknown) this.pools.set(pool, 'label');
    pod.suspended = request.suspended || (pod.mustReport ? 'awaiting_report' : '');
    if (request.uid !== '') pod.uid = request.uid;
    this.#settle(pod);
    return { podName: name, outcome, pool, lostCalls };
  }

  suspend(name: string, reason: string): number {
    const pod = this.pods.get(name);
    if (!pod) return -1;
    pod.suspended = reason;
    this.#settle(pod);
    return pod.calls.size;
  }

  remove(name: string): string[] {
    const pod = this.pods.get(name);
    return pod ? this.#forget(pod) : [];
  }

  sweepCalls(pool: PoolId): { callsEnded: number } {
    let callsEnded = 0;
    for (const sid of this.#expired(pool)) callsEnded += this.#reclaim(sid, pool);
    return { callsEnded };
  }

  /** `unsure`: how many of the pods could have been counted either way. */
  sweepPods(pool: PoolId): { callsEnded: number; putBack: number; takenOut: number; unsure: number } {
    const total = { callsEnded: 0, putBack: 0, takenOut: 0, unsure: 0 };
    for (const pod of this.podsOf(pool)) {
      const ended = this.#endExpired(pod);
      const before = pod.listed;
      this.#settle(pod);
      total.callsEnded += ended;
      if (before === 'maybe') total.unsure++;
      else if (before === 'yes' && pod.listed === 'no') total.takenOut++;
      else if (before === 'no' && pod.listed === 'yes' && ended === 0) total.putBack++;
    }
    return total;
  }

  /** The number of pools that changed, or `conflict`. */
  setTiers(kinds: ReadonlyMap<PoolId, string>): number | 'conflict' {
    const old = new Map(this.pools);
    const plan: { pool: PoolId; from: PoolId }[] = [];
    for (const [pool, value] of kinds) {
      const twin: PoolId = pool.startsWith('pool:') ? `merchant:${pool.slice(5)}` : `pool:${pool.slice(9)}`;
      const comes = !old.has(pool) && old.has(twin) && old.get(twin) !== 'label' && !kinds.has(twin);
      const from = comes ? twin : pool;
      const { kind } = parseKind(value);
      const otherKind = old.has(pool) && parseKind(old.get(pool)).kind !== kind;
      if (from === pool && !otherKind) continue;
      if (kind === 'exclusive' && this.podsOf(from).some((pod) => pod.calls.size > 1)) return 'conflict';
      plan.push({ pool, from });
    }
    let changed = 0;
    for (const [pool, value] of kinds) {
      if (old.get(pool) !== value) changed++;
      this.pools.set(pool, value);
    }
    for (const [pool, value] of old) {
      if (kinds.has(pool) || value === 'label' || value === 'gone') continue;
      changed++;
      for (const pod of this.podsOf(pool)) pod.listed = 'no';
      if (this.podsOf(pool).length === 0 && this.#indexOf(pool).size === 0) this.pools.delete(pool);
      else this.pools.set(pool, 'gone');
    }
    for (const { pool, from } of plan) {
      if (from !== pool) {
        this.pools.delete(from);
        for (const [sid, deadline] of this.#indexOf(from)) this.#indexOf(pool).set(sid, deadline);
        this.index.delete(from);
        for (const pod of this.podsOf(from)) pod.pool = pool;
      }
      for (const pod of this.podsOf(pool)) {
        pod.listed = 'no';
        this.#settle(pod);
      }
    }
    return changed;
  }

  // --- What they are made of ---

  podsOf(pool: PoolId): ModelPod[] {
    return [...this.pods.values()].filter((pod) => pod.pool === pool);
  }

  blockOf(pod: ModelPod): string {
    return pod.suspended || (pod.drain !== undefined && pod.drain > this.now ? 'draining' : '');
  }

  #pod(name: string): ModelPod {
    const pod = this.pods.get(name);
    if (!pod) throw new Error(`the model has no pod ${name}`);
    return pod;
  }

  #indexOf(pool: PoolId): Map<string, number> {
    const index = this.index.get(pool) ?? new Map<string, number>();
    this.index.set(pool, index);
    return index;
  }

  #expired(pool: PoolId): string[] {
    return inOrder(this.#indexOf(pool)).flatMap(([sid, deadline]) => (deadline <= this.now ? [sid] : []));
  }

  #hold(sid: string, pod: ModelPod, deadline: number): void {
    pod.calls.set(sid, deadline);
    this.#indexOf(pod.pool).set(sid, deadline);
  }

  #moveLease(sid: string, name: string, deadline: number): void {
    this.#hold(sid, this.#pod(name), deadline);
  }

  #endCall(sid: string, pod: ModelPod): void {
    pod.calls.delete(sid);
    this.#indexOf(pod.pool).delete(sid);
    this.records.delete(sid);
    this.tombstones.set(sid, this.now + this.times.reportGraceMs);
  }

  /** The entry of a call that lives on another pod goes alone. */
  #dropLeftover(sid: string, pod: ModelPod): boolean {
    const owner = this.records.get(sid)?.pod;
    if (owner === undefined || owner === pod.name) return false;
    pod.calls.delete(sid);
    if (this.pods.get(owner)?.pool !== pod.pool) this.#indexOf(pod.pool).delete(sid);
    return true;
  }

  #endExpired(pod: ModelPod): number {
    let ended = 0;
    for (const [sid, deadline] of inOrder(pod.calls)) {
      if (this.#dropLeftover(sid, pod)) continue;
      if (this.records.has(sid) && deadline > this.now) continue;
      this.#endCall(sid, pod);
      ended++;
    }
    return ended;
  }

  #reclaim(sid: string, pool: PoolId): number {
    const owner = this.pods.get(this.records.get(sid)?.pod ?? '');
    let ended = 0;
    if (owner?.pool === pool) {
      ended = this.#endExpired(owner);
      this.#settle(owner);
    }
    const left = owner?.pool === pool ? owner.calls.get(sid) : undefined;
    if (left === undefined) this.#indexOf(pool).delete(sid);
    else this.#indexOf(pool).set(sid, left);
    return ended;
  }

  #settle(pod: ModelPod): void {
    const { kind } = parseKind(this.pools.get(pod.pool));
    if (!kind) return;
    const can = this.blockOf(pod) === '' && (kind === 'shared' || pod.calls.size === 0);
    pod.listed = can ? 'yes' : 'no';
  }

  #take(pool: PoolId, answer: Allocation | undefined, problems: string[]): ModelPod | undefined {
    const { kind, max } = parseKind(this.pools.get(pool));
    const members = this.podsOf(pool).filter((pod) => pod.listed !== 'no');
    const able = members.filter((pod) => this.blockOf(pod) === '' && pod.calls.size < max);
    const sure = able.filter((pod) => pod.listed === 'yes');
    const given = answer?.sourcePool === pool ? able.find((pod) => pod.name === answer.podName) : undefined;
    if (!given && sure.length > 0) {
      problems.push(
        `gave ${answer?.podName ?? 'nothing'}, not one of ${sure.map(({ name }) => name)} of ${pool}`,
      );
    }
    const least = Math.min(...sure.map((pod) => pod.calls.size));
    if (given?.listed === 'yes' && given.calls.size > least) {
      problems.push(`gave ${given.name} with ${given.calls.size} calls, another of ${pool} has ${least}`);
    }
    for (const pod of members) {
      if (!able.includes(pod)) pod.listed = 'maybe';
      else if (!given && kind === 'exclusive' && pod.listed === 'maybe') pod.listed = 'no';
    }
    return given;
  }

  #leave(pod: ModelPod): void {
    const { pool } = pod;
    for (const sid of [...pod.calls.keys()]) {
      if (!this.#dropLeftover(sid, pod)) this.#indexOf(pool).delete(sid);
    }
    const value = this.pools.get(pool);
    const empty = this.podsOf(pool).every((other) => other === pod) && this.#indexOf(pool).size === 0;
    if (empty && (value === 'gone' || value === 'label')) this.pools.delete(pool);
  }

  #forget(pod: ModelPod): string[] {
    const lost = inOrder(pod.calls).flatMap(([sid]) => (this.#dropLeftover(sid, pod) ? [] : [sid]));
    for (const sid of lost) this.#endCall(sid, pod);
    this.#leave(pod);
    this.pods.delete(pod.name);
    return lost;
  }

  #score(pod: ModelPod): number {
    return parseKind(this.pools.get(pod.pool)).kind === 'shared' ? pod.calls.size : 0;
  }

  // --- Comparison with the store ---

  differences(keyspace: Keyspace): string[] {
    const state = parseState(keyspace, this.now);
    // The score of a shared pod is its load; in a set everybody has 0, as has a free exclusive pod.
    const score = (pod: ModelPod) => state.pools.get(pod.pool)?.available.get(pod.name);
    const expectedScore = (pod: ModelPod) => (pod.listed === 'yes' ? this.#score(pod) : undefined);
    return [
      ...same(
        [...state.pools.values()].map(({ id, value }) => [id, value ?? '']),
        [...this.pools],
        'pools',
      ),
      ...same([...state.pods.keys()], [...this.pods.keys()], 'pods'),
      ...same([...state.records.keys()], [...this.records.keys()], 'call records'),
      ...[...this.pods.values()].flatMap((pod) => {
        const real = state.pods.get(pod.name);
        const drain = pod.drain === Number.POSITIVE_INFINITY ? 'by hand' : pod.drain?.toFixed(0);
        const mark = real?.drainingUntil;
        return [
          ...same(real?.pool, pod.pool, `pool of ${pod.name}`),
          ...same([...(real?.calls ?? [])], [...pod.calls], `calls of ${pod.name}`),
          ...same(real?.suspended, pod.suspended, `suspension of ${pod.name}`),
          ...same(mark && isMarkByHand(mark) ? 'by hand' : mark, drain, `draining mark of ${pod.name}`),
          ...same(real?.fields.get('uid') ?? '', pod.uid, `uid of ${pod.name}`),
          ...(pod.listed === 'maybe'
            ? []
            : same(score(pod), expectedScore(pod), `score of ${pod.name} in available of ${pod.pool}`)),
        ];
      }),
      ...[...this.records].flatMap(([sid, record]) => {
        const real = state.records.get(sid);
        return same(
          [real?.get('pod_name'), real?.get('fence'), real?.get('source_pool'), real?.get('allocated_at')],
          [record.pod, String(record.fence), record.pool, record.allocatedAt],
          `record of ${sid}`,
        );
      }),
      ...[...state.pools.values()].flatMap(({ id, index }) =>
        same([...index], [...this.#indexOf(id as PoolId)], `index of ${id}`),
      ),
      ...[...this.tombstones].flatMap(([sid, until]) =>
        until > this.now ? same(state.tombstones.get(sid), until, `tombstone of ${sid}`) : [],
      ),
    ];
  }
}

/** As a sorted set gives them: by deadline, then by name. */
function inOrder(calls: ReadonlyMap<string, number>): [string, number][] {
  return [...calls].sort(([a, x], [b, y]) => x - y || (a < b ? -1 : 1));
}

/** Lists are compared as sets: no operation promises an order. */
function same(actual: unknown, expected: unknown, what = 'answer'): string[] {
  const a = JSON.stringify(canonical(actual));
  const b = JSON.stringify(canonical(expected));
  return a === b ? [] : [`${what}: expected ${b}, got ${a}`];
}

function canonical(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(canonical).sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
  }
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(
      Object.entries(value)
        .map(([key, inner]) => [key, canonical(inner)] as const)
        .sort(([a], [b]) => (a < b ? -1 : 1)),
    );
  }
  return value;
}

// --- Operations as data, so that a counterexample shrinks and prints well ---

const podNames = ['a', 'b', 'c', 'd', 'e'] as const;
const sids = ['C1', 'C2', 'C3', 'C4', 'C5', 'C6', 'C7'] as const;
const poolIds: readonly PoolId[] = ['pool:gold', 'pool:basic', 'merchant:vip', 'merchant:acme', 'pool:vip'];
const chains: readonly (readonly PoolId[])[] = [
  ['pool:gold', 'pool:basic'],
  ['pool:basic'],
  ['pool:gold'],
  ['merchant:vip', 'pool:gold', 'pool:basic'],
  ['merchant:acme', 'merchant:vip', 'pool:vip'],
  ['pool:nowhere', 'pool:vip', 'pool:basic', 'pool:gold'],
  [],
];

const gold = { type: 'exclusive', target: 2 };
const vip = { type: 'exclusive', target: 1 };
const shared = (max_concurrent: number) => ({ type: 'shared', target: 2, max_concurrent });
/** The first is what a run starts with. Then: limits, types, a tier gone, into and out of the chain. */
const tierConfigs = [
  { tiers: { gold, basic: shared(3), vip }, default_chain: ['gold', 'basic'] },
  { tiers: { gold, basic: shared(1), vip }, default_chain: ['gold', 'basic'] },
  { tiers: { gold, basic: shared(5), vip }, default_chain: ['basic', 'gold'] },
  { tiers: { gold: shared(2), basic: shared(2), vip }, default_chain: ['gold', 'basic'] },
  { tiers: { gold, basic: gold, vip: shared(2) }, default_chain: ['gold', 'basic', 'vip'] },
  { tiers: { gold, basic: shared(3), vip }, default_chain: ['gold', 'basic', 'vip'] },
  { tiers: { basic: shared(3), vip }, default_chain: ['basic'] },
  { tiers: { gold }, default_chain: ['gold'] },
].map((input) => {
  const { config } = parseTierConfig(input);
  if (!config) throw new Error('the tiers of the model are wrong');
  const pools = poolsOf(config);
  return {
    input,
    text: serializeTierConfig(config),
    kinds: new Map(
      pools.map(({ id, kind, maxConcurrent }) => [id, kind === 'shared' ? `shared:${maxConcurrent}` : kind]),
    ),
    candidates: [...pools]
      .sort((a, b) => Number(b.id < 'n') - Number(a.id < 'n'))
      .map((spec) => ({
        pool: spec.id,
        target: spec.target,
      })),
    last: `pool:${config.defaultChain.at(-1)}` as PoolId,
  };
});

const one = <T>(...values: T[]) => fc.constantFrom(...values);
const fence = one<Fence>('none', 'right', 'stale');
const op = <K extends string, T extends object>(kind: K, fields: { [F in keyof T]: fc.Arbitrary<T[F]> }) =>
  fc.record({ op: fc.constant(kind), ...fields }, { noNullPrototype: true }) as unknown as fc.Arbitrary<
    { op: K } & T
  >;

const allocate = op('allocate', { sid: one(...sids), chain: fc.nat(chains.length - 1) });
const advance = op('advance', {
  ms: one(1, 1000, 29_999, 30_000, 60_000, 330_001, 360_000, 870_000, 899_999, 900_000),
});
const release = op('release', { sid: one(...sids), fence });
const renew = op('renew', { sid: one(...sids), fence });
const report = op('report', {
  pod: one(...podNames, 'ghost'),
  own: fc.boolean(),
  sids: fc.array(one(...sids), { maxLength: 3 }),
  uid: one('', 'u1', 'u2'),
});
const register = op('register', {
  pod: one(...podNames),
  uid: one('', 'u1', 'u1', 'u2'),
  pool: one<PoolId | ''>('', '', ...poolIds),
  suspended: one<PodRequest['suspended']>('', '', '', 'terminating', 'not_ready'),
  mustReport: one(false, false, true),
});
const tamper = op('tamper', {
  how: one('del call', 'del call', 'del draining', 'set draining', 'del available', 'put', 'put', 'score'),
  pod: one(...podNames, 'ghost'),
  sid: one(...sids),
});

export const anyOp = fc.oneof(
  { weight: 12, arbitrary: allocate },
  { weight: 5, arbitrary: advance },
  { weight: 4, arbitrary: release },
  { weight: 3, arbitrary: renew },
  { weight: 5, arbitrary: report },
  { weight: 4, arbitrary: register },
  { weight: 3, arbitrary: op('drain', { pod: one(...podNames, 'ghost'), waitMs: one(0, 0, 600_000) }) },
  { weight: 2, arbitrary: op('undrain', { pod: one(...podNames, 'ghost') }) },
  { weight: 1, arbitrary: op('unclaimed', { sid: one(...sids), fence }) },
  { weight: 2, arbitrary: op('suspend', { pod: one(...podNames), reason: one('terminating', 'not_ready') }) },
  { weight: 1, arbitrary: op('remove', { pod: one(...podNames, 'ghost') }) },
  { weight: 3, arbitrary: op('sweep', { pool: one<PoolId | 'all'>('all', 'all', ...poolIds) }) },
  { weight: 2, arbitrary: op('tiers', { config: fc.nat(tierConfigs.length - 1) }) },
  { weight: 4, arbitrary: tamper },
  {
    weight: 1,
    arbitrary: op('old leader', { write: one('register', 'suspend', 'remove', 'sweep'), pod: one('a', 'c') }),
  },
);
export type Op = typeof anyOp extends fc.Arbitrary<infer T> ? T : never;

export interface Scenario {
  noShowTimeoutMs: number;
  ops: Op[];
}

export const anyScenario: fc.Arbitrary<Scenario> = fc.record(
  {
    noShowTimeoutMs: one(0, 0, 60_000),
    ops: fc.array(anyOp, { minLength: 1, maxLength: 45, size: 'max' }),
  },
  { noNullPrototype: true },
);

// --- A run: the same operations on the model and on the store ---

type Fence = 'none' | 'right' | 'stale';

/** `rewire` may change the store before the first operation: that is how broken scripts get in. */
export async function runScenario(
  engine: { url: string; redis: Redis },
  scenario: Scenario,
  rewire: (store: TestStore) => void = () => {},
): Promise<void> {
  await engine.redis.flushall();
  const first = tierConfigs[0];
  if (!first) throw new Error('no tiers');
  const times = { ...testTimes, noShowTimeoutMs: scenario.noShowTimeoutMs };
  const store = await openStore(engine.url, { virtualTime: true, tiers: first.input, times });
  try {
    rewire(store);
    const run = new Run(engine.redis, store, new Model(times));
    run.model.setTiers(first.kinds);
    const homes: PoolId[] = ['pool:gold', 'pool:gold', 'pool:basic', 'pool:basic', 'merchant:vip'];
    for (const [i, pod] of podNames.entries()) {
      const pool = homes[i] ?? '';
      await run.step({ op: 'register', pod, pool, uid: '', suspended: '', mustReport: false });
    }
    for (const step of scenario.ops) await run.step(step);
    await run.finish();
  } finally {
    store.close();
  }
}

class Run {
  #tiers = tierConfigs[0] as (typeof tierConfigs)[number];
  #tampered = false;
  #maxLowered = false;
  readonly #fences = new Map<string, number[]>();

  constructor(
    readonly redis: Redis,
    readonly store: TestStore,
    readonly model: Model,
  ) {}

  async step(step: Op): Promise<void> {
    const problems = await this.#do(step);
    this.#tick();
    const settled = step.op === 'sweep' && step.pool === 'all';
    if (settled) this.#tampered = false;
    const keyspace = await readKeyspace(this.redis);
    problems.push(
      ...this.model.differences(keyspace).map((text) => `model: ${text}`),
      ...violations(keyspace, {
        nowMs: this.model.now,
        settled,
        tampered: this.#tampered,
        maxLowered: this.#maxLowered,
      }).map((text) => `invariant: ${text}`),
    );
    if (problems.length > 0) throw new Error(`after ${JSON.stringify(step)}:\n  ${problems.join('\n  ')}`);
  }

  /** Liveness: a lease and a sweep later no call is left, and every pod that nobody blocks is available. */
  async finish(): Promise<void> {
    await this.step({ op: 'sweep', pool: 'all' });
    await this.step({ op: 'advance', ms: this.model.times.leaseTtlMs });
    await this.step({ op: 'sweep', pool: 'all' });
    const { activeCalls } = await this.store.calls.snapshot();
    const busy = [...this.model.pods.values()].filter((pod) => pod.calls.size > 0);
    if (activeCalls > 0 || busy.length > 0)
      throw new Error(`8: ${activeCalls} calls outlived lease and sweep`);
  }

  #tick(): void {
    this.model.now = this.store.nowMs();
  }

  #fence(sid: string, which: Fence): number | undefined {
    const current = this.model.records.get(sid)?.fence;
    const past = this.#fences.get(sid) ?? [];
    if (which === 'none') return undefined;
    if (which === 'right') return current ?? past.at(-1) ?? 1;
    return past.filter((value) => value !== current).at(-1) ?? 7;
  }

  #remember(sid: string, value: number): void {
    this.#fences.set(sid, [...(this.#fences.get(sid) ?? []), value]);
  }

  async #do(step: Op): Promise<string[]> {
    const { model, store } = this;
    const { calls, pools, epoch } = store;
    this.#tick();
    switch (step.op) {
      case 'allocate': {
        const chain = chains[step.chain] ?? [];
        const answer = await store.allocate(step.sid, chain);
        if (answer && !answer.wasExisting) this.#remember(step.sid, answer.fence);
        return model.allocate(step.sid, chain, answer);
      }
      case 'release': {
        const value = this.#fence(step.sid, step.fence);
        return same(await code(calls.release(step.sid, value)), model.release(step.sid, value));
      }
      case 'unclaimed': {
        const value = this.#fence(step.sid, step.fence) ?? 1;
        return same(await calls.releaseUnclaimed(step.sid, value), model.releaseUnclaimed(step.sid, value));
      }
      case 'renew': {
        const value = this.#fence(step.sid, step.fence);
        return same(await code(calls.renew(step.sid, value)), model.renew(step.sid, value));
      }
      case 'report': {
        const own = step.own ? (model.pods.get(step.pod)?.calls.keys() ?? []) : [];
        const reported = [...own, ...step.sids];
        const answer = await code(calls.report(step.pod, reported, step.uid));
        if (typeof answer !== 'string') {
          for (const sid of answer.adopted) this.#remember(sid, answer.fences[sid] ?? 0);
        }
        return model.report(step.pod, reported, step.uid, answer);
      }
      case 'drain':
        return same(await code(calls.drain(step.pod, step.waitMs)), model.drain(step.pod, step.waitMs));
      case 'undrain':
        return same(await code(calls.undrain(step.pod)), model.undrain(step.pod));
      case 'register': {
        const { candidates, last } = this.#tiers;
        // A plain pool is only ever asked for while the configuration has it.
        const exists = step.pool.startsWith('merchant:') || this.#tiers.kinds.has(step.pool as PoolId);
        const request: PodRequest = { ...step, name: step.pod, pool: exists ? step.pool : '' };
        const { uid, suspended, mustReport } = request;
        const asked = registration(step.pod, request.pool || undefined, { uid, suspended, mustReport });
        const answer = await pools.register(epoch, [asked], { candidates, last });
        return same(answer, [model.register(request, candidates, last)]);
      }
      case 'suspend':
        return same(await pools.suspend(epoch, step.reason as 'not_ready', [step.pod]), [
          model.suspend(step.pod, step.reason),
        ]);
      case 'remove': {
        const answer = await pools.remove(epoch, [step.pod], 'test');
        return same(answer, [{ podName: step.pod, lostCalls: model.remove(step.pod) }]);
      }
      case 'sweep': {
        const all = (await calls.snapshot()).pools.map(({ pool }) => pool);
        const problems: string[] = [];
        for (const pool of step.pool === 'all' ? all : all.filter((id) => id === step.pool)) {
          problems.push(...(await this.#sweep(pool)));
        }
        return problems;
      }
      case 'tiers': {
        const tiers = tierConfigs[step.config] ?? this.#tiers;
        const args = [tiers.text, 'replace', '', 'test', ...[...tiers.kinds].flat()];
        const [result, , changed] = (await store.connection.run('setTiers', args)) as [
          string,
          unknown,
          number,
        ];
        const expected = model.setTiers(tiers.kinds);
        this.#maxLowered = true;
        if (result === 'ok') this.#tiers = tiers;
        return same(result === 'ok' ? changed : result, expected);
      }
      case 'advance':
        store.advance(step.ms);
        return [];
      case 'old leader':
        return this.#oldLeader(step.write, step.pod);
      case 'tamper':
        this.#tampered = true;
        await this.#tamper(step.how, step.pod, step.sid);
        return [];
    }
  }

  async #sweep(pool: PoolId): Promise<string[]> {
    const { model, store } = this;
    const batch = async (phase: 'calls' | 'pods' | 'available') => {
      this.#tick();
      return store.pools.sweep(store.epoch, pool, phase, '0', 1000);
    };
    const ended = (await batch('calls')).callsEnded;
    const problems = same(ended, model.sweepCalls(pool).callsEnded, `calls ended in ${pool}`);
    const pods = await batch('pods');
    const expected = model.sweepPods(pool);
    problems.push(...same(pods.callsEnded, expected.callsEnded, `calls ended on pods of ${pool}`));
    for (const [what, actual, least] of [
      ['put back', pods.podsPutBack, expected.putBack],
      ['taken out', pods.podsTakenOut, expected.takenOut],
    ] as const) {
      if (actual < least || actual > least + expected.unsure) {
        problems.push(
          `sweep of ${pool}: expected ${least} (+${expected.unsure}) pods ${what}, got ${actual}`,
        );
      }
    }
    await batch('available');
    return problems;
  }

  async #oldLeader(write: string, pod: string): Promise<string[]> {
    const { pools } = this.store;
    const old = '1700000000000000';
    const writes: Record<string, () => Promise<unknown>> = {
      register: () =>
        pools.register(old, [registration(pod, 'pool:gold')], { candidates: [], last: 'pool:gold' }),
      suspend: () => pools.suspend(old, 'not_ready', [pod]),
      remove: () => pools.remove(old, [pod], 'test'),
      sweep: () => pools.sweep(old, 'pool:gold', 'pods', '0', 100),
    };
    try {
      await writes[write]?.();
    } catch (error) {
      if (error instanceof EpochRefused) return [];
      throw error;
    }
    return [`9: the ${write} of an older leader was accepted`];
  }

  async #tamper(how: string, name: string, sid: string): Promise<void> {
    const { model, redis } = this;
    const pod = model.pods.get(name);
    const pool = pod?.pool ?? 'pool:basic';
    const { kind } = parseKind(model.pools.get(pool));
    const available = `voice:${pool}${pool.startsWith('merchant:') ? ':pods' : ':available'}`;
    if (how === 'del call') {
      await redis.del(`voice:call:${sid}`);
      model.records.delete(sid);
    } else if (how === 'del draining') {
      await redis.del(`voice:pod:draining:${name}`);
      if (pod) pod.drain = undefined;
    } else if (how === 'set draining' && pod) {
      await redis.set(`voice:pod:draining:${name}`, name < 'c' ? '1' : 'by hand');
      pod.drain = Number.POSITIVE_INFINITY;
    } else if (how === 'del available' && pod) {
      await redis.del(available);
      for (const other of model.podsOf(pool)) other.listed = 'no';
    } else if (how === 'put' && kind) {
      if (kind === 'shared') await redis.zadd(available, pod?.calls.size ?? 0, name);
      else await redis.sadd(available, name);
      if (pod) pod.listed = 'yes';
    } else if (how === 'score' && kind === 'shared') {
      await redis.zadd(available, 0, name);
      if (pod) pod.listed = 'maybe';
    }
  }
}

/** The answer, or the code of the error that a caller would see. */
async function code<T>(answer: Promise<T>): Promise<T | string> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof AppError) return error.code;
    throw error;
  }
}

/** How often a property runs: `PROPERTY_RUNS` replaces the number given here. */
export function propertyRuns(fallback: number): number {
  const wanted = Number(process.env.PROPERTY_RUNS ?? '');
  return wanted > 0 ? wanted : fallback;
}
