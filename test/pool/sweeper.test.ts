/** The sweep as the leader runs it: over all pools, in batches. Single steps are in calls/store/sweep.test.ts. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { EpochRefused } from '../../src/calls/store/pool-store.js';
import { sweepBatchSize } from '../../src/pool/sweeper.js';
import { describeEngines } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { testTimes } from '../support/store.js';
import { type Leader, openLeader } from './fixture.js';

const idle = { calls_ended: 0, pods_put_back: 0, pods_taken_out: 0 };
const sum = (numbers: readonly number[]) => numbers.reduce((total, one) => total + one, 0);

describeEngines('the sweeper', (engine) => {
  let leader: Leader;
  beforeEach(async () => {
    leader = await openLeader(engine.url, { virtualTime: true });
  });
  afterEach(() => leader.store.close());

  const settled = async () =>
    expect(await checkInvariants(engine.redis, { settled: true, nowMs: leader.store.nowMs() })).toEqual([]);

  it('looks at all of 1,000 pods, batch by batch, and finds nothing where nothing is wrong', async () => {
    leader.source.set(...Array.from({ length: 1000 }, (_, i) => `pod-${i}`));
    await leader.reconcile();
    expect(await leader.sweep()).toEqual({ ...idle, pods: 1000 });
    expect(leader.zombies).toEqual([]);
  });

  it('puts 1,000 lost pods back and ends 300 calls past their lease', async () => {
    leader.source.set(
      ...Array.from({ length: 300 }, (_, i) => ({ name: `g-${i}`, tier: 'gold' })),
      ...Array.from({ length: 500 }, (_, i) => ({ name: `b-${i}`, tier: 'basic' })),
      ...Array.from({ length: 200 }, (_, i) => ({ name: `v-${i}`, merchant: 'vip' })),
    );
    await leader.reconcile();
    await Promise.all(
      Array.from({ length: 300 }, (_, i) => leader.store.allocate(`call-${i}`, ['pool:gold'])),
    );
    await engine.redis.del('voice:pool:basic:available', 'voice:merchant:vip:pods');
    leader.store.advance(testTimes.leaseTtlMs);
    expect(await leader.sweep()).toEqual({
      calls_ended: 300,
      pods_put_back: 700,
      pods_taken_out: 0,
      pods: 1000,
    });
    // Told batch by batch, so that what a crash interrupts is counted too.
    expect(sum(leader.zombies)).toBe(1000);
    expect(Math.max(...leader.zombies)).toBeLessThanOrEqual(2 * sweepBatchSize('pods', 1));
    const { pools, activeCalls } = await leader.store.calls.snapshot();
    expect(activeCalls).toBe(0);
    expect(pools.map(({ assigned, available }) => available - assigned)).toEqual([0, 0, 0]);
    await settled();
    expect(await leader.sweep()).toEqual({ ...idle, pods: 1000 });
  });

  it('reaches pools of tiers that were deleted and merchant pools that only a label made', async () => {
    leader.source.set({ name: 'g', tier: 'gold' }, { name: 'm', merchant: 'label' });
    await leader.reconcile();
    await leader.store.allocate('1', ['pool:gold']);
    await leader.store.allocate('2', ['merchant:label']);
    await leader.settings.replaceTiers({ tiers: { silver: { target: 1 } } }, 'test');
    leader.store.advance(testTimes.leaseTtlMs);
    expect(await leader.sweep()).toMatchObject({ calls_ended: 2 });
    expect(await leader.sweep()).toMatchObject({ calls_ended: 0 });
  });

  it('stops between two batches when aborted', async () => {
    leader.source.set('a', 'b', 'c');
    await leader.reconcile();
    await leader.store.allocate('1', ['pool:gold']);
    leader.store.advance(testTimes.leaseTtlMs);
    const counts = await leader.sweeper.runOnce(leader.store.epoch, AbortSignal.abort());
    expect(counts).toEqual({ ...idle, pods: 0 });
    expect((await leader.store.calls.snapshot()).activeCalls).toBe(1);

    const told = new AbortController();
    const { sweep } = leader.store.pools;
    let batches = 0;
    leader.store.pools.sweep = async function (...args) {
      batches += 1;
      if (batches === 2) told.abort();
      return sweep.apply(this, args);
    };
    await leader.sweeper.runOnce(leader.store.epoch, told.signal);
    expect(batches).toBe(2);
  });

  it('an older leader sweeps nothing', async () => {
    leader.source.set('a');
    await leader.reconcile();
    await leader.store.allocate('1', ['merchant:vip']);
    leader.store.advance(testTimes.leaseTtlMs);
    await leader.store.pools.takeEpoch();
    await expect(leader.sweep()).rejects.toBeInstanceOf(EpochRefused);
    expect((await leader.store.calls.snapshot()).activeCalls).toBe(1);
  });

  it('a store that fails ends the round with an error and counts nothing as missing', async () => {
    leader.source.set('a', 'b');
    await leader.reconcile();
    leader.store.connection.close();
    await expect(leader.sweep()).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(leader.zombies).toEqual([]);
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
  });
});
