/** What operators read: snapshot, one pod, one call, lists with paging. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Page } from '../../../src/calls/store/store.js';
import { describeEngines } from '../../support/engines.js';
import { openStore, registration, type TestStore, testTimes } from '../../support/store.js';

/** Reads all pages; a scan may show an item twice, never leave one out. */
async function readAll<T>(
  read: (cursor: string) => Promise<Page<T>>,
): Promise<{ items: T[]; pages: number }> {
  const items: T[] = [];
  let cursor: string | undefined = '0';
  let pages = 0;
  while (cursor !== undefined) {
    const page: Page<T> = await read(cursor);
    items.push(...page.items);
    cursor = page.cursor;
    pages += 1;
    if (pages > 10_000) throw new Error('the list has no end');
  }
  return { items, pages };
}

describeEngines('reading', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(() => store.close());

  it('a store without pods has pools with nothing in them', async () => {
    const empty = { assigned: 0, available: 0, activeCalls: 0, stranded: 0, capacity: 0, unreadableKey: '' };
    const now = store.nowMs();
    expect(await store.calls.snapshot()).toEqual({
      nowMs: now,
      tierVersion: 1,
      epoch: store.epoch,
      removalsHeld: 0,
      setBack: [],
      activeCalls: 0,
      waitingCalls: 0,
      pools: [
        { pool: 'merchant:vip', kind: 'exclusive', maxConcurrent: 1, ...empty },
        { pool: 'pool:basic', kind: 'shared', maxConcurrent: 3, ...empty },
        { pool: 'pool:gold', kind: 'exclusive', maxConcurrent: 1, ...empty },
      ],
    });
  });

  it('an empty store has no pools at all', async () => {
    await engine.redis.flushall();
    expect(await store.calls.snapshot()).toMatchObject({
      tierVersion: 0,
      epoch: '',
      pools: [],
      activeCalls: 0,
    });
  });

  it('the snapshot counts pods that can take a call, live calls and capacity', async () => {
    await store.register(['a', 'b', 'c'], 'pool:gold');
    await store.register(['s', 't', 'u'], 'pool:basic');
    await store.register(['l'], 'merchant:acme');
    await store.calls.drain('u');
    await store.allocate('1', ['pool:gold']);
    for (const sid of ['2', '3', '4', '5']) await store.allocate(sid, ['pool:basic']);
    await store.calls.release('2');
    await store.calls.release('3');
    const pods = await Promise.all(['s', 't'].map(async (pod) => (await store.calls.pod(pod)).calls.length));
    expect(pods[0]).toBe(1);
    for (const sid of ['6', '7', '8']) await store.allocate(sid, ['pool:basic']);
    const { pools, activeCalls } = await store.calls.snapshot();
    expect(activeCalls).toBe(6);
    expect(pools.map((p) => [p.pool, p.assigned, p.available, p.activeCalls, p.capacity])).toEqual([
      ['merchant:acme', 1, 1, 0, 1],
      ['merchant:vip', 0, 0, 0, 0],
      ['pool:basic', 3, 1, 5, 9],
      ['pool:gold', 3, 2, 1, 3],
    ]);
  });

  it('counts pods without a call that cannot get one, in exclusive and shared pools', async () => {
    const stranded = async () =>
      (await store.calls.snapshot()).pools.flatMap((p) => (p.assigned > 0 ? [[p.pool, p.stranded]] : []));
    await store.register(['a', 'b', 'c'], 'pool:gold');
    await store.register(['s', 't', 'u', 'v', 'w'], 'pool:basic');
    expect(await stranded()).toEqual([
      ['pool:basic', 0],
      ['pool:gold', 0],
    ]);
    // Leaked: no call, no drain, no suspension, and not among the available.
    await engine.redis.srem('voice:pool:gold:available', 'a');
    await engine.redis.zrem('voice:pool:basic:available', 's', 't');
    expect(await stranded()).toEqual([
      ['pool:basic', 2],
      ['pool:gold', 1],
    ]);
    await store.allocate('1', ['pool:gold']);
    for (const sid of ['2', '3', '4', '5', '6', '7', '8']) await store.allocate(sid, ['pool:basic']);
    expect(await stranded()).toEqual([
      ['pool:basic', 2],
      ['pool:gold', 1],
    ]);
    // A drained pod still has its calls; a full pod is not stranded; an unreadable pod takes no call.
    const busy = (await store.calls.call('8')).podName;
    await store.calls.drain(busy);
    expect(await stranded()).toEqual([
      ['pool:basic', 2],
      ['pool:gold', 1],
    ]);
    await engine.redis.set('voice:pod:calls:s', 'by hand');
    expect(await stranded()).toEqual([
      ['pool:basic', 2],
      ['pool:gold', 1],
    ]);
  });

  it('a pod shows its pool, its block, its calls and their deadlines', async () => {
    const pod = registration('s', 'pool:basic', { uid: 'u1', metadata: '{"node":"n1"}' });
    await store.pools.register(store.epoch, [pod], { candidates: [], last: 'pool:basic' });
    const first = await store.allocate('1', ['pool:basic']);
    store.advance(1000);
    const second = await store.allocate('2', ['pool:basic']);
    const { untilMs } = await store.calls.drain('s');
    expect(await store.calls.pod('s')).toEqual({
      podName: 's',
      pool: 'pool:basic',
      blockedBy: 'draining',
      drainingUntilMs: untilMs,
      leaseCallSid: '2',
      uid: 'u1',
      metadata: '{"node":"n1"}',
      calls: [
        { callSid: '1', leaseExpiresAtMs: first?.leaseExpiresAtMs },
        { callSid: '2', leaseExpiresAtMs: second?.leaseExpiresAtMs },
      ],
    });
  });

  it('an idle pod shows no lease, no block and no calls', async () => {
    await store.register(['a'], 'merchant:vip');
    expect(await store.calls.pod('a')).toEqual({
      podName: 'a',
      pool: 'merchant:vip',
      blockedBy: '',
      drainingUntilMs: undefined,
      leaseCallSid: null,
      uid: '',
      metadata: '{}',
      calls: [],
    });
  });

  it('a call shows the arguments of its allocate', async () => {
    await store.register(['v'], 'merchant:vip');
    const request = { merchantId: 'acme', provider: 'plivo', flow: 'v1', template: 'survey' };
    const given = await store.allocate('CA 1', ['merchant:vip'], request);
    expect(await store.calls.call('CA 1')).toEqual({
      ...request,
      callSid: 'CA 1',
      leaseExpiresAtMs: given?.leaseExpiresAtMs,
      podName: 'v',
      sourcePool: 'merchant:vip',
      allocatedAt: given?.allocatedAt,
      renewedAt: undefined,
      fence: given?.fence,
    });
    store.advance(5000);
    const now = store.nowMs();
    await store.calls.renew('CA 1');
    expect((await store.calls.call('CA 1')).renewedAt).toBe(new Date(now).toISOString());
  });

  it.each([
    ['a pod', () => store.calls.pod('unknown'), 'pod_not_found'],
    ['a call', () => store.calls.call('unknown'), 'call_not_found'],
  ] as const)('%s that is not there is not found', async (_, read, code) => {
    await expect(read()).rejects.toMatchObject({ code, status: 404 });
  });

  it.each([
    ['pods', () => store.calls.pods('pool:none', '0', 10)],
    ['calls', () => store.calls.calls('pool:none', '0', 10)],
  ] as const)('the %s of a pool without any are an empty page', async (_, read) => {
    expect(await read()).toEqual({ items: [], cursor: undefined });
  });

  it('reading changes nothing: no key and no lease', async () => {
    await store.register(['a'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    const keys = (await engine.redis.keys('*')).sort();
    const deadline = (await store.calls.call('1')).leaseExpiresAtMs;
    store.advance(testTimes.leaseTtlMs + 1);
    await store.calls.snapshot();
    await store.calls.pod('a');
    await store.calls.pods('pool:gold', '0', 10);
    await store.calls.calls('pool:gold', '0', 10);
    expect((await store.calls.call('1')).leaseExpiresAtMs).toBe(deadline);
    expect((await engine.redis.keys('*')).sort()).toEqual(keys);
  });

  it('lists all of 1,500 pods in pages', async () => {
    const names = Array.from({ length: 1500 }, (_, i) => `voice-agent-${i}`);
    await store.register(names, 'pool:gold');
    const { items, pages } = await readAll((cursor) => store.calls.pods('pool:gold', cursor, 100));
    expect([...new Set(items.map(({ podName }) => podName))].sort()).toEqual([...names].sort());
    expect(items.every(({ pool }) => pool === 'pool:gold')).toBe(true);
    expect(pages).toBeGreaterThan(5);
  });

  it('lists all of 1,200 calls in pages while others start and end', async () => {
    const names = Array.from({ length: 1300 }, (_, i) => `pod-${i}`);
    await store.register(names, 'pool:gold');
    const sids = Array.from({ length: 1200 }, (_, i) => `call-${i}`);
    await Promise.all(sids.map((sid) => store.allocate(sid, ['pool:gold'])));
    let extra = 0;
    const { items, pages } = await readAll(async (cursor) => {
      await store.allocate(`extra-${extra++}`, ['pool:gold']);
      if (extra > 1) await store.calls.release(`extra-${extra - 2}`);
      return store.calls.calls('pool:gold', cursor, 100);
    });
    const seen = new Set(items.map(({ callSid }) => callSid));
    expect(sids.filter((sid) => !seen.has(sid))).toEqual([]);
    expect(items.every(({ podName }) => podName.startsWith('pod-'))).toBe(true);
    expect(pages).toBeGreaterThan(5);
  });
});
