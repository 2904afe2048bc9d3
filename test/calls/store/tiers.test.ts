/** set_tiers: the configuration changes and the pools with it, as a whole or not at all. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Reply } from '../../../src/calls/store/connection.js';
import { type PoolId, parseTierConfig, poolsOf, serializeTierConfig } from '../../../src/config/tiers.js';
import { describeEngines } from '../../support/engines.js';
import { openStore, registration, type TestStore, testTiers } from '../../support/store.js';

type Tiers = Record<string, unknown>;
const gold = { type: 'exclusive', target: 2 };
const basic = { type: 'shared', target: 2, max_concurrent: 3 };
const vip = { type: 'exclusive', target: 1 };

describeEngines('set_tiers', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(() => store.close());

  function textOf(tiers: Tiers, chain: string[]): { text: string; kinds: string[] } {
    const { config } = parseTierConfig({ tiers, default_chain: chain });
    if (!config) throw new Error('the test tiers are wrong');
    const kinds = poolsOf(config).flatMap(({ id, kind, maxConcurrent }) => [
      id,
      kind === 'shared' ? `shared:${maxConcurrent}` : 'exclusive',
    ]);
    return { text: serializeTierConfig(config), kinds };
  }

  function set(tiers: Tiers, chain: string[], mode = 'replace', version: number | '' = ''): Promise<Reply> {
    const { text, kinds } = textOf(tiers, chain);
    return store.connection.run('setTiers', [text, mode, version, 'test', ...kinds]);
  }

  const kinds = () => engine.redis.hgetall('voice:pools');
  const load = async (pool: PoolId) =>
    (await store.calls.snapshot()).pools.find((counts) => counts.pool === pool)?.activeCalls;

  it('init writes once; a second init changes nothing', async () => {
    const before = [await engine.redis.get('voice:tier:config'), await kinds()];
    expect(await set({ other: gold }, ['other'], 'init')).toEqual(['exists']);
    expect([await engine.redis.get('voice:tier:config'), await kinds()]).toEqual(before);
    expect(before[1]).toEqual({
      'pool:gold': 'exclusive',
      'pool:basic': 'shared:3',
      'merchant:vip': 'exclusive',
    });
  });

  it('eight replicas that start at once write one configuration', async () => {
    await engine.redis.flushall();
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, i) => set({ [`t${i}`]: gold }, [`t${i}`], 'init')),
    );
    expect(answers.filter((answer) => Array.isArray(answer) && answer[0] === 'ok')).toHaveLength(1);
    expect(Object.keys(await kinds())).toHaveLength(1);
  });

  it('apply takes the text an operator wrote, and refuses a text that has changed since', async () => {
    const { text } = textOf({ gold, silver: gold }, ['gold', 'silver']);
    await engine.redis.set('voice:tier:config', text);
    expect(await set({ gold, silver: gold }, ['gold', 'silver'], 'apply')).toEqual(['ok', 2, 3]);
    expect(await set({ gold }, ['gold'], 'apply')).toEqual(['changed', 2]);
    expect(await kinds()).toEqual({ 'pool:gold': 'exclusive', 'pool:silver': 'exclusive' });
  });

  it('replace increments the version, and refuses another expected version', async () => {
    const version = (await store.calls.snapshot()).tierVersion;
    expect(await set({ gold }, ['gold'], 'replace', version)).toEqual(['ok', version + 1, 2]);
    expect(await set({ basic }, ['basic'], 'replace', version)).toEqual(['changed', version + 1]);
    expect(await kinds()).toEqual({ 'pool:gold': 'exclusive' });
    expect(await set({ gold }, ['gold'])).toEqual(['ok', version + 1, 0]);
  });

  it('of two replacements of one version one wins', async () => {
    const version = (await store.calls.snapshot()).tierVersion;
    const answers = await Promise.all(
      ['x', 'y', 'z'].map((name) => set({ [name]: gold }, [name], 'replace', version)),
    );
    const codes = answers.map((answer) => (Array.isArray(answer) ? answer[0] : answer));
    expect(codes.sort()).toEqual(['changed', 'changed', 'ok']);
  });

  it('exclusive becomes shared under load: nothing is lost, and the pods take more calls', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    await set({ gold: { type: 'shared', max_concurrent: 2 }, basic, vip }, ['gold', 'basic']);
    expect(await engine.redis.type('voice:pool:gold:available')).toBe('zset');
    for (const sid of ['2', '3', '4']) expect(await store.allocate(sid, ['pool:gold'])).toBeDefined();
    expect(await store.allocate('5', ['pool:gold'])).toBeUndefined();
    expect(await store.allocate('1', ['pool:gold'])).toMatchObject({ wasExisting: true });
    expect(await load('pool:gold')).toBe(4);
  });

  it('shared becomes exclusive once no pod has two calls; until then it is refused as a whole', async () => {
    await store.register(['s', 't'], 'pool:basic');
    for (const sid of ['1', '2', '3']) await store.allocate(sid, ['pool:basic']);
    const wanted = { gold, basic: { type: 'exclusive' }, vip, extra: gold };
    const before = [await kinds(), await engine.redis.get('voice:tier:config')];
    const refusal = await set(wanted, ['gold', 'basic', 'extra']);
    expect(refusal).toEqual(['conflict', 'pool:basic', expect.stringContaining('1 of its pods')]);
    expect([await kinds(), await engine.redis.get('voice:tier:config')]).toEqual(before);
    await store.calls.release('3');
    await store.calls.release('2');
    expect(await set(wanted, ['gold', 'basic', 'extra'])).toMatchObject(['ok', 2, 2]);
    expect(await engine.redis.smembers('voice:pool:basic:available')).toHaveLength(1);
    expect(await store.allocate('4', ['pool:basic'])).toMatchObject({ wasExisting: false });
    expect(await store.allocate('5', ['pool:basic'])).toBeUndefined();
  });

  it.each([
    {
      what: 'out of the chain',
      from: 'pool:gold',
      to: 'merchant:gold',
      tier: 'merchant:gold',
      chain: ['basic'],
    },
    {
      what: 'into the chain',
      from: 'merchant:vip',
      to: 'pool:vip',
      tier: 'vip',
      chain: ['gold', 'basic', 'vip'],
    },
  ] as { what: string; from: PoolId; to: PoolId; tier: string; chain: string[] }[])(
    'a tier that goes $what keeps its pods and calls under its new keys',
    async ({ from, to, tier, chain }) => {
      await store.register(['a', 'b'], from);
      const given = await store.allocate('1', [from]);
      await set({ gold, basic, vip }, chain);
      expect(await engine.redis.keys(`voice:${from}:*`)).toEqual([]);
      expect((await engine.redis.smembers(`voice:${to}:assigned`)).sort()).toEqual(['a', 'b']);
      expect(await engine.redis.mget('voice:pod:tier:a', 'voice:pod:tier:b')).toEqual([tier, tier]);
      expect([await load(from), await load(to)]).toEqual([undefined, 1]);
      expect((await store.allocate('2', [from, to]))?.podName).not.toBe(given?.podName);
      expect(await store.allocate('3', [from, to])).toBeUndefined();
      expect(await store.calls.release('1')).toMatchObject({ releasedToPool: to });
    },
  );

  it('a merchant tier that becomes a shared tier keeps its calls', async () => {
    await store.register(['a'], 'merchant:vip');
    await store.allocate('1', ['merchant:vip']);
    await set({ gold, basic, vip: { type: 'shared', max_concurrent: 2 } }, ['gold', 'basic']);
    expect(await engine.redis.zscore('voice:pool:vip:available', 'a')).toBe('1');
    expect(await load('pool:vip')).toBe(1);
  });

  it('max_concurrent below the load takes no new call and ends none; raised, it takes more', async () => {
    await store.register(['s'], 'pool:basic');
    for (const sid of ['1', '2', '3']) await store.allocate(sid, ['pool:basic']);
    await set({ gold, basic: { ...basic, max_concurrent: 1 }, vip }, ['gold', 'basic']);
    await store.sweep();
    expect(await load('pool:basic')).toBe(3);
    for (const sid of ['1', '2']) {
      await store.calls.release(sid);
      expect(await store.allocate('new', ['pool:basic'])).toBeUndefined();
    }
    await store.calls.release('3');
    expect(await store.allocate('new', ['pool:basic'])).toMatchObject({ podName: 's' });
    await set({ gold, basic: { ...basic, max_concurrent: 2 }, vip }, ['gold', 'basic']);
    expect(await store.allocate('newer', ['pool:basic'])).toMatchObject({ podName: 's' });
  });

  it('a deleted tier takes no new call, its calls continue, its pods move, and then it disappears', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    await set({ basic, vip }, ['basic']);
    expect(await store.allocate('2', ['pool:gold'])).toBeUndefined();
    expect(await store.calls.renew('1')).toBeDefined();
    expect((await store.calls.snapshot()).pools).toContainEqual(
      expect.objectContaining({ pool: 'pool:gold', kind: 'gone', assigned: 2, available: 0, activeCalls: 1 }),
    );
    const moved = await store.pools.register(store.epoch, [registration('a'), registration('b')], {
      candidates: [],
      last: 'pool:basic',
    });
    expect(moved.map(({ outcome, pool }) => [outcome, pool])).toEqual([
      ['moved', 'pool:basic'],
      ['moved', 'pool:basic'],
    ]);
    expect(await engine.redis.keys('voice:pool:gold:*')).toEqual([]);
    expect(Object.keys(await kinds())).not.toContain('pool:gold');
    expect(await store.calls.release('1')).toMatchObject({ releasedToPool: 'pool:basic' });
  });

  it('a deleted tier that is configured again has its pods again, with their load', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await store.allocate('1', ['pool:gold']);
    await set({ basic, vip }, ['basic']);
    await set(testTiers.tiers, testTiers.default_chain);
    expect(await store.allocate('2', ['pool:gold'])).toBeDefined();
    expect(await store.allocate('3', ['pool:gold'])).toBeUndefined();
  });

  it('pools created by a label stay when the configuration changes', async () => {
    await store.register(['l'], 'merchant:acme');
    await set({ basic }, ['basic']);
    expect(await store.allocate('1', ['merchant:acme'])).toMatchObject({ podName: 'l' });
  });

  it('a draining or suspended pod stays out through a conversion', async () => {
    await store.register(['a', 'b', 'c'], 'pool:gold');
    await store.calls.drain('a');
    await store.pools.suspend(store.epoch, 'not_ready', ['b']);
    await set({ gold: { type: 'shared', max_concurrent: 2 }, basic, vip }, ['gold', 'basic']);
    expect(await engine.redis.zrange('voice:pool:gold:available', 0, '-1')).toEqual(['c']);
  });

  it('a change adds an event with the version and the actor', async () => {
    await set({ gold }, ['gold']);
    const [[, fields] = ['', []]] = await engine.redis.xrevrange('voice:events', '+', '-', 'COUNT', 1);
    expect(fields).toEqual(['type', 'tiers_changed', 'version', '2', 'by', 'test', 'mode', 'replace']);
  });
});
