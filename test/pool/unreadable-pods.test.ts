/** A pod with a key of a wrong type: the loops of the leader continue, and the log names pod and key. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Auditor } from '../../src/calls/audit/auditor.js';
import { describeEngines } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { testTimes } from '../support/store.js';
import { until } from '../support/until.js';
import { intervals, type Leader, openLeader } from './fixture.js';

const keys = ['voice:pod:calls:bad', 'voice:pod:bad'] as const;

describeEngines('a pod that cannot be read', (engine) => {
  let leader: Leader;
  beforeEach(async () => {
    leader = await openLeader(engine.url, { virtualTime: true });
    leader.source.set({ name: 'bad', tier: 'gold' }, { name: 'good', tier: 'gold' });
  });
  afterEach(async () => {
    await leader.manager.stop();
    leader.store.close();
  });

  const available = async () => (await engine.redis.smembers('voice:pool:gold:available')).sort();
  const errors = () => leader.log.filter(({ level }) => level === 50);

  it.each(keys)('%s: the sweep continues and logs it once, with pod and key', async (key) => {
    await leader.reconcile();
    await leader.store.allocate('1', ['pool:gold']);
    await engine.redis.del(key);
    await engine.redis.set(key, 'x');
    leader.store.advance(testTimes.leaseTtlMs);
    expect(await leader.sweep()).toMatchObject({ pods: 2, pods_unreadable: 1 });
    await leader.sweep();
    expect(errors()).toEqual([
      expect.objectContaining({
        pod: 'bad',
        key,
        msg: `pod bad gets no calls: key ${key} has a wrong type; keep a copy (RENAME), and the sweep frees the pod`,
      }),
    ]);
    expect(await available()).toEqual(['good']);

    await engine.redis.del(key);
    expect(await leader.sweep()).toEqual({
      pods: 2,
      calls_ended: expect.any(Number),
      pods_put_back: expect.any(Number),
      pods_taken_out: 0,
    });
    expect(await available()).toEqual(['bad', 'good']);
    // It is news when it happens again.
    await engine.redis.del(key);
    await engine.redis.set(key, 'x');
    await leader.sweep();
    expect(errors()).toHaveLength(2);
  });

  it.each(keys)(
    '%s: the reconcile registers, moves and removes the others, and logs it once',
    async (key) => {
      leader.source.set(
        { name: 'bad', tier: 'gold' },
        { name: 'moves', tier: 'gold' },
        { name: 'goes', tier: 'gold' },
      );
      await leader.reconcile();
      await engine.redis.del(key);
      await engine.redis.set(key, 'x');
      leader.source.set(
        { name: 'bad', tier: 'gold' },
        { name: 'moves', tier: 'basic' },
        { name: 'comes', tier: 'gold' },
      );
      expect(await leader.reconcile()).toMatchObject({ registered: 1, moved: 1, removed: 1 });
      await leader.reconcile();
      expect(errors()).toEqual([
        expect.objectContaining({ pod: 'bad', key, msg: expect.stringContaining(key) }),
      ]);
      expect(await available()).toEqual(['comes']);

      await engine.redis.del(key);
      await leader.reconcile();
      expect(await available()).toEqual(['bad', 'comes']);
      expect(await checkInvariants(engine.redis, { settled: true, nowMs: leader.store.nowMs() })).toEqual([]);
    },
  );

  it.each(keys)('%s is kept when its pod is deleted from the cluster and removed', async (key) => {
    await leader.reconcile();
    await engine.redis.del(key);
    await engine.redis.set(key, 'x');
    leader.source.set({ name: 'good', tier: 'gold' });
    expect(await leader.reconcile()).toMatchObject({ removed: 1 });
    expect(await engine.redis.get(key)).toBe('x');
    await engine.redis.del(key);
    expect(await checkInvariants(engine.redis, { settled: true, nowMs: leader.store.nowMs() })).toEqual([]);
  });

  it.each(keys)('%s: no loop of the leader crashes', async (key) => {
    await leader.reconcile();
    await engine.redis.del(key);
    await engine.redis.set(key, 'x');
    await leader.manager.start();
    const rounds = (name: string) => leader.manager.loops.find((loop) => loop.name === name)?.rounds ?? 0;
    leader.clock.advance(intervals.cleanupIntervalMs);
    await until(() => rounds('sweep') === 1, 'it has swept');
    leader.clock.advance(intervals.reconcileIntervalMs);
    await until(() => rounds('reconcile') === 2, 'it has synced again');
    expect(leader.crashes).toEqual([]);
  });

  it('an unreadable pool does not affect loops, audit and log of the others', async () => {
    leader.source.set({ name: 'bad', tier: 'basic' }, { name: 'good', tier: 'gold' });
    await leader.reconcile();
    await leader.store.allocate('zombie', ['pool:gold']);
    const key = 'voice:pool:basic:assigned';
    await engine.redis.del(key);
    await engine.redis.set(key, 'x');
    leader.store.advance(testTimes.leaseTtlMs);
    expect(await leader.sweep()).toMatchObject({ calls_ended: 1, pools_unreadable: 1 });
    await leader.sweep();
    expect(errors()).toEqual([expect.objectContaining({ pool: 'pool:basic', key })]);
    expect(await available()).toEqual(['good']);
    leader.source.set({ name: 'bad', tier: 'basic' }, { name: 'late', tier: 'gold' });
    expect(await leader.reconcile()).toMatchObject({ registered: 1, removed: 1 });
    expect(await leader.store.allocate('1', ['pool:basic'])).toMatchObject({ podName: 'bad' });
    const audit = await new Auditor(leader.store.connection).audit();
    expect(audit.violations).toEqual([
      expect.objectContaining({
        kind: 'wrong_type',
        pool: 'pool:basic',
        message: expect.stringContaining(key),
      }),
    ]);
    expect(await engine.redis.get(key)).toBe('x');

    await engine.redis.rename(key, 'kept');
    await leader.reconcile();
    expect(await leader.sweep()).not.toHaveProperty('pools_unreadable');
    expect(await engine.redis.smembers(key)).toEqual(['bad']);
  });

  it.each(keys)('%s: the audit calls it a violation, and promises no repair by the sweep', async (key) => {
    await leader.reconcile();
    await leader.sweep();
    await engine.redis.del(key);
    await engine.redis.set(key, 'x');
    await leader.sweep();
    const { violations, pending } = await new Auditor(leader.store.connection).audit();
    expect(violations).toEqual([
      expect.objectContaining({ kind: 'wrong_type', pod_name: 'bad', message: expect.stringContaining(key) }),
    ]);
    expect(pending).toEqual([]);
  });
});
