/** Terms, deadlines and faults of one election, moment by moment. Guarantee 9. */
import { describe, expect, it } from 'vitest';
import { Election } from '../../src/leadership/election.js';
import type { LockRecord } from '../../src/leadership/leadership.js';
import { silentLogger } from '../../src/observe/log.js';
import { ManualClock } from '../support/manual-clock.js';
import { pass, replica, requestTimeoutMs, settle, times } from './fixture.js';
import { SharedRecord } from './world.js';

const { durationMs, renewDeadlineMs, retryPeriodMs } = times;

const foreign = (extra: Partial<LockRecord> = {}): LockRecord => ({
  holder: 'other',
  writer: 'another process',
  durationMs,
  acquiredAt: '2026-01-01T00:00:00.000Z',
  renewedAt: '2026-01-01T00:00:00.000Z',
  transitions: 4,
  ...extra,
});

/** A record of another process, written before the first read. */
function held(extra: Partial<LockRecord> = {}): SharedRecord {
  const shared = new SharedRecord();
  shared.write(foreign(extra), undefined);
  return shared;
}

async function leading(...[options]: [Parameters<typeof replica>[1]?]) {
  const one = replica('one', options);
  one.election.start();
  await one.leads();
  return one;
}

describe('an election', () => {
  it('is won at once without a record, and logged', async () => {
    const one = await leading();
    expect(one.election.leader).toBe('one');
    expect(one.changes).toEqual([{ isLeader: true, leader: 'one' }]);
    expect(one.terms).toHaveLength(1);
    expect(one.shared.read()).toMatchObject({ holder: 'one', durationMs, transitions: 0 });
    expect(one.election).toMatchObject({ isLeader: true, state: { last_error: null } });
    await one.election.stop();
  });

  it('is won at once when the record was released', async () => {
    const one = await leading({ shared: held({ holder: '', writer: '' }) });
    expect(one.shared.read()).toMatchObject({ holder: 'one', transitions: 5 });
    await one.election.stop();
  });

  it.each([
    ['one', 'another process of this name holds the lock'],
    ['other', 'another replica is the leader'],
  ])('logs who holds the lock: %s', async (holder, message) => {
    const one = replica('one', { shared: held({ holder }) });
    one.election.start();
    await one.follows();
    expect(one.log.map(({ msg }) => msg)).toContain(message);
    await one.election.stop();
  });

  it('refuses durations that would let two lead', () => {
    const options = { lock: replica('x').lock, identity: 'x', clock: new ManualClock(), log: silentLogger };
    const build = (extra: Partial<typeof times>) =>
      new Election({ ...options, ...times, ...extra, lead: () => Promise.resolve() });
    expect(() => build({ durationMs: renewDeadlineMs })).toThrow(RangeError);
    expect(() => build({ retryPeriodMs: renewDeadlineMs / 1.2 })).toThrow(RangeError);
    expect(() => build({ retryPeriodMs: 0 })).toThrow(RangeError);
    expect(() => build({})).not.toThrow();
  });

  it('starts once, and not after a stop', async () => {
    const one = replica('one');
    await one.election.stop();
    one.election.start();
    await settle();
    expect(one.lock.requests).toEqual([]);
    expect(one.election.isLeader).toBe(false);
  });
});

describe('a replica that cannot do the work of a leader', () => {
  it('releases the lock to one that can, is not counted as lost, and leads again when it can', async () => {
    let canWork = true;
    const one = await leading({ canWork: () => canWork });
    const two = replica('two', { clock: one.clock, shared: one.shared });
    two.election.start();
    canWork = false;
    await pass(one.clock, 3 * retryPeriodMs);
    expect(one.terms[0]?.aborted).toBe(true);
    expect(two.election.isLeader).toBe(true);
    expect(one.onLost).not.toHaveBeenCalled();
    expect(one.warnings()).toEqual(['leadership given up: store unreachable from this replica']);
    await two.election.stop();
    await pass(one.clock, 2 * durationMs);
    expect(one.election.leader).toBeNull();
    expect(one.shared.read()?.holder).toBe('');
    canWork = true;
    await pass(one.clock, 2 * retryPeriodMs);
    expect(one.election.isLeader).toBe(true);
    await one.election.stop();
  });
});

describe('a follower', () => {
  it('looks every retry period with jitter, and names the leader it sees', async () => {
    const one = replica('one', { shared: held() });
    one.clock.nextRandom = 0.5;
    one.election.start();
    await settle();
    expect(one.election.leader).toBe('other');
    expect(one.changes).toEqual([{ isLeader: false, leader: 'other' }]);
    expect(one.clock.sleepsMs).toEqual([retryPeriodMs * 1.1]);
    await one.election.stop();
  });

  it('waits a whole duration from when it first saw the record, and ignores the times in it', async () => {
    const one = replica('one', { shared: held({ renewedAt: '1999-01-01T00:00:00.000Z' }) });
    one.election.start();
    await pass(one.clock, durationMs - 1);
    expect(one.lock.requests).not.toContain('write');
    await pass(one.clock, retryPeriodMs);
    expect(one.election.isLeader).toBe(true);
    await one.election.stop();
  });

  it('starts waiting again whenever the record changes', async () => {
    const one = replica('one', { shared: held() });
    one.election.start();
    for (let renewal = 0; renewal < 5; renewal += 1) {
      await pass(one.clock, durationMs - 2 * retryPeriodMs);
      one.shared.write(foreign(), one.shared.read()?.version);
    }
    expect(one.lock.requests).not.toContain('write');
    await pass(one.clock, durationMs + retryPeriodMs);
    expect(one.election.isLeader).toBe(true);
    await one.election.stop();
  });

  it('waits as long as the holder asks for, if that is longer than its own duration', async () => {
    const one = replica('one', { shared: held({ durationMs: 60_000 }) });
    one.election.start();
    await pass(one.clock, 60_000 - 1);
    expect(one.lock.requests).not.toContain('write');
    await pass(one.clock, retryPeriodMs);
    expect(one.election.isLeader).toBe(true);
    await one.election.stop();
  });

  it('bounds the duration that a record may ask for', async () => {
    const one = replica('one', { shared: held({ durationMs: 68 * 365 * 86_400_000 }) });
    one.election.start();
    await pass(one.clock, 3_600_000 + retryPeriodMs, 1000);
    expect(one.election.isLeader).toBe(true);
    await one.election.stop();
  });

  it('waits at most four durations for a record without a writer, as an edit by hand leaves it', async () => {
    const one = replica('one', { shared: held({ writer: '', durationMs: 3_600_000 }) });
    one.election.start();
    await pass(one.clock, 4 * durationMs - 1);
    expect(one.lock.requests).not.toContain('write');
    await pass(one.clock, retryPeriodMs);
    expect(one.election.isLeader).toBe(true);
    await one.election.stop();
  });

  it('waits for a record under its own name like for any other: the process that wrote it may live', async () => {
    const one = replica('one', { shared: held({ holder: 'one' }) });
    one.election.start();
    await pass(one.clock, durationMs - 1);
    expect(one.lock.requests).not.toContain('write');
    expect(one.election).toMatchObject({ isLeader: false, leader: 'one' });
    await pass(one.clock, retryPeriodMs);
    expect(one.election.isLeader).toBe(true);
    await one.election.stop();
  });

  it('waits a whole duration after the record was deleted', async () => {
    const one = replica('one', { shared: held() });
    one.election.start();
    await pass(one.clock, durationMs - retryPeriodMs);
    one.shared.wipe();
    await pass(one.clock, durationMs);
    expect(one.lock.requests).not.toContain('write');
    await pass(one.clock, 2 * retryPeriodMs);
    expect(one.election.isLeader).toBe(true);
    await one.election.stop();
  });

  it('that stops writes nothing', async () => {
    const one = replica('one', { shared: held() });
    one.election.start();
    await settle();
    await one.election.stop();
    expect(one.lock.requests).toEqual(['read']);
    expect(one.election.isLeader).toBe(false);
    expect(one.clock.sleepsMs).toEqual([]);
  });

  it('that cannot reach the lock retries, warns once, and logs when it is reachable again', async () => {
    const one = replica('one');
    one.lock.always = 'fails';
    one.election.start();
    await pass(one.clock, 5 * retryPeriodMs);
    expect(one.lock.requests).toHaveLength(6);
    expect(one.warnings()).toEqual(['lock failed; retrying every retry period']);
    expect(one.election.state.last_error).toBe('connection refused');
    one.lock.always = undefined;
    await pass(one.clock, retryPeriodMs);
    expect(one.election).toMatchObject({ isLeader: true, state: { last_error: null } });
    expect(one.log.map(({ msg }) => msg)).toContain('lock reachable again');
    await one.election.stop();
  });

  it('that wins by a write without an answer finds its own record and leads', async () => {
    const one = replica('one');
    one.lock.next('write', 'done, but lost');
    one.election.start();
    await pass(one.clock, requestTimeoutMs + retryPeriodMs);
    expect(one.election.isLeader).toBe(true);
    expect(one.shared.read()).toMatchObject({ holder: 'one', transitions: 0 });
    await one.election.stop();
  });

  it('that is stopped while its winning write is under way releases the lock', async () => {
    const one = replica('one');
    one.lock.next('write', 'done, but lost');
    one.election.start();
    await settle();
    const stopped = one.election.stop();
    await pass(one.clock, requestTimeoutMs);
    await stopped;
    expect(one.terms).toEqual([]);
    expect(one.shared.read()?.holder).toBe('');
  });
});

describe('a leader', () => {
  it('renews every retry period and keeps when it was elected', async () => {
    const one = await leading();
    const first = one.shared.read();
    await pass(one.clock, 10 * retryPeriodMs);
    const last = one.shared.read();
    expect(one.lock.requests.filter((request) => request === 'write')).toHaveLength(11);
    expect(last?.acquiredAt).toBe(first?.acquiredAt);
    expect(Date.parse(last?.renewedAt ?? '') - Date.parse(first?.renewedAt ?? '')).toBe(10 * retryPeriodMs);
    expect(one.terms).toHaveLength(1);
    await one.election.stop();
  });

  it('leads on while renewals fail, until its deadline and not a moment longer', async () => {
    const one = await leading();
    await pass(one.clock, retryPeriodMs);
    one.lock.always = 'fails';
    await pass(one.clock, renewDeadlineMs - 1);
    expect(one.election.isLeader).toBe(true);
    expect(one.terms[0]?.aborted).toBe(false);
    expect(one.onLost).not.toHaveBeenCalled();
    one.clock.advance(1);
    expect(one.election.isLeader).toBe(false);
    expect(one.terms[0]?.aborted).toBe(true);
    expect(one.election.leader).toBe(null);
    await settle();
    expect(one.onLost).toHaveBeenCalledTimes(1);
    expect(one.changes.at(-1)).toEqual({ isLeader: false, leader: null });
    await one.election.stop();
  });

  it('ends at its deadline while a request hangs, and no request outlasts that', async () => {
    const one = await leading();
    one.lock.always = 'hangs';
    await pass(one.clock, renewDeadlineMs - 1, 1);
    expect(one.election.isLeader).toBe(true);
    one.clock.advance(1);
    expect(one.terms[0]?.aborted).toBe(true);
    await settle();
    expect(Math.max(...one.lock.timeouts)).toBeLessThanOrEqual(requestTimeoutMs);
    // Sent at 2 s, then as each had hung for a third of the deadline; the last has the rest.
    expect(one.lock.timeouts.slice(2, 4)).toEqual([requestTimeoutMs, requestTimeoutMs]);
    expect(one.lock.timeouts[4]).toBeCloseTo(renewDeadlineMs - retryPeriodMs - 2 * requestTimeoutMs, -1);
    await one.election.stop();
  });

  it('counts its deadline from the sending of a renewal whose answer was slow', async () => {
    const one = await leading();
    one.lock.next('write', 'slow');
    await pass(one.clock, retryPeriodMs);
    one.lock.always = 'fails';
    await pass(one.clock, renewDeadlineMs - 1, 1);
    expect(one.election.isLeader).toBe(true);
    one.clock.advance(1);
    expect(one.election.isLeader).toBe(false);
    expect(one.terms[0]?.aborted).toBe(true);
    await one.election.stop();
  });

  it('gets no more time from a renewal that was done without an answer', async () => {
    const one = await leading();
    one.lock.next('write', 'done, but lost');
    await pass(one.clock, retryPeriodMs);
    one.lock.next('read', 'slow');
    one.lock.always = 'fails';
    await pass(one.clock, renewDeadlineMs - retryPeriodMs - 1, 1);
    expect(one.election.isLeader).toBe(true);
    one.clock.advance(1);
    expect(one.election.isLeader).toBe(false);
    await one.election.stop();
  });

  it('whose renewal was written but not acknowledged reads its record and keeps leading', async () => {
    const one = await leading();
    one.lock.next('write', 'done, but lost');
    await pass(one.clock, 20 * retryPeriodMs);
    expect(one.terms).toHaveLength(1);
    expect(one.election.isLeader).toBe(true);
    await one.election.stop();
  });

  it('that finds the record of another process has lost at once', async () => {
    const one = await leading();
    one.shared.write(foreign(), one.shared.read()?.version);
    await pass(one.clock, retryPeriodMs);
    expect(one.terms[0]?.aborted).toBe(true);
    expect(one.election).toMatchObject({ isLeader: false, leader: 'other' });
    expect(one.onLost).toHaveBeenCalledTimes(1);
    expect(one.shared.read()?.holder).toBe('other');
    await one.election.stop();
  });

  it('keeps leading when the record is edited but not its holder', async () => {
    const one = await leading();
    const record = one.shared.read();
    if (record) one.shared.write({ ...record }, record.version);
    await pass(one.clock, 2 * retryPeriodMs);
    expect(one.terms).toHaveLength(1);
    expect(one.election.isLeader).toBe(true);
    expect(one.shared.read()?.holder).toBe('one');
    await one.election.stop();
  });

  it('writes its record again when it was deleted', async () => {
    const one = await leading();
    one.shared.wipe();
    await pass(one.clock, retryPeriodMs);
    expect(one.shared.read()?.holder).toBe('one');
    expect(one.terms).toHaveLength(1);
    await one.election.stop();
  });

  it.each([true, false])(
    'takes a lock without a record at once, if locks can lose records: %s',
    async (forgets) => {
      const one = await leading({ forgets });
      one.lock.always = 'fails';
      await pass(one.clock, renewDeadlineMs);
      expect(one.election.isLeader).toBe(false);
      one.shared.wipe();
      one.lock.always = undefined;
      await pass(one.clock, 2 * retryPeriodMs);
      expect(one.election.isLeader).toBe(forgets);
      await one.election.stop();
    },
  );

  it('that was paused past its deadline stops before any timer runs', async () => {
    const clock = new ManualClock();
    let isFrozen = false;
    // The clock advances, the timers do not fire: as right after a pause of the process.
    const frozen = Object.assign(Object.create(clock) as ManualClock, {
      monotonic: () => clock.monotonic() + (isFrozen ? renewDeadlineMs : 0),
      after: clock.after.bind(clock),
      sleep: clock.sleep.bind(clock),
      now: clock.now.bind(clock),
      random: clock.random.bind(clock),
    });
    const one = replica('one', { clock: frozen });
    one.election.start();
    await one.leads();
    isFrozen = true;
    expect(one.election.isLeader).toBe(false);
    expect(one.election.leader).toBe(null);
    expect(await one.election.stillHeld()).toBe(false);
    clock.advance(retryPeriodMs);
    await settle();
    expect(one.terms[0]?.aborted).toBe(true);
    expect(one.lock.requests).toEqual(['read', 'write']);
    await one.election.stop();
  });

  it('takes its own record at once when the lock is reachable before another process takes it', async () => {
    const one = await leading();
    one.lock.always = 'fails';
    await pass(one.clock, renewDeadlineMs);
    expect(one.election.isLeader).toBe(false);
    one.lock.always = undefined;
    await pass(one.clock, retryPeriodMs);
    expect(one.election.isLeader).toBe(true);
    expect(one.terms.map(({ aborted }) => aborted)).toEqual([true, false]);
    expect(one.shared.read()?.transitions).toBe(0);
    await one.election.stop();
  });
});

describe('the end of a term', () => {
  it('by stop: the work ends first, then the lock is released, and onLost is not called', async () => {
    const one = await leading();
    one.work.isStubborn = true;
    one.shared.write({ ...foreign(), holder: '' }, one.shared.read()?.version);
    await pass(one.clock, retryPeriodMs);
    await pass(one.clock, retryPeriodMs);
    expect(one.terms).toHaveLength(2);
    const stopped = one.election.stop();
    expect(one.terms[1]?.aborted).toBe(true);
    expect(one.election.isLeader).toBe(false);
    await pass(one.clock, 1000);
    expect(one.shared.read()?.holder).toBe('one');
    one.endWork();
    await stopped;
    expect(one.shared.read()).toMatchObject({ holder: '', writer: '', durationMs: 1000 });
    expect(one.onLost).toHaveBeenCalledTimes(1);
  });

  it('by stop: the lock is left to expire when the work ends after the deadline', async () => {
    const one = replica('one');
    one.work.isStubborn = true;
    one.election.start();
    await one.leads();
    const stopped = one.election.stop();
    await pass(one.clock, renewDeadlineMs);
    const requests = one.lock.requests.length;
    one.endWork();
    await stopped;
    expect(one.lock.requests).toHaveLength(requests);
    expect(one.shared.read()?.holder).toBe('one');
    expect(one.warnings().join()).toContain('lock left to expire');
  });

  it('by stop: a failed release is a warning', async () => {
    const one = await leading();
    one.lock.always = 'fails';
    await one.election.stop();
    expect(one.warnings()).toEqual(['lock release failed; it expires']);
  });

  it('by stop: a lock that another process holds by then is not released', async () => {
    const one = await leading();
    one.shared.write(foreign(), one.shared.read()?.version);
    await one.election.stop();
    expect(one.shared.read()?.holder).toBe('other');
    expect(one.warnings()).toEqual([]);
  });

  it('by stop during a pending renewal: the lock is still released', async () => {
    const one = await leading();
    one.lock.next('write', 'done, but lost');
    await pass(one.clock, retryPeriodMs);
    const stopped = one.election.stop();
    await pass(one.clock, requestTimeoutMs);
    await stopped;
    expect(one.shared.read()?.holder).toBe('');
  });

  it('by loss: onLost is called after the work has ended, and the lock is not released', async () => {
    const one = replica('one');
    one.work.isStubborn = true;
    one.election.start();
    await one.leads();
    one.lock.always = 'fails';
    await pass(one.clock, renewDeadlineMs);
    expect(one.election.isLeader).toBe(false);
    await pass(one.clock, 2 * renewDeadlineMs);
    expect(one.onLost).not.toHaveBeenCalled();
    expect(one.warnings().join()).toContain('leader work still running after its term ended');
    one.endWork();
    await settle();
    expect(one.onLost).toHaveBeenCalledTimes(1);
    expect(one.shared.read()?.holder).toBe('one');
    await one.election.stop();
  });

  it('by loss: a listener may stop the election', async () => {
    const stops: Promise<void>[] = [];
    const one = replica('one', { onLost: () => stops.push(one.election.stop()) });
    one.election.start();
    await one.leads();
    one.lock.always = 'fails';
    await pass(one.clock, renewDeadlineMs);
    expect(stops).toHaveLength(1);
    await Promise.all(stops);
    expect(one.election.isLeader).toBe(false);
  });

  it('by the end of its work: the lock is released, and the replica tries again after 1, 2, 4 ... 30 s', async () => {
    const one = await leading();
    const pauses: number[] = [];
    for (let crash = 0; crash < 7; crash += 1) {
      one.endWork(new Error('broken'));
      await settle();
      expect(one.election.isLeader).toBe(false);
      expect(one.shared.read()?.holder).toBe('');
      const sinceMs = one.clock.monotonic();
      while (!one.election.isLeader) await pass(one.clock, 100);
      pauses.push(one.clock.monotonic() - sinceMs);
    }
    // It looks every 2 s, so that it knows who leads instead.
    expect(pauses).toEqual([2000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    expect(one.onLost).not.toHaveBeenCalled();
    expect(one.warnings()).toContain('leader work crashed');
    await pass(one.clock, 60_000);
    one.endWork();
    await pass(one.clock, retryPeriodMs);
    expect(one.election.isLeader).toBe(true);
    await one.election.stop();
  });

  it('by the end of its work: another replica leads', async () => {
    const one = await leading();
    const { clock, shared } = one;
    const two = replica('two', { clock, shared });
    two.election.start();
    await pass(clock, retryPeriodMs - 100);
    for (let crash = 0; crash < 4 && !two.election.isLeader; crash += 1) {
      one.endWork(new Error('broken'));
      await pass(clock, 2 * retryPeriodMs);
    }
    expect(two.election.isLeader).toBe(true);
    expect(one.election.leader).toBe('two');
    await Promise.all([one.election.stop(), two.election.stop()]);
  });
});

describe('stillHeld of a refused leader', () => {
  it('is true while it leads', async () => {
    const one = await leading();
    expect(await one.election.stillHeld()).toBe(true);
    await one.election.stop();
  });

  it('is false, and its term ends, when another process holds the lock', async () => {
    const one = await leading();
    one.shared.write(foreign(), one.shared.read()?.version);
    expect(await one.election.stillHeld()).toBe(false);
    expect(one.terms[0]?.aborted).toBe(true);
    await one.election.stop();
  });

  it('is true when the record is missing, and the leader writes it again', async () => {
    const one = await leading();
    one.shared.wipe();
    expect(await one.election.stillHeld()).toBe(true);
    expect(one.election.isLeader).toBe(true);
    await one.election.stop();
  });

  it('rejects when the lock cannot be read, and is false on a follower', async () => {
    const one = await leading();
    one.lock.next('read', 'fails');
    await expect(one.election.stillHeld()).rejects.toThrow('connection refused');
    await one.election.stop();
    expect(await one.election.stillHeld()).toBe(false);
  });
});

it('a listener that throws stops nothing', async () => {
  const one = replica('one', {
    onChange: () => {
      throw new Error('listener');
    },
  });
  one.election.start();
  await one.leads();
  await pass(one.clock, 5 * retryPeriodMs);
  expect(one.election.isLeader).toBe(true);
  expect(one.warnings()).toEqual(['election listener crashed']);
  await one.election.stop();
});
