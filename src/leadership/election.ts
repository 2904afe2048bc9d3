/**
 * The election: of all replicas that stand, at most one leads at any moment, and while the lock can be reached one
 * does. It follows client-go (one record, compare-and-swap, renew, release) and adds what that lacks.
 *
 * **Promise.** `isLeader` is never true in two processes at once, whatever is lost, late or paused between them and
 * the lock, as long as the lock keeps what it has acknowledged and no clock runs faster than another by the factor
 * duration / renew deadline (1.5 by default).
 * - A leader counts its deadline from the moment its last successful renewal was *sent* (term.ts); a follower waits
 *   the longer duration from the moment it *received* that renewal (sighting.ts). Times in the record are never
 *   compared. The record is taken over by compare-and-swap on exactly the version that stood still.
 * - At the deadline a timer ends the term, even while a request hangs; after a pause of the process, when timers are
 *   late, `isLeader` and the loop look at the clock themselves.
 * - A record with our own identity is not ours unless this very process wrote it (`writer`). client-go takes such a
 *   record at once; but a pod that was forced away may still run beside its successor of the same name. Price: a
 *   router that crashed and comes back under its old name waits one duration like everybody else.
 *
 * **States.** follower: reads every retry period, and stands when the lock is free. leader: `lead` runs; renews every
 * retry period. leaving: the term is over, `lead` is still ending; the lock is given back or left alone afterwards,
 * and only then does this replica stand again. stopped.
 *
 * **How it fails.** The lock cannot be reached: a leader goes on until its deadline, tries every retry period, then
 * ends its term as lost; followers wait. A write whose fate is unknown: the record is read again, and if this
 * process wrote it, it goes on from there. Somebody else's record: lost at once. The record is gone: the leader
 * writes it again, and followers wait a whole duration before they believe it. `lead` throws: the lock is given
 * back, and this replica stands again after a pause of 1, 2, 4 ... 30 s, so that another one can try meanwhile.
 * A lost term is told by `onLost` once `lead` has ended; the election itself goes on as a follower.
 *
 * **Weakness.** `lead` can be told to end, not forced: what it sends last may arrive after its deadline. A machine
 * whose clock stands still while it sleeps notices nothing before its next renewal. A store that fails over may
 * forget who holds the lock. An elector that starts right after the record was deleted takes it at once, and a record
 * deleted twice within one duration looks as if it had been gone throughout. For all of these each term has an epoch,
 * and the store refuses the writes of an older one.
 */
import { randomUUID } from 'node:crypto';
import { messageOf } from '../errors.js';
import { Backoff } from './backoff.js';
import type { LeaderChange, Leadership, LeadershipOptions, LeadershipState } from './leadership.js';
import type { HeldRecord, LeaseLock, LockRecord } from './lock.js';
import { Sighting } from './sighting.js';
import { Term, type TermEnd } from './term.js';

export interface ElectionOptions extends LeadershipOptions {
  lock: LeaseLock;
  /** A holder that stands still for this long is replaced. */
  durationMs: number;
  /** A leader that cannot renew for this long gives up; shorter than the duration. */
  renewDeadlineMs: number;
  retryPeriodMs: number;
  /** A term has ended because the lock was lost, and its work has ended too. Not called after `stop`. */
  onLost?: () => void;
}

/** Electors that started together do not stay in step. */
const jitter = 0.2;
/** What a released record says; a follower does not wait for it. */
const releasedDurationMs = 1000;
/** Our own late write, or an edit of the Lease by hand, may come between reading and writing; not for ever. */
const swapTries = 3;

export class Election implements Leadership {
  readonly #options: ElectionOptions;
  readonly #writer = randomUUID();
  readonly #stopping = new AbortController();
  readonly #sighting: Sighting;
  readonly #backoff = new Backoff();
  /** Three requests that hang fit into one renew deadline. */
  readonly #requestTimeoutMs: number;
  #running: Promise<void> | undefined;
  #term: Term | undefined;
  #terms = 0;
  #standsFromMs = Number.NEGATIVE_INFINITY;
  /** The last write may have been done or may still be done. */
  #isUnsure = false;
  #isFailing = false;
  #lastError: string | null = null;
  #told: LeaderChange = { isLeader: false, leader: null };

  constructor(options: ElectionOptions) {
    const { durationMs, renewDeadlineMs, retryPeriodMs } = options;
    if (
      !(durationMs > renewDeadlineMs && renewDeadlineMs > (1 + jitter) * retryPeriodMs && retryPeriodMs > 0)
    )
      throw new RangeError(
        `duration (${durationMs} ms) must be longer than the renew deadline (${renewDeadlineMs} ms), and that longer than 1.2 retry periods (${retryPeriodMs} ms)`,
      );
    this.#options = options;
    this.#sighting = new Sighting(options.clock, durationMs, options.lock.forgets);
    this.#requestTimeoutMs = renewDeadlineMs / 3;
  }

  get isLeader(): boolean {
    return this.#term?.isCurrent === true;
  }

  get leader(): string | null {
    if (this.isLeader) return this.#options.identity;
    const living = this.#sighting.living;
    return living && !this.#isOurs(living) ? living.holder || null : null;
  }

  get state(): LeadershipState {
    const { identity, lock } = this.#options;
    const isOver = this.#stopping.signal.aborted && this.#term === undefined;
    const role = this.isLeader ? 'leader' : this.#term ? 'leaving' : isOver ? 'stopped' : 'follower';
    return {
      role,
      isLeader: this.isLeader,
      leader: this.leader,
      identity,
      lock: lock.description,
      terms: this.#terms,
      last_error: this.#lastError,
    };
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
    // Gone is not taken: the next renewal writes it again.
    if (record && !this.#isOurs(record)) term.finish('taken');
    return term.isCurrent;
  }

  async #run(): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      let sinceMs = clock.monotonic();
      try {
        const term = await this.#stand();
        this.#works();
        if (term) {
          await this.#serve(term);
          sinceMs = clock.monotonic();
        }
      } catch (error) {
        this.#note(error);
      }
      this.#tell();
      await this.#pause(sinceMs, signal);
    }
    if (this.#isUnsure) await this.#disown();
  }

  /** One try to win the lock. */
  async #stand(): Promise<Term | undefined> {
    const { clock, durationMs, identity, log, lock, renewDeadlineMs } = this.#options;
    const before = await this.#read(this.#requestTimeoutMs);
    // A record of ours without a term: its reply was lost, or its term was. Nobody else can have the lock.
    if (!this.#sighting.isFreeFor(this.#writer)) return undefined;
    if (this.#stopping.signal.aborted || clock.monotonic() < this.#standsFromMs) return undefined;
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
    else log.warn({ lock: lock.description }, 'won the lock too late to lead: trying again');
    return undefined;
  }

  async #serve(term: Term): Promise<void> {
    const { clock, log, lock, onLost, renewDeadlineMs } = this.#options;
    this.#term = term;
    this.#terms += 1;
    this.#standsFromMs = Number.NEGATIVE_INFINITY;
    log.info({ lock: lock.description, transitions: term.transitions }, 'elected: this replica leads');
    this.#tell();
    const work = this.#work(term);
    await this.#keep(term);
    const cancel = clock.after(renewDeadlineMs, () =>
      log.error(
        "the leader's work has not ended although its term is over: this replica does not stand again",
      ),
    );
    await work;
    cancel();
    if (term.end === 'finished') {
      const pauseMs = this.#backoff.after(clock.monotonic() - term.startedMs);
      this.#standsFromMs = clock.monotonic() + pauseMs;
      log.warn({ stands_again_in_ms: pauseMs }, "the leader's work ended by itself: giving the lock back");
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
      // What breaks while it is being ended is no surprise.
      if (!term.signal.aborted) {
        this.#lastError = messageOf(error);
        log.error({ err: error }, "the leader's work crashed");
      }
    }
    term.finish('finished');
  }

  /** Renews until the term is over. A renewal that failed is tried again at the next beat, until the deadline. */
  async #keep(term: Term): Promise<void> {
    const { clock, durationMs, identity } = this.#options;
    let sinceMs = term.startedMs;
    for (;;) {
      await this.#pause(sinceMs, term.signal);
      if (!term.isCurrent) break;
      sinceMs = clock.monotonic();
      try {
        const isOurs = await this.#swap(term, { holder: identity, writer: this.#writer, durationMs });
        this.#works();
        if (!isOurs) term.finish('taken');
      } catch (error) {
        this.#note(error);
      }
    }
    term.finish('expired');
  }

  async #release(term: Term): Promise<void> {
    const { log, lock } = this.#options;
    if (term.leftMs === 0) {
      log.warn(
        { lock: lock.description },
        "the leader's work ended after its deadline: the lock is not given back",
      );
      return;
    }
    try {
      const isReleased = await this.#swap(term, { holder: '', writer: '', durationMs: releasedDurationMs });
      if (isReleased) log.info({ lock: lock.description }, 'gave the lock back');
    } catch (error) {
      log.warn(
        { err: error, lock: lock.description },
        'the lock could not be given back: it runs out by itself',
      );
    }
  }

  /** A write that was sent before the stop may have won the lock behind our back. */
  async #disown(): Promise<void> {
    const { log, lock } = this.#options;
    try {
      const record = await this.#read(this.#requestTimeoutMs);
      if (!record || !this.#isOurs(record)) return;
      const released = { ...record, holder: '', writer: '', durationMs: releasedDurationMs };
      await this.#write(released, record.version, this.#requestTimeoutMs);
    } catch (error) {
      log.warn({ err: error, lock: lock.description }, 'it is not known whether this replica holds the lock');
    }
  }

  /**
   * Writes over our own record, wherever our last write has left it. False when the record is somebody else's;
   * throws when it is not known.
   */
  async #swap(term: Term, change: Pick<LockRecord, 'holder' | 'writer' | 'durationMs'>): Promise<boolean> {
    const { clock, lock } = this.#options;
    const { acquiredAt, transitions } = term;
    for (let tries = 0; tries < swapTries; tries += 1) {
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
    throw new Error(`${lock.description} changes faster than it can be read`);
  }

  async #read(timeoutMs: number): Promise<HeldRecord | undefined> {
    const record = await this.#options.lock.read(timeoutMs);
    this.#see(record);
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
    // Not written is not "gone": only a read tells what is there instead.
    if (written) this.#see(written);
    return written;
  }

  #see(record: HeldRecord | undefined): void {
    this.#sighting.see(record);
    this.#tell();
  }

  /** A whole try has gone through: a lock that can be read and not written is not mended by the reading. */
  #works(): void {
    if (!this.#isFailing) return;
    this.#isFailing = false;
    this.#lastError = null;
    this.#options.log.info({ lock: this.#options.lock.description }, 'the lock answers again');
  }

  /** Said once, not every two seconds. */
  #note(error: unknown): void {
    const { lock, log } = this.#options;
    const details = { err: error, lock: lock.description, leading: this.isLeader };
    if (!this.#isFailing) log.warn(details, 'the lock cannot be used: trying again every retry period');
    this.#isFailing = true;
    this.#lastError = messageOf(error);
  }

  #onTermEnd(term: Term, end: TermEnd): void {
    if (term !== this.#term) return;
    const { log, lock } = this.#options;
    const details = { lock: lock.description, error: this.#lastError };
    if (end === 'expired') log.warn(details, 'no longer leading: the lock could not be renewed in time');
    if (end === 'taken') log.warn(details, 'no longer leading: another replica holds the lock');
    this.#tell();
  }

  #tell(): void {
    const { isLeader, leader } = this;
    if (isLeader === this.#told.isLeader && leader === this.#told.leader) return;
    const { log, onChange } = this.#options;
    if (!isLeader && leader !== null) log.info({ leader }, 'another replica leads');
    this.#told = { isLeader, leader };
    this.#guard(() => onChange?.({ isLeader, leader }));
  }

  /** A listener that throws must not stop the election. */
  #guard(listener: () => void): void {
    try {
      listener();
    } catch (error) {
      this.#options.log.error({ err: error }, 'a listener of the election crashed');
    }
  }

  /** A retry period and some jitter since the last try began; one that took longer has had its pause. */
  async #pause(sinceMs: number, signal: AbortSignal): Promise<void> {
    const { clock, retryPeriodMs } = this.#options;
    const periodMs = retryPeriodMs * (1 + jitter * clock.random());
    await clock.sleep(Math.max(0, sinceMs + periodMs - clock.monotonic()), signal);
  }

  /** No request of a term outlasts its deadline. */
  #timeoutMs(term: Term): number {
    if (term.leftMs === 0) throw new Error('the renew deadline has passed');
    return Math.min(this.#requestTimeoutMs, term.leftMs);
  }

  #isOurs(record: HeldRecord): boolean {
    return record.writer === this.#writer;
  }

  #iso(): string {
    return new Date(this.#options.clock.now()).toISOString();
  }
}
