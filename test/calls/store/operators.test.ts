/** redis-cli habits: what people do to the keys by hand is obeyed or repaired, and never breaks an invariant. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { EpochRefused } from '../../../src/calls/store/pool-store.js';
import { describeEngines } from '../../support/engines.js';
import { openStore, registration, type TestStore, testTimes } from '../../support/store.js';

const pools = ['pool:gold', 'pool:basic', 'merchant:vip'] as const;
type Pool = (typeof pools)[number];
const availableKey = (pool: Pool) =>
  pool === 'merchant:vip' ? 'voice:merchant:vip:pods' : `voice:${pool}:available`;

describeEngines('keys changed by hand', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(() => store.close());

  const callsOf = async (pod: string) => (await store.calls.pod(pod)).calls.map(({ callSid }) => callSid);

  it.each(pools)('DEL voice:call:X ends a call of %s at the next sweep', async (pool) => {
    await store.register(['a'], pool);
    await store.allocate('1', [pool]);
    await engine.redis.del('voice:call:1');
    await expect(store.calls.renew('1')).rejects.toMatchObject({ code: 'call_not_found' });
    expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
    expect(await store.calls.snapshot()).toMatchObject({ activeCalls: 0 });
    expect(await engine.redis.exists('voice:lease:a', 'voice:pod:calls:a')).toBe(0);
    expect(await store.allocate('2', [pool])).toMatchObject({ podName: 'a' });
  });

  it('DEL voice:call:X, then the same call again: it has one pod, and the old pod becomes available', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    const first = await store.allocate('1', ['pool:gold']);
    await engine.redis.del('voice:call:1');
    const second = await store.allocate('1', ['pool:gold']);
    expect(second?.podName).not.toBe(first?.podName);
    await store.sweep();
    expect(await callsOf(first?.podName ?? '')).toEqual([]);
    expect(await callsOf(second?.podName ?? '')).toEqual(['1']);
    expect(await store.allocate('2', ['pool:gold'])).toMatchObject({ podName: first?.podName });
  });

  it('DEL voice:call:X, then the same call again: removing the old pod loses nothing', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    const first = await store.allocate('1', ['pool:gold']);
    await engine.redis.del('voice:call:1');
    await store.allocate('1', ['pool:gold']);
    expect(await store.pools.remove(store.epoch, [first?.podName ?? ''], 'gone')).toMatchObject([
      { lostCalls: [] },
    ]);
    expect(await store.calls.snapshot()).toMatchObject({ activeCalls: 1 });
  });

  it.each(pools)('DEL of the draining mark ends the drain of a pod of %s at the next sweep', async (pool) => {
    await store.register(['a'], pool);
    await store.calls.drain('a');
    await engine.redis.del('voice:pod:draining:a');
    expect(await store.sweep()).toMatchObject({ podsPutBack: 1 });
    expect(await store.allocate('1', [pool])).toMatchObject({ podName: 'a' });
  });

  it.each(pools.flatMap((pool) => ['true', '1', 'yes', ''].map((value) => ({ pool, value }))))(
    'SET of the draining mark to "$value" stops allocation from $pool at once, until it is deleted',
    async ({ pool, value }) => {
      await store.register(['a'], pool);
      await engine.redis.set('voice:pod:draining:a', value);
      expect(await store.allocate('1', [pool])).toBeUndefined();
      await store.sweep();
      expect(await store.allocate('1', [pool])).toBeUndefined();
      store.advance(testTimes.drainingTtlMs * 100);
      await store.sweep();
      expect(await store.allocate('1', [pool])).toBeUndefined();
      await engine.redis.del('voice:pod:draining:a');
      await store.sweep();
      expect(await store.allocate('1', [pool])).toMatchObject({ podName: 'a' });
    },
  );

  it('a drain replaces a mark set by hand, and an undrain removes it', async () => {
    await store.register(['a'], 'pool:gold');
    await engine.redis.set('voice:pod:draining:a', 'true');
    const before = store.nowMs();
    expect(await store.calls.drain('a')).toMatchObject({ untilMs: before + testTimes.drainingTtlMs });
    expect(await store.calls.undrain('a')).toEqual({ activeCalls: 0, blockedBy: '' });
    expect(await store.allocate('1', ['pool:gold'])).toMatchObject({ podName: 'a' });
  });

  it.each(pools)(
    'DEL of the available set of %s is repaired by the sweep with the true load',
    async (pool) => {
      await store.register(['a', 'b'], pool);
      await store.allocate('1', [pool]);
      await engine.redis.del(availableKey(pool));
      expect(await store.allocate('2', [pool])).toBeUndefined();
      await store.sweep();
      if (pool === 'pool:basic') {
        const scores = await engine.redis.zrange(availableKey(pool), 0, '-1', 'WITHSCORES');
        expect(scores.filter((_, i) => i % 2 === 1)).toEqual(['0', '1']);
      } else expect(await engine.redis.scard(availableKey(pool))).toBe(1);
      expect((await store.calls.snapshot()).activeCalls).toBe(1);
    },
  );

  it.each(pools)('pods added to the available set of %s by hand are never allocated', async (pool) => {
    await store.register(['busy'], pool);
    const other: Pool = pool === 'pool:gold' ? 'pool:basic' : 'pool:gold';
    await store.register(['foreign'], other);
    const full = pool === 'pool:basic' ? ['1', '2', '3'] : ['1'];
    for (const sid of full) await store.allocate(sid, [pool]);
    for (let i = 0; i < 5; i++) {
      if (pool === 'pool:basic')
        await engine.redis.zadd(availableKey(pool), 0, 'busy', 0, 'ghost', 0, 'foreign');
      else await engine.redis.sadd(availableKey(pool), 'busy', 'ghost', 'foreign');
      expect(await store.allocate(`extra-${i}`, [pool])).toBeUndefined();
    }
    expect(await callsOf('busy')).toEqual(full);
    expect(await store.allocate('right', [other])).toMatchObject({ podName: 'foreign', sourcePool: other });
  });

  it.each(['-inf', '-100', '0', '2', '2.5', '99', '+inf'])(
    'ZADD of score %s never leads beyond max_concurrent, and the sweep restores it',
    async (score) => {
      await store.register(['a'], 'pool:basic');
      for (let i = 0; i < 8; i++) {
        await engine.redis.zadd('voice:pool:basic:available', score, 'a');
        await store.allocate(`call-${i}`, ['pool:basic']);
        expect((await callsOf('a')).length).toBeLessThanOrEqual(3);
      }
      await store.sweep();
      const load = (await callsOf('a')).length;
      expect(await engine.redis.zscore('voice:pool:basic:available', 'a')).toBe(String(load));
    },
  );

  it.each(pools)('DEL of pod:tier makes a pod of %s unknown; its call continues and ends', async (pool) => {
    await store.register(['a', 'b'], pool);
    const given = await store.allocate('1', [pool]);
    const pod = given?.podName ?? '';
    await engine.redis.del('voice:pod:tier:a', 'voice:pod:tier:b');
    expect(await store.allocate('2', [pool])).toBeUndefined();
    await store.sweep();
    expect(await store.allocate('2', [pool])).toBeUndefined();
    for (const answer of [store.calls.pod('a'), store.calls.drain('a'), store.calls.report('a', [])]) {
      await expect(answer).rejects.toMatchObject({ code: 'pod_not_found' });
    }
    expect(await store.calls.renew('1')).toMatchObject({ podName: pod });
    await store.register(['a', 'b'], pool);
    expect(await callsOf(pod)).toEqual(['1']);
    expect(await store.calls.release('1')).toMatchObject({ podName: pod, releasedToPool: pool });
  });

  it('DEL of pod:tier does not hand the calls of a replaced pod to its successor', async () => {
    const startedAt = new Date(0).toISOString();
    const register = (uid: string) =>
      store.pools.register(store.epoch, [registration('a', 'pool:gold', { uid, startedAt })], {
        candidates: [],
        last: 'pool:gold',
      });
    await register('u1');
    await store.allocate('1', ['pool:gold']);
    await engine.redis.del('voice:pod:tier:a');
    expect(await register('u2')).toMatchObject([{ outcome: 'new', lostCalls: ['1'] }]);
    expect(await store.allocate('2', ['pool:gold'])).toMatchObject({ podName: 'a' });
  });

  it('DEL of the assigned set is repaired when the leader registers its pods again', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    await engine.redis.del('voice:pool:gold:assigned');
    await store.register(['a', 'b'], 'pool:gold');
    expect(await store.calls.snapshot()).toMatchObject({ activeCalls: 1 });
    expect(await engine.redis.scard('voice:pool:gold:assigned')).toBe(2);
    expect(await engine.redis.scard('voice:pool:gold:available')).toBe(1);
  });

  it('DEL of the lease mirror frees nothing and is repaired by the sweep', async () => {
    await store.register(['a'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    await engine.redis.del('voice:lease:a');
    expect(await store.sweep()).toEqual({ callsEnded: 0, podsPutBack: 0, podsTakenOut: 0 });
    expect(await engine.redis.get('voice:lease:a')).toBe('1');
    expect(await store.allocate('2', ['pool:gold'])).toBeUndefined();
  });

  it("DEL of a pool's index of calls is repaired by the sweep", async () => {
    await store.register(['a'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    await engine.redis.del('voice:pool:gold:calls');
    await store.sweep();
    expect(await store.calls.snapshot()).toMatchObject({ activeCalls: 1 });
  });

  it('fence and epoch only grow after a DEL of their keys', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    const first = await store.allocate('1', ['pool:gold']);
    await engine.redis.del('voice:fence', 'voice:leader:epoch');
    const second = await store.allocate('2', ['pool:gold']);
    expect(second?.fence).toBeGreaterThan(first?.fence ?? 0);
    expect(Number(await store.pools.takeEpoch())).toBeGreaterThan(Number(store.epoch));
  });

  it.each(['abc', '', 'inf', 'nan', '1e99', '0x'])(
    'an epoch and a fence of %j count as missing',
    async (text) => {
      await store.register(['a'], 'pool:gold');
      const [older, newer] = [store.epoch, await store.pools.takeEpoch()];
      const write = async () => engine.redis.mset('voice:leader:epoch', text, 'voice:fence', text);
      await write();
      await store.pools.suspend(newer, 'not_ready', []);
      expect(await engine.redis.get('voice:leader:epoch')).toBe(newer);
      await expect(store.pools.suspend(older, 'not_ready', ['a'])).rejects.toThrow(EpochRefused);
      const first = await store.allocate('1', ['pool:gold']);
      expect(first?.fence).toBeGreaterThan(1e15);
      await write();
      expect(Number(await store.pools.takeEpoch())).toBeGreaterThan(Number(newer));
    },
  );
});
