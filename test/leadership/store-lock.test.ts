/** The lock in our own store, on both engines. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { StoreConnection } from '../../src/calls/store/connection.js';
import { systemClock } from '../../src/clock.js';
import { Election } from '../../src/leadership/election.js';
import { StoreLock } from '../../src/leadership/store-lock.js';
import { silentLogger } from '../../src/observe/log.js';
import { describeEngines } from '../support/engines.js';
import { until } from '../support/until.js';
import { describeLock, example } from './conformance.js';

describeEngines('the lock in the store', (engine) => {
  const connections: StoreConnection[] = [];
  const open = (nowUs?: () => number) => {
    const connection = new StoreConnection({
      url: engine.url,
      keyPrefix: 'voice:',
      commandTimeoutMs: 5000,
      clock: systemClock,
      ...(nowUs ? { nowUs } : {}),
    });
    connections.push(connection);
    return new StoreLock(connection);
  };
  let lock: StoreLock;
  beforeEach(() => {
    lock = open();
  });
  afterEach(() => {
    for (const connection of connections.splice(0)) connection.close();
  });

  describeLock(() => ({
    open,
    wipe: async () => void (await engine.redis.flushall()),
    silence: async () => {
      await engine.pause();
      return () => engine.resume();
    },
  }));

  it('is one key without a time to live', async () => {
    await lock.write(example, undefined, 5000);
    expect(await engine.redis.keys('*')).toEqual(['voice:leader']);
    expect(await engine.redis.ttl('voice:leader')).toBe(-1);
    expect(await engine.redis.hgetall('voice:leader')).toEqual({
      version: expect.stringMatching(/^\d{16}$/),
      holder: 'router-0',
      writer: example.writer,
      duration_ms: '15000',
      acquired_at: example.acquiredAt,
      renewed_at: example.renewedAt,
      transitions: '3',
    });
  });

  it('keeps increasing the version when the clock of the store stops or goes backwards', async () => {
    let nowUs = 1_800_000_000_000_000;
    const frozen = open(() => nowUs);
    let record = await frozen.write(example, undefined, 5000);
    for (const version of ['1800000000000001', '1800000000000002']) {
      record = await frozen.write(example, record?.version, 5000);
      expect(record?.version).toBe(version);
    }
    nowUs -= 1_000_000;
    expect((await frozen.write(example, record?.version, 5000))?.version).toBe('1800000000000003');
  });

  it('a record damaged by hand is read as far as possible', async () => {
    await lock.write(example, undefined, 5000);
    await engine.redis.hset('voice:leader', 'duration_ms', 'soon', 'transitions', '-1');
    await engine.redis.hdel('voice:leader', 'writer', 'renewed_at');
    expect(await lock.read(5000)).toMatchObject({
      holder: 'router-0',
      writer: '',
      durationMs: 0,
      renewedAt: '',
      transitions: 0,
    });
  });

  it('of three routers one leads; when it stops, another one does', async () => {
    const elections = ['a', 'b', 'c'].map(
      (identity) =>
        new Election({
          lock: open(),
          identity,
          durationMs: 9000,
          renewDeadlineMs: 6000,
          retryPeriodMs: 100,
          clock: systemClock,
          log: silentLogger,
          lead: (signal) =>
            new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true })),
        }),
    );
    const leaders = () => elections.filter(({ isLeader }) => isLeader);
    try {
      for (const election of elections) election.start();
      const first = await until(() => leaders()[0], 'one leads');
      await until(() => elections.every(({ leader }) => leader === first.leader), 'all know it');
      expect(leaders()).toEqual([first]);
      await engine.redis.del('voice:leader');
      await until(() => engine.redis.exists('voice:leader').then(Boolean), 'the leader writes it again');
      expect(leaders()).toEqual([first]);
      await first.stop();
      const second = await until(() => leaders()[0], 'another one leads');
      expect(second).not.toBe(first);
    } finally {
      await Promise.all(elections.map((election) => election.stop()));
    }
    expect(await engine.redis.hget('voice:leader', 'holder')).toBe('');
  });
});
