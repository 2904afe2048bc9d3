/** Pods to which callers cannot connect are set back, while others are free. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { PoolId } from '../../../src/calls/tiers.js';
import { describeEngines } from '../../support/engines.js';
import { checkInvariants } from '../../support/invariants.js';
import { openStore, type TestStore } from '../../support/store.js';

describeEngines('failed connections', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(async () => {
    expect(await checkInvariants(engine.redis, { settled: true, nowMs: store.nowMs() })).toEqual([]);
    store.close();
  });

  /** A call on this pod and on no other one of its pool. */
  const callOn = async (name: string, pool: PoolId, reason?: 'connect_failed') => {
    const sids: string[] = [];
    for (;;) {
      const sid = `call-${sids.length}`;
      const given = await store.allocate(sid, [pool]);
      if (!given) throw new Error(`${name} is not given`);
      sids.push(sid);
      if (given.podName === name) break;
    }
    const last = sids.pop() ?? '';
    for (const sid of sids) await engine.redis.del(`voice:call:${sid}`);
    await store.sweep(pool);
    return store.calls.release(last, undefined, { reason });
  };
  const failing = async (name: string, times: number, pool: PoolId = 'pool:gold') => {
    const setBack: boolean[] = [];
    for (let i = 0; i < times; i++) setBack.push((await callOn(name, pool, 'connect_failed')).isSetBack);
    return setBack;
  };
  const blockOf = async (name: string) => (await store.calls.pod(name)).blockedBy;

  it.each(['pool:gold', 'pool:basic'] as const)(
    'three in a row block a pod of %s for 10 s, then 20',
    async (pool) => {
      await store.register(['a', 'b'], pool);
      expect(await failing('a', 3, pool)).toEqual([false, false, true]);
      expect(await blockOf('a')).toBe('flapping');
      await store.register(['a', 'b'], pool);
      await store.calls.report('a', []);
      await store.sweep();
      expect(await blockOf('a')).toBe('flapping');
      store.advance(9_990);
      expect(await store.pools.endFlapping(store.epoch, 10)).toBe(0);
      store.advance(10);
      expect(await store.pools.endFlapping(store.epoch, 10)).toBe(1);
      expect(await blockOf('a')).toBe('');
      expect(await failing('a', 1, pool)).toEqual([true]);
      store.advance(19_990);
      expect(await store.pools.endFlapping(store.epoch, 10)).toBe(0);
      store.advance(10);
      expect(await store.pools.endFlapping(store.epoch, 10)).toBe(1);
    },
  );

  it('a call that ends normally resets the count', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    expect(await failing('a', 2)).toEqual([false, false]);
    await callOn('a', 'pool:gold');
    expect(await failing('a', 3)).toEqual([false, false, true]);
  });

  it('blocks at most half of the pool, and leaves a free pod', async () => {
    await store.register(['a', 'b', 'c'], 'pool:gold');
    expect(await failing('a', 3)).toEqual([false, false, true]);
    expect(await failing('b', 5)).toEqual([false, false, false, false, false]);
    await store.register(['lone'], 'merchant:vip');
    expect(await failing('lone', 5, 'merchant:vip')).toEqual([false, false, false, false, false]);
    await store.register(['x', 'y'], 'pool:basic');
    await store.calls.drain('y');
    expect(await failing('x', 4, 'pool:basic')).toEqual([false, false, false, false]);
  });

  it('a clock that was set back does not keep a pod blocked', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await failing('a', 3);
    store.advance(-3_600_000);
    expect(await store.pools.endFlapping(store.epoch, 10)).toBe(1);
    expect(await blockOf('a')).toBe('');
  });

  it('a removed pod leaves nothing behind', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await failing('a', 3);
    await store.pools.remove(store.epoch, ['a'], 'gone');
    expect(await engine.redis.exists('voice:flapping')).toBe(0);
  });
});
