/** drain and undrain: no new calls at once, live calls continue. Guarantee 6. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeEngines } from '../../support/engines.js';
import { openStore, registration, type TestStore, testTimes } from '../../support/store.js';

const pools = ['pool:gold', 'pool:basic', 'merchant:vip'] as const;
const toGold = { candidates: [], last: 'pool:gold' } as const;
const drainMs = testTimes.drainingTtlMs;

describeEngines('drain', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(() => store.close());

  it.each(pools)(
    'an idle pod of %s gets no call until the drain ends, then one at the next sweep',
    async (pool) => {
      await store.register(['a'], pool);
      const before = store.nowMs();
      expect(await store.calls.drain('a')).toEqual({ activeCalls: 0, untilMs: before + drainMs });
      expect(await store.sweep()).toMatchObject({ podsPutBack: 0 });
      expect(await store.allocate('1', [pool])).toBeUndefined();
      store.advance(drainMs - 1000);
      await store.sweep();
      expect(await store.allocate('1', [pool])).toBeUndefined();
      store.advance(1000);
      expect(await store.sweep()).toMatchObject({ podsPutBack: 1 });
      expect(await store.allocate('1', [pool])).toMatchObject({ podName: 'a' });
    },
  );

  it.each(pools)('a live call of %s continues: same pod, renewable, released to no pool', async (pool) => {
    await store.register(['a'], pool);
    await store.allocate('1', [pool]);
    expect(await store.calls.drain('a')).toMatchObject({ activeCalls: 1 });
    expect(await store.allocate('1', [pool])).toMatchObject({ podName: 'a', wasExisting: true });
    expect(await store.calls.renew('1')).toMatchObject({ podName: 'a' });
    expect(await store.sweep()).toEqual({ callsEnded: 0, podsPutBack: 0, podsTakenOut: 0 });
    expect(await engine.redis.get('voice:lease:a')).toBe('1');
    expect(await store.calls.release('1')).toMatchObject({ releasedToPool: null, wasDraining: true });
    expect(await store.allocate('2', [pool])).toBeUndefined();
  });

  it.each(pools)('undrain makes a pod of %s available at once, with its true load', async (pool) => {
    await store.register(['a'], pool);
    await store.allocate('1', [pool]);
    await store.calls.drain('a');
    expect(await store.calls.undrain('a')).toEqual({ activeCalls: 1, blockedBy: '' });
    const next = await store.allocate('2', [pool]);
    if (pool === 'pool:basic') {
      expect(next).toMatchObject({ podName: 'a' });
      expect(await engine.redis.zscore('voice:pool:basic:available', 'a')).toBe('2');
    } else {
      expect(next).toBeUndefined();
      await store.calls.release('1');
      expect(await store.allocate('2', [pool])).toMatchObject({ podName: 'a' });
    }
  });

  it.each([
    { waitMs: 0, lastsMs: drainMs },
    { waitMs: 60_000, lastsMs: drainMs },
    { waitMs: drainMs, lastsMs: drainMs + 30_000 },
    { waitMs: 3_600_000, lastsMs: 3_630_000 },
  ])('with a wait of $waitMs ms the mark lasts $lastsMs ms', async ({ waitMs, lastsMs }) => {
    await store.register(['a'], 'pool:gold');
    const before = store.nowMs();
    expect(await store.calls.drain('a', waitMs)).toMatchObject({ untilMs: before + lastsMs });
    const ttl = await engine.redis.pttl('voice:pod:draining:a');
    expect(ttl).toBeGreaterThan(lastsMs - 10_000);
    expect(ttl).toBeLessThanOrEqual(lastsMs);
  });

  it('a second drain restarts the TTL', async () => {
    await store.register(['a'], 'pool:gold');
    await store.calls.drain('a');
    store.advance(drainMs - 1000);
    const before = store.nowMs();
    expect(await store.calls.drain('a')).toEqual({ activeCalls: 0, untilMs: before + drainMs });
  });

  it('a second, shorter drain does not shorten the first', async () => {
    await store.register(['a'], 'pool:gold');
    const { untilMs } = await store.calls.drain('a', 3_600_000);
    expect(await store.calls.drain('a')).toMatchObject({ untilMs });
    expect((await store.calls.pod('a')).drainingUntilMs).toBe(untilMs);
  });

  it('a mark past its deadline blocks nothing, even if its key has not expired', async () => {
    await store.register(['a'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    await store.calls.drain('a');
    store.advance(drainMs + 1);
    expect(await engine.redis.exists('voice:pod:draining:a')).toBe(1);
    expect(await store.calls.release('1')).toMatchObject({ releasedToPool: 'pool:gold', wasDraining: false });
    expect(await store.allocate('2', ['pool:gold'])).toMatchObject({ podName: 'a' });
  });

  it('undrain of a pod that does not drain changes nothing, twice', async () => {
    await store.register(['a'], 'pool:gold');
    for (let i = 0; i < 2; i++) {
      expect(await store.calls.undrain('a')).toEqual({ activeCalls: 0, blockedBy: '' });
    }
    expect(await engine.redis.smembers('voice:pool:gold:available')).toEqual(['a']);
  });

  it.each(['terminating', 'not_ready'] as const)(
    'a pod that is %s may be drained and undrained, and still takes no call',
    async (reason) => {
      await store.register(['a'], 'pool:gold');
      await store.pools.suspend(store.epoch, reason, ['a']);
      expect(await store.calls.drain('a')).toMatchObject({ activeCalls: 0 });
      expect(await store.calls.undrain('a')).toEqual({ activeCalls: 0, blockedBy: reason });
      await store.sweep();
      expect(await store.allocate('1', ['pool:gold'])).toBeUndefined();
    },
  );

  it('registering a draining pod again does not end the drain', async () => {
    await store.register(['a'], 'pool:basic');
    await store.calls.drain('a');
    await store.register(['a'], 'pool:basic');
    expect(await store.allocate('1', ['pool:basic'])).toBeUndefined();
  });

  it('an unknown pod is not found, by drain and undrain, and leaves no mark', async () => {
    for (const answer of [store.calls.drain('x'), store.calls.undrain('x')]) {
      await expect(answer).rejects.toMatchObject({ code: 'pod_not_found', status: 404 });
    }
    expect(await engine.redis.exists('voice:pod:draining:x')).toBe(0);
  });

  it('a removed pod that is registered again does not drain', async () => {
    await store.register(['a'], 'pool:gold');
    await store.calls.drain('a');
    await store.pools.remove(store.epoch, ['a'], 'gone');
    await store.register(['a'], 'pool:gold');
    expect(await store.allocate('1', ['pool:gold'])).toMatchObject({ podName: 'a' });
  });

  it('for a replaced pod changes nothing of the new pod', async () => {
    await store.pools.register(store.epoch, [registration('a', 'pool:gold', { uid: 'new' })], toGold);
    const replaced = { code: 'pod_replaced', status: 409 };
    await expect(store.calls.drain('a', 0, { uid: 'old' })).rejects.toMatchObject(replaced);
    expect(await store.calls.pod('a')).toMatchObject({ blockedBy: '', drainingUntilMs: undefined });
    expect(await store.calls.drain('a', 0, { uid: 'new' })).toMatchObject({ activeCalls: 0 });
    await expect(store.calls.undrain('a', undefined, { uid: 'old' })).rejects.toMatchObject(replaced);
    expect(await store.calls.pod('a')).toMatchObject({ blockedBy: 'draining' });
    expect(await store.calls.undrain('a', undefined, { uid: 'new' })).toMatchObject({ blockedBy: '' });
  });

  it('passes with any uid where none is registered', async () => {
    await store.register(['a'], 'pool:gold');
    expect(await store.calls.drain('a', 0, { uid: 'any' })).toMatchObject({ activeCalls: 0 });
    expect(await store.calls.undrain('a', undefined, { uid: 'any' })).toMatchObject({ blockedBy: '' });
  });

  it.each([
    ['with its uid ends with the pod, also when its successor runs already', 'old', ''],
    ['without a uid stays with the successor that runs already', undefined, 'draining'],
  ])('%s', async (_, uid, blockedBy) => {
    await store.pools.register(store.epoch, [registration('a', 'pool:gold', { uid: 'old' })], toGold);
    const startedAt = new Date(store.nowMs() - 1000).toISOString();
    await store.calls.drain('a', 0, { uid });
    await store.pools.register(
      store.epoch,
      [registration('a', 'pool:gold', { uid: 'new', startedAt })],
      toGold,
    );
    expect(await store.calls.pod('a')).toMatchObject({ uid: 'new', blockedBy });
  });

  it('an undrain that reaches the store after its caller gave up ends no drain', async () => {
    await store.register(['a'], 'pool:gold');
    await store.calls.drain('a');
    expect(await store.connection.run('undrain', ['a', store.nowMs() - 1])).toEqual(['late', store.nowMs()]);
    expect((await store.calls.pod('a')).blockedBy).toBe('draining');
    expect(await store.connection.run('undrain', ['a', store.nowMs() + 1000])).toEqual(['ok', 0, '']);
  });

  it('its events name the actor, if known', async () => {
    await store.register(['a'], 'pool:gold');
    await store.calls.drain('a', 0, { by: 'admin@10.0.0.7' });
    await store.calls.undrain('a', undefined, { by: 'console:47b769ec@127.0.0.1' });
    await store.calls.drain('a');
    await store.calls.undrain('a');
    const ofPod = async (key: string) =>
      (await engine.redis.xrange(key, '-', '+'))
        .map(([, fields]) => fields.join(' '))
        .filter((text) => /^type pod_(draining|undrained) /.test(text));
    const events = await ofPod('voice:events');
    expect(events).toEqual([
      expect.stringMatching(/^type pod_draining pod a calls 0 until \d+ by admin@10\.0\.0\.7$/),
      'type pod_undrained pod a calls 0 by console:47b769ec@127.0.0.1',
      expect.stringMatching(/^type pod_draining pod a calls 0 until \d+$/),
      'type pod_undrained pod a calls 0',
    ]);
    expect(await ofPod('voice:journal')).toEqual(events);
  });
});
