/** report: what a pod says it serves is made true, within its capacity. Guarantees 2 to 4. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeEngines } from '../../support/engines.js';
import { openStore, registration, type TestStore, testTimes } from '../../support/store.js';

const graceMs = testTimes.reportGraceMs;
const nothing = { atMs: expect.any(Number), renewed: [], adopted: [], ended: [], conflicts: [], fences: {} };

describeEngines('report', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
    await store.register(['a', 'b'], 'pool:gold');
    await store.register(['s'], 'pool:basic');
  });
  afterEach(() => store.close());

  /** Gives pod `a` the call, independent of the order of the set. */
  async function allocateOnA(sid: string): Promise<number> {
    await store.calls.drain('b');
    const given = await store.allocate(sid, ['pool:gold']);
    await store.calls.undrain('b');
    return given?.fence ?? 0;
  }

  it('renews the calls it names, with their fences', async () => {
    const fence = await allocateOnA('1');
    store.advance(500_000);
    expect(await store.calls.report('a', ['1'])).toEqual({
      ...nothing,
      renewed: ['1'],
      fences: { '1': fence },
    });
    store.advance(500_000);
    expect(await store.sweep()).toMatchObject({ callsEnded: 0 });
    expect((await store.calls.call('1')).renewedAt).toBeDefined();
  });

  it('10,000 calls of one pod: adopted, renewed, reclaimed, swept and removed with it', async () => {
    const sids = Array.from({ length: 10_000 }, (_, i) => `call-${i}`);
    const tiers = { tiers: { big: { type: 'shared', max_concurrent: 10_000 } } };
    await engine.redis.flushall();
    const big = await openStore(engine.url, { virtualTime: true, commandTimeoutMs: 60_000, tiers });
    const callsOf = async () => (await big.calls.pod('p')).calls.length;
    try {
      await big.register(['p'], 'pool:big');
      const first = await big.calls.report('p', sids);
      expect([first.adopted, first.conflicts]).toEqual([sids, []]);
      expect(new Set(Object.values(first.fences)).size).toBe(10_000);
      const last = Math.max(...Object.values(first.fences));
      const again = await big.calls.report('p', [...sids, 'too-many']);
      expect([again.renewed, again.conflicts]).toEqual([sids, ['too-many']]);

      // All leases expire: allocate frees one place, and the sweep ends the others in small steps.
      big.advance(testTimes.leaseTtlMs + 1);
      const given = await big.allocate('new', ['pool:big']);
      expect(given).toMatchObject({ podName: 'p', reclaimed: 50 });
      expect(given?.fence).toBeGreaterThan(last);
      const { callsEnded } = await big.pools.sweep(big.epoch, 'pool:big', 'calls', '0', 200);
      expect([callsEnded, await callsOf()]).toEqual([200, 9_751]);
      expect(await big.sweep()).toMatchObject({ callsEnded: 9_750 });
      // Those that ended just now are not adopted again.
      expect((await big.calls.report('p', sids)).conflicts).toEqual(sids);
      big.advance(graceMs + 1);
      expect((await big.calls.report('p', [...sids.slice(1), 'new'])).adopted).toEqual(sids.slice(1));
      const [removed] = await big.pools.remove(big.epoch, ['p'], 'gone');
      expect(removed?.lostCalls).toHaveLength(10_000);
      expect((await big.calls.snapshot()).activeCalls).toBe(0);
    } finally {
      big.close();
    }
  }, 60_000);

  it('without calls on a pod without calls changes nothing', async () => {
    expect(await store.calls.report('a', [])).toEqual(nothing);
  });

  it('counts a call that is named twice once', async () => {
    await store.allocate('1', ['pool:basic']);
    const { renewed, adopted } = await store.calls.report('s', ['1', '1', '2', '2']);
    expect({ renewed, adopted }).toEqual({ renewed: ['1'], adopted: ['2'] });
  });

  it('adopts forgotten calls up to the capacity; the rest are conflicts', async () => {
    const report = await store.calls.report('s', ['1', '2', '3', '4']);
    expect(report).toMatchObject({ adopted: ['1', '2', '3'], conflicts: ['4'] });
    expect(Object.keys(report.fences)).toEqual(['1', '2', '3']);
    expect(await engine.redis.zscore('voice:pool:basic:available', 's')).toBe('3');
    expect((await store.calls.snapshot()).activeCalls).toBe(3);
    expect(await store.calls.report('a', ['5', '6'])).toMatchObject({ adopted: ['5'], conflicts: ['6'] });
    expect(await store.calls.call('5')).toMatchObject({ podName: 'a', sourcePool: 'pool:gold' });
    expect(await store.allocate('7', ['pool:gold'])).toMatchObject({ podName: 'b' });
    expect(await store.allocate('8', ['pool:gold'])).toBeUndefined();
  });

  it('a live call fills the capacity of an exclusive pod: another is a conflict', async () => {
    await allocateOnA('1');
    expect(await store.calls.report('a', ['1', '2'])).toMatchObject({ renewed: ['1'], conflicts: ['2'] });
    expect(await store.calls.report('a', ['2'])).toMatchObject({ adopted: [], conflicts: ['2'] });
  });

  it('an adopted call has a fence that renews and releases it', async () => {
    const { fences } = await store.calls.report('a', ['1']);
    await store.calls.renew('1', fences['1']);
    expect(await store.calls.release('1', fences['1'])).toMatchObject({ releasedToPool: 'pool:gold' });
  });

  it('an adopted call has its whole grace, regardless of an earlier missing_since', async () => {
    await allocateOnA('1');
    await store.calls.report('a', []);
    await engine.redis.del('voice:pod:calls:a');
    expect(await store.calls.report('a', ['1'])).toMatchObject({ adopted: ['1'] });
    store.advance(graceMs + 1);
    expect(await store.calls.report('a', [])).toMatchObject({ ended: [] });
    store.advance(graceMs + 1);
    expect(await store.calls.report('a', [])).toMatchObject({ ended: ['1'] });
  });

  it('a draining pod keeps its forgotten calls and stays out of its pool', async () => {
    await store.calls.drain('s');
    expect(await store.calls.report('s', ['1'])).toMatchObject({ adopted: ['1'] });
    expect(await store.allocate('2', ['pool:basic'])).toBeUndefined();
    await store.calls.undrain('s');
    expect(await engine.redis.zscore('voice:pool:basic:available', 's')).toBe('1');
  });

  it('a call that another pod owns is a conflict and stays with its owner', async () => {
    const fence = await allocateOnA('1');
    expect(await store.calls.report('b', ['1'])).toEqual({ ...nothing, conflicts: ['1'] });
    expect(await store.calls.call('1')).toMatchObject({ podName: 'a', fence });
  });

  it('an ended call is a conflict while its tombstone lasts', async () => {
    await allocateOnA('1');
    await store.calls.release('1');
    store.advance(graceMs - 1000);
    expect(await store.calls.report('a', ['1'])).toEqual({ ...nothing, conflicts: ['1'] });
    store.advance(1000);
    expect(await store.calls.report('a', ['1'])).toMatchObject({ adopted: ['1'] });
  });

  it('a call the pod does not know ends one grace after the first report without it', async () => {
    await allocateOnA('1');
    store.advance(100_000);
    expect(await store.calls.report('a', [])).toEqual(nothing);
    store.advance(graceMs - 1000);
    expect(await store.calls.report('a', [])).toEqual(nothing);
    expect(await store.calls.call('1')).toMatchObject({ podName: 'a' });
    store.advance(1000);
    expect(await store.calls.report('a', [])).toEqual({ ...nothing, ended: ['1'] });
    expect((await store.calls.pod('a')).calls).toEqual([]);
    expect(await engine.redis.sismember('voice:pool:gold:available', 'a')).toBe(1);
  });

  it('a call that is reported again in time is kept, and a later gap counts from its own start', async () => {
    await allocateOnA('1');
    await store.calls.report('a', []);
    store.advance(graceMs - 1000);
    expect(await store.calls.report('a', ['1'])).toMatchObject({ renewed: ['1'] });
    store.advance(graceMs);
    expect(await store.calls.report('a', [])).toMatchObject({ ended: [] });
    expect(await store.sweep()).toMatchObject({ callsEnded: 0 });
  });

  it.each(['sweep', 'allocate'] as const)(
    'if the pod stops reporting after a report without the call, %s ends it',
    async (by) => {
      await store.calls.drain('b');
      await store.allocate('1', ['pool:gold']);
      await store.calls.report('a', []);
      store.advance(graceMs + 1);
      if (by === 'sweep') expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
      expect(await store.allocate('2', ['pool:gold'])).toMatchObject({
        podName: 'a',
        reclaimed: by === 'sweep' ? 0 : 1,
      });
    },
  );

  it('a report never lengthens the lease of a call it does not name', async () => {
    await allocateOnA('1');
    store.advance(testTimes.leaseTtlMs - 1000);
    await store.calls.report('a', []);
    store.advance(1001);
    expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
  });

  it.each([
    { known: 'u1', said: 'u1', ok: true },
    { known: 'u1', said: '', ok: true },
    { known: '', said: 'u1', ok: true },
    { known: 'u1', said: 'u2', ok: false },
  ])('uid $said reporting for a pod registered with $known is taken: $ok', async ({ known, said, ok }) => {
    const pod = registration('p', 'pool:gold', { uid: known });
    await store.pools.register(store.epoch, [pod], { candidates: [], last: 'pool:gold' });
    const report = store.calls.report('p', ['1'], { uid: said });
    if (ok) expect(await report).toMatchObject({ adopted: ['1'] });
    else {
      await expect(report).rejects.toMatchObject({ code: 'pod_not_found', status: 404 });
      expect(await engine.redis.exists('voice:call:1')).toBe(0);
    }
  });

  it('a report older than the last one is refused, for one grace', async () => {
    const report = (calls: string[], asOfMs?: number) => store.calls.report('s', calls, { asOfMs });
    const { atMs } = await report(['old']);
    store.advance(20);
    await report(['old'], atMs + 10);
    await report(['old', 'new'], atMs + 20);
    await expect(report(['old'], atMs + 15)).rejects.toMatchObject({ code: 'stale_report' });
    // Its answer was lost: it says the same again.
    expect(await report(['old', 'new'], atMs + 20)).toMatchObject({ renewed: ['old', 'new'] });
    // A report without a time is accepted.
    expect(await report(['old', 'new'])).toMatchObject({ renewed: ['old', 'new'] });
    store.advance(graceMs + 1);
    // The store's clock was set back: reports are accepted again long before the leases expire.
    expect(await report(['old', 'new'], atMs + 5)).toMatchObject({ renewed: ['old', 'new'] });
  });

  it('is accepted after the clock of the store was set back by an hour', async () => {
    const { atMs } = await store.calls.report('s', ['old']);
    await store.calls.report('s', ['old'], { asOfMs: atMs + 10 });
    store.advance(-3_600_000);
    // The agent restarted: its first report has no time, the next one has the current time.
    const again = await store.calls.report('s', ['old']);
    expect(again.atMs).toBeLessThan(atMs);
    expect(await store.calls.report('s', ['old'], { asOfMs: again.atMs + 10 })).toMatchObject({
      renewed: ['old'],
    });
  });

  it('does not end a call that was allocated after it was written', async () => {
    const { atMs } = await store.calls.report('a', []);
    store.advance(5000);
    const fence = await allocateOnA('1');
    store.advance(20_000);
    await store.calls.report('a', [], { asOfMs: atMs });
    store.advance(graceMs + 1);
    expect(await store.sweep()).toMatchObject({ callsEnded: 0 });
    expect(await store.calls.call('1')).toMatchObject({ fence });
    // One that was written later and does not name it counts.
    await store.calls.report('a', [], { asOfMs: atMs + 6000 });
    store.advance(graceMs + 1);
    expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
  });

  it('frees the pod of a call that another pod got after it was written, because its record was deleted', async () => {
    const { atMs } = await store.calls.report('a', []);
    await allocateOnA('1');
    await engine.redis.del('voice:call:1');
    expect(await store.allocate('1', ['pool:gold'])).toMatchObject({ podName: 'b' });
    await store.calls.report('a', [], { asOfMs: atMs });
    expect(await store.allocate('2', ['pool:gold'])).toMatchObject({ podName: 'a' });
    expect(await store.calls.call('1')).toMatchObject({ podName: 'b' });
  });

  it('of a pod whose clock runs a little ahead counts like any other', async () => {
    await allocateOnA('1');
    const { atMs } = await store.calls.report('a', ['1']);
    store.advance(10_000);
    await store.calls.report('a', [], { asOfMs: atMs + 10_002 });
    store.advance(graceMs + 1);
    expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
  });

  it('a report from before the clock was set back renews calls, but ends none', async () => {
    const { atMs } = await store.calls.report('s', ['1']);
    store.advance(-40_000);
    // Allocated while the report was on its way: its fence is of the old clock, as fences only grow.
    const fence = (await store.allocate('2', ['pool:basic']))?.fence;
    expect(await store.calls.report('s', ['1'], { asOfMs: atMs + 9000 })).toMatchObject({ renewed: ['1'] });
    const answer = await store.calls.report('s', ['1', '2'], { asOfMs: atMs - 40_000 });
    expect(answer).toMatchObject({ renewed: ['1', '2'] });
    store.advance(graceMs + 1);
    expect(await store.sweep()).toMatchObject({ callsEnded: 0 });
    expect(await store.calls.call('2')).toMatchObject({ fence });
  });

  it('of an unknown pod is refused and adopts nothing', async () => {
    await expect(store.calls.report('unknown', ['1'])).rejects.toMatchObject({ code: 'pod_not_found' });
    expect(await engine.redis.exists('voice:call:1', 'voice:pod:calls:unknown')).toBe(0);
  });

  it('the first report makes a pod that has to report available, with its calls', async () => {
    const pod = registration('new', 'pool:basic', { mustReport: true });
    await store.pools.register(store.epoch, [pod], { candidates: [], last: 'pool:basic' });
    expect((await store.calls.pod('new')).blockedBy).toBe('awaiting_report');
    await store.calls.report('new', ['1', '2']);
    expect((await store.calls.pod('new')).blockedBy).toBe('');
    expect(await engine.redis.zscore('voice:pool:basic:available', 'new')).toBe('2');
  });

  it('a report does not make a terminating or draining pod available', async () => {
    await store.pools.suspend(store.epoch, 'terminating', ['a']);
    await store.calls.drain('b');
    for (const pod of ['a', 'b']) await store.calls.report(pod, []);
    expect(await store.allocate('1', ['pool:gold'])).toBeUndefined();
  });

  it('five thousand calls in one report get one reply', async () => {
    const sids = Array.from({ length: 5000 }, (_, i) => `call-${i}`);
    const { adopted, conflicts } = await store.calls.report('s', sids);
    expect([adopted.length, conflicts.length]).toEqual([3, 4997]);
  });
});
