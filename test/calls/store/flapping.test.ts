/** Pods on which calls fail, because callers cannot connect or because they end at once, are set back behind the others. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { PoolId } from '../../../src/config/tiers.js';
import { describeEngines } from '../../support/engines.js';
import { checkInvariants } from '../../support/invariants.js';
import { openStore, registration, type TestStore } from '../../support/store.js';

describeEngines('the flap guard', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(async () => {
    expect(await checkInvariants(engine.redis, { settled: true, nowMs: store.nowMs() })).toEqual([]);
    store.close();
  });

  /** A call on this pod and on no other one of its pool. */
  const callOn = async (
    name: string,
    pool: PoolId,
    { reason, lastsMs = 0 }: { reason?: 'connect_failed'; lastsMs?: number } = {},
  ) => {
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
    store.advance(lastsMs);
    return store.calls.release(last, undefined, { reason });
  };
  const lasting = (name: string, pool: PoolId = 'pool:gold') => callOn(name, pool, { lastsMs: 5000 });
  /** Calls that end just within the time that counts as short. */
  const short = async (name: string, times: number, pool: PoolId = 'pool:gold') => {
    const setBack: boolean[] = [];
    for (let i = 0; i < times; i++) setBack.push((await callOn(name, pool, { lastsMs: 4990 })).isSetBack);
    return setBack;
  };
  const failing = async (name: string, times: number, pool: PoolId = 'pool:gold') => {
    const setBack: boolean[] = [];
    for (let i = 0; i < times; i++)
      setBack.push((await callOn(name, pool, { reason: 'connect_failed' })).isSetBack);
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

  it.each(['pool:gold', 'pool:basic', 'merchant:vip'] as const)(
    'three calls in a row that end within 5 s set a pod of %s back, the next one after that at once',
    async (pool) => {
      await store.register(['a', 'b', 'c'], pool);
      await lasting('b', pool);
      expect(await short('a', 3, pool)).toEqual([false, false, true]);
      expect(await blockOf('a')).toBe('flapping');
      expect((await store.calls.snapshot()).setBack).toEqual(['a']);
      store.advance(10_000);
      expect(await store.pools.endFlapping(store.epoch, 10)).toBe(1);
      expect(await short('a', 1, pool)).toEqual([true]);
      store.advance(19_990);
      expect(await store.pools.endFlapping(store.epoch, 10)).toBe(0);
      store.advance(10);
      expect(await store.pools.endFlapping(store.epoch, 10)).toBe(1);
      expect((await store.calls.snapshot()).setBack).toEqual([]);
    },
  );

  it.each(['pool:gold', 'pool:basic'] as const)(
    'a pod of %s that is set back is used only when no other pod of the chain is free, and takes calls again after one that lasts',
    async (pool) => {
      await store.register(['a', 'b'], pool);
      const others = pool === 'pool:gold' ? 'pool:basic' : 'pool:gold';
      await store.register(['other'], others);
      await lasting('b', pool);
      await short('a', 3, pool);
      const given: string[] = [];
      for (let i = 0; i < 20; i++) given.push((await store.allocate(`C${i}`, [pool, others]))?.podName ?? '');
      const places = { 'pool:gold': 1, 'pool:basic': 3 };
      const expected = [
        ...Array(places[pool]).fill('b'),
        ...Array(places[others]).fill('other'),
        ...Array(places[pool]).fill('a'),
      ];
      expect(given.filter((name) => name !== '')).toEqual(expected);
      const lastOne = `C${expected.length - 1}`;
      await store.calls.drain('a');
      await store.calls.release(lastOne);
      expect(await store.allocate('while it drains', [pool])).toBeUndefined();
      await store.calls.undrain('a');
      expect((await store.allocate('lasts', [pool]))?.podName).toBe('a');
      store.advance(5000);
      expect(await store.calls.release('lasts')).toMatchObject({ releasedToPool: pool });
      expect(await blockOf('a')).toBe('');
      expect(await engine.redis.exists('voice:flapping')).toBe(0);
      expect(await short('a', 2, pool)).toEqual([false, false]);
    },
  );

  it('a call that lasts, or that its pod renewed or reported, resets the count', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await lasting('b');
    expect(await short('a', 2)).toEqual([false, false]);
    await lasting('a');
    expect(await failing('a', 2)).toEqual([false, false]);
    await lasting('a');
    for (const show of [() => store.calls.report('a', ['shown']), () => store.calls.renew('shown')]) {
      expect(await short('a', 2)).toEqual([false, false]);
      await store.calls.drain('b');
      expect((await store.allocate('shown', ['pool:gold']))?.podName).toBe('a');
      await show();
      expect((await store.calls.release('shown')).isSetBack).toBe(false);
      await store.calls.undrain('b');
    }
    expect(await short('a', 3)).toEqual([false, false, true]);
  });

  it('a call released because its caller left neither counts nor resets the count', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await lasting('b');
    await short('a', 2);
    await store.calls.drain('b');
    for (let i = 0; i < 3; i++) {
      const given = await store.allocate('gone', ['pool:gold']);
      expect(await store.calls.releaseUnclaimed('gone', given?.fence ?? 0)).toBe(true);
    }
    await store.calls.undrain('b');
    expect(await blockOf('a')).toBe('');
    expect(await short('a', 1)).toEqual([true]);
  });

  it('a pool whose calls are all short keeps every pod, for any length of time', async () => {
    for (const pool of ['pool:gold', 'pool:basic'] as const) {
      const names = ['1', '2', '3', '4'].map((n) => `${pool.slice(5)}-${n}`);
      await store.register(names, pool);
      for (let round = 0; round < 25; round++) {
        const sids = names.map((name) => `${name}-${round}`);
        for (const sid of sids) expect(await store.allocate(sid, [pool])).toBeDefined();
        store.advance(1000);
        for (const sid of sids) expect((await store.calls.release(sid)).isSetBack).toBe(false);
      }
    }
    expect((await store.calls.snapshot()).setBack).toEqual([]);
  });

  it('leaves half of the pool, and what it sets back still serves a call that would be refused', async () => {
    await store.register(['a', 'b', 'c'], 'pool:gold');
    expect(await failing('a', 3)).toEqual([false, false, true]);
    expect(await failing('b', 5)).toEqual([false, false, false, false, false]);
    await lasting('c');
    expect(await short('b', 10)).not.toContain(true);
    await store.register(['lone'], 'merchant:vip');
    expect(await failing('lone', 5, 'merchant:vip')).toEqual([false, false, false, false, false]);
    expect(await short('lone', 20, 'merchant:vip')).not.toContain(true);
    await store.register(['x', 'y'], 'pool:basic');
    await store.calls.drain('y');
    expect(await failing('x', 3, 'pool:basic')).toEqual([false, false, true]);
    expect((await store.allocate('last resort', ['pool:basic']))?.podName).toBe('x');
  });

  it('a pod that replaces another of the same name starts without failures', async () => {
    const ofUid = (uid: string) =>
      store.pools.register(
        store.epoch,
        ['a', 'b', 'c'].map((name) => registration(name, 'pool:gold', { uid: name === 'a' ? uid : '' })),
        { candidates: [], last: 'pool:gold' },
      );
    await ofUid('first');
    await lasting('b');
    await short('a', 2);
    await ofUid('second');
    expect(await short('a', 3)).toEqual([false, false, true]);
    await ofUid('third');
    expect(await blockOf('a')).toBe('');
    expect(await engine.redis.exists('voice:flapping')).toBe(0);
    expect(await short('a', 2)).toEqual([false, false]);
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
