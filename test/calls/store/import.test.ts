/** Calls of an earlier Go router: call hashes and lease keys, none of our indexes. See docs/migration.md. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeEngines } from '../../support/engines.js';
import { GoRouter } from '../../support/go-router.js';
import { openStore, type TestStore, testTimes } from '../../support/store.js';

describeEngines('import', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    await goPod('g1', 'gold');
    await goPod('g2', 'gold');
    await goPod('s1', 'basic');
    await goPod('v1', 'merchant:vip');
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(() => store.close());

  const goPod = (pod: string, tier: string) => new GoRouter(engine.redis).addPod(pod, tier);
  const goCall = (sid: string, pod: string, leaseMs = 600_000) =>
    new GoRouter(engine.redis, { leaseMs }).allocate(sid, pod);

  function importCalls(...sids: string[]): Promise<unknown> {
    return importFound([], sids);
  }

  function importFound(pods: string[], sids: string[]): Promise<unknown> {
    const { leaseTtlMs, callInfoTtlMs, reportGraceMs } = testTimes;
    const args = [leaseTtlMs, callInfoTtlMs, reportGraceMs, '["pool:basic"]', pods.length];
    return store.connection.run('importCalls', [...args, ...pods, ...sids]);
  }

  it.each([
    ['g1', 'pool:gold'],
    ['v1', 'merchant:vip'],
    ['s1', 'pool:basic'],
  ] as const)('a call on %s lives on with a whole lease', async (pod, pool) => {
    await goCall('old', pod, 54_000);
    const before = store.nowMs();
    expect(await importCalls('old')).toBe(1);
    expect(await engine.redis.pttl(`voice:lease:${pod}`)).toBeGreaterThan(testTimes.leaseTtlMs - 10_000);
    const call = await store.calls.call('old');
    expect(call).toMatchObject({ podName: pod, sourcePool: pool, merchantId: 'acme' });
    expect(call.fence).toBeGreaterThan(0);
    expect(call.leaseExpiresAtMs - before).toBe(testTimes.leaseTtlMs);
    expect(await store.allocate('old', [pool])).toMatchObject({ podName: pod, wasExisting: true });
    expect(await store.calls.release('old', call.fence)).toMatchObject({ releasedToPool: pool });
  });

  it('a pod with an imported call is not given to another', async () => {
    await goCall('old', 'g1');
    await importCalls('old');
    await store.sweep();
    expect(await store.allocate('1', ['pool:gold'])).toMatchObject({ podName: 'g2' });
    expect(await store.allocate('2', ['pool:gold'])).toBeUndefined();
  });

  it('every call of a shared pod counts: its lease names only the latest', async () => {
    for (const sid of ['1', '2', '3']) await goCall(sid, 's1');
    expect(await importCalls('1', '2', '3')).toBe(3);
    await store.sweep();
    expect(await engine.redis.zscore('voice:pool:basic:available', 's1')).toBe('3');
    expect(await store.allocate('4', ['pool:basic'])).toBeUndefined();
  });

  it('every call of a shared pod counts also while the pod drains and its pool has no other', async () => {
    for (const sid of ['1', '2', '3']) await goCall(sid, 's1');
    await engine.redis.zrem('voice:pool:basic:available', 's1');
    await engine.redis.set('voice:pod:draining:s1', 'true', 'PX', 360_000);
    expect(await importCalls('1', '2', '3')).toBe(3);
  });

  it('a pod that the Go router was draining still drains', async () => {
    await goCall('old', 's1');
    await engine.redis.zrem('voice:pool:basic:available', 's1');
    await engine.redis.set('voice:pod:draining:s1', 'true', 'PX', 360_000);
    await importCalls('old');
    await store.sweep();
    expect(await store.allocate('1', ['pool:basic'])).toBeUndefined();
    expect(await store.calls.release('old')).toMatchObject({ wasDraining: true, releasedToPool: null });
  });

  it.each([
    ['whose lease names another call of an exclusive pod', () => engine.redis.set('voice:lease:g1', 'newer')],
    ['without a lease', () => engine.redis.del('voice:lease:g1')],
    ['without a pod name', () => engine.redis.hdel('voice:call:old', 'pod_name')],
    ['whose record is a lock of the Go router', () => engine.redis.set('voice:call:old', 'lock')],
    ['whose record was deleted', () => engine.redis.del('voice:call:old')],
  ] as [string, () => Promise<unknown>][])('a call %s is not live', async (_, prepare) => {
    await goCall('old', 'g1');
    await prepare();
    expect(await importCalls('old')).toBe(0);
    expect((await store.calls.snapshot()).activeCalls).toBe(0);
  });

  it('a second import finds nothing new and moves no lease', async () => {
    await goCall('old', 'g1');
    expect(await importCalls('old')).toBe(1);
    const first = await store.calls.call('old');
    await store.calls.renew('old');
    const renewed = await store.calls.call('old');
    expect(await importCalls('old')).toBe(0);
    expect(await store.calls.call('old')).toEqual(renewed);
    expect(renewed.fence).toBe(first.fence);
  });

  it('a lease without an end gets one', async () => {
    await goCall('old', 'g1');
    await engine.redis.persist('voice:lease:g1');
    const before = store.nowMs();
    await importCalls('old');
    expect((await store.calls.call('old')).leaseExpiresAtMs).toBe(before + testTimes.leaseTtlMs);
  });

  it('a lease that was longer than ours is not shortened', async () => {
    await goCall('old', 'g1', 3_000_000);
    const before = store.nowMs();
    await importCalls('old');
    const { leaseExpiresAtMs } = await store.calls.call('old');
    expect(leaseExpiresAtMs - before).toBeGreaterThan(2_990_000);
    expect(leaseExpiresAtMs - before).toBeLessThanOrEqual(3_000_001);
  });

  it('all calls of a shared pod have the same lease, also those that the earlier lease does not name', async () => {
    for (const sid of ['1', '2', '3']) await goCall(sid, 's1', 54_000);
    const before = store.nowMs();
    await importCalls('2', '3', '1');
    const { calls } = await store.calls.pod('s1');
    expect(calls.map(({ callSid }) => callSid).sort()).toEqual(['1', '2', '3']);
    for (const { leaseExpiresAtMs } of calls) expect(leaseExpiresAtMs - before).toBe(testTimes.leaseTtlMs);
  });

  it('an imported call that is not renewed ends with its lease', async () => {
    await goCall('old', 'g1', 54_000);
    await importCalls('old');
    store.advance(testTimes.leaseTtlMs - 1000);
    expect(await store.sweep()).toMatchObject({ callsEnded: 0 });
    store.advance(1001);
    expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
    expect(await engine.redis.sismember('voice:pool:gold:available', 'g1')).toBe(1);
  });

  it('registering the pods of the Go router keeps their calls', async () => {
    await goCall('old', 'g1');
    await importCalls('old');
    await store.register(['g1', 'g2', 'g3'], 'pool:gold');
    expect((await store.calls.pods('pool:gold', '0', 10)).items.map(({ podName }) => podName).sort()).toEqual(
      ['g1', 'g2', 'g3'],
    );
    expect(await store.calls.call('old')).toMatchObject({ podName: 'g1' });
  });
});
