/** The store is made to agree with the cluster. Guarantee 8. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { EpochRefused } from '../../src/calls/store/pool-store.js';
import { describeEngines } from '../support/engines.js';
import { checkInvariants, readKeyspace } from '../support/invariants.js';
import { type Leader, openLeader, textOf } from './fixture.js';

const names = (count: number, prefix = 'pod') => Array.from({ length: count }, (_, i) => `${prefix}-${i}`);
const nothing = { held: 0, registered: 0, moved: 0, removed: 0, calls_lost: 0 };

describeEngines('reconcile', (engine) => {
  let leader: Leader;
  beforeEach(async () => {
    leader = await openLeader(engine.url);
  });
  afterEach(async () => {
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
    leader.store.close();
  });

  const assigned = async (pool: string) => (await engine.redis.smembers(`voice:${pool}:assigned`)).sort();
  /** Every key; sets have no order. */
  const content = async () =>
    new Map(
      [...(await readKeyspace(engine.redis)).keys].map(([key, { type, ttlMs, items }]) => [
        key,
        { type, ttlMs, items: type === 'set' ? items.toSorted() : items },
      ]),
    );
  const sizes = async () =>
    Object.fromEntries(
      (await leader.store.calls.snapshot()).pools.map(({ pool, assigned }) => [pool, assigned]),
    );

  it('a static list without a pod holds it if it has live calls, and removes it otherwise', async () => {
    leader.source.name = 'static';
    leader.source.set({ name: 'busy', tier: 'gold' }, { name: 'idle', tier: 'basic' });
    await leader.reconcile();
    await leader.store.allocate('call', ['pool:gold']);
    leader.source.set('other');
    expect(await leader.reconcile()).toMatchObject({ held: 1, removed: 1, calls_lost: 0 });
    expect(await leader.store.calls.renew('call')).toMatchObject({ podName: 'busy' });
    leader.source.set('other', { name: 'busy', tier: 'gold' });
    expect(await leader.reconcile()).toMatchObject({ held: 0 });
    expect(await leader.store.calls.pod('busy')).toMatchObject({ blockedBy: '' });
  });

  it('new pods fill merchant pools, then the chain up to its targets, then its last tier', async () => {
    leader.source.set(...names(9));
    expect(await leader.reconcile()).toEqual({ ...nothing, pods: 9, registered: 9 });
    expect(await sizes()).toEqual({ 'merchant:vip': 1, 'pool:gold': 2, 'pool:basic': 6 });
  });

  it('a second run changes nothing', async () => {
    leader.source.set(...names(9));
    await leader.reconcile();
    const before = await content();
    expect(await leader.reconcile()).toEqual({ ...nothing, pods: 9 });
    expect(await content()).toEqual(before);
  });

  it('a pod keeps the tier it has although an earlier one is under its target now', async () => {
    leader.source.set(...names(5));
    await leader.reconcile();
    const basic = await assigned('pool:basic');
    leader.source.set(...basic);
    expect(await leader.reconcile()).toEqual({ ...nothing, pods: basic.length, removed: 3 });
    expect(await sizes()).toEqual({ 'merchant:vip': 0, 'pool:gold': 0, 'pool:basic': basic.length });
    leader.source.set(...basic, 'new');
    await leader.reconcile();
    expect(await assigned('merchant:vip')).toEqual(['new']);
  });

  it('the pool that a pod names wins over targets and over its present tier', async () => {
    leader.source.set(...names(4).map((name) => ({ name, tier: 'gold' })), { name: 'm', merchant: 'vip' });
    await leader.reconcile();
    expect(await sizes()).toEqual({ 'merchant:vip': 1, 'pool:gold': 4, 'pool:basic': 0 });
    leader.source.set({ name: 'pod-0', tier: 'basic' }, ...names(4).slice(1), { name: 'm', merchant: 'vip' });
    expect(await leader.reconcile()).toMatchObject({ moved: 1, registered: 0, removed: 0 });
    expect(await assigned('pool:basic')).toEqual(['pod-0']);
    expect(await assigned('pool:gold')).toEqual(['pod-1', 'pod-2', 'pod-3']);
  });

  it('ignores an unknown tier', async () => {
    leader.source.set({ name: 'a', tier: 'nowhere' });
    await leader.reconcile();
    expect(await assigned('merchant:vip')).toEqual(['a']);
  });

  it('a merchant pool exists from its first pod to its last', async () => {
    leader.source.set({ name: 'a', merchant: 'acme' });
    await leader.reconcile();
    expect(await sizes()).toMatchObject({ 'merchant:acme': 1 });
    expect(await leader.store.allocate('1', ['merchant:acme'])).toMatchObject({ podName: 'a' });
    leader.source.set();
    expect(await leader.reconcile()).toMatchObject({ removed: 1, calls_lost: 1 });
    expect(await sizes()).not.toHaveProperty('merchant:acme');
    expect(await engine.redis.keys('voice:merchant:acme*')).toEqual([]);
  });

  it('reassigns pods of a deleted tier with their calls, and removes every key of the tier', async () => {
    leader.source.set(...names(5));
    await leader.reconcile();
    const gold = await assigned('pool:gold');
    const call = await leader.store.allocate('1', ['pool:gold']);
    await leader.settings.replaceTiers(
      {
        tiers: {
          silver: { type: 'exclusive', target: 1 },
          basic: { type: 'shared', target: 1, max_concurrent: 3 },
          vip: { type: 'exclusive', target: 1 },
        },
        default_chain: ['silver', 'basic'],
      },
      'test',
    );
    expect(await leader.reconcile()).toEqual({ ...nothing, pods: 5, moved: 2 });
    expect(await engine.redis.keys('voice:pool:gold:*')).toEqual([]);
    expect(await engine.redis.hexists('voice:pools', 'pool:gold')).toBe(0);
    expect(await sizes()).toEqual({ 'merchant:vip': 1, 'pool:silver': 1, 'pool:basic': 3 });
    const homes = [...(await assigned('pool:silver')), ...(await assigned('pool:basic'))];
    expect(homes).toEqual(expect.arrayContaining(gold));
    // The call is where it was.
    expect(await leader.store.calls.call('1')).toMatchObject({ podName: call?.podName, fence: call?.fence });
    expect((await leader.store.calls.release('1', call?.fence)).podName).toBe(call?.podName);
  });

  it('a shared pod with two calls waits for its move to an exclusive tier until one has ended', async () => {
    leader.source.set({ name: 'a', tier: 'basic' });
    await leader.reconcile();
    for (const sid of ['1', '2']) await leader.store.allocate(sid, ['pool:basic']);
    leader.source.set({ name: 'a', tier: 'gold' });
    expect(await leader.reconcile()).toEqual({ ...nothing, pods: 1 });
    expect(await assigned('pool:basic')).toEqual(['a']);
    await leader.store.calls.release('2');
    expect(await leader.reconcile()).toEqual({ ...nothing, pods: 1, moved: 1 });
    expect(await assigned('pool:gold')).toEqual(['a']);
    // It brought its call along: an exclusive pod with a call takes no other.
    expect(await leader.store.allocate('3', ['pool:gold'])).toBeUndefined();
    await leader.store.calls.release('1');
    expect(await leader.store.allocate('3', ['pool:gold'])).toMatchObject({ podName: 'a' });
  });

  it('ghosts go with every trace, and the calls they had are counted as lost', async () => {
    leader.source.set({ name: 'a', tier: 'basic' }, { name: 'b', tier: 'gold' }, { name: 'c', tier: 'gold' });
    await leader.reconcile();
    for (const sid of ['1', '2', '3']) await leader.store.allocate(sid, ['pool:basic']);
    leader.source.set({ name: 'b', tier: 'gold' });
    expect(await leader.reconcile()).toEqual({ ...nothing, pods: 1, removed: 2, calls_lost: 3 });
    expect(leader.lost).toEqual([['removed', 3]]);
    expect(await engine.redis.keys('voice:*:a')).toEqual([]);
    expect(await engine.redis.keys('voice:call:*')).toEqual([]);
    await expect(leader.store.calls.pod('a')).rejects.toMatchObject({ code: 'pod_not_found' });
  });

  it('another pod of the same name ends the calls of the old one', async () => {
    leader.source.set({ name: 'a', uid: 'first', tier: 'gold' });
    await leader.reconcile();
    await leader.store.allocate('1', ['pool:gold']);
    leader.source.set({ name: 'a', uid: 'second', tier: 'gold' });
    expect(await leader.reconcile()).toMatchObject({ registered: 1, calls_lost: 1 });
    expect(leader.lost).toEqual([['replaced', 1]]);
    await expect(leader.store.calls.call('1')).rejects.toMatchObject({ code: 'call_not_found' });
    expect(await leader.store.allocate('2', ['pool:gold'])).toMatchObject({ podName: 'a' });
  });

  it('a pod that is not ready keeps its calls and takes no new one', async () => {
    leader.source.set({ name: 'a', tier: 'basic' });
    await leader.reconcile();
    await leader.store.allocate('1', ['pool:basic']);
    leader.source.set({ name: 'a', tier: 'basic', state: 'not_ready' });
    await leader.reconcile();
    expect(await leader.store.allocate('2', ['pool:basic'])).toBeUndefined();
    expect(await leader.store.calls.call('1')).toMatchObject({ podName: 'a' });
    leader.source.set({ name: 'a', tier: 'basic' });
    await leader.reconcile();
    expect(await leader.store.allocate('2', ['pool:basic'])).toMatchObject({ podName: 'a' });
  });

  it('a flush heals in one run: configuration, pools and pods are back', async () => {
    leader.source.set(...names(60));
    await leader.reconcile();
    await leader.store.allocate('1', ['pool:gold']);
    const before = await sizes();
    await engine.redis.flushall();
    expect(await leader.store.allocate('2', ['pool:gold'])).toBeUndefined();
    expect(await leader.reconcile()).toEqual({ ...nothing, pods: 60, registered: 60 });
    expect(await sizes()).toEqual(before);
    expect(await engine.redis.get('voice:tier:config')).toBe(textOf(configuration()));
    expect(await engine.redis.get('voice:leader:epoch')).toBe(leader.store.epoch);
    expect(await leader.store.allocate('2', ['pool:gold'])).toBeDefined();
  });

  it('rebuilds lost pools from the configuration', async () => {
    leader.source.set(...names(6));
    await leader.reconcile();
    const before = await sizes();
    await engine.redis.del('voice:pools');
    await leader.reconcile();
    expect(await sizes()).toEqual(before);
  });

  it('more pods than one batch are all registered, and all removed', async () => {
    leader.source.set(...names(230));
    expect(await leader.reconcile()).toMatchObject({ registered: 230 });
    leader.source.set('pod-7');
    for (let i = 0; i < 2; i++) expect(await leader.reconcile()).toMatchObject({ held: 229, removed: 0 });
    expect(await leader.reconcile()).toMatchObject({ held: 0, removed: 229, registered: 0 });
    expect(Object.values(await sizes()).reduce((sum, size) => sum + size)).toBe(1);
  });

  it('a source that fails changes nothing: an error is not an empty list', async () => {
    leader.source.set(...names(6));
    await leader.reconcile();
    const before = await sizes();
    leader.source.failure = new Error('the cluster does not answer');
    await expect(leader.reconcile()).rejects.toThrow('does not answer');
    expect(await sizes()).toEqual(before);
  });

  it('an aborted run does nothing more', async () => {
    leader.source.set(...names(6));
    const counts = await leader.reconciler.runOnce(leader.store.epoch, AbortSignal.abort());
    expect(counts).toEqual({ ...nothing, pods: 6 });
    expect(Object.values(await sizes())).toEqual([0, 0, 0]);
  });

  it('an older leader is refused, whether it registers or removes', async () => {
    leader.source.set(...names(3));
    await leader.reconcile();
    const before = await sizes();
    await leader.store.pools.takeEpoch();
    await expect(leader.reconcile()).rejects.toBeInstanceOf(EpochRefused);
    leader.source.set();
    await expect(leader.reconcile()).rejects.toBeInstanceOf(EpochRefused);
    expect(await sizes()).toEqual(before);
  });

  const configuration = () => ({
    tiers: {
      gold: { type: 'exclusive', target: 2 },
      basic: { type: 'shared', target: 2, max_concurrent: 3 },
      vip: { type: 'exclusive', target: 1 },
    },
    default_chain: ['gold', 'basic'],
  });
});
