/** renew: a call keeps its pod as long as it is renewed. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeEngines } from '../../support/engines.js';
import { openStore, type TestStore, testTimes } from '../../support/store.js';

describeEngines('renew', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
    await store.register(['a'], 'pool:gold');
    await store.register(['s'], 'pool:basic');
  });
  afterEach(() => store.close());

  it('moves the lease to now + LEASE_TTL, everywhere it is kept', async () => {
    await store.allocate('1', ['pool:gold']);
    store.advance(100_000);
    const expected = store.nowMs() + testTimes.leaseTtlMs;
    expect(await store.calls.renew('1')).toEqual({ podName: 'a', leaseExpiresAtMs: expected });
    expect((await store.calls.call('1')).leaseExpiresAtMs).toBe(expected);
    expect((await store.calls.pod('a')).calls).toEqual([{ callSid: '1', leaseExpiresAtMs: expected }]);
    expect((await store.calls.calls('pool:gold', '0', 10)).items).toMatchObject([
      { callSid: '1', leaseExpiresAtMs: expected },
    ]);
  });

  it('moves only its own call of a shared pod', async () => {
    const first = await store.allocate('1', ['pool:basic']);
    await store.allocate('2', ['pool:basic']);
    store.advance(testTimes.leaseTtlMs - 1000);
    await store.calls.renew('2');
    store.advance(2000);
    expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
    expect((await store.calls.pod(first?.podName ?? '')).calls.map(({ callSid }) => callSid)).toEqual(['2']);
    expect(await engine.redis.zscore('voice:pool:basic:available', 's')).toBe('1');
  });

  it('refreshes the call record and the lease mirror', async () => {
    await store.allocate('1', ['pool:gold']);
    await engine.redis.pexpire('voice:call:1', 5000);
    await engine.redis.pexpire('voice:lease:a', 5000);
    await store.calls.renew('1');
    expect(await engine.redis.pttl('voice:call:1')).toBeGreaterThan(testTimes.callInfoTtlMs - 10_000);
    expect(await engine.redis.pttl('voice:lease:a')).toBeGreaterThan(testTimes.leaseTtlMs - 10_000);
    expect(await engine.redis.get('voice:lease:a')).toBe('1');
  });

  it('restores a lost lease mirror', async () => {
    await store.allocate('1', ['pool:gold']);
    await engine.redis.del('voice:lease:a');
    await store.calls.renew('1');
    expect(await engine.redis.get('voice:lease:a')).toBe('1');
  });

  it('the call record never lives shorter than the lease', async () => {
    const times = { leaseTtlMs: 7_200_000, callInfoTtlMs: 60_000 };
    const other = await openStore(engine.url, { virtualTime: true, times });
    try {
      await other.allocate('1', ['pool:gold']);
      expect(await engine.redis.pttl('voice:call:1')).toBeGreaterThan(7_190_000);
      await other.calls.renew('1');
      expect(await engine.redis.pttl('voice:call:1')).toBeGreaterThan(7_190_000);
    } finally {
      other.close();
    }
  });

  it('a call past its deadline revives until something ends it', async () => {
    await store.allocate('1', ['pool:gold']);
    store.advance(testTimes.leaseTtlMs + 60_000);
    await store.calls.renew('1');
    expect(await store.sweep()).toMatchObject({ callsEnded: 0 });
    store.advance(testTimes.leaseTtlMs + 1);
    expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
    await expect(store.calls.renew('1')).rejects.toMatchObject({ code: 'call_not_found' });
  });

  it.each([
    ['that never was', async () => {}],
    [
      'that was released',
      async () => {
        await store.allocate('1', ['pool:gold']);
        await store.calls.release('1');
      },
    ],
    [
      'whose pod was removed',
      async () => {
        await store.allocate('1', ['pool:gold']);
        await store.pools.remove(store.epoch, ['a'], 'gone');
      },
    ],
  ])('a call %s is not found', async (_, prepare) => {
    await prepare();
    await expect(store.calls.renew('1')).rejects.toMatchObject({ code: 'call_not_found', status: 404 });
    expect(await engine.redis.exists('voice:call:1')).toBe(0);
  });

  it('the right fence renews, another one is refused and moves nothing', async () => {
    const given = await store.allocate('1', ['pool:gold']);
    const fence = given?.fence ?? 0;
    store.advance(1000);
    await expect(store.calls.renew('1', fence + 1)).rejects.toMatchObject({ code: 'stale_fence' });
    expect((await store.calls.call('1')).leaseExpiresAtMs).toBe(given?.leaseExpiresAtMs);
    expect((await store.calls.renew('1', fence)).leaseExpiresAtMs).toBeGreaterThan(
      given?.leaseExpiresAtMs ?? 0,
    );
  });

  it.each(['draining', 'terminating', 'not_ready', 'unconfirmed'] as const)(
    'calls of a pod that is %s are renewable',
    async (block) => {
      await store.allocate('1', ['pool:gold']);
      if (block === 'draining') await store.calls.drain('a');
      else await store.pools.suspend(store.epoch, block, ['a']);
      store.advance(testTimes.leaseTtlMs - 1);
      await store.calls.renew('1');
      store.advance(testTimes.leaseTtlMs - 1);
      expect(await store.sweep()).toMatchObject({ callsEnded: 0 });
    },
  );
});
