/** Operations as data, so that a counterexample shrinks and prints well. */
import fc from 'fast-check';
import { type PoolId, parseTierConfig, poolsOf, serializeTierConfig } from '../../../src/config/tiers.js';
import type { PodRequest } from './model.js';

/** Which fence a caller sends: none, that of the call, or one of an earlier allocation. */
export type Fence = 'none' | 'right' | 'stale';

export const podNames = ['a', 'b', 'c', 'd', 'e'] as const;
export const sids = ['C1', 'C2', 'C3', 'C4', 'C5', 'C6', 'C7'] as const;
const poolIds: readonly PoolId[] = ['pool:gold', 'pool:basic', 'merchant:vip', 'merchant:acme', 'pool:vip'];
export const chains: readonly (readonly PoolId[])[] = [
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
export const tierConfigs = [
  { tiers: { gold, basic: shared(2), vip }, default_chain: ['gold', 'basic'] },
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
/** Who calls: of which merchant, in which queue it waits, and by which rules. The second has no configuration. */
export const askers = [
  { merchant: '', queue: '', priority: 0, weight: 1, chain: 0 },
  { merchant: 'one', queue: '', priority: 0, weight: 1, chain: 0 },
  { merchant: 'one', queue: 'one', priority: 0, weight: 2, chain: 2 },
  { merchant: 'two', queue: 'two', priority: 5, weight: 1, chain: 1 },
  { merchant: 'six', queue: 'six', priority: 0, weight: 1, chain: 0 },
];
const ask = op('ask', {
  sid: one(...sids),
  asker: fc.nat(askers.length - 1),
  waits: one(true, true, true, false),
});
const advance = op('advance', {
  ms: one(
    1,
    1000,
    14_999,
    15_000,
    20_000,
    29_999,
    30_000,
    60_000,
    330_001,
    360_000,
    870_000,
    899_999,
    900_000,
  ),
});
const release = op('release', { sid: one(...sids), fence, failed: one(false, false, true) });
const renew = op('renew', { sid: one(...sids), fence });
const report = op('report', {
  pod: one(...podNames, 'ghost'),
  own: fc.boolean(),
  sids: fc.array(one(...sids), { maxLength: 3 }),
  uid: one('', 'u1', 'u2'),
  intervalMs: one(undefined, 1000, 10_000, 60_000),
  /** When it was written: unknown, now, or before the last failover. */
  written: one<undefined | 'now' | 'before'>(undefined, undefined, 'now', 'now', 'before'),
});
const register = op('register', {
  pod: one(...podNames),
  uid: one('', 'u1', 'u1', 'u2'),
  pool: one<PoolId | ''>('', '', ...poolIds),
  suspended: one<PodRequest['suspended']>('', '', '', 'terminating', 'not_ready'),
  mustReport: one(false, false, true),
  idleGoes: one(false, false, false, false, false, true),
  idleStays: one(false, true),
  restarts: one(undefined, undefined, 0, 0, 1, 2),
  ended: one(false, false, false, true),
  /** How long the container has been running; undefined: it does not run. */
  runsForMs: one(undefined, 0, 1000, 60_000, 900_000),
});
const tamper = op('tamper', {
  how: one('del call', 'del draining', 'set draining', 'del available', 'put', 'put', 'score', 'score'),
  pod: one(...podNames, 'ghost'),
  sid: one(...sids),
});

const anyOp = fc.oneof(
  { weight: 15, arbitrary: allocate },
  { weight: 12, arbitrary: ask },
  {
    weight: 3,
    arbitrary: op('serve', {
      changed: one(undefined, undefined, ...askers.keys()),
      chain: fc.nat(4),
      priority: one(0, 5),
    }),
  },
  { weight: 1, arbitrary: op('refresh', { sid: one(...sids) }) },
  { weight: 2, arbitrary: op('limit', { merchant: one('one', 'two', 'six'), max: one(undefined, 1, 1, 2) }) },
  { weight: 5, arbitrary: advance },
  { weight: 4, arbitrary: release },
  { weight: 3, arbitrary: renew },
  { weight: 5, arbitrary: report },
  { weight: 4, arbitrary: register },
  {
    weight: 3,
    arbitrary: op('drain', {
      pod: one(...podNames, 'ghost'),
      waitMs: one(0, 0, 600_000),
      uid: one('', 'u1', 'u2'),
    }),
  },
  { weight: 2, arbitrary: op('undrain', { pod: one(...podNames, 'ghost'), uid: one('', 'u1', 'u2') }) },
  { weight: 1, arbitrary: op('unclaimed', { sid: one(...sids), fence }) },
  {
    weight: 2,
    arbitrary: op('suspend', {
      pod: one(...podNames),
      reason: one('terminating', 'not_ready', 'unconfirmed'),
    }),
  },
  // This pod reports, and again after a while; then the leader looks for pods that did not.
  { weight: 2, arbitrary: op('silence', { pod: one(...podNames), ms: one(14_999, 15_000, 40_000) }) },
  // Five calls in a row that fail; then the leader ends expired set-backs.
  {
    weight: 1,
    arbitrary: op('failures', {
      chain: fc.nat(chains.length - 1),
      how: one('short', 'refused', 'some refused'),
    }),
  },
  { weight: 1, arbitrary: op('cool', {}) },
  { weight: 2, arbitrary: op('failover', {}) },
  { weight: 1, arbitrary: op('confirm', {}) },
  { weight: 1, arbitrary: op('remove', { pod: one(...podNames, 'ghost') }) },
  { weight: 3, arbitrary: op('sweep', { pool: one<PoolId | 'all'>('all', 'all', ...poolIds) }) },
  { weight: 2, arbitrary: op('tiers', { config: fc.nat(tierConfigs.length - 1) }) },
  { weight: 6, arbitrary: tamper },
  {
    weight: 1,
    arbitrary: op('old leader', {
      write: one('register', 'suspend', 'remove', 'silence', 'sweep'),
      pod: one('a', 'c'),
    }),
  },
);
export type Op = typeof anyOp extends fc.Arbitrary<infer T> ? T : never;

/** What most registrations say. */
export const plainRegister = {
  op: 'register' as const,
  uid: '',
  pool: '' as PoolId | '',
  suspended: '' as const,
  mustReport: false,
  idleGoes: false,
  idleStays: false,
  restarts: undefined as number | undefined,
  ended: false,
  runsForMs: undefined as number | undefined,
};

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
