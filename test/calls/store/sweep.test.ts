/** sweep: pods and calls without an owner are recovered, with the true load. Guarantee 8. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeEngines } from '../../support/engines.js';
import { openStore, type TestStore, testTimes } from '../../support/store.js';

const pools = ['pool:gold', 'pool:basic', 'merchant:vip', 'merchant:label'] as const;
const idle = { callsEnded: 0, podsPutBack: 0, podsTakenOut: 0 };

function availableKey(pool: (typeof pools)[number]): string {
  return pool.startsWith('pool:') ? `voice:${pool}:available` : `voice:${pool}:pods`;
}

describeEngines('sweep', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(() => store.close());

  it.each(pools)('in %s a call past its lease ends and its pod can take a call', async (pool) => {
    await store.register(['a'], pool);
    await store.allocate('1', [pool]);
    store.advance(testTimes.leaseTtlMs - 10);
    expect(await store.sweep()).toEqual(idle);
    store.advance(10);
    expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
    expect(await store.sweep()).toEqual(idle);
    expect(await engine.redis.exists('voice:call:1', 'voice:lease:a')).toBe(0);
    expect(await store.allocate('2', [pool])).toMatchObject({ podName: 'a', reclaimed: 0 });
  });

  it.each(pools)('in %s a consistent pool does not change', async (pool) => {
    await store.register(['a', 'b'], pool);
    await store.allocate('1', [pool]);
    expect(await store.sweep()).toEqual(idle);
  });

  it.each(pools)('an idle pod of %s missing from the available set is added', async (pool) => {
    await store.register(['a', 'b'], pool);
    await engine.redis.del(availableKey(pool));
    expect(await store.sweep()).toEqual({ ...idle, podsPutBack: 2 });
    expect(await store.sweep()).toEqual(idle);
    expect(await store.allocate('1', [pool])).toBeDefined();
  });

  it('a shared pod becomes available with the calls it has', async () => {
    await store.register(['a'], 'pool:basic');
    for (const sid of ['1', '2']) await store.allocate(sid, ['pool:basic']);
    await engine.redis.zrem('voice:pool:basic:available', 'a');
    expect(await store.sweep()).toEqual({ ...idle, podsPutBack: 1 });
    expect(await engine.redis.zscore('voice:pool:basic:available', 'a')).toBe('2');
  });

  it.each([0, 1, 7, -5])('a shared pod with 2 calls and score %i gets score 2', async (score) => {
    await store.register(['a'], 'pool:basic');
    for (const sid of ['1', '2']) await store.allocate(sid, ['pool:basic']);
    await engine.redis.zadd('voice:pool:basic:available', score, 'a');
    await store.sweep();
    expect(await engine.redis.zscore('voice:pool:basic:available', 'a')).toBe('2');
  });

  it.each(['pool:gold', 'merchant:vip'] as const)(
    'a busy pod of %s that was put into the available set is taken out',
    async (pool) => {
      await store.register(['a'], pool);
      await store.allocate('1', [pool]);
      await engine.redis.sadd(availableKey(pool), 'a');
      expect(await store.sweep()).toEqual({ ...idle, podsTakenOut: 1 });
      expect(await engine.redis.exists(availableKey(pool))).toBe(0);
    },
  );

  it.each(pools)(
    'pods of other pools in the available set of %s are removed and never recovered',
    async (pool) => {
      await store.register(['a'], pool);
      await store.register(['other'], pool === 'pool:gold' ? 'pool:basic' : 'pool:gold');
      const key = availableKey(pool);
      if (pool === 'pool:basic') await engine.redis.zadd(key, 0, 'ghost', 0, 'other');
      else await engine.redis.sadd(key, 'ghost', 'other');
      expect(await store.sweep(pool)).toEqual({ ...idle, podsTakenOut: 2 });
      const members = pool === 'pool:basic' ? engine.redis.zrange(key, 0, '-1') : engine.redis.smembers(key);
      expect(await members).toEqual(['a']);
    },
  );

  it('pods of an assigned set that belong to another pool leave it', async () => {
    await store.register(['a'], 'pool:gold');
    await engine.redis.sadd('voice:pool:basic:assigned', 'a');
    await store.sweep();
    expect(await engine.redis.exists('voice:pool:basic:assigned')).toBe(0);
    expect(await engine.redis.smembers('voice:pool:gold:assigned')).toEqual(['a']);
  });

  it('a pod without a tier is not recovered: only registered pods are', async () => {
    await engine.redis.sadd('voice:pool:gold:assigned', 'ghost');
    expect(await store.sweep()).toEqual(idle);
    expect(await store.allocate('1', ['pool:gold'])).toBeUndefined();
  });

  it.each(['draining', 'terminating', 'not_ready'] as const)(
    'a pod that is %s stays out, and its expired calls end',
    async (block) => {
      await store.register(['a'], 'pool:basic');
      await store.allocate('1', ['pool:basic']);
      if (block === 'draining') await store.calls.drain('a', testTimes.leaseTtlMs * 2);
      else await store.pools.suspend(store.epoch, block, ['a']);
      store.advance(testTimes.leaseTtlMs + 1);
      expect(await store.sweep()).toMatchObject({ callsEnded: 1, podsPutBack: 0 });
      expect(await store.allocate('2', ['pool:basic'])).toBeUndefined();
    },
  );

  it('the index of a pool alone does not end a call whose lease holds', async () => {
    await store.register(['a'], 'pool:gold');
    const given = await store.allocate('1', ['pool:gold']);
    await engine.redis.zadd('voice:pool:gold:calls', 1, '1', 1, 'never was');
    expect(await store.sweep()).toEqual(idle);
    expect((await store.calls.calls('pool:gold', '0', 10)).items).toMatchObject([
      { callSid: '1', leaseExpiresAtMs: given?.leaseExpiresAtMs },
    ]);
    expect(await engine.redis.zcard('voice:pool:gold:calls')).toBe(1);
  });

  it('a lease mirror that names no live call is corrected', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    const given = await store.allocate('1', ['pool:gold']);
    const busy = given?.podName ?? '';
    const free = busy === 'a' ? 'b' : 'a';
    await engine.redis.mset({ [`voice:lease:${busy}`]: 'wrong', [`voice:lease:${free}`]: 'wrong' });
    await store.sweep();
    expect(await engine.redis.mget(`voice:lease:${busy}`, `voice:lease:${free}`)).toEqual(['1', null]);
  });

  it('a thousand expired calls end in batches of a hundred, each counted once', async () => {
    const tiers = { wide: { type: 'shared', max_concurrent: 10 } };
    await engine.redis.flushall();
    const wide = await openStore(engine.url, { virtualTime: true, tiers });
    try {
      await wide.register(
        Array.from({ length: 100 }, (_, i) => `pod-${i}`),
        'pool:wide',
      );
      await Promise.all(Array.from({ length: 1000 }, (_, i) => wide.allocate(`call-${i}`, ['pool:wide'])));
      expect((await wide.calls.snapshot()).activeCalls).toBe(1000);
      wide.advance(testTimes.leaseTtlMs + 1);
      expect(await wide.sweep()).toMatchObject({ callsEnded: 1000 });
      expect(await wide.calls.snapshot()).toMatchObject({
        activeCalls: 0,
        pools: [{ assigned: 100, available: 100 }],
      });
      expect(await engine.redis.keys('voice:pod:calls:*')).toEqual([]);
    } finally {
      wide.close();
    }
  });

  it('calls that end leave an event with the reason', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    for (const sid of ['1', '2']) await store.allocate(sid, ['pool:gold']);
    await engine.redis.del('voice:call:2');
    store.advance(testTimes.leaseTtlMs + 1);
    await store.sweep();
    const entries = await engine.redis.xrevrange('voice:events', '+', '-');
    const events = entries.map(([, fields]) =>
      Object.fromEntries(fields.flatMap((field, i) => (i % 2 === 0 ? [[field, fields[i + 1]]] : []))),
    );
    const reasons = events
      .filter(({ type }) => type === 'call_recovered')
      .map(({ call, reason }) => [call, reason]);
    expect(Object.fromEntries(reasons)).toEqual({ '1': 'lease expired', '2': 'record deleted' });
  });
});
