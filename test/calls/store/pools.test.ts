/** register, suspend, remove and the leader's epoch. Guarantee 9. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { type Assignment, EpochRefused, type PodRegistration } from '../../../src/calls/store/pool-store.js';
import type { PoolId } from '../../../src/config/tiers.js';
import { describeEngines } from '../../support/engines.js';
import { openStore, registration, type TestStore, testTimes } from '../../support/store.js';

const toGold: Assignment = { candidates: [], last: 'pool:gold' };

describeEngines('pools', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(() => store.close());

  const register = (pods: PodRegistration[], assignment = toGold, epoch = store.epoch) =>
    store.pools.register(epoch, pods, assignment);
  const one = async (pod: PodRegistration, assignment = toGold) => (await register([pod], assignment))[0];

  it.each([
    ['pool:gold', 'gold', 'voice:pool:gold'],
    ['pool:basic', 'basic', 'voice:pool:basic'],
    ['merchant:vip', 'merchant:vip', 'voice:merchant:vip'],
    ['merchant:acme', 'merchant:acme', 'voice:merchant:acme'],
  ] as [PoolId, string, string][])(
    'a pod registered for %s is listed and can take a call',
    async (pool, tier, base) => {
      expect(await one(registration('a', pool, { uid: 'u1', metadata: '{"ip":"10.0.0.1"}' }))).toEqual({
        podName: 'a',
        outcome: 'new',
        pool,
        lostCalls: [],
      });
      expect(await engine.redis.get('voice:pod:tier:a')).toBe(tier);
      expect(await engine.redis.smembers(`${base}:assigned`)).toEqual(['a']);
      expect(await engine.redis.hget('voice:pod:metadata', 'a')).toBe('{"ip":"10.0.0.1"}');
      expect(await engine.redis.hgetall('voice:pod:a')).toMatchObject({ status: 'available', uid: 'u1' });
      expect(await store.allocate('1', [pool])).toMatchObject({ podName: 'a', sourcePool: pool });
    },
  );

  it('registering again changes nothing, busy or idle', async () => {
    await register([registration('a', 'pool:gold'), registration('s', 'pool:basic')]);
    await store.allocate('1', ['pool:gold']);
    await store.allocate('2', ['pool:basic']);
    const again = await register([registration('a'), registration('s')]);
    expect(again.map(({ outcome, pool }) => [outcome, pool])).toEqual([
      ['known', 'pool:gold'],
      ['known', 'pool:basic'],
    ]);
    expect(await store.allocate('3', ['pool:gold'])).toBeUndefined();
    expect(await engine.redis.zscore('voice:pool:basic:available', 's')).toBe('1');
  });

  it('new pods fill merchant pools, then the chain, each up to its target; the rest go to the last tier', async () => {
    const assignment: Assignment = {
      candidates: [
        { pool: 'merchant:vip', target: 1 },
        { pool: 'pool:gold', target: 2 },
        { pool: 'pool:basic', target: 1 },
      ],
      last: 'pool:basic',
    };
    const pods = ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => registration(name));
    const chosen = (await register(pods, assignment)).map(({ pool }) => pool);
    expect(chosen).toEqual([
      'merchant:vip',
      'pool:gold',
      'pool:gold',
      'pool:basic',
      'pool:basic',
      'pool:basic',
    ]);
    expect((await register(pods, { candidates: [], last: 'pool:gold' })).map(({ pool }) => pool)).toEqual(
      chosen,
    );
  });

  it('a pod moves to the pool its label names, with its call', async () => {
    await store.register(['a'], 'pool:basic');
    await store.allocate('1', ['pool:basic']);
    expect(await one(registration('a', 'merchant:acme'))).toMatchObject({ outcome: 'moved', lostCalls: [] });
    expect(await store.calls.snapshot()).toMatchObject({ activeCalls: 1 });
    expect(await engine.redis.exists('voice:pool:basic:assigned', 'voice:pool:basic:available')).toBe(0);
    expect(await store.allocate('2', ['merchant:acme'])).toBeUndefined();
    expect(await store.calls.release('1')).toMatchObject({ releasedToPool: 'merchant:acme' });
  });

  it('a pod with more calls than the new pool allows waits until they have ended', async () => {
    await store.register(['a'], 'pool:basic');
    for (const sid of ['1', '2']) await store.allocate(sid, ['pool:basic']);
    expect(await one(registration('a', 'pool:gold'))).toMatchObject({
      outcome: 'waiting',
      pool: 'pool:basic',
    });
    await store.calls.release('1');
    expect(await one(registration('a', 'pool:gold'))).toMatchObject({ outcome: 'moved', pool: 'pool:gold' });
  });

  it('a merchant pool made by a label vanishes with its last pod', async () => {
    await store.register(['a'], 'merchant:acme');
    await store.pools.remove(store.epoch, ['a'], 'gone');
    expect((await store.calls.snapshot()).pools.map(({ pool }) => pool)).not.toContain('merchant:acme');
    expect(await engine.redis.keys('voice:merchant:acme*')).toEqual([]);
  });

  it('a pool the store does not know gets no pod: one that has a place keeps it, a new one waits', async () => {
    const deleted = (name: string) => one(registration(name, 'pool:deleted'));
    expect(await deleted('a')).toMatchObject({ outcome: 'skipped', pool: '' });
    expect(await engine.redis.keys('voice:*:a')).toEqual([]);
    expect(await one(registration('a'))).toMatchObject({ outcome: 'new', pool: 'pool:gold' });
    expect(await deleted('a')).toMatchObject({ outcome: 'known', pool: 'pool:gold' });
    expect(await engine.redis.exists('voice:pool:deleted:assigned')).toBe(0);
  });

  it('a replaced pod without a pool for the new one leaves no keys, not even a drain', async () => {
    const startedAt = new Date(0).toISOString();
    await one(registration('a', 'pool:gold', { uid: 'first' }));
    await store.calls.drain('a', 0);
    const successor = registration('a', 'pool:deleted', { uid: 'second', startedAt });
    expect(await one(successor)).toMatchObject({ outcome: 'skipped', pool: '' });
    expect(await engine.redis.keys('voice:*:a')).toEqual([]);
  });

  it.each(['terminating', 'not_ready', 'unconfirmed'] as const)(
    'a pod suspended as %s keeps its calls and gets none, until it is registered again',
    async (reason) => {
      await store.register(['a'], 'pool:basic');
      await store.allocate('1', ['pool:basic']);
      expect(await store.pools.suspend(store.epoch, reason, ['a', 'unknown'])).toEqual([1, -1]);
      expect(await store.pools.suspend(store.epoch, reason, ['a'])).toEqual([1]);
      expect(await store.sweep()).toEqual({ callsEnded: 0, podsPutBack: 0, podsTakenOut: 0 });
      expect(await store.allocate('2', ['pool:basic'])).toBeUndefined();
      expect((await store.calls.pod('a')).blockedBy).toBe(reason);
      expect(await engine.redis.exists('voice:pod:suspended:unknown')).toBe(0);
      await store.register(['a'], 'pool:basic');
      expect(await engine.redis.zscore('voice:pool:basic:available', 'a')).toBe('1');
    },
  );

  it.each(['terminating', 'not_ready'] as const)('a pod may be registered as %s', async (suspended) => {
    await register([registration('a', 'pool:gold', { suspended })]);
    expect(await store.allocate('1', ['pool:gold'])).toBeUndefined();
    expect((await store.calls.pod('a')).blockedBy).toBe(suspended);
  });

  it('a pod that must report first stays blocked until it does, also if registered again', async () => {
    const pod = registration('a', 'pool:gold', { mustReport: true });
    for (let i = 0; i < 3; i++) await register([pod]);
    expect(await store.allocate('1', ['pool:gold'])).toBeUndefined();
    await store.calls.report('a', []);
    await register([pod]);
    expect(await store.allocate('1', ['pool:gold'])).toMatchObject({ podName: 'a' });
  });

  it.each(['unconfirmed', 'not_ready'] as const)(
    'a pod that has to report still has to after it was suspended as %s',
    async (reason) => {
      const pod = registration('a', 'pool:gold', { mustReport: true });
      await register([pod]);
      await store.pools.suspend(store.epoch, reason, ['a']);
      await register([pod]);
      expect(await store.allocate('1', ['pool:gold'])).toBeUndefined();
    },
  );

  it('remove ends the calls, names them, and a second remove changes nothing', async () => {
    await store.register(['s'], 'pool:basic');
    for (const sid of ['1', '2']) await store.allocate(sid, ['pool:basic']);
    const removed = await store.pools.remove(store.epoch, ['s', 'unknown'], 'gone');
    expect(removed).toEqual([
      { podName: 's', wasKnown: true, lostCalls: ['1', '2'] },
      { podName: 'unknown', wasKnown: false, lostCalls: [] },
    ]);
    expect(await store.pools.remove(store.epoch, ['s'], 'gone')).toEqual([
      { podName: 's', wasKnown: false, lostCalls: [] },
    ]);
    expect(await store.calls.snapshot()).toMatchObject({ activeCalls: 0 });
    await expect(store.calls.pod('s')).rejects.toMatchObject({ code: 'pod_not_found' });
    await store.register(['s'], 'pool:basic');
    expect(await store.calls.report('s', ['1'])).toMatchObject({ conflicts: ['1'] });
  });

  it.each([
    { before: 'u1', now: 'u2', lost: ['1'] },
    { before: 'u1', now: 'u1', lost: [] },
    { before: '', now: 'u2', lost: [] },
    { before: 'u1', now: '', lost: [] },
  ])('a pod of uid $before that comes as $now loses the calls $lost', async ({ before, now, lost }) => {
    await register([registration('a', 'pool:gold', { uid: before })]);
    await store.allocate('1', ['pool:gold']);
    await store.calls.drain('a');
    expect(await one(registration('a', 'pool:gold', { uid: now }))).toMatchObject({
      outcome: lost.length > 0 ? 'new' : 'known',
      lostCalls: lost,
    });
    const next = await store.allocate('2', ['pool:gold']);
    expect(next?.podName).toBe(lost.length > 0 ? 'a' : undefined);
  });

  it('epochs only grow, also after the store has lost everything', async () => {
    const epochs = [Number(store.epoch), Number(await store.pools.takeEpoch())];
    await engine.redis.flushall();
    store.advance(1);
    epochs.push(Number(await store.pools.takeEpoch()), Number(await store.pools.takeEpoch()));
    expect(epochs).toEqual([...new Set(epochs)].sort((a, b) => a - b));
  });

  it('rejects every pool write of an older leader, and changes nothing', async () => {
    await store.register(['a'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    store.advance(testTimes.leaseTtlMs + 1);
    const old = store.epoch;
    await store.pools.takeEpoch();
    const writes = [
      () => register([registration('b')], toGold, old),
      () => store.pools.suspend(old, 'not_ready', ['a']),
      () => store.pools.remove(old, ['a'], 'gone'),
      () => store.pools.sweep(old, 'pool:gold', 'calls', '0', 10),
      () => store.pools.sweep(old, 'pool:gold', 'pods', '0', 10),
    ];
    for (const write of writes) await expect(write()).rejects.toBeInstanceOf(EpochRefused);
    expect(await store.calls.pod('a')).toMatchObject({ blockedBy: '', calls: [{ callSid: '1' }] });
    await expect(store.calls.pod('b')).rejects.toMatchObject({ code: 'pod_not_found' });
  });

  it('a pool write of a newer leader than the store knows raises the epoch', async () => {
    const newer = String(Number(store.epoch) + 5_000_000);
    await store.pools.suspend(newer, 'not_ready', []);
    expect((await store.calls.snapshot()).epoch).toBe(newer);
    await expect(store.pools.suspend(store.epoch, 'not_ready', [])).rejects.toBeInstanceOf(EpochRefused);
  });
});
