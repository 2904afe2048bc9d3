/** Pods that say at which interval they report, and then do not. docs/guarantees.md, times. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { PoolId } from '../../../src/config/tiers.js';
import { blockSilentPods } from '../../../src/pool/silence.js';
import { silentLog } from '../../pool/fixture.js';
import { describeEngines } from '../../support/engines.js';
import { checkInvariants } from '../../support/invariants.js';
import { openStore, registration, type TestStore } from '../../support/store.js';

const second = 1000;
const never = new AbortController().signal;

describeEngines('silence', (engine) => {
  let store: TestStore;
  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
  });
  afterEach(async () => {
    expect(await checkInvariants(engine.redis, { settled: true, nowMs: store.nowMs() })).toEqual([]);
    store.close();
  });

  const check = () => blockSilentPods({ pools: store.pools, log: silentLog }, store.epoch, never);
  const report = async (names: readonly string[], intervalMs?: number) => {
    for (const name of names) await store.calls.report(name, [], { intervalMs });
  };
  /** Lets time pass in steps of `everySeconds`; in each of them these pods report, then the leader checks. */
  const pass = async (seconds: number, alive: readonly string[], everySeconds = 10) => {
    for (let done = 0; done < seconds; done += everySeconds) {
      store.advance(everySeconds * second);
      await report(alive, everySeconds * second);
      await check();
    }
  };
  const blocked = async (...names: string[]) => {
    const pods = await Promise.all(names.map((name) => store.calls.pod(name)));
    return pods.flatMap(({ podName, blockedBy }) => (blockedBy === 'awaiting_report' ? [podName] : []));
  };
  /** The pods that get a call until none is free; then all calls end. */
  const given = async (pool: PoolId = 'pool:gold') => {
    const pods: string[] = [];
    for (
      let next = await store.allocate('0', [pool]);
      next;
      next = await store.allocate(`${pods.length}`, [pool])
    ) {
      pods.push(next.podName);
    }
    for (const i of pods.keys()) await store.calls.release(`${i}`);
    return pods.sort();
  };

  it('a node that dies gets no new call after three intervals, although its pods are still registered as ready', async () => {
    const dead = ['a1', 'a2'];
    const alive = ['b1', 'b2', 'c1', 'c2'];
    await store.register([...dead, ...alive], 'pool:gold');
    await report([...dead, ...alive], 10 * second);
    await pass(20, alive);
    expect(await blocked(...dead)).toEqual([]);
    expect(await given()).toEqual([...dead, ...alive]);

    await pass(10, alive);
    expect(await blocked(...dead, ...alive)).toEqual(dead);
    expect(await given()).toEqual(alive);
    // A list that still has them as ready, the sweep and the end of a drain leave them blocked.
    await store.register([...dead, ...alive], 'pool:gold');
    await store.calls.drain('a1');
    await store.calls.undrain('a1');
    await store.sweep();
    expect(await given()).toEqual(alive);

    await report(['a1'], 10 * second);
    expect(await blocked(...dead, ...alive)).toEqual(['a2']);
    expect(await given()).toEqual(['a1', ...alive]);
    const events = (await engine.redis.xrange('voice:journal', '-', '+')).flatMap(([, fields]) =>
      ['pod_suspended', 'pod_resumed'].includes(fields[1] ?? '') ? [fields] : [],
    );
    const silence = ['calls', '0', 'reason', 'awaiting_report', 'silent_seconds', '30'];
    expect(events).toEqual([
      ['type', 'pod_suspended', 'pod', 'a1', 'pool', 'pool:gold', ...silence],
      ['type', 'pod_suspended', 'pod', 'a2', 'pool', 'pool:gold', ...silence],
      ['type', 'pod_resumed', 'pod', 'a1', 'pool', 'pool:gold'],
    ]);
  });

  it('pods that report every second are silent after 15 s', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await report(['a', 'b'], second);
    await pass(14, ['b'], 1);
    expect(await blocked('a', 'b')).toEqual([]);
    await pass(1, ['b'], 1);
    expect(await blocked('a', 'b')).toEqual(['a']);
  });

  it('keeps the calls of a silent pod until their leases end, and its place on a shared pool too', async () => {
    await store.register(['a', 'b'], 'pool:basic');
    await report(['a', 'b'], 10 * second);
    await store.calls.report('a', ['1'], { intervalMs: 10 * second });
    await pass(40, ['b']);
    expect(await blocked('a', 'b')).toEqual(['a']);
    expect(await store.calls.call('1')).toMatchObject({ podName: 'a' });
    for (const sid of ['2', '3', '4']) {
      expect(await store.allocate(sid, ['pool:basic'])).toMatchObject({ podName: 'b' });
    }
    expect(await store.allocate('5', ['pool:basic'])).toBeUndefined();
    await store.calls.release('1');
    expect(await store.allocate('5', ['pool:basic'])).toBeUndefined();
    await report(['a'], 10 * second);
    expect(await store.allocate('5', ['pool:basic'])).toMatchObject({ podName: 'a' });
  });

  it('blocks at most half of each pool, those that are silent for longest', async () => {
    await store.register(['a', 'b', 'c', 'd', 'e'], 'pool:gold');
    await store.register(['x', 'y'], 'pool:basic');
    await store.register(['lone'], 'merchant:vip');
    for (const name of ['a', 'b', 'c', 'd', 'lone', 'x']) {
      await report([name], 10 * second);
      store.advance(10);
    }
    await pass(60, ['e', 'y']);
    expect(await blocked('a', 'b', 'c', 'd', 'e', 'lone', 'x', 'y')).toEqual(['a', 'b', 'x']);
    await report(['a'], 10 * second);
    await pass(10, ['a', 'e', 'y']);
    expect(await blocked('a', 'b', 'c', 'd', 'e', 'lone', 'x', 'y')).toEqual(['b', 'c', 'x']);
  });

  it('looks at all silent pods of a large pool, batch by batch', async () => {
    const names = Array.from({ length: 300 }, (_, i) => `p${i}`);
    await store.register(names, 'pool:gold');
    await report(names, 10 * second);
    await store.pools.suspend(store.epoch, 'not_ready', names.slice(0, 150));
    await store.register(['alive'], 'pool:gold');
    store.advance(31 * second);
    await report(['alive'], 10 * second);
    // The first report after 31 s without any: the time until then is not theirs.
    expect(await check()).toEqual({
      silent_pods: 300,
      pods_blocked: 0,
      pods_cooled_off: 0,
    });
    await pass(30, ['alive']);
    expect(await blocked(...names)).toEqual(names.slice(150));
  });

  it('time in which the store accepted no report does not count', async () => {
    const names = ['a', 'b', 'c', 'd'];
    await store.register(names, 'pool:gold');
    await report(names, 10 * second);
    await pass(10, names);
    // No pod can report; the leader keeps checking.
    for (let i = 0; i < 30; i++) {
      store.advance(5 * second);
      await check();
    }
    expect(await blocked(...names)).toEqual([]);
    await pass(20, ['a', 'b']);
    expect(await blocked(...names)).toEqual([]);
    await report(['c'], 10 * second);
    await pass(20, ['a', 'b', 'c']);
    expect(await blocked(...names)).toEqual(['d']);
  });

  it.each([3600, -3600])('a clock that is set by %i s makes no pod silent', async (seconds) => {
    const names = ['a', 'b', 'c', 'd'];
    await store.register(names, 'pool:gold');
    await report(names, 10 * second);
    await pass(10, names);
    store.advance(seconds * second);
    await check();
    await report(['a'], 10 * second);
    await check();
    await pass(20, ['a', 'b', 'c']);
    expect(await blocked(...names)).toEqual([]);
    await report(['d'], 10 * second);
    await pass(30, ['a', 'b', 'c']);
    expect(await blocked(...names)).toEqual(['d']);
  });

  it('a pod that reports without an interval is never silent, not even if it named one before', async () => {
    await store.register(['a', 'b', 'c'], 'pool:gold');
    await report(['a'], 10 * second);
    await report(['a', 'b']);
    await pass(600, ['c']);
    expect(await blocked('a', 'b', 'c')).toEqual([]);
  });

  it('a pod that reports every minute is not silent because others report more often', async () => {
    await store.register(['a', 'b', 'c'], 'pool:gold');
    await report(['a', 'b'], 60 * second);
    await pass(170, ['c']);
    expect(await blocked('a', 'b', 'c')).toEqual([]);
    await pass(10, ['c']);
    expect(await blocked('a', 'b', 'c')).toEqual(['a']);
  });

  it('a pod that was not ready in between still has to report', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await report(['a', 'b'], 10 * second);
    await store.calls.report('a', ['1'], { intervalMs: 10 * second });
    await pass(30, ['b']);
    const place = (suspended: '' | 'not_ready') =>
      store.pools.register(
        store.epoch,
        [registration('a', 'pool:gold', { suspended, idleGoes: suspended !== '' })],
        { candidates: [], last: 'pool:gold' },
      );
    await place('not_ready');
    expect(await store.calls.pod('a')).toMatchObject({ blockedBy: 'not_ready' });
    await place('');
    expect(await store.calls.pod('a')).toMatchObject({ blockedBy: 'awaiting_report' });
    await place('not_ready');
    await store.calls.report('a', ['1'], { intervalMs: 10 * second });
    await place('');
    expect(await store.calls.pod('a')).toMatchObject({ blockedBy: '' });
    expect(await engine.redis.exists('voice:reported:silent')).toBe(0);
  });

  it('a removed pod leaves nothing behind, and one that moves counts for its new pool', async () => {
    await store.register(['a', 'b', 'c'], 'pool:gold');
    await store.register(['x'], 'pool:basic');
    await report(['a', 'b', 'x'], 10 * second);
    await pass(30, ['c']);
    expect(await blocked('a', 'b', 'c', 'x')).toEqual(['a']);
    await store.register(['a'], 'pool:basic');
    await check();
    expect(await blocked('a', 'b', 'c', 'x')).toEqual(['a', 'b']);
    await store.pools.remove(store.epoch, ['a', 'b', 'x'], 'gone');
    expect(await engine.redis.exists('voice:reported:silent', 'voice:reported:due')).toBe(1);
    expect(await engine.redis.zrange('voice:reported:due', '0', '-1')).toEqual(['c']);
  });

  it.each(['reported', 'reported:due', 'reported:silent', 'reported:since'])(
    'with a key %s of a wrong type reports still count for calls, and no pod is blocked',
    async (key) => {
      await store.register(['a', 'b'], 'pool:gold');
      await engine.redis.rpush(`voice:${key}`, 'by hand');
      await report(['a', 'b'], 10 * second);
      await pass(60, ['b']);
      const isJudged = key === 'reported:since'; // overwritten by the first report
      expect(await blocked('a', 'b')).toEqual(isJudged ? ['a'] : []);
      expect(await store.calls.report('b', ['1'])).toMatchObject({ adopted: ['1'] });
      await engine.redis.del(`voice:${key}`);
    },
  );

  it('an older leader blocks nothing', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await report(['a', 'b'], 10 * second);
    await store.pools.takeEpoch();
    store.advance(40 * second);
    await expect(check()).rejects.toThrow('newer leader');
  });
});
