/**
 * Every key of the data model, made another type by hand, one at a time: it costs what that key describes and nothing
 * else. Calls on other pods and pools continue, no operation stops half-way, and once the key is deleted the leader's
 * ordinary rounds make everything right again.
 */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { StoreLock } from '../../../src/leadership/store-lock.js';
import { describeEngines } from '../../support/engines.js';
import { checkInvariants } from '../../support/invariants.js';
import { openStore, registration, type TestStore, testTimes } from '../../support/store.js';

/** Of the whole store; `pools`, which describes every pool, has a test of its own. */
const shared = [
  ...['tier:config', 'tier:version', 'merchant:config', 'data:version', 'leader:epoch', 'fence'],
  ...['leader', 'pod:metadata', 'reported', 'removals:held', 'removals:confirmed'],
  ...['events', 'journal', 'history', 'tombstones:now'],
];
const ofPools = ['pool:basic', 'merchant:vip', 'pool:silver'].flatMap((pool) => [
  `${pool}:assigned`,
  `${pool}:${pool.startsWith('merchant:') ? 'pods' : 'available'}`,
  `${pool}:calls`,
]);
const ofPods = ['tier', 'draining', 'suspended', 'calls'].map((part) => `pod:${part}:bad`);
const ofOne = [...ofPods, 'pod:bad', 'lease:bad', 'call:of-bad'];
const tiers = {
  tiers: {
    gold: { type: 'exclusive', target: 2 },
    silver: { type: 'exclusive', target: 1 },
    basic: { type: 'shared', target: 2, max_concurrent: 3 },
    vip: { type: 'exclusive', target: 1 },
  },
  default_chain: ['gold', 'silver', 'basic'],
};

describeEngines('one key of a wrong type', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true, tiers });
  });
  afterEach(() => store.close());

  const spoil = async (name: string) => {
    const slice = Math.floor(store.nowMs() / 4000);
    const key = `voice:${name.replace('tombstones:now', `tombstones:${slice}`)}`;
    await engine.redis.del(key);
    await engine.redis.rpush(key, 'not what it should be');
    return key;
  };
  const pods = { 'pool:basic': ['bad'], 'merchant:vip': ['v'], 'pool:silver': ['s'] } as const;
  const registerAll = async (...gold: string[]) => {
    for (const [pool, names] of Object.entries(pods)) await store.register(names, pool as keyof typeof pods);
    await store.register(gold, 'pool:gold');
  };

  it.each([...shared, ...ofPools, ...ofOne])('%s affects only its own pod or pool', async (name) => {
    await registerAll('one', 'two', 'three', 'four');
    await store.allocate('of-bad', ['pool:basic']);
    const live = await store.allocate('live', ['pool:gold']);
    await store.allocate('zombie', ['pool:gold']);
    const key = await spoil(name);

    const chain = ['merchant:vip', 'pool:silver', 'pool:basic', 'pool:gold'] as const;
    const request = { callSid: '', merchantId: '', provider: 'twilio', flow: 'v2', template: 't', chain };
    const explained = await store.calls.explain(request);
    const given = await store.allocate('new', chain);
    expect(given).toBeDefined();
    expect(explained.outcome.allocation?.sourcePool).toBe(given?.sourcePool);
    expect(await store.allocate('new', chain)).toMatchObject({ podName: given?.podName, wasExisting: true });
    expect(await store.allocate('gold', ['pool:gold'])).toMatchObject({ sourcePool: 'pool:gold' });
    expect(await store.allocate('none', ['merchant:other'])).toBeUndefined();
    expect(await store.calls.renew('live')).toMatchObject({ podName: live?.podName });
    const { podName } = live ?? { podName: '' };
    expect(await store.calls.report(podName, ['live', 'x'])).toMatchObject({ renewed: ['live'] });
    expect(await store.calls.drain(podName)).toMatchObject({ activeCalls: 1 });
    expect(await store.calls.undrain(podName)).toMatchObject({ activeCalls: 1 });
    expect(await store.calls.release('gold')).toMatchObject({ releasedToPool: 'pool:gold' });
    expect(await store.calls.release('live')).toMatchObject({ releasedToPool: 'pool:gold' });
    expect(await store.calls.pod(podName)).toMatchObject({ calls: [] });
    await store.calls.release('new');

    const batch = ['bad', 'five'].map((pod) => registration(pod, pod === 'bad' ? 'pool:basic' : 'pool:gold'));
    const candidates = chain.map((pool) => ({ pool, target: 1 }));
    const results = await store.pools.register(store.epoch, batch, { candidates, last: 'pool:gold' });
    expect(results[1]).toMatchObject({ podName: 'five', outcome: 'new' });
    expect(
      await store.pools.register('', [registration('six')], { candidates, last: 'pool:gold' }),
    ).toMatchObject([{ outcome: 'new' }]);
    expect(await store.pools.suspend(store.epoch, 'unconfirmed', ['five'])).toEqual([0]);
    expect(await store.pools.remove(store.epoch, ['five', 'six'], 'gone')).toHaveLength(2);
    await store.pools.removals();
    if (name !== 'reported') await store.pools.reported();
    await store.pools.confirmRemovals('test');

    store.advance(testTimes.leaseTtlMs);
    expect((await store.sweep()).callsEnded).toBeGreaterThan(0);
    const gold = (await store.calls.snapshot()).pools.find(({ pool }) => pool === 'pool:gold');
    expect(gold).toMatchObject({ assigned: 4, available: 4, activeCalls: 0 });

    await engine.redis.del(key);
    await registerAll('one', 'two', 'three', 'four');
    // The calls of a pod are truth: only its report says again which there are.
    if (name === 'pod:calls:bad') await store.calls.report('bad', ['of-bad']);
    store.advance(testTimes.leaseTtlMs);
    await store.sweep();
    await store.sweep();
    expect(await checkInvariants(engine.redis, { settled: true, nowMs: store.nowMs() })).toEqual([]);
    await spoil(name);
    expect(Number(await store.pools.takeEpoch('test'))).toBeGreaterThan(Number(store.epoch));
  });

  it.each(ofPools.filter((name) => !name.endsWith(':assigned')))(
    '%s is derived: the sweep rebuilds it',
    async (name) => {
      await registerAll('one');
      const pool = name.split(':').slice(0, 2).join(':') as keyof typeof pods;
      await store.allocate('call', [pool]);
      await spoil(name);
      await store.sweep();
      await store.sweep();
      expect(await checkInvariants(engine.redis, { settled: true, nowMs: store.nowMs() })).toEqual([]);
      expect((await store.calls.snapshot()).activeCalls).toBe(1);
    },
  );

  it.each(['pool:basic', 'merchant:vip', 'pool:silver'] as const)(
    '%s:assigned is not derived: it stays, the snapshot names it, and its pods take calls',
    async (pool) => {
      await registerAll('one');
      const key = await spoil(`${pool}:assigned`);
      await store.sweep();
      await store.register(pods[pool], pool);
      expect(await engine.redis.lrange(key, 0, -1)).toEqual(['not what it should be']);
      const { pools } = await store.calls.snapshot();
      const unreadable = pools.flatMap((one) => (one.unreadableKey === '' ? [] : [one]));
      expect(unreadable).toEqual([expect.objectContaining({ pool, unreadableKey: key })]);
      expect(await store.allocate('call', [pool])).toMatchObject({ sourcePool: pool });
    },
  );

  it('pools: an error until the leader rebuilds it from the configuration', async () => {
    await registerAll('one');
    await spoil('pools');
    await expect(store.allocate('early', ['pool:gold'])).rejects.toMatchObject({ code: 'internal' });
    await expect(store.calls.snapshot()).rejects.toMatchObject({ code: 'internal' });
    const kinds = ['pool:gold', 'exclusive', 'pool:silver', 'exclusive', 'pool:basic', 'shared:3'];
    await store.connection.run('setTiers', [
      '{}',
      'replace',
      '',
      'test',
      ...kinds,
      'merchant:vip',
      'exclusive',
    ]);
    expect(await store.allocate('call', ['pool:gold'])).toMatchObject({ podName: 'one' });
    await store.sweep();
    expect(await checkInvariants(engine.redis, { settled: true, nowMs: store.nowMs() })).toEqual([]);
  });

  it('leader: a lock that no replica holds', async () => {
    await spoil('leader');
    const lock = new StoreLock(store.connection);
    expect(await lock.read(5000)).toBeUndefined();
    const record = { holder: 'a', writer: 'w', durationMs: 1, acquiredAt: '', renewedAt: '', transitions: 0 };
    expect(await lock.write(record, undefined, 5000)).toMatchObject({ holder: 'a' });
    expect(await lock.read(5000)).toMatchObject({ holder: 'a' });
  });
});
