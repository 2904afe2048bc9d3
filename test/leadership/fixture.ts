/** An election on a clock that stands still and a lock that does what the test says. */
import { pino } from 'pino';
import { vi } from 'vitest';
import { Election, type ElectionOptions } from '../../src/leadership/election.js';
import type { HeldRecord, LeaderChange, LeaseLock, LockRecord } from '../../src/leadership/leadership.js';
import { ManualClock } from '../support/manual-clock.js';
import { SharedRecord } from './world.js';

export const times = { durationMs: 15_000, renewDeadlineMs: 10_000, retryPeriodMs: 2000 };
export const requestTimeoutMs = times.renewDeadlineMs / 3;

/** A hanging request is not done; a slow one is done at once and answered at the last moment. */
export type Fault = 'fails' | 'done, but lost' | 'hangs' | 'slow';

/** A record in memory whose next requests fail as told. */
export class ScriptedLock implements LeaseLock {
  readonly description = 'the lock of the test';
  readonly requests: string[] = [];
  readonly timeouts: number[] = [];
  readonly #clock: ManualClock;
  readonly #shared: SharedRecord;
  readonly #faults: { operation: 'read' | 'write'; fault: Fault }[] = [];
  /** Every request fails like this until it is taken away. */
  always: Fault | undefined;

  constructor(
    clock: ManualClock,
    shared: SharedRecord,
    readonly forgets: boolean,
  ) {
    this.#clock = clock;
    this.#shared = shared;
  }

  /** The next requests of this kind, in order. */
  next(operation: 'read' | 'write', ...faults: Fault[]): void {
    this.#faults.push(...faults.map((fault) => ({ operation, fault })));
  }

  read(timeoutMs: number): Promise<HeldRecord | undefined> {
    return this.#ask('read', timeoutMs, () => this.#shared.read());
  }

  write(record: LockRecord, version: string | undefined, timeoutMs: number): Promise<HeldRecord | undefined> {
    return this.#ask('write', timeoutMs, () => this.#shared.write(record, version));
  }

  #ask<T>(operation: 'read' | 'write', timeoutMs: number, run: () => T): Promise<T> {
    this.requests.push(operation);
    this.timeouts.push(timeoutMs);
    const index = this.#faults.findIndex((entry) => entry.operation === operation);
    const fault = index < 0 ? this.always : this.#faults.splice(index, 1)[0]?.fault;
    if (fault === undefined) return Promise.resolve(run());
    if (fault === 'fails') return Promise.reject(new Error('connection refused'));
    if (fault === 'slow') {
      const answer = run();
      return new Promise((resolve) => {
        this.#clock.after(timeoutMs - 1, () => resolve(answer));
      });
    }
    if (fault === 'done, but lost') run();
    return new Promise((_, reject) => {
      this.#clock.after(timeoutMs, () => reject(new Error(`no answer within ${timeoutMs} ms`)));
    });
  }
}

/** One replica; several may share a clock and a record. */
export function replica(
  identity: string,
  {
    clock = new ManualClock(),
    shared = new SharedRecord(),
    forgets = false,
    ...extra
  }: Partial<ElectionOptions> & {
    clock?: ManualClock;
    shared?: SharedRecord;
    forgets?: boolean;
  } = {},
) {
  const lock = new ScriptedLock(clock, shared, forgets);
  const changes: LeaderChange[] = [];
  const log: { level: number; msg: string }[] = [];
  const terms: AbortSignal[] = [];
  /** Ends the work of the present term, well or with an error. */
  let endWork = (_error?: Error) => {};
  /** Work that ignores its signal and ends only when the test says so. */
  const work = { isStubborn: false };
  const onLost = vi.fn();
  const election = new Election({
    lock,
    identity,
    ...times,
    clock,
    log: pino({ level: 'debug', base: null }, { write: (line: string) => log.push(JSON.parse(line)) }),
    lead: (signal) => {
      terms.push(signal);
      return new Promise<void>((resolve, reject) => {
        endWork = (error) => (error ? reject(error) : resolve());
        if (!work.isStubborn) signal.addEventListener('abort', () => resolve(), { once: true });
      });
    },
    onChange: (change) => changes.push(change),
    onLost,
    ...extra,
  });
  return {
    clock,
    shared,
    lock,
    changes,
    log,
    terms,
    work,
    onLost,
    election,
    endWork: (error?: Error) => endWork(error),
    warnings: () => log.filter(({ level }) => level >= 40).map(({ msg }) => msg),
    leads: () => vi.waitFor(() => expectThat(election.isLeader, 'it leads')),
    follows: () => vi.waitFor(() => expectThat(lock.requests.length > 0 && !election.isLeader, 'it follows')),
  };
}

export type Replica = ReturnType<typeof replica>;

function expectThat(condition: boolean, what: string): void {
  if (!condition) throw new Error(`not yet: ${what}`);
}

/** Lets everything that promises do at this moment happen. */
export const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Moves time in small steps, so that what a timer starts is not late. */
export async function pass(clock: ManualClock, ms: number, stepMs = 100): Promise<void> {
  await settle();
  for (let left = ms; left > 0; left -= stepMs) {
    clock.advance(Math.min(stepMs, left));
    await settle();
  }
}
