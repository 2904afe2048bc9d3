/** The only writer of pods drops outdated reports. Guarantee 9. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { EpochRefused } from '../../src/calls/store/pool-store.js';
import type { ClusterPod } from '../../src/cluster/pods.js';
import { noWrites } from '../../src/pool/pod-writer.js';
import { describeEngines } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { type Leader, openLeader } from './fixture.js';

const never = new AbortController().signal;

const pod = (version: string | undefined, extra: Partial<ClusterPod> = {}): ClusterPod => ({
  name: 'a',
  uid: 'first',
  state: 'ready',
  tier: 'gold',
  mustReport: false,
  ...(version === undefined ? {} : { version }),
  ...extra,
});

describeEngines('placing pods', (engine) => {
  let leader: Leader;
  beforeEach(async () => {
    leader = await openLeader(engine.url);
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
    leader.store.close();
  });

  const watch = async (...changes: ClusterPod[]) => {
    const counts = noWrites();
    for (const change of changes) await leader.writer.writeChange(leader.store.epoch, change, counts, never);
    return counts;
  };
  const list = (version: string, ...pods: ClusterPod[]) => {
    leader.source.version = version;
    leader.source.pods = pods;
    return leader.reconcile();
  };
  const allocate = (sid: string) => leader.store.allocate(sid, ['pool:gold']);
  const uid = (name = 'a') => engine.redis.hget(`voice:pod:${name}`, 'uid');
  const suspension = (name = 'a') => engine.redis.get(`voice:pod:suspended:${name}`);
  const known = async () => (await engine.redis.keys('voice:pod:tier:*')).map((key) => key.slice(15)).sort();
  const second = { uid: 'second' };
  const gone = { state: 'gone' as const };

  it('a list that the watch overtakes undoes nothing, and is not a restored cluster', async () => {
    await list('10', pod('10'));
    const { source } = leader;
    const answer = source.list.bind(source);
    source.list = async () => {
      const before = await answer();
      await watch(pod('30', { state: 'terminating' }), pod('31', { name: 'b' }));
      return before;
    };
    await list('20', pod('10'));
    expect(await suspension()).toBe('terminating');
    expect(await allocate('1')).toMatchObject({ podName: 'b' });
    expect(await allocate('2')).toBeUndefined();
    expect(leader.log.filter(({ msg }) => /went backwards/.test(msg))).toEqual([]);
  });

  it('a list that is behind the watch removes no pod that the watch has just announced', async () => {
    await list('15');
    // In the store at the start of the list, and not in the list: as with a stale cache.
    await watch(pod('20'));
    leader.source.version = '20';
    await leader.store.register(['b'], 'pool:basic');
    const counts = noWrites();
    await leader.writer.remove(leader.store.epoch, ['a', 'b'], '19', counts, never);
    expect(await known()).toEqual(['a']);
    expect(counts.removed).toBe(1);
  });

  it('the brake holds no pod that the watch has announced after the list', async () => {
    await watch(pod('20'), pod('9', { name: 'b' }));
    await leader.writer.hold(leader.store.epoch, ['a', 'b'], '19', never);
    expect([await suspension('a'), await suspension('b')]).toEqual([null, 'unconfirmed']);
    expect((await leader.store.pools.removals()).held).toEqual(['b']);
  });

  it.each([
    ['DELETED', pod('12', gone)],
    ['MODIFIED, terminating', pod('11', { state: 'terminating' })],
    ['MODIFIED, not ready', pod('11', { state: 'not_ready' })],
    ['ADDED', pod('10')],
    ['MODIFIED after a restart', pod('11', { restarts: 3 })],
  ])('a late %s of the old pod does not touch its successor, nor the calls it has', async (_, late) => {
    await list('10', pod('10', { restarts: 0 }));
    await list('14', pod('13', { ...second, restarts: 0 }));
    const call = await allocate('1');
    expect(call).toMatchObject({ podName: 'a' });
    expect(await watch(late)).toEqual(noWrites());
    expect(await uid()).toBe('second');
    expect(await suspension()).toBeNull();
    expect(await leader.store.calls.renew('1', call?.fence)).toMatchObject({ podName: 'a' });
  });

  it('a pod that a list did not have is not restored by a watch that is behind', async () => {
    await list('10', pod('10'), pod('9', { name: 'b' }));
    await list('20', pod('9', { name: 'b' }));
    expect(await watch(pod('15'), pod('16', { state: 'terminating' }))).toEqual(noWrites());
    expect(await known()).toEqual(['b']);
    // Nor one that came and went between two lists.
    await watch(pod('17', { name: 'c' }), pod('18', { name: 'c', ...gone }));
    expect(await known()).toEqual(['b']);
    expect(await watch(pod('21', second))).toMatchObject({ registered: 1 });
    expect(await known()).toEqual(['a', 'b']);
  });

  it('a pod that a list is removing is not restored by a watch that is behind', async () => {
    await list('10', pod('10'));
    const removal = leader.writer.remove(leader.store.epoch, ['a'], '20', noWrites(), never);
    await Promise.all([removal, watch(pod('15'))]);
    expect(await known()).toEqual([]);
  });

  it('a list applies all its pods, for any age of its version', async () => {
    await list('20');
    expect(await list('21', pod('10'))).toMatchObject({ registered: 1 });
  });

  it('a newer report counts, from the list or the watch', async () => {
    await list('10', pod('10'));
    expect(await watch(pod('11', gone))).toMatchObject({ removed: 1 });
    expect(await watch(pod('12', second))).toMatchObject({ registered: 1 });
    await list('20', pod('15', { ...second, state: 'terminating' }));
    expect(await suspension()).toBe('terminating');
    await list('21');
    expect(await known()).toEqual([]);
  });

  it('numbers are compared as numbers, also beyond what a double can tell apart', async () => {
    await watch(pod('9007199254740993', { state: 'terminating' }));
    await watch(pod('9007199254740992'));
    await watch(pod('999'));
    expect(await suspension()).toBe('terminating');
    await watch(pod('9007199254740994'));
    expect(await suspension()).toBeNull();
  });

  it('the same version is applied again: a resync heals a store that was flushed', async () => {
    await list('10', pod('10'));
    await engine.redis.flushall();
    expect(await list('10', pod('10'))).toMatchObject({ registered: 1 });
    await engine.redis.flushall();
    await leader.settings.writeIfMissing();
    await leader.settings.reapply();
    expect(await watch(pod('10'))).toMatchObject({ registered: 1 });
    expect(await allocate('1')).toMatchObject({ podName: 'a' });
  });

  it('versions that go backwards start over: a restored cluster is followed again', async () => {
    await list('1000', pod('990'));
    for (const lists of [1, 2, 3]) {
      await list('50', pod('40', second), pod('41', { name: 'b' }));
      expect(await uid(), `after ${lists}`).toBe(lists < 3 ? 'first' : 'second');
    }
    expect(leader.log.filter(({ msg }) => /went backwards/.test(msg))).toHaveLength(1);
    expect(await uid()).toBe('second');
    expect(await watch(pod('51', { ...second, state: 'terminating' }))).toEqual(noWrites());
    expect(await suspension()).toBe('terminating');
    expect(await watch(pod('52', { name: 'b', ...gone }))).toMatchObject({ removed: 1 });
    // And the old days do not count as newer.
    await list('60', pod('55', second));
    expect(await suspension()).toBeNull();
    expect(leader.log.filter(({ msg }) => /went backwards/.test(msg))).toHaveLength(1);
  });

  it.each(['', 'abc', '0x10', '-1', '1.5', undefined])(
    'a version that is not a number (%s) counts as new, and hides nothing',
    async (version) => {
      await watch(pod('10'));
      await watch(pod(version, { state: 'terminating' }));
      expect(await suspension()).toBe('terminating');
      await watch(pod('11'));
      expect(await suspension()).toBeNull();
      await list(version ?? '', pod(version));
      await watch(pod('9', { name: 'b' }));
      expect(await known()).toEqual(['a', 'b']);
    },
  );

  it('writes run in sequence, in the order of the calls', async () => {
    const { pools } = leader.store;
    let running = 0;
    let most = 0;
    const order: string[] = [];
    const register = pools.register.bind(pools);
    vi.spyOn(pools, 'register').mockImplementation(async (epoch, pods, assignment) => {
      running += 1;
      most = Math.max(most, running);
      order.push(pods[0]?.name ?? '');
      const result = await register(epoch, pods, assignment);
      running -= 1;
      return result;
    });
    const names = Array.from({ length: 8 }, (_, i) => `pod-${i}`);
    await Promise.all(names.map((name, i) => watch(pod(String(i), { name }))));
    expect(most).toBe(1);
    expect(order).toEqual(names);
  });

  it('a failed write rejects for its caller only, and may be repeated', async () => {
    const before = leader.writer.writeChange('1', pod('10'), noWrites(), never);
    const after = watch(pod('5', { name: 'b' }));
    await expect(before).rejects.toBeInstanceOf(EpochRefused);
    expect(await after).toMatchObject({ registered: 1 });
    expect(await watch(pod('10'))).toMatchObject({ registered: 1 });
  });

  it('an abort stops before the next batch', async () => {
    const { pools } = leader.store;
    const stop = new AbortController();
    const many = Array.from({ length: 120 }, (_, i) => pod('10', { name: `pod-${i}` }));
    const register = pools.register.bind(pools);
    const spy = vi.spyOn(pools, 'register').mockImplementation((...args) => {
      stop.abort();
      return register(...args);
    });
    await leader.writer.writeList(leader.store.epoch, many, '10', noWrites(), stop.signal);
    expect(await known()).toHaveLength(50);
    spy.mockRestore();
    // A report that was not written counts as not seen.
    await list('10', ...many);
    expect(await known()).toHaveLength(120);

    const again = new AbortController();
    const remove = pools.remove.bind(pools);
    vi.spyOn(pools, 'remove').mockImplementation((...args) => {
      again.abort();
      return remove(...args);
    });
    const names = many.map(({ name }) => name);
    await leader.writer.remove(leader.store.epoch, names, '11', noWrites(), again.signal);
    expect(await known()).toHaveLength(110);
    await leader.writer.hold(leader.store.epoch, names, '11', AbortSignal.abort());
    expect(await leader.store.pools.removals()).toEqual({ held: [], confirmed: [] });
  });

  it('reports lost calls with the reason', async () => {
    await watch(pod('10', { restarts: 0 }));
    await allocate('1');
    expect(await watch(pod('11', { restarts: 1 }))).toMatchObject({ calls_lost: 1 });
    await allocate('2');
    expect(await watch(pod('12', second))).toMatchObject({ calls_lost: 1, registered: 1 });
    await allocate('3');
    expect(await watch(pod('13', { ...second, ...gone }))).toMatchObject({ calls_lost: 1, removed: 1 });
    await watch(pod('14', { uid: 'third' }));
    await allocate('4');
    expect(await watch(pod('15', { uid: 'fourth', state: 'not_ready' }))).toMatchObject({ calls_lost: 1 });
    expect(leader.lost).toEqual([
      ['restarted', 1],
      ['replaced', 1],
      ['removed', 1],
      ['replaced', 1],
    ]);
  });
});
