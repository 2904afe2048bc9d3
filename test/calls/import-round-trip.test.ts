/**
 * docs/migration.md, "Going back" and coming here again: our own keys stand still while a Go router works on those it
 * knows. Calls and pods that it ended, allocated or removed are consistent before this router serves its first call.
 */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Auditor } from '../../src/calls/audit/auditor.js';
import { prepareStore } from '../../src/calls/import.js';
import { parseTierConfig } from '../../src/config/tiers.js';
import { silentLogger } from '../../src/observe/log.js';
import { describeEngines } from '../support/engines.js';
import { GoRouter } from '../support/go-router.js';
import { checkInvariants } from '../support/invariants.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { openStore, type TestStore, testTiers, testTimes } from '../support/store.js';

const clean = { violations: [], pending: [], complete: true };

describeEngines('a return from the Go router', (engine) => {
  let store: TestStore;
  let go: GoRouter;
  beforeEach(async () => {
    store = await openStore(engine.url);
    go = new GoRouter(engine.redis);
    await store.register(['g1', 'g2', 'g3'], 'pool:gold');
    await store.register(['s1', 's2'], 'pool:basic');
    await store.register(['v1'], 'merchant:vip');
  });
  afterEach(() => store.close());

  /** Pods are taken in no certain order: which one the call got. */
  async function given(sid: string, pool: 'pool:gold' | 'pool:basic' | 'merchant:vip'): Promise<string> {
    const allocation = await store.allocate(sid, [pool]);
    expect(allocation).toBeDefined();
    return allocation?.podName ?? '';
  }

  const { config: tiers } = parseTierConfig(testTiers);
  function adopt({ connection }: TestStore): Promise<number> {
    if (!tiers) throw new Error('the test tiers are wrong');
    return prepareStore({ connection, times: testTimes, log: silentLogger, tiers });
  }
  async function comeBack(): Promise<number> {
    await engine.redis.del('voice:data:version');
    return adopt(store);
  }

  /** No sweep has run: the import made everything consistent. */
  async function expectClean(): Promise<void> {
    expect(await new Auditor(store.connection, new AbortController().signal).audit()).toMatchObject(clean);
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
  }
  const callsOf = async (pod: string) =>
    (await store.calls.pod(pod)).calls.map(({ callSid }) => callSid).sort();

  it('a pod whose call was released there and that got another call has only that call', async () => {
    const pod = await given('old', 'pool:gold');
    await go.release('old');
    await go.allocate('new', pod);
    expect(await comeBack()).toBe(1);
    expect(await callsOf(pod)).toEqual(['new']);
    await expectClean();
    await expect(store.calls.release('old')).rejects.toMatchObject({ code: 'call_not_found' });
    expect(await store.calls.release('new')).toMatchObject({ podName: pod, releasedToPool: 'pool:gold' });
  });

  it.each(['pool:gold', 'pool:basic', 'merchant:vip'] as const)(
    'a pod of %s whose call was released there is free',
    async (pool) => {
      const pod = await given('old', pool);
      await go.release('old');
      expect(await comeBack()).toBe(0);
      expect(await callsOf(pod)).toEqual([]);
      await expectClean();
    },
  );

  it('a late report of its pod does not adopt a call that was released there', async () => {
    const pod = await given('old', 'pool:gold');
    await go.release('old');
    await comeBack();
    expect(await store.calls.report(pod, ['old'])).toMatchObject({ adopted: [], conflicts: ['old'] });
  });

  it('live calls keep their pods, fences and leases', async () => {
    const pods = [await given('a', 'pool:gold'), await given('b', 'pool:basic')];
    const before = [await store.calls.call('a'), await store.calls.call('b')];
    expect(await comeBack()).toBe(0);
    expect([await store.calls.call('a'), await store.calls.call('b')]).toEqual(before);
    expect(before.map(({ podName }) => podName)).toEqual(pods);
    await expectClean();
  });

  it('a call whose lease expired there loses its pod to the call that got it', async () => {
    const pod = await given('old', 'pool:gold');
    await go.recover(pod);
    await go.allocate('new', pod);
    expect(await comeBack()).toBe(1);
    expect(await callsOf(pod)).toEqual(['new']);
    await expect(store.calls.call('old')).rejects.toMatchObject({ code: 'call_not_found' });
    await expectClean();
  });

  it('a call whose lease expired there and whose pod became available has ended', async () => {
    const pod = await given('old', 'pool:gold');
    await store.connection.command('test', (client) => client.zadd(`voice:pod:calls:${pod}`, 1, 'old'));
    await go.recover(pod);
    expect(await comeBack()).toBe(0);
    expect(await callsOf(pod)).toEqual([]);
    await expectClean();
  });

  it('a shared pod has the calls that are left of ours and the new ones, all with time', async () => {
    const pod = await given('1', 'pool:basic');
    await store.connection.command('test', (client) => client.zadd(`voice:pod:calls:${pod}`, 1, '1'));
    await go.allocate('2', pod);
    await go.allocate('3', pod);
    await go.release('2');
    expect(await comeBack()).toBe(2);
    expect(await callsOf(pod)).toEqual(['1', '3']);
    await expectClean();
    expect(await engine.redis.zscore('voice:pool:basic:available', pod)).toBe('2');
    expect(await store.sweep()).toMatchObject({ callsEnded: 0 });
  });

  it('calls of a shared pod count though its lease names one that was released', async () => {
    await given('ours', 'pool:basic');
    for (const sid of ['1', '2', '3']) await go.allocate(sid, 's1');
    await go.release('3');
    await go.release('ours');
    expect(await comeBack()).toBe(2);
    expect(await callsOf('s1')).toEqual(['1', '2']);
    await expectClean();
  });

  it('the same call on another pod is there alone', async () => {
    const pod = await given('again', 'pool:gold');
    const [other = ''] = ['g1', 'g2'].filter((name) => name !== pod);
    await go.release('again');
    await go.allocate('again', other);
    expect(await comeBack()).toBe(1);
    expect([await callsOf(pod), await callsOf(other)]).toEqual([[], ['again']]);
    await expectClean();
  });

  it('the same call on the same pod has a fence again', async () => {
    const pod = await given('again', 'pool:gold');
    await go.release('again');
    await go.allocate('again', pod);
    expect(await comeBack()).toBe(1);
    expect((await store.calls.call('again')).fence).toBeGreaterThan(0);
    await expectClean();
  });

  it('nothing is left of a pod that was removed there, nor of its calls', async () => {
    const pod = await given('gone-1', 'pool:basic');
    await store.connection.command('test', (client) =>
      client.zadd('voice:pool:basic:available', 9, pod === 's1' ? 's2' : 's1'),
    );
    expect(await given('gone-2', 'pool:basic')).toBe(pod);
    await store.sweep();
    await store.pools.suspend(store.epoch, 'not_ready', ['g3']);
    await go.removePod(pod);
    await go.removePod('g3');
    expect(await comeBack()).toBe(0);
    const left = await engine.redis.keys('voice:*');
    expect(left.filter((key) => key.endsWith(`:${pod}`) || key.endsWith(':g3'))).toEqual([]);
    expect((await store.calls.snapshot()).activeCalls).toBe(0);
    await expectClean();
  });

  it('a pod that was moved to another pool there takes its calls into the index of that pool', async () => {
    const pod = await given('moved', 'pool:gold');
    await go.movePod(pod, 'merchant:vip');
    expect(await comeBack()).toBe(0);
    expect(await callsOf(pod)).toEqual(['moved']);
    expect((await store.calls.snapshot()).activeCalls).toBe(1);
    await expectClean();
  });

  it('a pool whose type was changed there does not keep the router from starting', async () => {
    await engine.redis.del('voice:pool:gold:available');
    await engine.redis.zadd('voice:pool:gold:available', 0, 'g1');
    const pod = await given('old', 'pool:basic');
    await go.release('old');
    await given('vip', 'merchant:vip');
    expect(await comeBack()).toBe(0);
    expect(await callsOf(pod)).toEqual([]);
  });

  it('a start that stops after any of its scripts is completed by the next', async () => {
    const [moved, kept] = [await given('old', 'pool:gold'), await given('lives', 'pool:basic')];
    await go.release('old');
    await go.allocate('new', moved);
    const { connection } = store;
    const { run } = connection;
    for (let cut = 1, isOver = false; !isOver; cut++) {
      let scripts = 0;
      connection.run = async (...args) => {
        const reply = await run.apply(connection, args);
        if (++scripts === cut) throw new Error('the reply is lost');
        return reply;
      };
      isOver = await comeBack().then(
        () => true,
        () => false,
      );
      expect(await engine.redis.exists('voice:data:version'), `cut after ${cut}`).toBe(isOver ? 1 : 0);
      if (isOver) expect(cut).toBeGreaterThan(2);
    }
    connection.run = run;
    expect([await callsOf(moved), await callsOf(kept)]).toEqual([['new'], ['lives']]);
    await expectClean();
  });

  it('two routers may start at once, and one may start after the first calls', async () => {
    const pod = await given('old', 'pool:gold');
    await go.release('old');
    await go.allocate('new', pod);
    const other = await openStore(engine.url);
    try {
      await engine.redis.del('voice:data:version');
      await Promise.all([adopt(store), adopt(other)]);
      expect(await callsOf(pod)).toEqual(['new']);
      await expectClean();
      const first = await store.allocate('first', ['pool:gold']);
      await engine.redis.del('voice:data:version');
      await adopt(other);
      expect(await callsOf(first?.podName ?? '')).toEqual(['first']);
      expect(await store.calls.release('first', first?.fence)).toMatchObject({ podName: first?.podName });
      await expectClean();
    } finally {
      other.close();
    }
  });

  it('imports more than one page of calls and pods', async () => {
    const names = Array.from({ length: 600 }, (_, i) => `many-${i}`);
    await store.register(names, 'pool:gold');
    const pods = new Map<string, string>();
    for (const name of names) pods.set(name, await given(`call-${name}`, 'pool:gold'));
    for (const [i, name] of names.entries()) {
      if (i % 2 === 0) await go.release(`call-${name}`);
      if (i % 4 === 0) await go.allocate(`new-${name}`, pods.get(name) ?? '');
    }
    expect(await comeBack()).toBe(150);
    expect((await store.calls.snapshot()).activeCalls).toBe(450);
    await expectClean();
  });
});

describeEngines('a router, the Go router, and a router again', (engine) => {
  let router: TestRouter | undefined;
  afterEach(() => router?.stop());

  it('the audit finds nothing, loads are right, and calls of both end here', async () => {
    const go = new GoRouter(engine.redis);
    // Only the import repairs anything.
    const env = { CLEANUP_INTERVAL: '1h', RECONCILE_INTERVAL: '1h', CALL_INFO_TTL: '3h' };
    router = await startTestRouter(engine.url, env);
    const first = (await router.post('/allocate', { call_sid: 'old-1' })).body;
    const second = (await router.post('/allocate', { call_sid: 'old-2' })).body;
    expect([first.source_pool, second.source_pool]).toEqual(['pool:gold', 'pool:gold']);
    await router.post('/allocate', { call_sid: 'shared-1' });
    await router.stop();

    await go.release('old-1');
    await go.allocate('new-1', first.pod_name);
    await go.allocate('shared-2', 'basic-1');
    await engine.redis.del('voice:data:version');

    router = await startTestRouter(engine.url, env);
    const audit = (await router.get('/audit')).body;
    expect(audit).toMatchObject(clean);
    expect(audit.looked_at).toMatchObject({ pods: 3, calls: 4 });
    const { pools, active_calls } = (await router.get('/status')).body;
    expect(active_calls).toBe(4);
    expect(pools).toMatchObject({
      gold: { active_calls: 2, available: 0 },
      basic: { active_calls: 2, available: 1 },
    });
    expect((await router.get(`/pod/${first.pod_name}`)).body).toMatchObject({
      calls: ['new-1'],
      lease_call_sid: 'new-1',
    });
    expect((await router.post('/release', { call_sid: 'old-1' })).status).toBe(404);
    for (const sid of ['new-1', 'old-2', 'shared-1', 'shared-2'])
      expect((await router.post('/release', { call_sid: sid })).status, sid).toBe(200);
    expect((await router.get('/audit')).body).toMatchObject(clean);
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
  });
});
