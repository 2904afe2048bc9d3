/** Pods that announce themselves by their reports. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { registeredSource } from '../../src/cluster/registered.js';
import { PodWriter } from '../../src/pool/pod-writer.js';
import { Reconciler } from '../../src/pool/reconciler.js';
import { announce } from '../../src/pool/registration.js';
import { type Leader, openLeader, silentLog } from '../pool/fixture.js';
import { describeEngines } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { ManualClock } from '../support/manual-clock.js';

const ttlMs = 45_000;

describeEngines('registered pods', (engine) => {
  let leader: Leader;
  let clock: ManualClock;
  let reconcile: () => Promise<Record<string, number>>;
  beforeEach(async () => {
    leader = await openLeader(engine.url);
    clock = new ManualClock();
    reconcile = newLeader(clock);
  });
  afterEach(async () => {
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
    leader.store.close();
  });

  const newLeader = (itsClock: ManualClock) => {
    const { store, settings } = leader;
    const source = registeredSource(store.pools, ttlMs, itsClock);
    const parts = { source, settings, store: store.calls, pools: store.pools, log: silentLog };
    const options = { ...parts, clock: itsClock, reconcileIntervalMs: 0 };
    const reconciler = new Reconciler(options, new PodWriter(options));
    return () => reconciler.runOnce(store.epoch, new AbortController().signal);
  };
  /** As the router does it: the report of an unknown pod, or of another UID, announces it. */
  const report = async (name: string, calls: string[] = [], wishes: { uid?: string; tier?: string } = {}) => {
    const { store, settings } = leader;
    try {
      return await store.calls.report(name, calls, wishes);
    } catch {
      await announce(store.pools, settings.tiers, { name, ...wishes });
      return store.calls.report(name, calls, wishes);
    }
  };
  const known = async () => (await engine.redis.keys('voice:pod:tier:*')).map((key) => key.slice(15)).sort();
  const suspension = (name: string) => engine.redis.get(`voice:pod:suspended:${name}`);
  const allocate = (sid: string) => leader.store.allocate(sid, ['pool:gold', 'pool:basic']);
  /** The pod has said nothing for so long, and the leader has listened all the time. */
  const silent = async (name: string, ms: number) => {
    const [seconds] = await engine.redis.time();
    await engine.redis.zadd('voice:reported', Number(seconds) * 1000 - ms, name);
  };

  it('a pod is registered with its first report, on any router, without a leader', async () => {
    await report('a', [], { tier: 'gold' });
    expect(await allocate('1')).toMatchObject({ podName: 'a' });
  });

  it('takes no call between its announcement and its report', async () => {
    const { store, settings } = leader;
    await announce(store.pools, settings.tiers, { name: 'a', tier: 'gold' });
    expect(await allocate('1')).toBeUndefined();
    await store.calls.report('a', []);
    expect(await allocate('1')).toMatchObject({ podName: 'a' });
  });

  it('its calls are adopted with the first report, before it can get another call', async () => {
    expect(await report('a', ['1'], { tier: 'gold' })).toMatchObject({ adopted: ['1'] });
    expect(await allocate('2')).toBeUndefined();
    expect(await allocate('1')).toMatchObject({ podName: 'a', wasExisting: true });
  });

  it('it joins the pool that it names, and the leader keeps it there', async () => {
    await report('a', [], { tier: 'basic', uid: 'u1' });
    expect(await reconcile()).toMatchObject({ pods: 1, moved: 0, removed: 0 });
    expect(await engine.redis.get('voice:pod:tier:a')).toBe('basic');
    expect(await engine.redis.hget('voice:pod:a', 'uid')).toBe('u1');
  });

  it('a pod that reports stays', async () => {
    await report('a', [], { tier: 'gold' });
    await reconcile();
    for (let minute = 0; minute < 5; minute += 1) {
      clock.advance(60_000);
      await report('a');
      expect(await reconcile()).toMatchObject({ removed: 0 });
    }
    expect(await allocate('1')).toMatchObject({ podName: 'a' });
  });

  it('a pod that stops reporting is removed without calls, and registered again with its next report', async () => {
    await report('a');
    await report('b');
    await reconcile();
    clock.advance(60_000);
    await silent('a', 46_000);
    expect(await reconcile()).toMatchObject({ removed: 1, calls_lost: 0 });
    expect(await known()).toEqual(['b']);
    expect(await engine.redis.zrange('voice:reported', '0', '-1')).toEqual(['b']);
    await report('a');
    expect(await known()).toEqual(['a', 'b']);
  });

  it('a silent pod keeps its call, gets no other, and is removed after the call', async () => {
    await report('a', [], { tier: 'basic' });
    const call = await allocate('1');
    await reconcile();
    clock.advance(60_000);
    await silent('a', 46_000);
    expect(await reconcile()).toMatchObject({ removed: 0, calls_lost: 0 });
    expect(await suspension('a')).toBe('awaiting_report');
    expect(await allocate('2')).toBeUndefined();
    await leader.store.calls.release('1', call?.fence);
    expect(await reconcile()).toMatchObject({ removed: 1 });
  });

  it('a silent pod with a call that reports again takes calls again with the next sync', async () => {
    await report('a', [], { tier: 'basic' });
    await allocate('1');
    await reconcile();
    clock.advance(60_000);
    await silent('a', 46_000);
    await reconcile();
    await report('a', ['1']);
    await reconcile();
    expect(await suspension('a')).toBeNull();
    expect(await allocate('2')).toMatchObject({ podName: 'a' });
  });

  it('time in which no router could listen does not count as silence', async () => {
    for (const name of ['a', 'b', 'c', 'd', 'e']) {
      await report(name);
      await silent(name, 3_600_000);
    }
    const back = new ManualClock();
    const again = newLeader(back);
    expect(await again()).toMatchObject({ pods: 5, removed: 0, held: 0 });
    back.advance(ttlMs);
    await report('a');
    expect(await again()).toMatchObject({ removed: 0 });
    back.advance(1);
    expect(await again()).toMatchObject({ removed: 4 });
    expect(await known()).toEqual(['a']);
  });

  it('another process of the same name ends the calls of the first', async () => {
    await report('a', ['1'], { uid: 'first', tier: 'gold' });
    expect(await report('a', [], { uid: 'second', tier: 'gold' })).toMatchObject({ adopted: [] });
    await expect(leader.store.calls.call('1')).rejects.toMatchObject({ code: 'call_not_found' });
    expect(await allocate('2')).toMatchObject({ podName: 'a' });
    await reconcile();
    expect(await engine.redis.hget('voice:pod:a', 'uid')).toBe('second');
  });

  it.each([
    '{',
    'null',
    '[]',
    '"x"',
    '{"uid":5,"tier":{},"merchant":[]}',
    '{"uid":"\\ud800","merchant":"a:b"}',
  ])('with damaged metadata (%s) a pod loses only its tier and merchant', async (metadata) => {
    await report('a', ['1'], { tier: 'basic', uid: 'u1' });
    await engine.redis.hset('voice:pod:metadata', 'a', metadata);
    expect(await reconcile()).toMatchObject({ pods: 1, removed: 0, calls_lost: 0 });
    expect(await leader.store.calls.call('1')).toMatchObject({ podName: 'a' });
    expect(await engine.redis.get('voice:pod:tier:a')).toBe('basic');
  });
});
