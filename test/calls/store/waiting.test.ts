/** Promises 12 to 15: waiting calls, the order in which they get pods, limits of merchants. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { PoolId } from '../../../src/config/tiers.js';
import { describeEngines } from '../../support/engines.js';
import { checkInvariants } from '../../support/invariants.js';
import { holdRules, openStore, registration, type TestStore, testTimes } from '../../support/store.js';

describeEngines('waiting calls', (engine) => {
  let store: TestStore;
  const gold: PoolId[] = ['pool:gold'];
  const wait = (sid: string, queue = '', extra = {}, chain = gold) =>
    store.ask(sid, chain, { merchantId: queue, hold: holdRules({ queue, ...extra }) });
  const podOf = async (sid: string) => (await store.calls.call(sid).catch(() => undefined))?.podName;
  const setLimit = (merchant: string, max: number | '') =>
    store.connection.run('setMerchant', [merchant, '{}', 'test', max]);
  const events = async (type: string) =>
    (await engine.redis.xrange('voice:events', '-', '+'))
      .map(([, fields]) => fields)
      .filter((fields) => fields[1] === type)
      .map((fields) => fields[3]);

  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
    await store.register(['a'], 'pool:gold');
    await store.allocate('busy', gold);
  });
  afterEach(() => store.close());

  it('queues a call that finds no pod, and keeps its place when it asks again', async () => {
    expect(await wait('1')).toMatchObject({ waiting: { position: 1 } });
    store.advance(1000);
    expect(await wait('2')).toMatchObject({ waiting: { position: 2 } });
    const first = await wait('1');
    expect(first).toMatchObject({ waiting: { position: 1 } });
    expect((first.waiting?.untilMs ?? 0) - (first.waiting?.sinceMs ?? 0)).toBe(60_000);
    expect((await store.calls.snapshot()).waitingCalls).toBe(2);
    expect(await store.ask('3', gold)).toEqual({ refusal: 'no_pods' });
  });

  it('hands the pod over in the step of the release, and the next allocate picks it up', async () => {
    await wait('1');
    await wait('2');
    store.advance(2000);
    await store.calls.release('busy');
    expect(await engine.redis.scard('voice:pool:gold:available')).toBe(0);
    expect(await podOf('1')).toBe('a');
    const handed = await store.calls.call('1');
    expect(handed.leaseExpiresAtMs - store.nowMs()).toBeLessThanOrEqual(20_000);
    store.advance(3000);
    const { allocation } = await wait('1');
    expect(allocation).toMatchObject({ podName: 'a', wasExisting: false, waitedMs: 2000 });
    expect(allocation?.fence).toBeGreaterThan(handed.fence);
    expect((allocation?.leaseExpiresAtMs ?? 0) - store.nowMs()).toBeGreaterThan(800_000);
    expect(await wait('2')).toMatchObject({ waiting: { position: 1 } });
    expect(await wait('1')).toMatchObject({ allocation: { wasExisting: true, waitedMs: 2000 } });
  });

  it('keeps a call that was picked up after the start of a new pod, although it got the pod before', async () => {
    const register = (extra: { uid: string; startedAt?: string }) =>
      store.pools.register(store.epoch, [registration('a', 'pool:gold', extra)], {
        candidates: [],
        last: 'pool:gold',
      });
    await register({ uid: 'old' });
    await wait('1');
    await store.calls.release('busy');
    store.advance(1000);
    const startedAt = new Date(store.nowMs()).toISOString();
    store.advance(1000);
    await wait('1');
    await register({ uid: 'new', startedAt });
    expect(await podOf('1')).toBe('a');
  });

  it('gives a pod to the next call if the first does not pick it up', async () => {
    await wait('1');
    await wait('2');
    await store.calls.release('busy');
    store.advance(14_000);
    await wait('2');
    store.advance(7000);
    expect((await store.waits.serve()).recovered).toBe(1);
    expect(await podOf('2')).toBe('a');
  });

  it('removes calls that are not asked for, and ends those that waited too long', async () => {
    await wait('1');
    await wait('2', '', { maxWaitMs: 12_000 });
    store.advance(11_000);
    expect(await store.waits.refresh(['2', 'unknown'])).toEqual(['unknown']);
    store.advance(4001);
    expect(await store.waits.serve()).toMatchObject({ expired: 1, abandoned: 1, waiting: 0 });
    expect(await events('wait_abandoned')).toEqual(['1']);
    expect(await events('wait_expired')).toEqual(['2']);
    expect(await store.ask('1', gold, { hold: holdRules(), wasHeld: true })).toEqual({
      refusal: 'wait_over',
    });
    expect(await engine.redis.keys('voice:waiting:*')).toEqual(['voice:waiting:queue:']);
    expect(await engine.redis.pttl('voice:waiting:queue:')).toBeGreaterThan(0);
  });

  it('keeps the record of a waiting call until serve_waiting ends the wait, also after minutes without a router', async () => {
    await wait('1');
    expect(await engine.redis.pttl('voice:call:1')).toBeGreaterThan(testTimes.callInfoTtlMs);
    store.advance(10 * 60_000);
    expect(await store.waits.serve()).toMatchObject({ expired: 1, waiting: 0 });
    expect(await engine.redis.exists('voice:waiting:calls:', 'voice:call:1')).toBe(0);
  });

  it('a release of a waiting call removes it from the queue', async () => {
    await wait('1');
    expect(await store.calls.release('1')).toMatchObject({ podName: null });
    await store.calls.release('busy');
    expect(await engine.redis.scard('voice:pool:gold:available')).toBe(1);
    await expect(store.calls.release('1')).rejects.toMatchObject({ code: 'call_not_found' });
  });

  it('a request that arrives after its waiting call was released gets no pod and no place', async () => {
    await wait('1');
    await store.calls.release('1');
    expect(await wait('1')).toEqual({ refusal: 'wait_over' });
    await store.calls.release('busy');
    expect(await wait('1')).toEqual({ refusal: 'wait_over' });
    store.advance(testTimes.reportGraceMs);
    expect(await wait('1')).toMatchObject({ allocation: { podName: 'a' } });
  });

  it('refuses a call when as many wait as the limits allow', async () => {
    await wait('1', '', { maxWaiting: 1 });
    expect(await wait('2', '', { maxWaiting: 1 })).toEqual({ refusal: 'queue_full' });
    expect(await wait('2', 'acme', { maxWaitingAll: 1 })).toEqual({ refusal: 'queue_full' });
    const [[, refused = []] = []] = await engine.redis.xrevrange('voice:events', '+', '-', 'COUNT', 1);
    expect(refused.slice(-2)).toEqual(['code', 'queue_full']);
    expect(await wait('1', '', { maxWaiting: 1 })).toMatchObject({ waiting: { position: 1 } });
  });

  it.each<[string, () => Promise<unknown>]>([
    [
      'the lease of a call expires and the sweep ends it',
      () => {
        store.advance(900_001);
        return store.sweep();
      },
    ],
    ['a pod registers', () => store.register(['b'], 'pool:gold')],
    [
      'a report ends a call',
      async () => {
        await store.calls.report('a', []);
        store.advance(30_000);
        await store.calls.report('a', []);
      },
    ],
    [
      'a drained pod is undrained',
      async () => {
        await store.register(['b'], 'pool:gold');
        // The waiting call has taken b: its release leaves b draining.
        await store.calls.drain('b');
        await store.calls.release('1');
        await wait('1');
        await store.calls.undrain('b');
      },
    ],
    [
      'a drain ends',
      async () => {
        await store.calls.drain('a');
        await store.calls.release('busy');
        expect(await podOf('1')).toBeUndefined();
        store.advance(360_001);
        await wait('1', '', { maxWaitMs: 600_000 });
        await engine.redis.del('voice:pod:draining:a');
        await store.waits.serve();
      },
    ],
    [
      'a not-ready pod becomes ready',
      async () => {
        await store.pools.suspend(store.epoch, 'not_ready', ['a']);
        await store.calls.release('busy');
        expect(await podOf('1')).toBeUndefined();
        await store.register(['a'], 'pool:gold');
      },
    ],
  ])('a waiting call gets a pod when %s', async (_, happens) => {
    await wait('1', '', { maxWaitMs: 3_000_000 });
    await happens();
    expect(await podOf('1')).toBeDefined();
    expect(await engine.redis.scard('voice:pool:gold:available')).toBe(0);
  });

  it('a shared pod takes waiting calls until it is full', async () => {
    for (const sid of ['1', '2', '3', '4']) await wait(sid, '', {}, ['pool:basic']);
    await store.register(['s'], 'pool:basic');
    expect(await Promise.all(['1', '2', '3', '4'].map(podOf))).toEqual(['s', 's', 's', undefined]);
    expect(await engine.redis.zscore('voice:pool:basic:available', 's')).toBe('3');
    await store.calls.release('2');
    expect(await podOf('4')).toBe('s');
  });

  it('serves higher priorities first, and within one priority by weight', async () => {
    for (let i = 0; i < 12; i++) {
      await wait(`one-${i}`, 'one', { weight: 1 });
      await wait(`two-${i}`, 'two', { weight: 2 });
    }
    await wait('late', 'vip', { priority: 5 });
    const order: string[] = [];
    let current = 'busy';
    for (let i = 0; i < 13; i++) {
      await store.calls.release(current);
      const [next] = await engine.redis.zrange('voice:pod:calls:a', 0, '0');
      current = next ?? '';
      order.push(current);
    }
    expect(order[0]).toBe('late');
    const served = order.slice(1);
    expect(served.filter((sid) => sid.startsWith('two')).length).toBe(8);
    expect(served.filter((sid) => sid.startsWith('one'))).toEqual(['one-0', 'one-1', 'one-2', 'one-3']);
  });

  it('never gives a merchant more calls than its limit, and queues the rest', async () => {
    await store.register(['b', 'c'], 'pool:gold');
    await setLimit('acme', 1);
    expect(await wait('1', 'acme')).toHaveProperty('allocation');
    expect(await store.ask('2', gold, { merchantId: 'acme' })).toEqual({ refusal: 'merchant_limit' });
    expect(await wait('2', 'acme')).toMatchObject({ waiting: { position: 1 } });
    expect(await wait('3', 'acme')).toMatchObject({ waiting: { position: 2 } });
    // Another merchant is not affected.
    expect(await store.allocate('x', gold)).toBeDefined();
    await store.calls.release('x');
    expect(await podOf('2')).toBeUndefined();
    await store.calls.release('1');
    expect(await podOf('2')).toBeDefined();
    expect(await podOf('3')).toBeUndefined();
    await setLimit('acme', 2);
    expect(await podOf('3')).toBeDefined();
    await setLimit('acme', '');
    expect(await engine.redis.keys('voice:limits*')).toEqual([]);
  });

  it('a limit counts the calls that were live when it was set, and cuts none', async () => {
    await store.register(['b', 'c'], 'pool:gold');
    await store.allocate('1', gold, { merchantId: 'acme' });
    await store.allocate('2', gold, { merchantId: 'acme' });
    await setLimit('acme', 1);
    expect(await engine.redis.smembers('voice:limits:acme')).toHaveLength(2);
    await store.calls.release('1');
    expect(await store.ask('3', gold, { merchantId: 'acme' })).toEqual({ refusal: 'merchant_limit' });
    await store.calls.release('2');
    expect(await store.allocate('3', gold, { merchantId: 'acme' })).toBeDefined();
  });

  it('a set of live calls with a wrong type does not stop the hand-over', async () => {
    await setLimit('acme', 5);
    await wait('1', 'acme');
    await engine.redis.rpush('voice:limits:acme', 'not what it should be');
    await store.calls.release('busy');
    expect(await podOf('1')).toBe('a');
    expect(await podOf('busy')).toBeUndefined();
    expect(await engine.redis.smembers('voice:pool:gold:available')).toEqual([]);
  });

  it('a pod that reports a waiting call adopts it', async () => {
    await store.register(['s'], 'pool:basic');
    await wait('1');
    expect((await store.calls.report('s', ['1'])).adopted).toEqual(['1']);
    expect(await engine.redis.exists('voice:waiting:due', 'voice:pool:gold:waiting')).toBe(0);
    expect(await podOf('1')).toBe('s');
  });

  it('a full pod that reports a waiting call gets a conflict, and the call keeps its place', async () => {
    await wait('1');
    expect((await store.calls.report('a', ['busy', '1'])).conflicts).toEqual(['1']);
    expect(await wait('1')).toMatchObject({ waiting: { position: 1 } });
  });

  it('a report of the pod does not end a call that its caller has not picked up', async () => {
    await wait('1');
    await store.calls.release('busy');
    await store.calls.report('a', []);
    store.advance(10_000);
    await store.calls.report('a', []);
    expect(await wait('1')).toMatchObject({ allocation: { podName: 'a' } });
  });

  it('an allocate without waiting ends the wait of its call', async () => {
    await wait('1');
    expect(await store.ask('1', gold)).toEqual({ refusal: 'no_pods' });
    expect(await events('wait_abandoned')).toEqual(['1']);
    expect((await store.calls.snapshot()).waitingCalls).toBe(0);
  });

  it('survives routers of version 0.1: a waiting call that got a pod there, a limited call that was released there', async () => {
    await store.register(['b', 'c'], 'pool:gold');
    await setLimit('acme', 1);
    await wait('1', 'acme');
    await wait('2', 'acme');
    // The old release does not know the set of live calls.
    const pod = (await podOf('1')) ?? '';
    await engine.redis.zrem(`voice:pod:calls:${pod}`, '1');
    await engine.redis.del('voice:call:1');
    await store.waits.serve();
    const second = (await podOf('2')) ?? '';
    expect(second).not.toBe('');
    // The old allocate gives a waiting call a pod, and leaves it in the queue.
    await wait('3', 'acme');
    await engine.redis.hset('voice:call:3', 'pod_name', 'c');
    await store.calls.release('2');
    expect(await engine.redis.zcard(`voice:pod:calls:${second}`)).toBe(0);
  });

  it('new rules of a queue apply to the calls that wait', async () => {
    await store.register(['v'], 'merchant:vip');
    await wait('1', 'acme');
    expect((await store.waits.serve()).queues).toEqual([
      { queue: 'acme', chain: 'pool:gold', priority: 0, weight: 1 },
    ]);
    const chain = 'merchant:vip pool:gold';
    await store.waits.serve([{ queue: 'acme', chain, priority: 3, weight: 2 }]);
    expect(await podOf('1')).toBe('v');
  });

  it('a waiting call that asks without waiting gets one pod at most', async () => {
    await store.register(['b'], 'pool:gold');
    await store.allocate('also busy', gold);
    await wait('1', '', { maxWaitMs: 3_000_000 });
    store.advance(900_001);
    const allocation = await store.allocate('1', gold);
    expect(allocation).toBeDefined();
    expect(await checkInvariants(engine.redis, { nowMs: store.nowMs() })).toEqual([]);
  });

  it('a higher max_concurrent gives its places to waiting calls in the same step', async () => {
    await store.register(['s'], 'pool:basic');
    for (const sid of ['1', '2', '3', '4']) await wait(sid, '', {}, ['pool:basic']);
    expect(await podOf('4')).toBeUndefined();
    const kinds = ['pool:gold', 'exclusive', 'pool:basic', 'shared:4', 'merchant:vip', 'exclusive'];
    await store.connection.run('setTiers', ['{}', 'replace', '', 'test', ...kinds]);
    expect(await podOf('4')).toBe('s');
  });

  it('a call of the shared queue counts for a limit that its merchant got since', async () => {
    await store.register(['b'], 'pool:gold');
    await store.allocate('first', gold, { merchantId: 'acme' });
    await store.ask('1', gold, { merchantId: 'acme', hold: holdRules() });
    await wait('2');
    await setLimit('acme', 1);
    await store.calls.release('busy');
    expect([await podOf('1'), await podOf('2')]).toEqual([undefined, 'a']);
    expect(await checkInvariants(engine.redis, { nowMs: store.nowMs() })).toEqual([]);
    await store.calls.release('first');
    expect(await podOf('1')).toBe('b');
  });

  it.each(['with the next call', 'within a second'])(
    'a limit that counts a deleted call is corrected %s, and the first waiting call gets the place',
    async (when) => {
      await store.register(['b', 'c'], 'pool:gold');
      await setLimit('acme', 1);
      await store.allocate('lost', gold, { merchantId: 'acme' });
      await wait('1', 'acme');
      await wait('2', 'acme');
      await engine.redis.del('voice:call:lost');
      if (when === 'within a second') await store.waits.serve();
      else expect(await wait('3', 'acme')).toMatchObject({ waiting: { position: 2 } });
      expect([await podOf('1'), await podOf('2')]).toEqual([expect.any(String), undefined]);
    },
  );

  it('a pod that is set back goes to the first waiting call, not to a new one', async () => {
    await store.register(['b', 'c'], 'pool:gold');
    for (const sid of ['x', 'y']) await store.allocate(sid, gold);
    await wait('1');
    // Blocked by failed calls while its last call ends.
    await engine.redis.set('voice:pod:suspended:a', 'flapping');
    await engine.redis.zadd('voice:flapping', store.nowMs() + 10_000, 'a');
    await store.calls.release('busy', undefined, { reason: 'connect_failed' });
    expect(await podOf('1')).toBeUndefined();
    expect(await store.ask('2', gold)).toEqual({ refusal: 'no_pods' });
    expect(await podOf('1')).toBe('a');
  });

  it('an entry that another queue has left behind is dropped', async () => {
    await wait('1', 'one');
    await wait('2', 'two', { priority: 5 });
    await engine.redis.zadd('voice:waiting:calls:two', 1, '1');
    await store.calls.release('busy');
    expect([await podOf('1'), await podOf('2')]).toEqual([undefined, 'a']);
  });

  it('a late release with the fence of an earlier call leaves the waiting one in its queue', async () => {
    const { fence } = await store.calls.call('busy');
    await store.calls.release('busy');
    await store.allocate('other', gold);
    await wait('busy');
    await expect(store.calls.release('busy', fence)).rejects.toMatchObject({ code: 'stale_fence' });
    expect(await store.calls.releaseUnclaimed('busy', fence)).toBe(false);
    expect(await wait('busy')).toMatchObject({ waiting: { position: 1 } });
  });

  it('a call that was never picked up says nothing about its pod', async () => {
    await engine.redis.hset('voice:pod:a', 'failures', '2');
    await wait('1');
    store.advance(6000);
    await store.calls.release('busy', undefined, { reason: 'connect_failed' });
    expect(await engine.redis.hget('voice:pod:a', 'failures')).toBe('3');
    await store.calls.release('1');
    expect(await engine.redis.hget('voice:pod:a', 'failures')).toBe('3');
  });

  it('a call over its limit waits in the queue of its merchant, also if the router does not know that yet', async () => {
    await store.register(['b', 'c'], 'pool:gold');
    await setLimit('acme', 1);
    await store.allocate('1', gold, { merchantId: 'acme' });
    await store.ask('2', gold, { merchantId: 'acme', hold: holdRules() });
    expect(await checkInvariants(engine.redis, { nowMs: store.nowMs() })).toEqual([]);
    await store.calls.release('1');
    expect(await podOf('2')).toBeDefined();
  });

  it('after FLUSHALL a waiting caller enters the queue again by asking again', async () => {
    await wait('1');
    await wait('2');
    await engine.redis.flushall();
    expect(await wait('2')).toMatchObject({ waiting: { position: 1 } });
    expect(await wait('1')).toMatchObject({ waiting: { position: 2 } });
    const kinds = ['pool:gold', 'exclusive'];
    await store.connection.run('setTiers', ['{}', 'init', '', 'test', ...kinds]);
    await store.register(['a'], 'pool:gold');
    expect([await podOf('1'), await podOf('2')]).toEqual([undefined, 'a']);
    expect(await wait('2')).toMatchObject({ allocation: { podName: 'a' } });
    await store.calls.release('2');
    expect(await podOf('1')).toBe('a');
    expect(await checkInvariants(engine.redis, { nowMs: store.nowMs() })).toEqual([]);
  });

  it('a queue whose call records are lost hands nothing over, and holds no pod back', async () => {
    await wait('1');
    await wait('2');
    await engine.redis.del('voice:call:1', 'voice:call:2');
    await store.calls.release('busy');
    expect(await engine.redis.smembers('voice:pool:gold:available')).toEqual(['a']);
    expect(await engine.redis.exists('voice:waiting:calls:', 'voice:pool:gold:waiting')).toBe(0);
    expect(await wait('1')).toHaveProperty('allocation');
  });
});
