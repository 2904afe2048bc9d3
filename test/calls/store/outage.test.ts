/** A time in which no router reached the store frees no pod of a call that still runs. Promises 1, 5 and 8. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { PoolId } from '../../../src/config/tiers.js';
import { describeEngines } from '../../support/engines.js';
import { checkInvariants } from '../../support/invariants.js';
import { holdRules, openStore, type TestStore, testTimes } from '../../support/store.js';

const lease = testTimes.leaseTtlMs;

describeEngines('after an outage', (engine) => {
  let store: TestStore;
  const gold: PoolId[] = ['pool:gold'];
  const stamp = () => store.connection.run('stampAlive', []);
  /** Time in which a router runs. */
  const run = async (seconds: number) => {
    for (let i = 0; i < seconds; i += 1) {
      store.advance(1000);
      await stamp();
    }
  };
  const podOf = async (sid: string) => (await store.calls.call(sid).catch(() => undefined))?.podName;
  const extended = async () =>
    (await engine.redis.xrange('voice:journal', '-', '+'))
      .map(([, [, ...fields]]) => fields)
      .filter(([type]) => type === 'leases_extended')
      .map(([, , calls, , gapSeconds]) => ({ calls: Number(calls), gapSeconds: Number(gapSeconds) }));

  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
    await store.register(['a', 'b'], 'pool:gold');
    await stamp();
  });
  afterEach(() => store.close());

  it('live calls keep their pods, and calls whose agents died end a minute later', async () => {
    const live = await store.allocate('live', gold);
    const dead = await store.allocate('dead', gold);
    // The store does not answer, refuses writes, or its clock jumps ahead; or no router runs.
    store.advance(lease + 300_000);
    expect(await store.allocate('new', gold)).toBeUndefined();
    expect(await extended()).toEqual([{ calls: 2, gapSeconds: 1200 }]);
    await run(30);
    expect(await store.calls.renew('live')).toMatchObject({ podName: live?.podName });
    await run(29);
    expect(await store.allocate('new', gold)).toBeUndefined();
    expect(await store.sweep()).toMatchObject({ callsEnded: 0 });
    await run(1);
    expect(await store.allocate('new', gold)).toMatchObject({ podName: dead?.podName, reclaimed: 1 });
    expect(await podOf('live')).toBe(live?.podName);
    await run(lease / 1000);
    expect(await store.sweep()).toMatchObject({ callsEnded: 2 });
    expect(await extended()).toHaveLength(1);
    expect(await checkInvariants(engine.redis, { nowMs: store.nowMs() })).toEqual([]);
  });

  const others: PoolId[] = ['pool:basic'];
  it.each<[string, () => Promise<unknown>]>([
    ['an allocate', () => store.allocate('new', gold)],
    ['a sweep', () => store.sweep()],
    ['a step for waiting calls', () => store.waits.serve()],
    ['the limit of a merchant', () => store.ask('new', others, { merchantId: 'acme' })],
  ])('%s that comes first ends no call', async (_, step) => {
    await store.register(['c'], 'pool:basic');
    await store.connection.run('setMerchant', ['acme', '{}', 'test', 2]);
    for (const sid of ['1', '2']) await store.allocate(sid, gold, { merchantId: 'acme' });
    await store.ask('waits', gold, { hold: holdRules({ maxWaitMs: 2 * lease }) });
    store.advance(lease + 1);
    await step();
    expect([await podOf('1'), await podOf('2')].sort()).toEqual(['a', 'b']);
    expect(await extended()).toHaveLength(1);
  });

  it('a call whose lease had ended before ends at once', async () => {
    await store.allocate('over', gold);
    await run(lease / 1000 + 1);
    await store.allocate('live', gold);
    store.advance(lease);
    expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
    expect(await podOf('live')).toBeDefined();
  });

  it('a second outage in that minute starts it again', async () => {
    await store.allocate('live', gold);
    store.advance(lease + 1);
    await run(50);
    store.advance(55_000);
    await run(50);
    expect(await store.sweep()).toMatchObject({ callsEnded: 0 });
    await run(11);
    expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
    expect(await extended()).toHaveLength(2);
  });

  it('a call that no agent could renew within NO_SHOW_TIMEOUT keeps its pod', async () => {
    store.close();
    store = await openStore(engine.url, { virtualTime: true, times: { noShowTimeoutMs: 4000 } });
    await stamp();
    await store.allocate('live', gold);
    await store.allocate('other', gold);
    store.advance(6000);
    expect(await store.allocate('new', gold)).toBeUndefined();
    expect(await store.calls.renew('live')).toBeDefined();
  });

  it('waiting calls keep their places until their callers ask again or a minute has passed', async () => {
    for (const sid of ['1', '2']) await store.allocate(sid, gold);
    const wait = (sid: string) => store.ask(sid, gold, { hold: holdRules({ maxWaitMs: 600_000 }) });
    await wait('first');
    await wait('second');
    store.advance(40_000);
    expect(await store.waits.serve()).toMatchObject({ abandoned: 0, waiting: 2 });
    await run(50);
    expect(await wait('second')).toMatchObject({ waiting: { position: 2 } });
    await run(11);
    expect(await store.waits.serve()).toMatchObject({ abandoned: 1, waiting: 1 });
  });

  it('a clock that is set back does not keep leases from ending', async () => {
    store.advance(10_000_000);
    await stamp();
    store.advance(-9_000_000);
    await stamp();
    await store.allocate('1', gold);
    await run(lease / 1000 + 1);
    expect(await store.sweep()).toMatchObject({ callsEnded: 1 });
  });

  it('a stamp of a wrong type is written again', async () => {
    await engine.redis.del('voice:alive');
    await engine.redis.rpush('voice:alive', 'x');
    await store.allocate('1', gold);
    await run(1);
    store.advance(lease);
    expect(await store.sweep()).toMatchObject({ callsEnded: 0 });
  });
});
