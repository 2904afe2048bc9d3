/** After a failover of the store: pods that report get no new call until they have reported. */
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AliveStamp } from '../../../src/calls/alive-stamp.js';
import type { StoreConnection } from '../../../src/calls/store/connection.js';
import { list } from '../../../src/calls/store/replies.js';
import { systemClock } from '../../../src/clock.js';
import type { PoolId } from '../../../src/config/tiers.js';
import { describeEngines, promote } from '../../support/engines.js';
import { checkInvariants } from '../../support/invariants.js';
import { holdRules, openStore, registration, type TestStore } from '../../support/store.js';
import { until } from '../../support/until.js';

const gold: PoolId[] = ['pool:gold'];
const second = 1000;

describeEngines('after a failover', (engine) => {
  let store: TestStore;
  /** How many pods it marked, or -1: no generation began. */
  const stamp = async (mode = 'report') => Number(list(await store.connection.run('stampAlive', [mode]))[2]);
  const failOver = async (mode?: string) => {
    await promote(engine.redis);
    return stamp(mode);
  };
  const report = (pod: string, calls: string[] = [], asOfMs: number | undefined = store.nowMs()) =>
    store.calls.report(pod, calls, { asOfMs });
  const blocked = async (...names: string[]) => {
    const pods = await Promise.all(names.map((name) => store.calls.pod(name)));
    return pods.flatMap(({ podName, blockedBy }) => (blockedBy ? [`${podName} ${blockedBy}`] : []));
  };
  const podOf = async (sid: string) => (await store.calls.call(sid).catch(() => undefined))?.podName;
  const events = async (type: string) =>
    (await engine.redis.xrange('voice:journal', '-', '+')).flatMap(([, [, kind, ...fields]]) =>
      kind === type ? [fields] : [],
    );

  beforeEach(async () => {
    store = await openStore(engine.url, { virtualTime: true });
    await stamp();
  });
  afterEach(async () => {
    expect(await checkInvariants(engine.redis, { settled: true, nowMs: store.nowMs() })).toEqual([]);
    store.close();
  });

  it('only pods that report are blocked, with their calls, once', async () => {
    await store.register(['a', 'b', 'never', 'earlier'], 'pool:gold');
    await store.register(['shared'], 'pool:basic');
    await report('earlier');
    store.advance(100 * second);
    await stamp();
    store.advance(21 * second);
    await store.allocate('1', ['pool:basic']);
    for (const pod of ['a', 'b']) await report(pod, [`on-${pod}`]);
    await store.calls.release('on-a');
    await report('shared', ['1']);
    await stamp();
    expect(await blocked('a', 'b', 'shared')).toEqual([]);

    expect(await failOver()).toBe(3);
    expect(await blocked('a', 'b', 'never', 'earlier', 'shared')).toEqual([
      ...['a awaiting_report', 'b awaiting_report', 'shared awaiting_report'],
    ]);
    expect([await podOf('on-b'), await podOf('1')]).toEqual(['b', 'shared']);
    const given = [await store.allocate('2', gold), await store.allocate('3', gold)];
    expect(given.map((one) => one?.podName).sort()).toEqual(['earlier', 'never']);
    expect(await store.allocate('4', [...gold, 'pool:basic'])).toBeUndefined();
    // The sweep, a drain that ends, and the stamps of other routers change nothing.
    await store.calls.drain('a');
    await store.calls.undrain('a');
    expect(await store.sweep()).toMatchObject({ podsPutBack: 0 });
    expect([await stamp(), await stamp()]).toEqual([-1, -1]);
    const number = `${Math.floor(store.nowMs() / 1000)}`;
    expect(await events('generation_began')).toEqual([['generation', number, 'pods', '3']]);

    await report('a');
    await report('shared', ['1']);
    expect(await stamp()).toBe(-1);
    expect(await blocked('a', 'b', 'shared')).toEqual(['b awaiting_report']);
    expect(await store.allocate('4', gold)).toMatchObject({ podName: 'a' });
    expect(await store.allocate('5', ['pool:basic'])).toMatchObject({ podName: 'shared' });
  });

  it('a report written before it renews calls and does not unblock; one written since does', async () => {
    await store.register(['a'], 'pool:gold');
    await store.allocate('1', gold);
    await report('a', ['1']);
    store.advance(5 * second);
    const before = store.nowMs();
    store.advance(second);
    await failOver();
    expect(await report('a', ['1'], before)).toMatchObject({ renewed: ['1'] });
    expect(await blocked('a')).toEqual(['a awaiting_report']);
    await store.calls.release('1');
    expect(await store.allocate('2', gold)).toBeUndefined();
    await report('a');
    expect(await blocked('a')).toEqual([]);
  });

  it('without as_of, or with one from another clock, the second report unblocks', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    for (const pod of ['a', 'b']) await store.calls.report(pod, []);
    await failOver();
    const ahead = store.nowMs() + 60 * second;
    await store.calls.report('a', []);
    await report('b', [], ahead);
    expect(await blocked('a', 'b')).toEqual(['a awaiting_report', 'b awaiting_report']);
    await report('a', [], store.nowMs() - 60 * second);
    expect(await blocked('a')).toEqual(['a awaiting_report']);
    await store.calls.report('a', []);
    await report('b', [], ahead);
    expect(await blocked('a', 'b')).toEqual([]);
  });

  it('a clock that is set back afterwards keeps no pod blocked', async () => {
    await store.register(['a'], 'pool:gold');
    await report('a');
    await failOver();
    store.advance(-3600 * second);
    await report('a');
    expect(await blocked('a')).toEqual(['a awaiting_report']);
    await report('a');
    expect(await blocked('a')).toEqual([]);
  });

  it('readiness does not unblock a pod, and the report of an unready pod does not make it ready', async () => {
    await store.register(['a', 'b', 'c'], 'pool:gold');
    for (const pod of ['a', 'b', 'c']) await report(pod);
    await store.pools.suspend(store.epoch, 'not_ready', ['b', 'c']);
    expect(await failOver()).toBe(3);
    await store.pools.suspend(store.epoch, 'not_ready', ['a']);
    await report('c');
    expect(await blocked('a', 'b', 'c')).toEqual(['a not_ready', 'b not_ready', 'c not_ready']);
    await store.register(['a', 'b', 'c'], 'pool:gold');
    expect(await blocked('a', 'b', 'c')).toEqual(['a awaiting_report', 'b awaiting_report']);
    // Another pod of the same name has no call of the first.
    const again = registration('b', 'pool:gold', { uid: 'second' });
    await store.pools.register(store.epoch, [registration('b', 'pool:gold', { uid: 'first' })], {
      ...{ candidates: [], last: 'pool:gold' },
    });
    await store.pools.register(store.epoch, [again], { candidates: [], last: 'pool:gold' });
    expect(await blocked('a', 'b')).toEqual(['a awaiting_report']);
  });

  it('a pod that is set back is blocked, too, and set back again after its report', async () => {
    await store.register(['a', 'b'], 'pool:gold');
    await report('a');
    for (let i = 0; i < 3; i += 1) {
      await store.calls.report('a', [`${i}`]);
      await store.calls.release(`${i}`, undefined, { reason: 'connect_failed' });
    }
    expect(await blocked('a')).toEqual(['a flapping']);
    expect(await failOver()).toBe(1);
    await store.allocate('on-b', gold);
    expect(await store.allocate('last-resort', gold)).toBeUndefined();
    await report('a');
    expect(await blocked('a')).toEqual(['a flapping']);
  });

  it('a call that waits gets the pod of the report', async () => {
    await store.register(['a'], 'pool:gold');
    await report('a');
    await failOver();
    expect(await store.ask('waits', gold, { hold: holdRules() })).toMatchObject({ waiting: { position: 1 } });
    await report('a');
    expect(await podOf('waits')).toBe('a');
  });

  it('pods that reported before a long outage are blocked', async () => {
    await store.register(['a'], 'pool:gold');
    await report('a');
    store.advance(600 * second);
    expect(await failOver()).toBe(1);
  });

  it('a store without a generation begins one and blocks no pod', async () => {
    await store.register(['a'], 'pool:gold');
    await report('a');
    for (const write of [
      () => engine.redis.del('voice:generation'),
      () => engine.redis.set('voice:generation', 'by hand'),
      async () => {
        await engine.redis.del('voice:generation');
        await engine.redis.rpush('voice:generation', 'x');
      },
    ]) {
      await write();
      expect(await stamp()).toBe(-1);
      expect(await engine.redis.get('voice:generation')).toMatch(/^[0-9a-f]{40} \d{10} \d{13}$/);
    }
    expect(await blocked('a')).toEqual([]);
  });

  it('AFTER_FAILOVER=trust blocks no pod and still counts the generation', async () => {
    await store.register(['a'], 'pool:gold');
    await report('a');
    const numbers = async () => (await engine.redis.get('voice:generation'))?.split(' ')[1];
    const before = await numbers();
    expect(await failOver('trust')).toBe(0);
    expect(await blocked('a')).toEqual([]);
    expect(await stamp()).toBe(-1);
    expect(Number(await numbers())).toBeGreaterThan(Number(before));
  });

  it('keys of a wrong type stop nothing', async () => {
    await store.register(['a', 'b', 'c'], 'pool:gold');
    for (const pod of ['a', 'b', 'c']) await report(pod);
    await engine.redis.rename('voice:pod:a', 'voice:saved');
    await engine.redis.rpush('voice:pod:a', 'x');
    await engine.redis.set('voice:pod:calls:b', 'x');
    expect(await failOver()).toBe(1);
    await engine.redis.del('voice:pod:calls:b');
    await engine.redis.rename('voice:saved', 'voice:pod:a');
    await engine.redis.rename('voice:reported', 'voice:pod:saved');
    await engine.redis.set('voice:reported', 'x');
    expect(await failOver()).toBe(0);
    await engine.redis.del('voice:reported', 'voice:pod:saved');
    await store.sweep();
  });

  describe('a lost release', () => {
    /** A call that its pod had confirmed before the failover, and that has ended. */
    beforeEach(async () => {
      await store.register(['a'], 'pool:gold');
      await store.allocate('1', gold);
      await report('a', ['1']);
      store.advance(second);
      await failOver();
    });

    it('ends with the second report written since', async () => {
      const before = store.nowMs() - second;
      expect(await report('a', [], before)).toMatchObject({ ended: [] });
      const first = store.nowMs();
      expect(await report('a', [], first)).toMatchObject({ ended: [] });
      // The same report again says nothing new.
      expect(await report('a', [], first)).toMatchObject({ ended: [] });
      store.advance(100);
      expect(await report('a')).toMatchObject({ ended: ['1'] });
      expect(await store.allocate('2', gold)).toMatchObject({ podName: 'a' });
      expect(await events('call_recovered')).toMatchObject(
        [['call', '1', 'pod', 'a', 'pool', 'pool:gold', 'reason', 'its release was lost in a failover']].map(
          (fields) => expect.arrayContaining(fields),
        ),
      );
    });

    it('ends with the first report that names another call in its place, which is adopted', async () => {
      expect(await report('a', ['2'])).toMatchObject({ ended: ['1'], adopted: ['2'], conflicts: [] });
      expect(await podOf('2')).toBe('a');
    });

    it('is not assumed if the pod reports the call again', async () => {
      for (const calls of [[], ['1'], [], ['1'], []]) {
        expect(await report('a', calls)).toMatchObject({ ended: [] });
        store.advance(100);
      }
      expect(await podOf('1')).toBe('a');
    });

    it('is not assumed for a call that the pod never confirmed, or for a later one', async () => {
      await report('a', ['1']);
      await store.calls.release('1');
      await store.allocate('later', gold);
      await report('a', ['later']);
      await store.register(['b'], 'pool:gold');
      for (let i = 0; i < 3; i += 1) {
        store.advance(100);
        expect(await report('a', [])).toMatchObject({ ended: [] });
      }
      await store.allocate('unseen', gold);
      await failOver();
      for (let i = 0; i < 3; i += 1) {
        store.advance(100);
        expect(await report('b', [])).toMatchObject({ ended: [] });
      }
      expect(await podOf('unseen')).toBe('b');
    });
  });
});

describeEngines('a router whose store fails over', (engine) => {
  let store: TestStore;
  let alive: AliveStamp;
  let warnings: string[];
  const watch = (connection: StoreConnection) => {
    warnings = [];
    const destination = { write: (line: string) => void warnings.push(line) };
    const log = pino({ level: 'warn' }, destination);
    return new AliveStamp({ connection, clock: systemClock, log, afterFailover: 'report' });
  };
  afterEach(async () => {
    await alive.loop.stop();
    store.close();
  });

  it('sends no command on a new connection before the pods are blocked', async () => {
    store = await openStore(engine.url);
    alive = watch(store.connection);
    await alive.start();
    const before = alive.generation;
    await store.register(['a', 'b', 'c'], 'pool:gold');
    for (const pod of ['a', 'b', 'c']) await store.calls.report(pod, []);
    await engine.redis.script('FLUSH');
    await promote(engine.redis);
    await engine.redis.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    const answers = await Promise.allSettled(
      Array.from({ length: 50 }, (_, i) => store.allocate(`${i}`, gold)),
    );
    await until(async () => {
      answers.push(...(await Promise.allSettled([store.allocate('last', gold)])));
      return answers.at(-1)?.status === 'fulfilled';
    }, 'the store answers again');
    expect(
      answers.flatMap((one) => (one.status === 'fulfilled' ? [one.value?.podName] : [])),
    ).not.toHaveLength(0);
    expect(answers.flatMap((one) => (one.status === 'fulfilled' && one.value ? [one.value] : []))).toEqual(
      [],
    );
    expect(alive.generation).toBeGreaterThan(before ?? Number.POSITIVE_INFINITY);
    expect(warnings.filter((line) => line.includes('new generation began'))).toHaveLength(1);
  });

  it('serves calls if its user may not read the replication id, and warns once', async () => {
    await engine.redis.call('ACL', 'SETUSER', 'limited', 'reset', 'on', '>secret', '~*', '+@all', '-info');
    store = await openStore(engine.url.replace('redis://', 'redis://limited:secret@'));
    alive = watch(store.connection);
    await alive.start();
    await alive.loop.firstRound;
    await store.register(['a'], 'pool:gold');
    await store.calls.report('a', []);
    expect(alive.generation).toBeUndefined();
    expect(await store.allocate('1', gold)).toMatchObject({ podName: 'a' });
    expect(warnings.filter((line) => line.includes('replication id'))).toHaveLength(1);
    await engine.redis.call('ACL', 'DELUSER', 'limited');
  });
});
