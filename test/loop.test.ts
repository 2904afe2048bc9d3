import { pino } from 'pino';
import { describe, expect, it, vi } from 'vitest';
import { InterruptedError, type LoopOptions, SupervisedLoop } from '../src/loop.js';
import { silentLogger } from '../src/observe/log.js';
import { abortReferences } from './support/abort-references.js';
import { ManualClock } from './support/manual-clock.js';

const intervalMs = 10_000;
type Round = (signal: AbortSignal) => Promise<Record<string, number>>;

/** A loop on a clock that stands still, and the rounds it has begun. */
function setUp(round: Round, extra: Partial<LoopOptions> = {}) {
  const clock = new ManualClock();
  const runOnce = vi.fn(round);
  const onCrash = vi.fn();
  const loop = new SupervisedLoop({
    name: 'test',
    intervalMs,
    clock,
    log: silentLogger,
    runOnce,
    onCrash,
    ...extra,
  });
  /** Waits until it sleeps for exactly this long. */
  const untilSleeping = (ms: number) => vi.waitFor(() => expect(clock.sleepsMs).toEqual([ms]));
  /** Ends the present sleep and waits for the next one. */
  const next = async (ms: number) => {
    const rounds = runOnce.mock.calls.length;
    clock.advanceToNext();
    await vi.waitFor(() => expect(runOnce.mock.calls.length).toBe(rounds + 1));
    await untilSleeping(ms);
  };
  return { clock, loop, runOnce, onCrash, untilSleeping, next };
}

const fine: Round = async () => ({ done: 1 });
const broken: Round = async () => {
  throw new Error('no luck');
};

/** A round that ends when the test says so. */
function gated() {
  const gates: ((failure?: Error) => void)[] = [];
  const round: Round = () =>
    new Promise((resolve, reject) => {
      gates.push((failure) => (failure ? reject(failure) : resolve({})));
    });
  return { round, gates };
}

describe('a supervised loop', () => {
  it('retries an interruption with the same backoff, and does not count it as a crash', async () => {
    const lines: { level: number; msg: string; reason?: string }[] = [];
    const log = pino({ level: 'info' }, { write: (line) => lines.push(JSON.parse(line)) });
    const interrupted: Round = async () => {
      throw new InterruptedError('connection', new Error('socket hang up'));
    };
    const { loop, onCrash, untilSleeping, next } = setUp(interrupted, { log });
    loop.start();
    await untilSleeping(1000);
    await next(2000);
    expect(loop.state).toMatchObject({ crashes: 0, rounds: 0, last_error: 'socket hang up' });
    expect(onCrash).not.toHaveBeenCalled();
    expect(lines.map(({ level, msg, reason }) => [level, msg, reason])).toEqual([
      [30, 'test interrupted; retrying', 'connection'],
      [30, 'test interrupted; retrying', 'connection'],
    ]);
    await loop.stop();
  });

  it('runs at once and then every interval, and shows its counts', async () => {
    const { clock, loop, runOnce, untilSleeping, next } = setUp(fine);
    loop.start();
    await untilSleeping(intervalMs);
    await next(intervalMs);
    expect(runOnce).toHaveBeenCalledTimes(2);
    expect(loop.state).toEqual({
      name: 'test',
      running: true,
      rounds: 2,
      crashes: 0,
      last_round_at: new Date(clock.now()).toISOString(),
      last_error: null,
      counts: { done: 1 },
    });
    await loop.stop();
  });

  it('leaves nothing behind in its signal after each pause', async () => {
    const { loop, runOnce, untilSleeping, next } = setUp(fine);
    loop.start();
    await untilSleeping(intervalMs);
    for (let i = 0; i < 5; i += 1) await next(intervalMs);
    const signal = runOnce.mock.calls[0]?.[0];
    if (!signal) throw new Error('no round has run');
    expect(abortReferences(signal)).toBe(0);
    await loop.stop();
  });

  it('waits one interval first when told so', async () => {
    const { loop, runOnce, untilSleeping, next } = setUp(fine, { runAtStart: false });
    loop.start();
    await untilSleeping(intervalMs);
    expect(runOnce).not.toHaveBeenCalled();
    await next(intervalMs);
    await loop.stop();
  });

  it('starts once for several starts', async () => {
    const { loop, runOnce, untilSleeping } = setUp(fine);
    loop.start();
    loop.start();
    await untilSleeping(intervalMs);
    expect(runOnce).toHaveBeenCalledTimes(1);
    await loop.stop();
  });

  it('restarts after crashes with a backoff of 1, 2, 4 ... 30 seconds, and counts them', async () => {
    const { loop, onCrash, untilSleeping, next } = setUp(broken);
    loop.start();
    await untilSleeping(1000);
    for (const ms of [2000, 4000, 8000, 16_000, 30_000, 30_000]) await next(ms);
    expect(onCrash).toHaveBeenCalledTimes(7);
    expect(loop.state).toMatchObject({ running: true, rounds: 0, crashes: 7, last_error: 'no luck' });
    await loop.stop();
  });

  it('a round that throws at once is a crash like any other', async () => {
    const { loop, untilSleeping } = setUp(() => {
      throw new Error('not even a promise');
    });
    loop.start();
    await untilSleeping(1000);
    expect(loop.state).toMatchObject({ running: true, crashes: 1, last_error: 'not even a promise' });
    await loop.stop();
  });

  it('runs at its interval again after a crash', async () => {
    let round = broken;
    const { loop, untilSleeping, next } = setUp((signal) => round(signal));
    loop.start();
    await untilSleeping(1000);
    round = fine;
    await next(intervalMs);
    expect(loop.state).toMatchObject({ rounds: 1, crashes: 1, last_error: null });
    await loop.stop();
  });

  it.each([
    [50, 2000],
    [60, 1000],
  ])('after %i healthy seconds the next crash waits %i ms', async (healthySeconds, waitMs) => {
    let round = broken;
    const { loop, untilSleeping, next } = setUp((signal) => round(signal));
    loop.start();
    await untilSleeping(1000);
    round = fine;
    // Healthy from its first round on; the crash comes one interval after the last good one.
    for (let i = 0; i * 10 < healthySeconds; i++) await next(intervalMs);
    round = broken;
    await next(waitMs);
    await loop.stop();
  });

  it('a healthy hour counts even if nothing ran in it', async () => {
    let round = broken;
    const hourMs = 3_600_000;
    const { loop, untilSleeping, next } = setUp((signal) => round(signal), { intervalMs: hourMs });
    loop.start();
    await untilSleeping(1000);
    round = fine;
    await next(hourMs);
    round = broken;
    await next(1000);
    await loop.stop();
  });

  it('never runs two rounds at once, also if one takes long', async () => {
    const { round, gates } = gated();
    const { clock, loop, runOnce, untilSleeping } = setUp(round);
    loop.start();
    await vi.waitFor(() => expect(gates).toHaveLength(1));
    clock.advance(10 * intervalMs);
    loop.nudge();
    loop.start();
    expect(runOnce).toHaveBeenCalledTimes(1);
    gates[0]?.();
    await vi.waitFor(() => expect(gates).toHaveLength(2));
    gates[1]?.();
    await untilSleeping(intervalMs);
    expect(runOnce).toHaveBeenCalledTimes(2);
    await loop.stop();
  });

  it('stop aborts the current round and waits for it; nothing runs afterwards', async () => {
    const { round, gates } = gated();
    const { clock, loop, runOnce } = setUp(round);
    loop.start();
    await vi.waitFor(() => expect(gates).toHaveLength(1));
    let stopped = false;
    const stopping = loop.stop().then(() => {
      stopped = true;
    });
    expect(runOnce.mock.calls[0]?.[0].aborted).toBe(true);
    await Promise.resolve();
    expect(stopped).toBe(false);
    gates[0]?.();
    await stopping;
    expect(loop.state.running).toBe(false);
    clock.advance(10 * intervalMs);
    expect(runOnce).toHaveBeenCalledTimes(1);
  });

  it('a round that fails because of the stop does not count as a crash', async () => {
    const { round, gates } = gated();
    const { loop, onCrash } = setUp(round);
    loop.start();
    await vi.waitFor(() => expect(gates).toHaveLength(1));
    const stopping = loop.stop();
    gates[0]?.(new Error('aborted'));
    await stopping;
    expect(onCrash).not.toHaveBeenCalled();
    expect(loop.state).toMatchObject({ crashes: 0, running: false });
  });

  it('stop ends a sleep at once, also that of a backoff, and leaves no timer', async () => {
    for (const round of [fine, broken]) {
      const { clock, loop, untilSleeping } = setUp(round);
      loop.start();
      await untilSleeping(round === fine ? intervalMs : 1000);
      await loop.stop();
      expect(clock.sleepsMs).toEqual([]);
    }
  });

  it('stop before start ends at once, and a later start runs nothing', async () => {
    const { loop, runOnce } = setUp(fine);
    await loop.stop();
    loop.start();
    await loop.stop();
    expect(runOnce).not.toHaveBeenCalled();
  });

  it('a nudge does the next round now', async () => {
    const { loop, runOnce, untilSleeping } = setUp(fine);
    loop.start();
    await untilSleeping(intervalMs);
    loop.nudge();
    await vi.waitFor(() => expect(runOnce).toHaveBeenCalledTimes(2));
    await untilSleeping(intervalMs);
    await loop.stop();
  });

  it('a nudge during a round is not lost: what it is about may have come too late for that round', async () => {
    const { round, gates } = gated();
    const { loop, untilSleeping } = setUp(round);
    loop.start();
    await vi.waitFor(() => expect(gates).toHaveLength(1));
    loop.nudge();
    gates[0]?.();
    await vi.waitFor(() => expect(gates).toHaveLength(2));
    gates[1]?.();
    await untilSleeping(intervalMs);
    await loop.stop();
  });
});
