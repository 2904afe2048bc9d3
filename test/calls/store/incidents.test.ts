/**
 * The findings of seeds/e2e-logical-audit.md: none of them occurs here, also not those that it accepted (spec, section 8).
 * A race runs as a race, over several connections.
 */
import type { Redis } from 'ioredis';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { PoolStore } from '../../../src/calls/store/pool-store.js';
import { describeEngines } from '../../support/engines.js';
import { openStore, registration, type TestStore, testTimes } from '../../support/store.js';
import { connectWithTimeout } from '../short-timeout.js';

const names = (prefix: string, count: number) => Array.from({ length: count }, (_, i) => `${prefix}-${i}`);

/** Violations of invariants 1 to 4 and of the derived sets, as text. */
async function broken(redis: Redis): Promise<string[]> {
  const problems: string[] = [];
  const kinds = await redis.hgetall('voice:pools');
  const owners = new Map<string, string>();
  for (const [pool, kind] of Object.entries(kinds)) {
    const max = kind.startsWith('shared:') ? Number(kind.slice(7)) : 1;
    const key = pool.startsWith('pool:') ? `voice:${pool}:available` : `voice:${pool}:pods`;
    const scores = new Map<string, number>();
    if (max > 1) {
      const flat = await redis.zrange(key, 0, '-1', 'WITHSCORES');
      for (let i = 0; i < flat.length; i += 2) scores.set(flat[i] as string, Number(flat[i + 1]));
    } else for (const pod of await redis.smembers(key)) scores.set(pod, 0);
    const indexed = new Set(await redis.zrange(`voice:${pool}:calls`, 0, '-1'));
    for (const pod of await redis.smembers(`voice:${pool}:assigned`)) {
      const calls = await redis.zrange(`voice:pod:calls:${pod}`, 0, '-1');
      const blocked = (await redis.exists(`voice:pod:draining:${pod}`, `voice:pod:suspended:${pod}`)) > 0;
      const score = scores.get(pod);
      scores.delete(pod);
      if (calls.length > max) problems.push(`${pod} has ${calls.length} calls of ${max}`);
      if (blocked && score !== undefined) problems.push(`${pod} is blocked and available`);
      if (max > 1 && score !== undefined && score !== calls.length)
        problems.push(`${pod}: ${score}, ${calls.length}`);
      if (max === 1 && score !== undefined && calls.length > 0) problems.push(`${pod} is busy and available`);
      if (!blocked && score === undefined && (max > 1 || calls.length === 0))
        problems.push(`${pod} is leaked`);
      for (const sid of calls) {
        if (owners.has(sid)) problems.push(`${sid} is on ${owners.get(sid)} and ${pod}`);
        owners.set(sid, pod);
        if ((await redis.hget(`voice:call:${sid}`, 'pod_name')) !== pod)
          problems.push(`${sid} has no record`);
        if (!indexed.delete(sid)) problems.push(`${sid} is in no index`);
      }
    }
    for (const pod of scores.keys()) problems.push(`${pod} is available in ${pool} and not assigned`);
    for (const sid of indexed) problems.push(`${sid} is in the index of ${pool} only`);
  }
  return problems;
}

/** What happened, in the order in which the store did it. */
async function history(redis: Redis): Promise<Record<string, string>[]> {
  const entries = await redis.xrange('voice:events', '-', '+');
  return entries.map(([, fields]) =>
    Object.fromEntries(fields.flatMap((field, i) => (i % 2 === 0 ? [[field, fields[i + 1] ?? '']] : []))),
  );
}

describeEngines('scenarios of earlier incidents', (engine) => {
  const opened: TestStore[] = [];
  let store: TestStore;
  beforeEach(async () => {
    store = await open({ virtualTime: true });
  });
  afterEach(async () => {
    expect(await broken(engine.redis)).toEqual([]);
    for (const one of opened.splice(0)) one.close();
  });

  async function open(options: Parameters<typeof openStore>[1] = {}): Promise<TestStore> {
    const one = await openStore(engine.url, options);
    opened.push(one);
    return one;
  }
  const replicas = () => Promise.all([1, 2, 3, 4].map(() => open()));
  const pick = (all: TestStore[], i: number) => all[i % all.length] as TestStore;
  const load = async (pod: string) => (await store.calls.pod(pod)).calls.length;

  it('C2 zombie storm: an unreachable store does not count as a missing pod', async () => {
    await store.register(['s'], 'pool:basic');
    for (const sid of ['1', '2', '3']) await store.allocate(sid, ['pool:basic']);
    const hasty = new PoolStore(await connectWithTimeout(engine.url, 300), testTimes.reportGraceMs);
    await engine.pause();
    await expect(hasty.sweep(store.epoch, 'pool:basic', 'pods', '0', 100)).rejects.toMatchObject({
      code: 'store_unavailable',
    });
    await engine.resume();
    expect(await engine.redis.zscore('voice:pool:basic:available', 's')).toBe('3');
    expect(await store.allocate('4', ['pool:basic'])).toBeUndefined();
  });

  it('C2 zombie storm: a key the sweep cannot read resets nothing', async () => {
    await store.register(['s'], 'pool:basic');
    for (const sid of ['1', '2', '3']) await store.allocate(sid, ['pool:basic']);
    await engine.redis.rename('voice:pod:calls:s', 'kept');
    await engine.redis.set('voice:pod:calls:s', 'not a zset');
    expect(await store.sweep('pool:basic')).toEqual({ callsEnded: 0, podsPutBack: 0, podsTakenOut: 1 });
    expect(await store.allocate('4', ['pool:basic'])).toBeUndefined();
    await engine.redis.rename('kept', 'voice:pod:calls:s');
    await store.sweep('pool:basic');
    expect(await engine.redis.zscore('voice:pool:basic:available', 's')).toBe('3');
    expect((await store.calls.snapshot()).activeCalls).toBe(3);
  });

  it('F3-A gauge drift: pods that die with their calls, twice reported, leave the count exact', async () => {
    await store.register(names('g', 10), 'pool:gold');
    await store.register(names('s', 5), 'pool:basic');
    for (const sid of names('call', 25)) await store.allocate(sid, ['pool:gold', 'pool:basic']);
    expect((await store.calls.snapshot()).activeCalls).toBe(25);
    for (let round = 0; round < 2; round++) {
      await store.pools.remove(store.epoch, ['g-0', 'g-1', 's-0'], 'died');
      expect((await store.calls.snapshot()).activeCalls).toBe(20);
    }
    store.advance(testTimes.leaseTtlMs + 1);
    await store.sweep();
    expect((await store.calls.snapshot()).activeCalls).toBe(0);
  });

  it.each(['pool:gold', 'pool:basic'] as const)(
    'drain race (SPOP versus drain): 200 allocates against 50 drains of %s, none on a drained pod',
    async (pool) => {
      const pods = names('pod', 100);
      await store.register(pods, pool);
      const all = await replicas();
      const given: (string | undefined)[] = [];
      const drains: Promise<unknown>[] = [];
      const allocates = names('call', 200).map(async (sid, i) => {
        if (i % 4 === 0) drains.push(pick(all, i + 1).calls.drain(`pod-${i / 4}`));
        given.push((await pick(all, i).allocate(sid, [pool]))?.podName);
      });
      await Promise.all([...allocates, ...drains]);
      const drained = new Set<string>();
      const late = (await history(engine.redis)).filter(({ type, pod = '' }) => {
        if (type === 'pod_draining') drained.add(pod);
        return type === 'call_allocated' && drained.has(pod);
      });
      expect(drained.size).toBe(50);
      expect(late).toEqual([]);
      // Each pod is allocated, drained or available.
      const used = new Set([...given.filter((pod) => pod !== undefined), ...drained]);
      if (pool === 'pool:gold')
        expect(await engine.redis.scard('voice:pool:gold:available')).toBe(100 - used.size);
      const busy = [...drained].find((pod) => given.includes(pod));
      if (busy) expect(await load(busy)).toBeGreaterThan(0);
    },
  );

  it('shared pool score loss on drain: after the drain the pod has the load it had', async () => {
    await store.register(['s'], 'pool:basic');
    for (const sid of ['1', '2']) await store.allocate(sid, ['pool:basic']);
    await store.calls.drain('s');
    store.advance(testTimes.drainingTtlMs + 1);
    await engine.redis.del('voice:pod:draining:s');
    await store.sweep();
    expect(await engine.redis.zscore('voice:pool:basic:available', 's')).toBe('2');
    expect(await store.allocate('3', ['pool:basic'])).toMatchObject({ podName: 's' });
    expect(await store.allocate('4', ['pool:basic'])).toBeUndefined();
  });

  it('long calls with renew (lease TTL versus long calls): three hours on one pod, without a second call', async () => {
    await store.register(['g'], 'pool:gold');
    await store.allocate('long', ['pool:gold']);
    for (let minutes = 10; minutes <= 180; minutes += 10) {
      store.advance(600_000);
      await store.calls.renew('long');
      await store.sweep();
      expect(await store.allocate('other', ['pool:gold'])).toBeUndefined();
    }
    store.advance(testTimes.leaseTtlMs + 1);
    expect(await store.allocate('other', ['pool:gold'])).toMatchObject({ podName: 'g', reclaimed: 1 });
  });

  it('tier deleted while pods running: they move, and no stale entry stays', async () => {
    await store.register(names('g', 3), 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    const only = ['{"tiers":{"basic":{"type":"shared"}}}', 'replace', '', 'test', 'pool:basic', 'shared:5'];
    await store.connection.run('setTiers', only);
    expect(await store.allocate('2', ['pool:gold', 'pool:basic'])).toBeUndefined();
    await store.pools.register(
      store.epoch,
      names('g', 3).map((name) => registration(name)),
      {
        candidates: [],
        last: 'pool:basic',
      },
    );
    expect(await engine.redis.keys('voice:pool:gold:*')).toEqual([]);
    expect(await store.allocate('1', [])).toMatchObject({ wasExisting: true });
  });

  it('a tier that changes its type under load: every request succeeds or is refused, and no call is lost', async () => {
    await store.register(names('pod', 10), 'pool:gold');
    const all = await replicas();
    const kinds = ['exclusive', 'shared:4'];
    const changes: string[] = [];
    const flips = names('flip', 40).map(async (by, i) => {
      const kind = kinds[i % 2] as string;
      const answer = await pick(all, i).connection.run('setTiers', [
        kind,
        'replace',
        '',
        by,
        'pool:gold',
        kind,
      ]);
      changes.push(String(Array.isArray(answer) ? answer[0] : answer));
    });
    const live = new Set<string>();
    const traffic = names('call', 200).map(async (sid, i) => {
      const one = pick(all, i);
      if (!(await one.allocate(sid, ['pool:gold']))) return;
      live.add(sid);
      if (i % 2 === 0) {
        await one.calls.release(sid);
        live.delete(sid);
      }
    });
    await Promise.all([...flips, ...traffic]);
    expect(changes.filter((code) => code !== 'ok' && code !== 'conflict')).toEqual([]);
    expect((await store.calls.snapshot()).activeCalls).toBe(live.size);
    for (const sid of live) expect(await store.calls.call(sid)).toMatchObject({ callSid: sid });
  });

  it('double release: each call ends once, released by any number of replicas', async () => {
    await store.register(names('s', 10), 'pool:basic');
    const all = await replicas();
    for (const sid of names('call', 30)) await store.allocate(sid, ['pool:basic']);
    const releases = names('call', 20).flatMap((sid) =>
      [0, 1, 2].map((i) => pick(all, i).calls.release(sid)),
    );
    const answers = await Promise.allSettled(releases);
    expect(answers.filter(({ status }) => status === 'fulfilled')).toHaveLength(20);
    expect((await store.calls.snapshot()).activeCalls).toBe(10);
  });

  it('late release: changes nothing if the pod serves another call by then', async () => {
    await store.register(['g'], 'pool:gold');
    const old = await store.allocate('A', ['pool:gold']);
    store.advance(testTimes.leaseTtlMs + 1);
    await store.allocate('B', ['pool:gold']);
    await expect(store.calls.release('A')).rejects.toMatchObject({ code: 'call_not_found' });
    await expect(store.calls.release('A', old?.fence)).rejects.toMatchObject({ code: 'call_not_found' });
    expect(await store.calls.call('B')).toMatchObject({ podName: 'g' });
    expect(await store.allocate('C', ['pool:gold'])).toBeUndefined();
  });

  it('the same SID used again: gets a new fence, and the old fence is refused', async () => {
    await store.register(['g'], 'pool:gold');
    const first = await store.allocate('A', ['pool:gold']);
    await store.calls.release('A');
    const second = await store.allocate('A', ['pool:gold']);
    expect(second).toMatchObject({ wasExisting: false });
    expect(second?.fence).toBeGreaterThan(first?.fence ?? 0);
    for (const late of [store.calls.release('A', first?.fence), store.calls.renew('A', first?.fence)]) {
      await expect(late).rejects.toMatchObject({ code: 'stale_fence' });
    }
    expect(await store.calls.report('g', ['A'])).toMatchObject({ renewed: ['A'], conflicts: [] });
  });

  it('a late report adopts no ended call and ends no new one', async () => {
    await store.register(['g'], 'pool:gold');
    await store.allocate('A', ['pool:gold']);
    await store.calls.release('A');
    await store.allocate('B', ['pool:gold']);
    expect(await store.calls.report('g', ['A'])).toMatchObject({ adopted: [], ended: [], conflicts: ['A'] });
    store.advance(testTimes.reportGraceMs + 1000);
    expect(await store.calls.report('g', ['A', 'B'])).toMatchObject({ renewed: ['B'], conflicts: ['A'] });
    expect(await load('g')).toBe(1);
  });

  it('scenario 5, a blip while a pod is removed: the dead pod is not recovered', async () => {
    await store.register(['g', 'h'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    await store.pools.remove(store.epoch, ['g', 'h'], 'died');
    await engine.redis.sadd('voice:pool:gold:assigned', 'g');
    await store.sweep();
    expect(await store.allocate('2', ['pool:gold'])).toBeUndefined();
    await engine.redis.srem('voice:pool:gold:assigned', 'g');
  });
});
