/**
 * A key of a pod or a call with a wrong type affects only that pod or call: scripts that work on many pods skip it, and it
 * is available again once the key is deleted.
 */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { StoreConnection } from '../../../src/calls/store/connection.js';
import { PoolStore } from '../../../src/calls/store/pool-store.js';
import { systemClock } from '../../../src/clock.js';
import type { PoolId } from '../../../src/config/tiers.js';
import { describeEngines } from '../../support/engines.js';
import { checkInvariants } from '../../support/invariants.js';
import { openStore, registration, type TestStore, testTimes } from '../../support/store.js';

const pools = ['pool:gold', 'pool:basic', 'merchant:vip'] as const;
/** Every operation on the pod needs these two; the others are strings, which count as missing. */
const needed = ['voice:pod:calls:a', 'voice:pod:a'] as const;
const texts = ['voice:pod:tier:a', 'voice:pod:draining:a', 'voice:pod:suspended:a', 'voice:lease:a'] as const;
const cases = pools.flatMap((pool) => needed.map((key) => ({ pool, key })));
const idle = { callsEnded: 0, podsPutBack: 0, podsTakenOut: 0 };

describeEngines('a key of a wrong type', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(() => store.close());

  /** Of a type that no key of ours has. */
  const spoil = async (key: string) => {
    await engine.redis.del(key);
    await engine.redis.rpush(key, 'not what it should be');
  };
  const available = async (pool: PoolId): Promise<string[]> => {
    if (pool === 'pool:basic')
      return (await engine.redis.zrange('voice:pool:basic:available', 0, '-1')).sort();
    const key = pool === 'merchant:vip' ? 'voice:merchant:vip:pods' : `voice:${pool}:available`;
    return (await engine.redis.smembers(key)).sort();
  };
  const sweepPods = (pool: PoolId) => store.pools.sweep(store.epoch, pool, 'pods', '0', 100);
  const settled = async () =>
    expect(await checkInvariants(engine.redis, { settled: true, nowMs: store.nowMs() })).toEqual([]);
  /** `a` has the call, with any other pods beside it. */
  const busy = async (pool: PoolId, ...others: string[]) => {
    await store.register(['a'], pool);
    await store.allocate('call', [pool]);
    await store.register(others, pool);
  };

  describe.each(cases)('$key in $pool', ({ pool, key }) => {
    it('the sweep takes its pod out, names it, and does its work on the others', async () => {
      await store.register(['b'], pool);
      await store.allocate('expired', [pool]);
      await store.register(['a', 'c'], pool);
      await spoil(key);
      store.advance(testTimes.leaseTtlMs);
      expect(await store.sweep()).toEqual({ ...idle, callsEnded: 1, podsTakenOut: 1 });
      expect(await available(pool)).toEqual(['b', 'c']);
      expect((await sweepPods(pool)).unreadable).toEqual([{ podName: 'a', key }]);
    });

    it('the sweep makes its pod available after the key is deleted', async () => {
      await store.register(['a', 'b'], pool);
      await spoil(key);
      await store.sweep();
      await engine.redis.del(key);
      expect(await store.sweep()).toEqual({ ...idle, podsPutBack: 1 });
      expect(await available(pool)).toEqual(['a', 'b']);
      await settled();
    });

    it('the calls of its pod are back after the key is restored', async () => {
      await busy(pool, 'b');
      await engine.redis.rename(key, 'kept');
      await spoil(key);
      await store.sweep();
      await engine.redis.rename('kept', key);
      await store.sweep();
      expect(await store.calls.call('call')).toMatchObject({ podName: 'a' });
      await settled();
    });

    it('after the sweep every other pod can take a call, and no request fails', async () => {
      await store.register(['a', 'b', 'c'], pool);
      await spoil(key);
      await store.sweep();
      const given = [];
      for (const sid of ['1', '2', '3', '4']) given.push((await store.allocate(sid, [pool]))?.podName);
      expect(new Set(given.filter(Boolean))).toEqual(new Set(['b', 'c']));
    });

    it('before the sweep no allocate fails, and every other pod can take a call', async () => {
      await store.register(['a', 'b', 'c'], pool);
      await spoil(key);
      const given = new Set<string | undefined>();
      for (const sid of ['1', '2', '3', '4', '5', '6'])
        given.add((await store.allocate(sid, [pool]))?.podName);
      expect([...given]).toEqual(expect.arrayContaining(['b', 'c']));
      // A status of a wrong type does not block the pod.
      if (key === 'voice:pod:calls:a') expect(given).not.toContain('a');
    });

    it('an allocate without a free pod ends expired calls elsewhere', async () => {
      await busy(pool, 'b');
      for (const sid of ['1', '2', '3', '4', '5']) await store.allocate(sid, [pool]);
      await spoil(key);
      store.advance(testTimes.leaseTtlMs);
      expect(await store.allocate('next', [pool])).toMatchObject({ podName: 'b' });
    });

    it('a batch of registrations registers the others, and names the skipped pod and its key', async () => {
      await store.register(['a'], pool);
      await spoil(key);
      const batch = ['a', 'b'].map((name) => registration(name, pool, { uid: 'u' }));
      expect(await store.pools.register(store.epoch, batch, { candidates: [], last: pool })).toEqual([
        { podName: 'a', outcome: 'unreadable', pool: '', lostCalls: [], wrongKey: key },
        { podName: 'b', outcome: 'new', pool, lostCalls: [] },
      ]);
      expect(await available(pool)).toEqual(['b']);
    });

    it('a suspension from before the key is deleted stays in effect', async () => {
      await store.register(['a', 'b'], pool);
      await spoil(key);
      const batch = [registration('a', pool, { suspended: 'terminating' })];
      await store.pools.register(store.epoch, batch, { candidates: [], last: pool });
      await engine.redis.del(key);
      await store.sweep();
      expect(await available(pool)).toEqual(['b']);
    });

    it('a pod that was never registered does not change', async () => {
      await spoil(key);
      const batch = [registration('a', pool, { suspended: 'not_ready' })];
      const [row] = await store.pools.register(store.epoch, batch, { candidates: [], last: pool });
      expect(row).toMatchObject({ outcome: 'unreadable', wrongKey: key });
      expect(await engine.redis.keys('voice:*:a')).toEqual([key]);
    });

    it('suspending and removing work on the others, and the key of a removed pod stays', async () => {
      await busy(pool, 'b');
      await spoil(key);
      expect(await store.pools.suspend(store.epoch, 'unconfirmed', ['a', 'b'])).toEqual([-1, 0]);
      expect(await available(pool)).toEqual([]);
      expect(await store.pools.remove(store.epoch, ['a', 'b'], 'gone')).toMatchObject([
        { podName: 'a', wasKnown: true, lostCalls: key === 'voice:pod:a' ? ['call'] : [] },
        { podName: 'b', wasKnown: true },
      ]);
      expect(await engine.redis.exists('voice:pod:tier:a', 'voice:pod:tier:b')).toBe(0);
      expect(await engine.redis.lrange(key, 0, '-1')).toEqual(['not what it should be']);
      // No key says that the call was on it: the call ends with its lease.
      store.advance(testTimes.leaseTtlMs);
      await store.sweep();
      expect((await store.calls.snapshot()).activeCalls).toBe(0);
    });

    it('lists show its pod as unreadable, and counts still work', async () => {
      await store.register(['a', 'b'], pool);
      await spoil(key);
      const { items } = await store.calls.pods(pool, '0', 10);
      expect(Object.fromEntries(items.map(({ podName, blockedBy }) => [podName, blockedBy]))).toEqual({
        a: 'unreadable',
        b: '',
      });
      const counts = (await store.calls.snapshot()).pools.find((one) => one.pool === pool);
      expect(counts).toMatchObject({ assigned: 2 });
    });

    it('a request for this pod alone gets an error, never "no calls"', async () => {
      await busy(pool);
      await spoil(key);
      const wrong = { code: 'internal', message: expect.stringContaining('WRONGTYPE') };
      await expect(store.calls.drain('a')).rejects.toMatchObject(wrong);
      await expect(store.calls.pod('a')).rejects.toMatchObject(wrong);
      await expect(store.calls.report('a', [])).rejects.toMatchObject(wrong);
      // The mark is set: the requested drain stays in effect.
      await engine.redis.del(key);
      await store.sweep();
      expect(await available(pool)).toEqual([]);
    });
  });

  it.each(pools)(
    'a call of %s whose pod has an unreadable status can be released and allocated again',
    async (pool) => {
      await busy(pool);
      await spoil('voice:pod:a');
      expect(await store.calls.renew('call')).toMatchObject({ podName: 'a' });
      expect(await store.calls.release('call')).toMatchObject({ podName: 'a', activeCalls: 0 });
      expect(await store.allocate('next', [pool])).toMatchObject({ podName: 'a', wasExisting: false });
    },
  );

  it('another pod that reports a call of such a pod gets a conflict, and the rest of its report counts', async () => {
    await busy('pool:basic', 'b');
    expect(await store.allocate('own', ['pool:basic'])).toMatchObject({ podName: 'b' });
    await spoil('voice:pod:calls:a');
    expect(await store.calls.report('b', ['own', 'call'])).toMatchObject({
      renewed: ['own'],
      conflicts: ['call'],
    });
  });

  it('more expired calls of such pods than a batch has do not stop the sweep', async () => {
    const pods = Array.from({ length: 30 }, (_, i) => `p${i}`);
    await store.register([...pods, 'well'], 'pool:gold');
    const placed = [];
    for (const pod of [...pods, 'well']) placed.push(await store.allocate(pod, ['pool:gold']));
    const well = placed.find((one) => one?.podName === 'well');
    for (const pod of pods) await spoil(`voice:pod:calls:${pod}`);
    store.advance(testTimes.leaseTtlMs);
    let ended = 0;
    let cursor = '0';
    do {
      const batch = await store.pools.sweep(store.epoch, 'pool:gold', 'calls', cursor, 5);
      ended += batch.callsEnded;
      cursor = batch.cursor;
    } while (cursor !== '0');
    expect(well).toBeDefined();
    expect(ended).toBe(1);
  });

  describe('tiers', () => {
    const change = (gold: string, basic: string) =>
      store.connection.run('setTiers', [
        ...['x', 'replace', '', 'test'],
        ...['pool:gold', gold, 'pool:basic', basic, 'merchant:vip', 'exclusive'],
      ]);

    it.each(needed)('change their type around a pod with %s', async (key) => {
      await store.register(['a', 'b'], 'pool:gold');
      await spoil(key);
      expect(await change('shared:2', 'shared:3')).toEqual(['ok', 2, 1]);
      expect(await engine.redis.zrange('voice:pool:gold:available', 0, '-1')).toEqual(['b']);
    });

    it.each(needed)('do not become exclusive while the calls of a pod cannot be counted: %s', async (key) => {
      await store.register(['a', 'b'], 'pool:basic');
      await spoil(key);
      const reason = `key ${key} of one of its pods has a wrong type; rename it`;
      expect(await change('exclusive', 'exclusive')).toEqual(['conflict', 'pool:basic', reason]);
      expect(await engine.redis.type('voice:pool:basic:available')).toBe('zset');
    });
  });

  describe.each(pools)('in %s', (pool) => {
    it.each(texts)('%s counts as missing', async (key) => {
      await busy(pool, 'b');
      await spoil(key);
      expect(
        await store.pools.register(store.epoch, [registration('a', pool), registration('c', pool)], {
          candidates: [],
          last: pool,
        }),
      ).toMatchObject([{ outcome: key === 'voice:pod:tier:a' ? 'new' : 'known' }, { outcome: 'new' }]);
      store.advance(testTimes.leaseTtlMs);
      expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
      expect(await available(pool)).toEqual(['a', 'b', 'c']);
      expect((await store.calls.pods(pool, '0', 10)).items).toHaveLength(3);
      expect(await store.calls.pod('a')).toMatchObject({ pool, blockedBy: '', calls: [] });
      expect(await store.calls.drain('a')).toMatchObject({ activeCalls: 0 });
      expect(await available(pool)).toEqual(['b', 'c']);
      expect(await store.calls.undrain('a')).toMatchObject({ blockedBy: '' });
    });

    it.each(texts)('%s does not affect the calls of its pod', async (key) => {
      await busy(pool, 'b');
      await spoil(key);
      await store.sweep();
      await store.register(['a', 'b'], pool);
      expect(await store.calls.report('a', ['call'])).toMatchObject({ renewed: ['call'], conflicts: [] });
      expect(await store.calls.release('call')).toMatchObject({ podName: 'a', activeCalls: 0 });
      await store.sweep();
      expect(await available(pool)).toEqual(['a', 'b']);
    });

    it.each(texts)('%s is deleted with its pod', async (key) => {
      await busy(pool, 'b');
      await spoil(key);
      await store.pools.remove(store.epoch, ['a', 'b'], 'gone');
      expect(await engine.redis.keys('voice:*:a')).toEqual([]);
    });

    it('the record of a call: the report of its pod rewrites it', async () => {
      await busy(pool, 'b');
      await spoil('voice:call:call');
      await store.sweep();
      expect(await store.calls.report('a', ['call'])).toMatchObject({ adopted: ['call'], conflicts: [] });
      expect(await store.calls.renew('call')).toMatchObject({ podName: 'a' });
      await settled();
    });

    it('the record of a call: it lives until its lease ends, and the other calls continue', async () => {
      await busy(pool, 'b');
      await store.allocate('other', [pool]);
      await spoil('voice:call:call');
      expect(await store.sweep()).toEqual(idle);
      expect(await store.calls.report('a', [])).toMatchObject({ ended: [] });
      expect((await store.calls.calls(pool, '0', 10)).items.map(({ callSid }) => callSid)).toEqual(['other']);
      await expect(store.calls.renew('call')).rejects.toMatchObject({ code: 'internal' });
      store.advance(testTimes.leaseTtlMs);
      expect(await store.sweep()).toMatchObject({ callsEnded: 2 });
      expect(await engine.redis.exists('voice:call:call')).toBe(0);
      expect(await available(pool)).toEqual(['a', 'b']);
      await settled();
    });

    it('the record of a call: its pod can be removed or restarted', async () => {
      await busy(pool, 'b');
      await spoil('voice:call:call');
      expect(await store.pools.remove(store.epoch, ['a', 'b'], 'gone')).toMatchObject([
        { lostCalls: ['call'] },
        { lostCalls: [] },
      ]);
      await settled();
    });
  });

  it('any other error of the store is an error, and takes no pod out', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await engine.redis.call('ACL', 'SETUSER', 'limited', 'on', '>secret', '~*', '&*', '+@all', '-zcard');
    const limited = new StoreConnection({
      url: engine.url.replace('redis://', 'redis://limited:secret@'),
      keyPrefix: 'voice:',
      commandTimeoutMs: 5000,
      clock: systemClock,
    });
    const sweep = new PoolStore(limited, 30_000).sweep(store.epoch, 'pool:gold', 'pods', '0', 100);
    await expect(sweep).rejects.toThrow(/can't run this command|no permissions to run/);
    expect(await available('pool:gold')).toEqual(['a', 'b']);
    limited.close();
    await engine.redis.call('ACL', 'DELUSER', 'limited');
  });
});
