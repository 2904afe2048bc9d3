/** allocate: who gets which pod. Guarantees 1 to 3. */
import type { Redis } from 'ioredis';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { PoolId } from '../../../src/config/tiers.js';
import { describeEngines } from '../../support/engines.js';
import { openStore, registration, type TestStore, testTimes } from '../../support/store.js';

const everyPool: PoolId[] = ['pool:gold', 'pool:basic', 'merchant:vip'];

/** Every key but the event stream, as the engine serializes it. */
async function contents(redis: Redis): Promise<Record<string, string>> {
  const keys = (await redis.keys('*')).filter((key) => key !== 'voice:events').sort();
  const values = await Promise.all(keys.map((key) => redis.dumpBuffer(key)));
  return Object.fromEntries(keys.map((key, i) => [key, values[i]?.toString('hex') ?? 'gone']));
}

describeEngines('allocate', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(() => store.close());

  it('returns everything a caller needs', async () => {
    await store.register(['a'], 'pool:gold');
    const before = store.nowMs();
    const given = await store.allocate('call', ['pool:gold']);
    expect(given).toEqual({
      podName: 'a',
      sourcePool: 'pool:gold',
      allocatedAt: new Date(before).toISOString(),
      leaseExpiresAtMs: before + testTimes.leaseTtlMs,
      fence: expect.any(Number),
      wasExisting: false,
      reclaimed: 0,
    });
  });

  it.each(['pool:gold', 'merchant:vip'] as const)('a pod of %s gets one call, not two', async (pool) => {
    await store.register(['a', 'b'], pool);
    const pods = [await store.allocate('1', [pool]), await store.allocate('2', [pool])];
    expect(pods.map((given) => given?.podName).sort()).toEqual(['a', 'b']);
    expect(await store.allocate('3', [pool])).toBeUndefined();
  });

  it('shared calls go to the least loaded pod, and none beyond max_concurrent', async () => {
    await store.register(['a', 'b'], 'pool:basic');
    const loads: Record<string, number> = { a: 0, b: 0 };
    for (let i = 0; i < 6; i++) {
      const given = await store.allocate(`call-${i}`, ['pool:basic']);
      const pod = given?.podName ?? 'none';
      loads[pod] = (loads[pod] ?? 0) + 1;
      expect(Math.abs((loads.a ?? 0) - (loads.b ?? 0))).toBeLessThanOrEqual(1);
    }
    expect(loads).toEqual({ a: 3, b: 3 });
    expect(await store.allocate('one too many', ['pool:basic'])).toBeUndefined();
    expect(await engine.redis.zrange('voice:pool:basic:available', 0, '-1', 'WITHSCORES')).toEqual([
      ...['a', '3'],
      ...['b', '3'],
    ]);
  });

  it('the chain is tried in its order, and unknown steps are skipped', async () => {
    await store.register(['g'], 'pool:gold');
    await store.register(['v'], 'merchant:vip');
    await store.register(['s'], 'pool:basic');
    const chain: PoolId[] = [
      'merchant:unknown',
      'merchant:vip',
      'pool:none',
      'pool:gold',
      'pool:basic',
      'pool:gold',
    ];
    const pods = [];
    for (let i = 0; i < 6; i++) pods.push((await store.allocate(`call-${i}`, chain))?.sourcePool);
    expect(pods).toEqual(['merchant:vip', 'pool:gold', 'pool:basic', 'pool:basic', 'pool:basic', undefined]);
  });

  it.each([{ chain: [] }, { chain: ['pool:none'] }] as { chain: PoolId[] }[])(
    'a chain of $chain gives nothing',
    async ({ chain }) => {
      await store.register(['a'], 'pool:gold');
      expect(await store.allocate('call', chain)).toBeUndefined();
    },
  );

  it('the same call gets the same pod and fence again, with a new lease', async () => {
    await store.register(['a', 'b', 'c'], 'pool:gold');
    const first = await store.allocate('call', ['pool:gold']);
    store.advance(60_000);
    const second = await store.allocate('call', ['pool:basic']);
    expect(second).toEqual({
      ...first,
      wasExisting: true,
      leaseExpiresAtMs: (first?.leaseExpiresAtMs ?? 0) + 60_000,
    });
    expect(await engine.redis.scard('voice:pool:gold:available')).toBe(2);
  });

  it.each(everyPool)('the same call from four replicas at once takes one pod of %s', async (pool) => {
    await store.register(['a', 'b', 'c', 'd'], pool);
    const replicas = await Promise.all([1, 2, 3, 4].map(() => openStore(engine.url)));
    try {
      const given = await Promise.all(
        Array.from({ length: 40 }, (_, i) => replicas[i % 4]?.allocate('call', [pool])),
      );
      expect(new Set(given.map((one) => `${one?.podName} ${one?.fence}`)).size).toBe(1);
      expect(given.filter((one) => one?.wasExisting === false)).toHaveLength(1);
      expect((await store.calls.snapshot()).activeCalls).toBe(1);
    } finally {
      for (const replica of replicas) replica.close();
    }
  });

  const blocks: [string, (pod: string, pool: PoolId) => Promise<unknown>][] = [
    ['draining', (pod) => store.calls.drain(pod)],
    ['terminating', (pod) => store.pools.suspend(store.epoch, 'terminating', [pod])],
    ['not ready', (pod) => store.pools.suspend(store.epoch, 'not_ready', [pod])],
    ['unconfirmed', (pod) => store.pools.suspend(store.epoch, 'unconfirmed', [pod])],
    ['removed', (pod) => store.pools.remove(store.epoch, [pod], 'gone')],
    [
      'not yet reported',
      async (pod, pool) => {
        await store.pools.remove(store.epoch, [pod], 'gone');
        const again = registration(pod, pool, { mustReport: true });
        await store.pools.register(store.epoch, [again], { candidates: [], last: pool });
      },
    ],
  ];
  it.each(blocks.flatMap(([name, block]) => everyPool.map((pool) => ({ name, pool, block }))))(
    'a pod of $pool that is $name is never given, even if it is forced into the available set',
    async ({ pool, block }) => {
      await store.register(['a'], pool);
      await block('a', pool);
      expect(await store.allocate('1', [pool])).toBeUndefined();
      if (pool === 'pool:basic') await engine.redis.zadd('voice:pool:basic:available', 0, 'a');
      else
        await engine.redis.sadd(
          pool === 'pool:gold' ? 'voice:pool:gold:available' : 'voice:merchant:vip:pods',
          'a',
        );
      expect(await store.allocate('2', [pool])).toBeUndefined();
      expect((await store.calls.snapshot()).activeCalls).toBe(0);
    },
  );

  it('nothing free: nothing changed', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await store.register(['s'], 'pool:basic');
    for (const sid of ['1', '2', '3', '4', '5']) await store.allocate(sid, ['pool:gold', 'pool:basic']);
    // But the counter of fences, which is the first write: the fence that was taken is not used.
    const { 'voice:fence': _, ...before } = await contents(engine.redis);
    expect(await store.allocate('6', ['pool:gold', 'pool:basic', 'merchant:vip'])).toBeUndefined();
    expect(await contents(engine.redis)).toMatchObject(before);
  });

  /** What the last allocate that found nothing says it saw. */
  const sawOf = async (sid: string, chain: readonly PoolId[]) => {
    expect(await store.allocate(sid, chain)).toBeUndefined();
    const [, fields] = (await engine.redis.xrevrange('voice:events', '+', '-', 'COUNT', 1))[0] ?? [];
    expect(fields?.slice(0, 2)).toEqual(['type', 'no_pods']);
    return fields?.at((fields?.indexOf('saw') ?? -2) + 1);
  };

  it('nothing free: the event describes each pool of the chain as full, blocked or empty', async () => {
    await store.register(['a', 'b', 'c', 'd'], 'pool:gold');
    await store.register(['s', 't'], 'pool:basic');
    await store.calls.drain('s');
    for (const pod of ['a', 'b']) await store.pools.suspend(store.epoch, 'not_ready', [pod]);
    const chain = ['pool:gold', 'pool:basic', 'merchant:vip', 'pool:unknown'] as const;
    for (const sid of ['1', '2', '3', '4', '5']) await store.allocate(sid, chain);
    const rest = 'pool:basic 2 pods 3 calls 1 blocked; merchant:vip 0 pods; pool:unknown 0 pods';
    expect(await sawOf('6', chain)).toBe(`pool:gold 4 pods 2 calls 2 blocked; ${rest}`);
    // A draining pod still has its call: it counts as taken.
    for (const pod of ['c', 'd']) await store.calls.drain(pod);
    expect(await sawOf('7', chain)).toBe(`pool:gold 4 pods 2 calls 2 blocked; ${rest}`);
    for (const sid of ['1', '2']) await store.calls.release(sid);
    expect(await sawOf('8', chain)).toBe(`pool:gold 4 pods 0 calls 4 blocked; ${rest}`);
    await store.register(['v'], 'merchant:vip');
    await store.allocate('9', ['merchant:vip']);
    expect(await sawOf('10', ['merchant:vip'])).toBe('merchant:vip 1 pods 1 calls 0 blocked');
    expect(await sawOf('11', [])).toBe('');
  });

  it('nothing free: an `assigned` of a wrong type does not fail the request', async () => {
    await engine.redis.set('voice:pool:gold:assigned', 'by hand');
    expect(await sawOf('1', ['pool:gold'])).toBe('pool:gold 0 pods');
  });

  it.each(everyPool)('without a free pod, ends calls of %s past their lease', async (pool) => {
    await store.register(['a'], pool);
    const size = pool === 'pool:basic' ? 3 : 1;
    for (let i = 0; i < size; i++) await store.allocate(`old-${i}`, [pool]);
    store.advance(testTimes.leaseTtlMs - 1000);
    expect(await store.allocate('early', [pool])).toBeUndefined();
    store.advance(1000);
    expect(await store.allocate('new', [pool])).toMatchObject({ podName: 'a', reclaimed: size });
    await expect(store.calls.call('old-0')).rejects.toMatchObject({ code: 'call_not_found' });
    expect((await store.calls.pod('a')).calls.map(({ callSid }) => callSid)).toEqual(['new']);
  });

  it('calls past their lease outside the chain stay', async () => {
    await store.register(['a'], 'pool:gold');
    await store.register(['v'], 'merchant:vip');
    await store.allocate('gold call', ['pool:gold']);
    store.advance(testTimes.leaseTtlMs + 1);
    await store.allocate('vip call', ['merchant:vip']);
    expect(await store.allocate('another', ['merchant:vip'])).toBeUndefined();
    expect(await store.calls.call('gold call')).toMatchObject({ podName: 'a' });
  });

  it('a call past its lease that has not been ended keeps its pod when it is requested again', async () => {
    await store.register(['a'], 'pool:gold');
    const first = await store.allocate('call', ['pool:gold']);
    store.advance(testTimes.leaseTtlMs + 1);
    expect(await store.allocate('call', ['pool:gold'])).toMatchObject({
      wasExisting: true,
      fence: first?.fence,
    });
    expect(await store.sweep()).toMatchObject({ callsEnded: 0 });
  });

  it('fences only grow, also after the store has lost everything', async () => {
    const fences: number[] = [];
    for (let round = 0; round < 3; round++) {
      await store.register(['a', 'b'], 'pool:gold');
      for (const sid of ['1', '2']) fences.push((await store.allocate(sid, ['pool:gold']))?.fence ?? 0);
      await engine.redis.flushall();
      store.close();
      const moved = 1000 * (round + 1);
      store = await openStore(engine.url, { virtualTime: true });
      store.advance(moved);
    }
    expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
  });

  it.each([
    ['a', 'spaces and : colons'],
    ['glob', '*?[a]\\{x}'],
    ['unicode', 'ünï-☎️'],
    ['the longest', 'x'.repeat(256)],
    ['a Lua pattern', '%d+%s'],
    ['a number', '12345678901234567890'],
  ])('a call SID with %s is kept as it is', async (_, sid) => {
    await store.register(['a'], 'pool:gold');
    await store.allocate(sid, ['pool:gold']);
    expect(await store.calls.call(sid)).toMatchObject({ callSid: sid, podName: 'a' });
    expect((await store.calls.release(sid)).podName).toBe('a');
  });

  it.each([
    '1999-12-31T23:59:59.999Z',
    '2000-02-29T00:00:00.000Z',
    '2027-03-01T12:34:56.007Z',
    '2028-02-29T23:59:59.001Z',
    '2028-12-31T00:00:00.000Z',
    '2100-02-28T23:59:59.500Z',
    '2100-03-01T00:00:00.000Z',
  ])('allocated_at is right on %s', async (date) => {
    await store.register(['a'], 'pool:gold');
    store.advance(Date.parse(date) - store.nowMs());
    expect(await store.allocate('call', ['pool:gold'])).toMatchObject({ allocatedAt: date });
  });

  it('with a no-show timeout an unconfirmed call ends by then, and a confirmed one continues', async () => {
    const strict = await openStore(engine.url, { virtualTime: true, times: { noShowTimeoutMs: 20_000 } });
    try {
      await strict.register(['a', 'b', 'c'], 'pool:gold');
      for (const sid of ['silent', 'renewed']) await strict.allocate(sid, ['pool:gold']);
      const reported = await strict.allocate('reported', ['pool:gold']);
      await strict.calls.renew('renewed');
      await strict.calls.report(reported?.podName ?? '', ['reported']);
      strict.advance(20_001);
      expect(await strict.sweep()).toMatchObject({ callsEnded: 1 });
      await expect(strict.calls.call('silent')).rejects.toMatchObject({ code: 'call_not_found' });
      expect((await strict.calls.snapshot()).activeCalls).toBe(2);
    } finally {
      strict.close();
    }
  });
});
