/**
 * The election: at most one of the replicas leads at any moment, and while the lock is reachable one does. It follows
 * client-go (one record, compare-and-swap, renew, release) and adds what that lacks.
 *
 * **Guarantee.** `isLeader` is never true in two processes at once, with any loss, delay or pause between them and
 * the lock, as long as the lock keeps its acknowledged writes and no clock runs faster than another by the factor
 * duration / renew deadline (1.5 by default).
 * - A leader counts its deadline from when its last successful renewal was *sent* (term.ts). A follower waits the longer
 *   duration from when it *received* that renewal (observed-lock.ts). Times in the record are never compared. A takeover
 *   is a compare-and-swap on exactly the version that did not change.
 * - At the deadline a timer ends the term, even while a request hangs. After a pause of the process timers are late, so
 *   `isLeader` and the loop compare with the clock themselves.
 * - A record with our identity is ours only if this process wrote it (`writer`). client-go takes such a record at once,
 *   but a pod deleted by force may still run beside its successor of the same name. Cost: a router that crashed and
 *   restarts under its old name waits one duration.
 *
 * **States.** follower: reads every retry period, and tries to win the lock when it is free. leader: `lead` runs, the lock
 * is renewed every retry period. leaving: the term has ended, `lead` has not; then the lock is released or left to
 * expire, and this replica is a follower again. stopped.
 *
 * **Failures.** Lock unreachable: a leader retries every retry period until its deadline, then its term is lost; followers
 * wait. Unknown result of a write: the record is read again, and if this process wrote it, the term continues. Record of
 * another process: lost at once. Record missing: the leader writes it again, and followers wait a whole duration. `lead`
 * throws: the lock is released, and this replica tries again after 1, 2, 4 ... 30 s, so that another one can win before.
 * `canWork` is false (the store is unreachable from here): the lock is released, and this replica does not compete for it.
 * `onLost` reports a lost term once `lead` has ended; the election continues as a follower.
 *
 * **Weakness.** `lead` can be asked to end, not forced: its last request may arrive after its deadline. A machine whose
 * clock stops while it sleeps notices nothing before its next renewal. A store that fails over may lose the holder. An
 * elector that starts right after the record was deleted takes it at once, and a record deleted twice within one duration
 * looks as if it had been missing throughout. For all of these each term has an epoch, and the store refuses the writes
 * of an older one.
 */
import { randomUUID } from 'node:crypto';
import { messageOf } from '../errors.js';
import { Backoff } from '../loop.js';
import type {
  HeldRecord,
  LeaderChange,
  Leadership,
  LeadershipOptions,
  LeaseLock,
  LockRecord,
} from './leadership.js';
import { ObservedLock } from './observed-lock.js';
import { Term, type TermEnd } from './term.js';

export interface ElectionOptions extends LeadershipOptions {
  lock: LeaseLock;
  /** A holder that does not renew for this long is replaced. */
  durationMs: number;
  /** A leader that cannot renew for this long gives up; shorter than the duration. */
  renewDeadlineMs: number;
  retryPeriodMs: number;
  /** Whether this replica can do the work of a leader now. Default: always. */
  canWork?: () => boolean;
}

/** Keeps electors that started together out of step. */
const jitter = 0.2;
/** In a released record; followers do not wait for it. */
const releasedDurationMs = 1000;
/** Our own late write, or an edit of the Lease by hand, may happen between read and write. */
const maxSwaps = 3;

export class Election implements Leadership {
  readonly #options: ElectionOptions;
  readonly #writer = randomUUID();
  readonly #stopping = new AbortController();
  readonly #observed: ObservedLock;
  readonly #backoff = new Backoff();
  /** Three hanging requests fit into one renew deadline. */
  readonly #requestTimeoutMs: number;
  #running: Promise<void> | undefined;
  #term: Term | undefined;
  #notBeforeMs = Number.NEGATIVE_INFINITY;
  /** Whether it is unknown if the last write was, or will be, done. */
  #isUnsure = false;
  #isFailing = false;
  #lastError: string | null = null;
  #reported: LeaderChange = { isLeader: false, leader: null };

  constructor(options: ElectionOptions) {
    const { durationMs, renewDeadlineMs, retryPeriodMs } = options;
    if (
      !(durationMs > renewDeadlineMs && renewDeadlineMs > (1 + jitter) * retryPeriodMs && retryPeriodMs > 0)
    )
      throw new RangeError(
        `duration (${durationMs} ms) must be longer than the renew deadline (${renewDeadlineMs} ms), and that longer than 1.2 retry periods (${retryPeriodMs} ms)`,
      );
    this.#options = options;
    this.#observed = new ObservedLock(options.clock, durationMs, options.lock.forgets);
    this.#requestTimeoutMs = renewDeadlineMs / 3;
  }

  get isLeader(): boolean {
    return this.#term?.isCurrent === true;
  }

  get leader(): string | null {
    if (this.isLeader) return this.#options.identity;
    const { alive } = this.#observed;
    return alive && !this.#isOurs(alive) ? alive.holder || null : null;
  }

  get state() {
    return { lock: this.#options.lock.description, last_error: this.#lastError };
  }

  start(): void {
    if (!this.#stopping.signal.aborted) this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#term?.finish('stopped');
    await this.#running;
  }

  async stillHeld(): Promise<boolean> {
    const term = this.#term;
    if (!term?.isCurrent) return false;
    const record = await this.#read(this.#timeoutMs(term));
    // A missing record is not taken: the next renewal writes it again.
    if (record && !this.#isOurs(record)) term.finish('taken');
    return term.isCurrent;
  }

  async #run(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      let sinceMs = clock.monotonic();
      try {
        const term = await this.#tryToWin();
        this.#lockWorks();
        if (term) {
          await this.#serve(term);
          sinceMs = clock.monotonic();
        }
      } catch (error) {
        this.#lockFails(error);
      }
      this.#report();
      await this.#pause(sinceMs, signal);
    }
    if (this.#isUnsure) await this.#releaseUnknown();
  }

  async #tryToWin(): Promise<Term | undefined> {
    const { canWork, clock, durationMs, identity, log, lock, renewDeadlineMs } = this.#options;
    const before = await this.#read(this.#requestTimeoutMs);
    // Also free: a record of this process without a term, whose reply or term was lost.
    if (!this.#observed.isFreeFor(this.#writer) || canWork?.() === false) return undefined;
    if (this.#stopping.signal.aborted || clock.monotonic() < this.#notBeforeMs) return undefined;
    const now = this.#iso();
    const record: LockRecord = {
      holder: identity,
      writer: this.#writer,
      durationMs,
      acquiredAt: now,
      renewedAt: now,
      transitions: before ? before.transitions + (this.#isOurs(before) ? 0 : 1) : 0,
    };
    const sentAtMs = clock.monotonic();
    const written = await this.#write(record, before?.version, this.#requestTimeoutMs);
    if (!written) return undefined;
    const term: Term = new Term({
      clock,
      renewDeadlineMs,
      sentAtMs,
      acquiredAt: now,
      transitions: record.transitions,
      version: written.version,
      onEnd: (end) => this.#onTermEnd(term, end),
    });
    if (!this.#stopping.signal.aborted && term.isCurrent) return term;
    term.finish('stopped');
    if (this.#stopping.signal.aborted) await this.#release(term);
    else log.warn({ lock: lock.description }, 'won the lock after its deadline; retrying');
    return undefined;
  }

  async #serve(term: Term): Promise<void> {
    const { clock, log, lock, onLost, renewDeadlineMs } = this.#options;
    this.#term = term;
    this.#notBeforeMs = Number.NEGATIVE_INFINITY;
    log.info({ lock: lock.description, transitions: term.transitions }, 'elected as leader');
    this.#report();
    const work = this.#work(term);
    await this.#renewUntilEnd(term);
    const cancel = clock.after(renewDeadlineMs, () =>
      log.error('leader work still running after its term ended; this replica cannot lead until it ends'),
    );
    await work;
    cancel();
    if (term.end === 'finished') {
      const pauseMs = this.#backoff.after(clock.monotonic() - term.startedMs);
      this.#notBeforeMs = clock.monotonic() + pauseMs;
      log.warn({ retry_in_ms: pauseMs }, 'leader work ended; releasing the lock');
    }
    const isLost = term.end === 'expired' || term.end === 'taken';
    if (!isLost) await this.#release(term);
    this.#isUnsure = false;
    this.#term = undefined;
    if (isLost && !this.#stopping.signal.aborted) this.#guard(() => onLost?.());
  }

  async #work(term: Term): Promise<void> {
    const { lead, log } = this.#options;
    try {
      await lead(term.signal);
    } catch (error) {
      // Errors while it is being stopped are expected.
      if (!term.signal.aborted) {
        this.#lastError = messageOf(error);
        log.error({ err: error }, 'leader work crashed');
      }
    }
    term.finish('finished');
  }

  /** A failed renewal is retried every retry period until the deadline. */
  async #renewUntilEnd(term: Term): Promise<void> {
    const { canWork, clock, durationMs, identity } = this.#options;
    let sinceMs = term.startedMs;
    for (;;) {
      await this.#pause(sinceMs, term.signal);
      if (!term.isCurrent) break;
      if (canWork?.() === false) return term.finish('unable');
      sinceMs = clock.monotonic();
      try {
        const isOurs = await this.#swap(term, { holder: identity, writer: this.#writer, durationMs });
        this.#lockWorks();
        if (!isOurs) term.finish('taken');
      } catch (error) {
        this.#lockFails(error);
      }
    }
    term.finish('expired');
  }

  async #release(term: Term): Promise<void> {
    const { log, lock } = this.#options;
    if (term.leftMs === 0) {
      log.warn({ lock: lock.description }, 'leader work ended after its deadline; lock left to expire');
      return;
    }
    try {
      const isReleased = await this.#swap(term, { holder: '', writer: '', durationMs: releasedDurationMs });
      if (isReleased) log.info({ lock: lock.description }, 'lock released');
    } catch (error) {
      log.warn({ err: error, lock: lock.description }, 'lock release failed; it expires');
    }
  }

  /** A write sent before the stop may have won the lock. */
  async #releaseUnknown(): Promise<void> {
    const { log, lock } = this.#options;
    try {
      const record = await this.#read(this.#requestTimeoutMs);
      if (!record || !this.#isOurs(record)) return;
      const released = { ...record, holder: '', writer: '', durationMs: releasedDurationMs };
      await this.#write(released, record.version, this.#requestTimeoutMs);
    } catch (error) {
      log.warn({ err: error, lock: lock.description }, 'unknown whether this replica holds the lock');
    }
  }

  /**
   * Replaces our own record, after a read if the version is unknown. False when the record is of another process;
   * throws when that is unknown.
   */
  async #swap(term: Term, change: Pick<LockRecord, 'holder' | 'writer' | 'durationMs'>): Promise<boolean> {
    const { clock, lock } = this.#options;
    const { acquiredAt, transitions } = term;
    for (let tries = 0; tries < maxSwaps; tries += 1) {
      let version: string | undefined = term.version;
      if (this.#isUnsure || tries > 0) {
        const record = await this.#read(this.#timeoutMs(term));
        if (record && !this.#isOurs(record)) return false;
        version = record?.version;
      }
      const record = { ...change, acquiredAt, renewedAt: this.#iso(), transitions };
      const sentAtMs = clock.monotonic();
      const written = await this.#write(record, version, this.#timeoutMs(term));
      if (written) {
        term.renewed(sentAtMs, written.version);
        return true;
      }
    }
    throw new Error(`${lock.description} was changed ${maxSwaps} times between read and write`);
  }

  async #read(timeoutMs: number): Promise<HeldRecord | undefined> {
    const record = await this.#options.lock.read(timeoutMs);
    this.#observe(record);
    return record;
  }

  async #write(
    record: LockRecord,
    version: string | undefined,
    timeoutMs: number,
  ): Promise<HeldRecord | undefined> {
    this.#isUnsure = true;
    const written = await this.#options.lock.write(record, version, timeoutMs);
    this.#isUnsure = false;
    // Not written does not mean missing: only a read shows the current record.
    if (written) this.#observe(written);
    return written;
  }

  #observe(record: HeldRecord | undefined): void {
    this.#observed.observe(record);
    this.#report();
  }

  /** After a complete try, not after a read: a lock that can be read may still reject writes. */
  #lockWorks(): void {
    if (!this.#isFailing) return;
    this.#isFailing = false;
    this.#lastError = null;
    this.#options.log.info({ lock: this.#options.lock.description }, 'lock reachable again');
  }

  /** Logs the first failure only, not one every two seconds. */
  #lockFails(error: unknown): void {
    const { lock, log } = this.#options;
    const details = { err: error, lock: lock.description, leading: this.isLeader };
    if (!this.#isFailing) log.warn(details, 'lock failed; retrying every retry period');
    this.#isFailing = true;
    this.#lastError = messageOf(error);
  }

  #onTermEnd(term: Term, end: TermEnd): void {
    if (term !== this.#term) return;
    const { log, lock } = this.#options;
    const details = { lock: lock.description, error: this.#lastError };
    if (end === 'expired') log.warn(details, 'leadership lost: lock not renewed in time');
    if (end === 'unable') log.warn(details, 'leadership given up: store unreachable from this replica');
    if (end === 'taken') log.warn(details, 'leadership lost: another replica holds the lock');
    this.#report();
  }

  #report(): void {
    const { isLeader, leader } = this;
    if (isLeader === this.#reported.isLeader && leader === this.#reported.leader) return;
    const { log, onChange } = this.#options;
    // After a crash, until the lock of the process before has expired.
    const hasOurName = leader === this.#options.identity;
    if (!isLeader && leader !== null)
      log.info(
        { leader },
        hasOurName ? 'another process of this name holds the lock' : 'another replica is the leader',
      );
    this.#reported = { isLeader, leader };
    this.#guard(() => onChange?.({ isLeader, leader }));
  }

  /** A listener that throws must not stop the election. */
  #guard(listener: () => void): void {
    try {
      listener();
    } catch (error) {
      this.#options.log.error({ err: error }, 'election listener crashed');
    }
  }

  /** A retry period with jitter from the start of the last try. */
  async #pause(sinceMs: number, signal: AbortSignal): Promise<void> {
    const { clock, retryPeriodMs } = this.#options;
    const periodMs = retryPeriodMs * (1 + jitter * clock.random());
    await clock.sleep(Math.max(0, sinceMs + periodMs - clock.monotonic()), signal);
  }

  /** No request of a term outlasts its deadline. */
  #timeoutMs(term: Term): number {
    if (term.leftMs === 0) throw new Error('renew deadline passed');
    return Math.min(this.#requestTimeoutMs, term.leftMs);
  }

  #isOurs(record: HeldRecord): boolean {
    return record.writer === this.#writer;
  }

  #iso(): string {
    return new Date(this.#options.clock.now()).toISOString();
  }
}
