/** The wait for replicas (REDIS_WAIT_REPLICAS) on real servers. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { StoreConnection } from '../../../src/calls/store/connection.js';
import { type ConfirmationOutcome, Replication } from '../../../src/calls/store/replication.js';
import { type Clock, systemClock } from '../../../src/clock.js';
import { type Engine, nativeAvailable, nativeRedis, redisReplica } from '../../support/engines.js';
import { until } from '../../support/until.js';

const native = nativeAvailable();
const keyPrefix = 'voice:';
/** Never says that a WAIT got no reply: that would race with a WAIT that ends without enough replicas. */
const patient: Clock = { ...systemClock, after: () => () => {} };

describe.skipIf(native !== true)('Replication', () => {
  // A chain: the replica of the replica confirms what the middle server writes after a failover.
  let master: Engine;
  let replica: Engine;
  let last: Engine;
  const clients = new Map<Engine, Redis>();
  const redis = (engine: Engine) => clients.get(engine) as Redis;
  const isLinked = async (engine: Engine) =>
    /master_link_status:up/.test(await redis(engine).info('replication'));

  beforeAll(async () => {
    master = await nativeRedis();
    replica = await redisReplica(master);
    last = await redisReplica(replica);
    for (const engine of [master, replica, last]) clients.set(engine, new Redis(engine.port, '127.0.0.1'));
    await until(async () => (await isLinked(replica)) && (await isLinked(last)), 'both replicas are linked');
  });
  afterAll(async () => {
    for (const client of clients.values()) client.disconnect();
    await Promise.all([master, replica, last].map((engine) => engine?.stop()));
  });

  function open(options: { own?: Engine; timeoutMs?: number; replicas?: number; clock?: Clock } = {}) {
    const outcomes: ConfirmationOutcome[] = [];
    const connect = (engine: Engine) =>
      // Longer than a WAIT.
      new StoreConnection({ url: engine.url, keyPrefix, commandTimeoutMs: 15_000, clock: systemClock });
    const main = connect(master);
    const replication = new Replication({
      ...{ main, own: connect(options.own ?? master), clock: options.clock ?? systemClock },
      replicas: options.replicas ?? 1,
      timeoutMs: options.timeoutMs ?? 10_000,
      onOutcome: (outcome) => outcomes.push(outcome),
    });
    onTestFinished(() => {
      main.close();
      replication.close();
    });
    const write = () => main.command('set', (client) => client.incr('voice:written'));
    const writeAndConfirm = async (between: () => Promise<unknown> = async () => {}) => {
      const writtenOn = await replication.master();
      await write();
      await between();
      return replication.confirm(writtenOn);
    };
    return { main, outcomes, writeAndConfirm };
  }

  const waits = async () => {
    const stats = await redis(master).info('commandstats');
    return Number(/cmdstat_wait:calls=(\d+)/.exec(stats)?.[1] ?? 0);
  };

  it('confirms a write that a replica has, many concurrent ones with few WAITs', async () => {
    const { writeAndConfirm, outcomes } = open();
    expect(await writeAndConfirm()).toBe(true);
    const before = await waits();
    const confirmed = await Promise.all(Array.from({ length: 200 }, () => writeAndConfirm()));
    expect(confirmed).toEqual(Array(200).fill(true));
    expect((await waits()) - before).toBeLessThan(20);
    expect(new Set(outcomes)).toEqual(new Set(['confirmed']));
    expect(await redis(replica).get('voice:written')).toBe('201');
  });

  it('does not confirm a write that too few replicas have, and confirms the next one after they are back', async () => {
    const tooMany = open({ replicas: 2, timeoutMs: 50 });
    expect(await tooMany.writeAndConfirm()).toBe(false);
    const { writeAndConfirm, outcomes } = open({ clock: patient, timeoutMs: 1000 });
    await replica.pause();
    try {
      expect(await writeAndConfirm()).toBe(false);
    } finally {
      await replica.resume();
    }
    expect(outcomes).toEqual(['timeout']);
    await until(() => writeAndConfirm(), 'a write is confirmed again');
  });

  it('does not confirm by the other replica after one was promoted, until it is certain that none was', async () => {
    const second = await redisReplica(master);
    const client = new Redis(second.port, '127.0.0.1');
    onTestFinished(async () => {
      client.disconnect();
      await second.stop();
    });
    const attached = (count: number) =>
      until(
        async () =>
          (await redis(master).info('replication')).match(/state=online.*,lag=0/g)?.length === count,
        `${count} replicas are attached`,
      );
    // The clock stands still: however slow the machine is, both replicas count until the test says otherwise.
    let nowMs = 1;
    const { outcomes, writeAndConfirm } = open({
      clock: { ...patient, monotonic: () => nowMs },
      timeoutMs: 1000,
    });
    await attached(2);
    // A replica that has just attached may confirm later than the timeout.
    await until(() => writeAndConfirm(), 'both confirm');
    outcomes.length = 0;
    await client.replicaof('NO', 'ONE');
    await attached(1);
    expect([await writeAndConfirm(), await writeAndConfirm()]).toEqual([false, false]);
    expect(outcomes).toEqual(['replica_left', 'replica_left']);
    await client.replicaof('127.0.0.1', master.port);
    await attached(2);
    await until(() => writeAndConfirm(), 'both confirm again');
    await client.replicaof('NO', 'ONE');
    await attached(1);
    expect(await writeAndConfirm()).toBe(false);
    nowMs += 5001;
    await until(() => writeAndConfirm(), 'the other replica confirms');
  });

  it('does not confirm while the master does not answer, and recovers', async () => {
    const { writeAndConfirm, outcomes } = open({ timeoutMs: 50 });
    await until(() => writeAndConfirm(), 'a write is confirmed');
    outcomes.length = 0;
    const pending = writeAndConfirm(() => master.pause());
    const isConfirmed = await pending.finally(() => master.resume());
    expect(isConfirmed).toBe(false);
    expect(outcomes).toEqual(['error']);
    await until(() => writeAndConfirm(), 'a write is confirmed again');
  });

  it('does not confirm a write whose connection was replaced before the WAIT', async () => {
    const { writeAndConfirm, main } = open();
    expect(await writeAndConfirm()).toBe(true);
    const { session } = main;
    const isConfirmed = await writeAndConfirm(async () => {
      await redis(master).call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
      await until(() => main.session >= session + 2, 'the connection was replaced');
    });
    expect(isConfirmed).toBe(false);
    await until(() => writeAndConfirm(), 'a later write is confirmed');
  });

  it('does not confirm a write whose master was demoted and promoted again before the WAIT', async () => {
    const { writeAndConfirm, outcomes } = open();
    expect(await writeAndConfirm()).toBe(true);
    outcomes.length = 0;
    const isConfirmed = await writeAndConfirm(async () => {
      await redis(master).replicaof('127.0.0.1', '1');
      await redis(master).replicaof('NO', 'ONE');
      await until(
        async () => /connected_slaves:1/.test(await redis(master).info('replication')),
        'it has a replica',
      );
    });
    expect(isConfirmed).toBe(false);
    expect(outcomes).toEqual(['failover']);
    await until(() => writeAndConfirm(), 'a later write is confirmed');
  });

  it('does not confirm a write of the old master with the replica of the new one', async () => {
    const { writeAndConfirm, outcomes } = open({ own: replica });
    const isConfirmed = await writeAndConfirm(async () => {
      // From here on the first server is a master that was cut off: it takes writes, which no replica has.
      await redis(replica).replicaof('NO', 'ONE');
      await until(async () => (await redis(replica).wait(1, 100)) === 1, 'the new master has a replica');
    });
    expect(isConfirmed).toBe(false);
    expect(outcomes).toEqual(['failover']);
    expect(await writeAndConfirm()).toBe(false);
  });
});
