/** Leading without an election. */
import { expect, it, vi } from 'vitest';
import type { LeaderChange } from '../../src/leadership/leadership.js';
import { SingleReplica } from '../../src/leadership/single-replica.js';
import { silentLogger } from '../../src/observe/log.js';
import { ManualClock } from '../support/manual-clock.js';
import { settle } from './fixture.js';

function setUp(lead: (signal: AbortSignal) => Promise<void>) {
  const clock = new ManualClock();
  const changes: LeaderChange[] = [];
  const work = vi.fn(lead);
  const alone = new SingleReplica({
    identity: 'one',
    clock,
    log: silentLogger,
    lead: work,
    onChange: (change) => changes.push(change),
  });
  return { clock, changes, work, alone };
}

const untilAborted = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));

it('leads at once and until it is stopped, once its work has ended', async () => {
  let end = () => {};
  const { alone, changes, work } = setUp(
    () =>
      new Promise((resolve) => {
        end = resolve;
      }),
  );
  expect(alone.isLeader).toBe(false);
  alone.start();
  alone.start();
  expect(alone).toMatchObject({ isLeader: true, leader: 'one' });
  expect(work).toHaveBeenCalledTimes(1);
  let isStopped = false;
  const stopped = alone.stop().then(() => {
    isStopped = true;
  });
  expect(work.mock.calls[0]?.[0].aborted).toBe(true);
  expect(alone).toMatchObject({ isLeader: false, leader: null });
  await settle();
  expect(isStopped).toBe(false);
  end();
  await stopped;
  expect(changes).toEqual([
    { isLeader: true, leader: 'one' },
    { isLeader: false, leader: null },
  ]);
});

it('work that crashes is started again after 1, 2, 4 ... s', async () => {
  const { alone, clock, work } = setUp(() => Promise.reject(new Error('broken')));
  alone.start();
  for (const pauseMs of [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]) {
    await vi.waitFor(() => expect(clock.sleepsMs).toEqual([pauseMs]));
    expect(alone).toMatchObject({ isLeader: false, state: { last_error: 'broken' } });
    clock.advanceToNext();
  }
  await settle();
  expect(work).toHaveBeenCalledTimes(8);
  await alone.stop();
});

it('does not restart work that ended: a newer leader refused its epoch', async () => {
  const { alone, changes, clock, work } = setUp(() => Promise.resolve());
  alone.start();
  await settle();
  expect(alone.isLeader).toBe(false);
  expect(await alone.stillHeld()).toBe(false);
  expect(clock.sleepsMs).toEqual([]);
  expect(work).toHaveBeenCalledTimes(1);
  expect(changes).toHaveLength(2);
  await alone.stop();
});

it('does not start after a stop', async () => {
  const { alone, work } = setUp(untilAborted);
  await alone.stop();
  alone.start();
  expect(work).not.toHaveBeenCalled();
});
