/**
 * Explain runs allocate on an overlay of the store: on random states it must say what an allocate at the same moment then
 * does, and write nothing. `PROPERTY_RUNS` sets the number of scenarios per engine.
 */
import fc from 'fast-check';
import type { Redis } from 'ioredis';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Reply } from '../../../src/calls/store/connection.js';
import type { AllocateOutcome, Explanation } from '../../../src/calls/store/outcome.js';
import { scripts } from '../../../src/calls/store/scripts.generated.js';
import type { AllocateRequest } from '../../../src/calls/store/store.js';
import type { PoolId } from '../../../src/config/tiers.js';
import { AppError } from '../../../src/errors.js';
import { brokenText } from '../../support/broken-scripts.js';
import { describeEngines } from '../../support/engines.js';
import { propertyRuns } from '../../support/property-runs.js';
import { holdRules, openStore, registration, type TestStore } from '../../support/store.js';

const runs = propertyRuns(120);
const tiers = {
  tiers: {
    gold: { type: 'exclusive', target: 3 },
    basic: { type: 'shared', target: 2, max_concurrent: 2 },
    vip: { type: 'exclusive', target: 1 },
  },
  default_chain: ['gold', 'basic'],
};
const homes: Record<string, PoolId> = {
  a: 'pool:gold',
  b: 'pool:gold',
  c: 'pool:gold',
  d: 'pool:basic',
  e: 'pool:basic',
  f: 'merchant:vip',
};
const chains: readonly (readonly PoolId[])[] = [
  ['pool:gold', 'pool:basic'],
  ['pool:gold'],
  ['pool:basic'],
  ['merchant:vip', 'pool:gold', 'pool:basic'],
  ['merchant:none', 'pool:deleted', 'merchant:vip'],
  [],
];
const keys = [
  ...[
    'pool:gold:available',
    'pool:basic:available',
    'merchant:vip:pods',
    'pool:gold:assigned',
    'pool:gold:calls',
  ],
  ...['pod:calls:a', 'pod:calls:d', 'pod:a', 'lease:a', 'fence', 'flapping', 'drains', 'limits', 'limits:m1'],
  ...[
    'waiting:due',
    'waiting:calls:',
    'waiting:calls:m1',
    'waiting:queue:m1',
    'pool:gold:waiting',
    'call:C1',
  ],
];

const one = <T>(...values: T[]) => fc.constantFrom(...values);
const pod = one(...Object.keys(homes));
const sid = one('C1', 'C2', 'C3', 'C4', 'C5', 'C6', 'C7', 'C8', 'C9', '');
const merchant = one('', 'm1', 'm2');
const op = <K extends string, T extends object>(kind: K, fields: { [F in keyof T]: fc.Arbitrary<T[F]> }) =>
  fc.record({ op: fc.constant(kind), ...fields }, { noNullPrototype: true }) as unknown as fc.Arbitrary<
    { op: K } & T
  >;
const ask = op('ask', {
  sid,
  merchant,
  chain: fc.nat(chains.length - 1),
  holds: one(false, true, true),
  wasHeld: one(false, false, true),
  maxWaiting: one(1, 3, 1000),
  priority: one(0, 0, 5),
});
const anyOp = fc.oneof(
  { weight: 20, arbitrary: ask },
  { weight: 4, arbitrary: op('release', { sid, failed: fc.boolean() }) },
  { weight: 4, arbitrary: op('advance', { ms: one(1000, 15_000, 20_000, 60_000, 361_000, 900_000) }) },
  { weight: 2, arbitrary: op('drain', { pod }) },
  {
    weight: 3,
    arbitrary: op('suspend', { pod, reason: one('not_ready', 'terminating', 'unconfirmed', 'flapping') }),
  },
  { weight: 2, arbitrary: op('register', { pod }) },
  { weight: 1, arbitrary: op('remove', { pod }) },
  { weight: 3, arbitrary: op('limit', { merchant: one('m1', 'm2'), max: one<number | ''>('', 1, 2, 3) }) },
  { weight: 1, arbitrary: op('serve', {}) },
  { weight: 2, arbitrary: op('list', { pod, pool: one('pool:gold', 'pool:basic', 'merchant:vip') }) },
  { weight: 2, arbitrary: op('delete', { key: one(...keys) }) },
  { weight: 1, arbitrary: op('spoil', { key: one(...keys) }) },
);
type Op = typeof anyOp extends fc.Arbitrary<infer T> ? T : never;

const asks = (
  callSid: string,
  chain: number,
  more: Partial<Op & { op: 'ask' }> = {},
): Op & { op: 'ask' } => ({
  ...{
    op: 'ask',
    sid: callSid,
    merchant: '',
    chain,
    holds: false,
    wasHeld: false,
    maxWaiting: 1,
    priority: 0,
  },
  ...more,
});
/** Random scenarios contain each of these about once in ten thousand. */
const examples: [Op[]][] = [
  // A call that waited asks again when the pod that it was given is not ready.
  [
    [
      ...[
        asks('C1', 3),
        asks('C9', 4, { holds: true }),
        { op: 'release', sid: 'C1', failed: false } as const,
      ],
      ...[{ op: 'suspend', pod: 'f', reason: 'not_ready' } as const, asks('C9', 0)],
    ],
  ],
  // Allocate ends expired calls of a merchant at its limit while the list of waiting queues has a wrong type.
  [
    [
      { op: 'limit', merchant: 'm2', max: 2 },
      ...[asks('C1', 0, { merchant: 'm2' }), asks('C3', 0, { merchant: 'm2' })],
      asks('C6', 0, { merchant: 'm2', holds: true }),
      ...[{ op: 'spoil', key: 'pool:gold:waiting' } as const, { op: 'advance', ms: 900_000 } as const],
      ...[asks('C1', 0), { op: 'register', pod: 'a' } as const, asks('C2', 0, { merchant: 'm2' })],
    ],
  ],
  // Two waiting calls with one fence.
  [
    [
      { op: 'limit', merchant: 'm2', max: 3 },
      ...[asks('C1', 3), asks('C9', 0, { merchant: 'm2' }), asks('C2', 4, { holds: true })],
      ...[{ op: 'delete', key: 'fence' } as const, asks('C7', 4, { holds: true, maxWaiting: 3 })],
    ],
  ],
];

/** The value, or the code of the error. */
const codeOf = async <T>(answer: Promise<T>): Promise<T | string> => {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof AppError) return error.code;
    throw error;
  }
};

/** How many writes the store has counted. */
const writesOf = async (redis: Redis) =>
  /rdb_changes_since_last_save:(\d+)/.exec(await redis.info('persistence'))?.[1];

/** An exclusive pool gives any free pod; everything else must be the same. */
function comparable({ allocation, ...rest }: AllocateOutcome): object {
  if (!allocation) return rest;
  const isAny = homes[allocation.podName] !== 'pool:basic' && !allocation.wasExisting;
  return { allocation: { ...allocation, podName: isAny ? 'any' : allocation.podName } };
}

describeEngines('explain', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true, tiers });
  });
  afterEach(() => store.close());

  const request = (callSid: string, chain: readonly PoolId[], extra: Partial<AllocateRequest> = {}) => ({
    callSid,
    merchantId: '',
    provider: 'twilio',
    flow: 'v2',
    template: 'order-confirmation',
    chain,
    ...extra,
  });
  const setLimit = (id: string, max: number | '') =>
    store.connection.run('setMerchant', [id, '{}', 'test', max]);
  const explain = (chain: readonly PoolId[], extra: Partial<AllocateRequest> = {}) =>
    store.calls.explain(request('', chain, extra));

  async function compare(step: Op & { op: 'ask' }): Promise<void> {
    const { priority, maxWaiting } = step;
    const hold = step.holds ? holdRules({ queue: step.merchant, priority, maxWaiting }) : undefined;
    const wanted = { merchantId: step.merchant, hold, wasHeld: step.wasHeld };
    const chain = chains[step.chain] ?? [];
    // A call that waited may have its pod already: what has happened to the pod since does not matter.
    const had = await engine.redis.hget(`voice:call:${step.sid}`, 'pod_name').catch(() => null);
    const before = await writesOf(engine.redis);
    const told: Explanation | string = await codeOf(store.calls.explain(request(step.sid, chain, wanted)));
    expect(await writesOf(engine.redis)).toBe(before);
    const named = typeof told === 'string' ? undefined : told.outcome.allocation;
    const truth = ['tier', 'suspended'].map((part) => `voice:pod:${part}:${named?.podName}`);
    const [home, suspended] = await engine.redis.mget(truth);
    // Every script takes a microsecond: both run at the same one.
    store.advance(-0.001);
    const given = await codeOf(store.ask(step.sid || `new at ${store.nowMs()} ${before}`, chain, wanted));
    if (typeof told === 'string' || typeof given === 'string') return expect(told).toBe(given);
    expect(comparable(told.outcome)).toEqual(comparable(given));
    if (!named || named.wasExisting || had === named.podName) return;
    expect(home).toBe(named.sourcePool.replace('pool:', ''));
    expect([null, 'flapping']).toContain(suspended);
  }

  async function run(step: Op): Promise<unknown> {
    const { pools, calls, epoch } = store;
    switch (step.op) {
      case 'ask':
        return compare(step);
      case 'release':
        return codeOf(calls.release(step.sid, undefined, step.failed ? { reason: 'connect_failed' } : {}));
      case 'advance':
        return store.advance(step.ms);
      case 'drain':
        return codeOf(calls.drain(step.pod));
      case 'suspend': {
        if (step.reason !== 'flapping')
          return codeOf(pools.suspend(epoch, step.reason as 'not_ready', [step.pod]));
        await engine.redis.set(`voice:pod:suspended:${step.pod}`, 'flapping');
        return engine.redis.zadd('voice:flapping', store.nowMs() + 60_000, step.pod).catch(() => undefined);
      }
      case 'register':
        return codeOf(
          pools.register(epoch, [registration(step.pod, homes[step.pod])], {
            candidates: [],
            last: 'pool:gold',
          }),
        );
      case 'remove':
        return codeOf(pools.remove(epoch, [step.pod], 'test'));
      case 'limit':
        return codeOf(setLimit(step.merchant, step.max));
      case 'serve':
        return codeOf(store.waits.serve());
      case 'list': {
        const key = `voice:${step.pool}${step.pool.startsWith('merchant:') ? ':pods' : ':available'}`;
        const added =
          step.pool === 'pool:basic' ? engine.redis.zadd(key, 0, step.pod) : engine.redis.sadd(key, step.pod);
        return added.catch(() => undefined);
      }
      case 'delete':
        return engine.redis.del(`voice:${step.key}`);
      case 'spoil':
        await engine.redis.del(`voice:${step.key}`);
        return engine.redis.rpush(`voice:${step.key}`, 'not what it should be');
    }
  }

  const scenarios = (rewire: () => void = () => {}) =>
    fc.asyncProperty(fc.array(anyOp, { minLength: 10, maxLength: 60 }), async (steps) => {
      store.close();
      await engine.redis.flushall();
      store = await openStore(engine.url, { virtualTime: true, tiers });
      for (const [name, pool] of Object.entries(homes)) await store.register([name], pool);
      rewire();
      for (const step of steps) await run(step);
    });

  it(`agrees with the allocate that follows, over ${runs} random scenarios`, {
    timeout: 60_000 + runs * 1000,
  }, async () => {
    await fc.assert(scenarios(), { numRuns: runs, examples });
  });

  /** Explain with one line changed, at the same time as the allocate that follows. */
  const change = (line: string, becomes: string) => () => {
    const texts = {
      explain: brokenText({ script: 'explain', line, becomes }),
      allocate: scripts.allocate,
    };
    const { connection } = store;
    const plain = connection.run.bind(connection);
    connection.run = (name, args, operation) => {
      if (name !== 'explain' && name !== 'allocate') return plain(name, args, operation);
      const now = String(store.nowMs() * 1000);
      store.advance(0.001);
      return connection.command<Reply>(
        name,
        async (client) => (await client.eval(texts[name], 1, connection.keyPrefix, now, ...args)) as Reply,
      );
    };
  };

  it.each([
    ['removes nothing', 'if put(copy, key, member, false) then removed', 'if true then removed'],
    ['does not see its own writes', 'if value ~= nil then return value end', ''],
    ['ignores the limit', 'not has_room(ARGV[3], limit, ARGV[7])', 'false'],
    ['writes to the store', 'local redis = { call = run_or_raise, pcall = run }', ''],
  ])('the comparison notices an explain that %s', { timeout: 240_000 }, async (_, line, becomes) => {
    const unchanged = await fc.check(scenarios(change(line, line)), { numRuns: 5 });
    expect(String(unchanged.errorInstance ?? 'passed')).toBe('passed');
    const changed = await fc.check(scenarios(change(line, becomes)), { numRuns: 1000, endOnFailure: true });
    // In some states a changed script never ends.
    await engine.redis.script('KILL').catch(() => undefined);
    expect(changed.failed).toBe(true);
  });

  it('counts every pod of a step once, by the reason why it takes no call', async () => {
    const names = [
      'free',
      'busy',
      'drained',
      'unready',
      'ending',
      'silent',
      'held',
      'back',
      'lost',
      'broken',
    ];
    await store.register(names, 'pool:gold');
    const { redis } = engine;
    await redis.srem('voice:pool:gold:available', ...names.filter((name) => name !== 'busy'));
    await store.allocate('C1', ['pool:gold']);
    await store.calls.drain('drained');
    const reasons = { unready: 'not_ready', ending: 'terminating', silent: 'awaiting_report' };
    for (const [name, reason] of Object.entries({ ...reasons, held: 'unconfirmed', back: 'flapping' })) {
      await redis.set(`voice:pod:suspended:${name}`, reason);
    }
    await redis.rpush('voice:pod:calls:broken', 'not what it should be');
    await redis.sadd('voice:pool:gold:available', 'free');
    const { outcome, steps } = await explain(['pool:gold', 'merchant:none']);
    expect(outcome).toMatchObject({ allocation: { podName: 'free', sourcePool: 'pool:gold' } });
    expect(steps[0]).toMatchObject({ pool: 'pool:gold', kind: 'exclusive', pods: 10, lookedAt: 10 });
    expect(new Set(Object.values(steps[0]?.counts ?? {}))).toEqual(new Set([1]));
    expect(steps[1]).toMatchObject({ pool: 'merchant:none', kind: undefined, pods: 0 });
  });

  it('names what frees a place next: the end of a drain, of a lease, of a call of a merchant at its limit', async () => {
    await store.register(['a', 'b', 'c'], 'pool:gold');
    await setLimit('m1', 1);
    await store.calls.drain('c');
    const first = await store.allocate('C1', ['pool:gold'], { merchantId: 'm1' });
    await store.allocate('C2', ['pool:gold']);
    const later = { what: 'lease', podName: first?.podName, callSid: 'C1', atMs: first?.leaseExpiresAtMs };
    const drain = { what: 'drain', podName: 'c', callSid: '' };
    const full = await explain(['pool:gold']);
    expect(full).toMatchObject({ outcome: { refusal: 'no_pods' }, next: [later, drain] });
    const limited = await explain(['pool:gold'], { merchantId: 'm1' });
    expect(limited).toMatchObject({ isAtLimit: true, maxCalls: 1, liveCalls: 1 });
    expect(limited).toMatchObject({ outcome: { refusal: 'merchant_limit' } });
    expect(limited.next).toContainEqual({ ...later, what: 'limit' });
  });

  it('counts the calls that are served before a new one', async () => {
    const wait = (queue: string, priority: number) => ({
      merchantId: queue,
      hold: holdRules({ queue, priority }),
    });
    await store.ask('C1', ['pool:gold'], wait('m1', 0));
    await store.ask('C2', ['pool:gold'], wait('m2', 5));
    await store.ask('C3', ['pool:gold'], wait('m2', 5));
    expect(await explain(['pool:gold'], wait('m1', 0))).toMatchObject({
      outcome: { waiting: { position: 2 } },
      waiting: 1,
      waitingAll: 3,
      waitingBefore: 2,
    });
  });

  it('moves a waiting call of a merchant that has reached its limit since, as the allocate does', async () => {
    await store.register(['a'], 'pool:gold');
    await store.allocate('expires', ['pool:gold']);
    store.advance(800_000);
    await store.register(['b'], 'pool:gold');
    await store.allocate('live', ['pool:gold'], { merchantId: 'm1' });
    const hold = holdRules({ maxWaitMs: 3_000_000 });
    await store.ask('C1', ['pool:gold'], { merchantId: 'm1', hold });
    await setLimit('m1', 1);
    store.advance(200_000);
    const told = await explain(['pool:gold']);
    expect(told.outcome).toMatchObject({ allocation: { podName: 'a' } });
    expect(await store.allocate('new', ['pool:gold'])).toMatchObject({ podName: 'a' });
    expect(await engine.redis.hget('voice:call:C1', 'queue')).toBe('m1');
  });

  it('looks at no more than 500 pods of a large pool, and says so', async () => {
    const names = Array.from({ length: 600 }, (_, i) => `pod-${i}`);
    await store.register(names, 'pool:gold');
    const { steps } = await explain(['pool:gold', 'pool:basic']);
    expect(steps.map(({ pods, lookedAt }) => [pods, lookedAt])).toEqual([
      [600, 500],
      [0, 0],
    ]);
    expect(steps[0]?.counts.free).toBe(500);
  });
});
