/** release: ends the named call and no other. Guarantee 7. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { PoolId } from '../../../src/config/tiers.js';
import { describeEngines } from '../../support/engines.js';
import { openStore, type TestStore, testTimes } from '../../support/store.js';

describeEngines('release', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(() => store.close());

  async function fenceOf(sid: string, pool: PoolId): Promise<number> {
    return (await store.allocate(sid, [pool]))?.fence ?? 0;
  }

  it.each(['pool:gold', 'merchant:vip', 'pool:basic'] as const)(
    'a pod of %s is available again at once',
    async (pool) => {
      await store.register(['a'], pool);
      await store.allocate('1', [pool]);
      expect(await store.calls.release('1')).toEqual({
        podName: 'a',
        releasedToPool: pool,
        wasDraining: false,
        activeCalls: 0,
        isSetBack: false,
        pool,
      });
      expect(await store.allocate('2', [pool])).toMatchObject({ podName: 'a', wasExisting: false });
    },
  );

  it('one of three shared calls ends, and the lease mirror names one of the others', async () => {
    await store.register(['a'], 'pool:basic');
    for (const sid of ['1', '2', '3']) await store.allocate(sid, ['pool:basic']);
    expect(await store.calls.release('3')).toMatchObject({ activeCalls: 2, releasedToPool: 'pool:basic' });
    expect(await engine.redis.zscore('voice:pool:basic:available', 'a')).toBe('2');
    expect(['1', '2']).toContain(await engine.redis.get('voice:lease:a'));
    await store.calls.release('1');
    await store.calls.release('2');
    expect(await engine.redis.exists('voice:lease:a')).toBe(0);
    expect(await engine.redis.zscore('voice:pool:basic:available', 'a')).toBe('0');
  });

  it.each([
    { block: 'draining', wasDraining: true },
    { block: 'terminating', wasDraining: true },
    { block: 'not_ready', wasDraining: false },
    { block: 'unconfirmed', wasDraining: false },
  ] as const)('the pod stays out of its pool while it is $block', async ({ block, wasDraining }) => {
    for (const [pod, pool] of [
      ['g', 'pool:gold'],
      ['s', 'pool:basic'],
      ['v', 'merchant:vip'],
    ] as const) {
      await store.register([pod], pool);
      await store.allocate(pod, [pool]);
      if (block === 'draining') await store.calls.drain(pod);
      else await store.pools.suspend(store.epoch, block, [pod]);
      expect(await store.calls.release(pod)).toEqual({
        podName: pod,
        releasedToPool: null,
        wasDraining,
        activeCalls: 0,
        isSetBack: false,
        pool,
      });
      expect(await store.allocate('next', [pool])).toBeUndefined();
    }
  });

  it('a second release finds nothing and changes nothing', async () => {
    await store.register(['a'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    await store.calls.release('1');
    await store.allocate('2', ['pool:gold']);
    await expect(store.calls.release('1')).rejects.toMatchObject({ code: 'call_not_found', status: 404 });
    expect((await store.calls.pod('a')).calls.map(({ callSid }) => callSid)).toEqual(['2']);
    expect(await engine.redis.scard('voice:pool:gold:available')).toBe(0);
  });

  it('two releases at once: one succeeds, one finds nothing', async () => {
    await store.register(['a'], 'pool:basic');
    await store.allocate('1', ['pool:basic']);
    await store.allocate('2', ['pool:basic']);
    const results = await Promise.allSettled(Array.from({ length: 10 }, () => store.calls.release('1')));
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    expect(await engine.redis.zscore('voice:pool:basic:available', 'a')).toBe('1');
  });

  it('an unknown call is not found', async () => {
    await expect(store.calls.release('unknown')).rejects.toMatchObject({ code: 'call_not_found' });
  });

  it('the right fence releases, another is refused and frees nothing', async () => {
    await store.register(['a'], 'pool:gold');
    const fence = await fenceOf('1', 'pool:gold');
    for (const wrong of [fence - 1, fence + 1, 0]) {
      await expect(store.calls.release('1', wrong)).rejects.toMatchObject({
        code: 'stale_fence',
        status: 409,
      });
    }
    expect(await store.calls.call('1')).toMatchObject({ podName: 'a', fence });
    expect(await store.calls.release('1', fence)).toMatchObject({ podName: 'a' });
  });

  it('a call past its lease can still be released by its owner', async () => {
    await store.register(['a'], 'pool:gold');
    const fence = await fenceOf('1', 'pool:gold');
    store.advance(testTimes.leaseTtlMs + 1);
    expect(await store.calls.release('1', fence)).toMatchObject({ releasedToPool: 'pool:gold' });
  });

  it('an ended call leaves a tombstone for the report grace and nothing else', async () => {
    await store.register(['a'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    await store.calls.release('1');
    const keys = await engine.redis.keys('*');
    const [stone = '', ...others] = keys.filter((key) => key.startsWith('voice:tombstones:'));
    expect(others).toEqual([]);
    expect(keys.filter((key) => key.startsWith('voice:call:'))).toEqual([]);
    expect(await engine.redis.hgetall(stone)).toEqual({ 1: String(store.nowMs() + testTimes.reportGraceMs) });
    const ttl = await engine.redis.pttl(stone);
    expect(ttl).toBeGreaterThan(0);
    expect(ttl).toBeLessThanOrEqual(testTimes.reportGraceMs);
  });

  it('the pod hash shows the last call and its times', async () => {
    await store.register(['a'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    expect(await engine.redis.hgetall('voice:pod:a')).toMatchObject({
      status: 'allocated',
      allocated_call_sid: '1',
      source_pool: 'pool:gold',
    });
    const before = store.nowMs();
    await store.calls.release('1');
    expect(await engine.redis.hgetall('voice:pod:a')).toMatchObject({
      status: 'available',
      allocated_call_sid: '',
      released_at: new Date(before).toISOString(),
    });
  });

  it('a release ends the call of a pod that lost its tier key', async () => {
    await store.register(['a'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    await engine.redis.del('voice:pod:tier:a');
    expect(await store.calls.release('1')).toMatchObject({ podName: 'a', releasedToPool: null });
    expect((await store.calls.snapshot()).activeCalls).toBe(0);
  });

  it.each([
    { what: 'was not requested again', since: async () => {}, given: true },
    { what: 'was requested again', since: () => store.allocate('1', ['pool:gold']), given: false },
    { what: 'was renewed', since: () => store.calls.renew('1'), given: false },
    { what: 'was reported', since: () => store.calls.report('a', ['1']), given: false },
    { what: 'has ended', since: () => store.calls.release('1'), given: false },
  ])('an allocation whose caller hung up, and which $what, is released: $given', async ({ since, given }) => {
    await store.register(['a'], 'pool:gold');
    const fence = await fenceOf('1', 'pool:gold');
    await since();
    const wasLive = (await engine.redis.exists('voice:call:1')) === 1;
    expect(await store.calls.releaseUnclaimed('1', fence)).toBe(given);
    expect(await engine.redis.exists('voice:call:1')).toBe(wasLive && !given ? 1 : 0);
  });

  it('an allocation with another fence is not released', async () => {
    await store.register(['a'], 'pool:gold');
    const old = await fenceOf('1', 'pool:gold');
    await store.calls.release('1');
    await store.allocate('1', ['pool:gold']);
    expect(await store.calls.releaseUnclaimed('1', old)).toBe(false);
    expect(await store.calls.call('1')).toMatchObject({ podName: 'a' });
  });

  it.each(['pool:gold', 'pool:basic'] as const)(
    'the event of a call of %s names the operator who ended it, and no agent',
    async (pool) => {
      await store.register(['a'], pool);
      await store.allocate('1', [pool]);
      await store.calls.release('1', undefined, { by: 'admin@10.0.0.7' });
      await store.allocate('2', [pool]);
      await store.calls.release('2');
      const events = (await engine.redis.xrange('voice:events', '-', '+')).map(([, fields]) =>
        fields.join(' '),
      );
      expect(events.filter((text) => text.startsWith('type call_released '))).toEqual([
        `type call_released call 1 pod a pool ${pool} by admin@10.0.0.7`,
        `type call_released call 2 pod a pool ${pool}`,
      ]);
    },
  );
});
