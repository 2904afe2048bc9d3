/** Lists that are behind by a moment, or that failed half way: what they say late must do no harm. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { registeredSource } from '../../src/cluster/registered.js';
import { PodWriter } from '../../src/pool/pod-writer.js';
import { Reconciler } from '../../src/pool/reconciler.js';
import { announce } from '../../src/pool/registration.js';
import { describeOneEngine } from '../support/engines.js';
import { ManualClock } from '../support/manual-clock.js';
import { type Leader, openLeader, silentLog } from './fixture.js';

describeOneEngine('lists that come late', (engine) => {
  let leader: Leader;
  const clock = new ManualClock();
  beforeEach(async () => {
    leader = await openLeader(engine.url);
  });
  afterEach(() => leader.store.close());

  /** A sync of pods that announce themselves, with something happening between its list and its placing. */
  const syncWith = async (during: () => Promise<unknown>) => {
    const { store, settings } = leader;
    const real = registeredSource(store.pools, 45_000, clock);
    const source = {
      name: 'registered',
      list: async (signal: AbortSignal) => {
        const list = await real.list(signal);
        await during();
        return list;
      },
    };
    const shared = { source, settings, pools: store.pools, log: silentLog };
    const options = { ...shared, store: store.calls, clock, reconcileIntervalMs: 0 };
    const reconciler = new Reconciler(options, new PodWriter(options));
    return reconciler.runOnce(store.epoch, new AbortController().signal);
  };
  /** As the router does it: the report of an unknown pod, or of another UID, announces it. */
  const report = async (calls: string[], uid: string) => {
    const { store, settings } = leader;
    const send = () => store.calls.report('a', calls, { uid });
    return send().catch(async () => {
      await announce(store.pools, settings.tiers, { name: 'a', tier: 'gold', uid });
      return send();
    });
  };

  it('an agent that restarts while a list is placed keeps the call it got during that time', async () => {
    await report([], 'first');
    await syncWith(async () => {
      await report([], 'second');
      expect(await leader.store.allocate('live', ['pool:gold'])).toMatchObject({ podName: 'a' });
    });
    expect(await report(['live'], 'second')).toMatchObject({ renewed: ['live'], conflicts: [] });
  });

  it('a drain acknowledged while a list is placed is not lost', async () => {
    await report([], 'first');
    await syncWith(async () => {
      await report([], 'second');
      await leader.store.calls.drain('a', 0);
    });
    await report([], 'second');
    expect(await leader.store.allocate('x', ['pool:gold'])).toBeUndefined();
  });

  it('a sync between an announcement and its report leaves the pod alone', async () => {
    const { store, settings } = leader;
    await announce(store.pools, settings.tiers, { name: 'a', tier: 'gold' });
    await syncWith(async () => {});
    expect(await store.calls.report('a', ['1'])).toMatchObject({ adopted: ['1'] });
  });

  const names = ['a', 'b', 'c', 'd', 'e', 'f'];
  const at = (version: string, ...pods: [name: string, version: string, state?: 'not_ready'][]) => {
    leader.source.version = version;
    leader.source.set(
      ...pods.map(([name, podVersion, state = 'ready' as const]) => ({
        name,
        version: podVersion,
        uid: `uid-${name}`,
        state,
        tier: 'gold',
      })),
    );
  };
  const failOnce = () => {
    const { pools } = leader.store;
    const { register } = pools;
    pools.register = async () => {
      pools.register = register;
      throw new Error('the store is down');
    };
  };

  it.each([
    { missed: 5, what: 'held by the brake' },
    { missed: 1, what: 'removed' },
  ])('pods $what in a round that then failed are restored by the next list', async ({ missed }) => {
    const all = names.map((name): [string, string] => [name, '50']);
    at('100', ...all);
    await leader.reconcile();
    at('200', ...all.slice(missed));
    failOnce();
    await expect(leader.reconcile()).rejects.toThrow('the store is down');
    at('300', ...all);
    await leader.reconcile();
    expect(await engine.redis.keys('voice:pod:suspended:*')).toEqual([]);
    expect((await engine.redis.smembers('voice:pool:gold:assigned')).sort()).toEqual(names);
  });

  it('a cluster restored with a higher version than its objects have is followed', async () => {
    at('100', ['a', '50'], ['b', '50']);
    await leader.reconcile();
    at('110', ['a', '105', 'not_ready'], ['b', '50']);
    await leader.reconcile();
    at('1000000000', ['a', '50'], ['b', '50']);
    await leader.reconcile();
    expect(await engine.redis.exists('voice:pod:tier:a')).toBe(1);
  });

  it('an outdated list is ignored; three in a row, apart from each other, are a restored cluster', async () => {
    const { store, settings, source } = leader;
    const shared = { source, settings, pools: store.pools, log: silentLog };
    const options = { ...shared, store: store.calls, clock, reconcileIntervalMs: 2000 };
    const reconciler = new Reconciler(options, new PodWriter(options));
    const sync = () => reconciler.runOnce(store.epoch, new AbortController().signal);
    const known = async () => (await engine.redis.smembers('voice:pool:gold:assigned')).sort();
    const now = () => at('100', ['a', '50'], ['b', '99']);
    const behind = () => at('60', ['a', '50']);
    now();
    await sync();
    behind();
    // Right after each other they see the same moment.
    for (let lists = 0; lists < 5; lists++) await sync();
    clock.advance(1000);
    await sync();
    expect(await known()).toEqual(['a', 'b']);
    // It was an API server that lagged.
    now();
    await sync();
    behind();
    for (const pods of [['a', 'b'], ['a', 'b'], ['a']]) {
      clock.advance(1000);
      await sync();
      expect(await known()).toEqual(pods);
    }
  });
});
