/**
 * Writes outcomes in batches: while one batch is on its way the next gathers, so the batches grow with the load.
 *
 * What cannot be written is tried three times, a second apart. Then finished work is spooled and written when the
 * database is back; until then nothing new is begun. A record that was never processed because there was no session for
 * it (`unprocessed`) is nothing to spool: it is called out, and its claim is given up as soon as the database answers:
 * this worker lives, so the recovery would leave the record to it until its time is over. A row that the database
 * refuses, or that somebody keeps locked, is written apart, so that it does not take its batch along. Where nothing can
 * be written although there are sessions (a column is gone), this workflow alone begins nothing new (`isBlocked`).
 *
 * A finish may change nothing although its token holds: the row was deleted, changed by another program, or kept by a
 * trigger or a policy of the table. Then the log says which, and a table that keeps its status is not asked for more
 * (`StatusGuard`).
 *
 * An answer may be lost after the write has happened; so before a second try is counted as late, the database is asked
 * whether what we wanted is there already.
 */
import type { Clock } from '../clock.js';
import { messageOf } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { RecordObserver } from './observer.js';
import { isLocked, isRowFault, isSessionFault } from './sessions.js';
import type { Spool } from './spool.js';
import { type StatusGuard, whyUnchanged } from './status-guard.js';
import type { ClaimKey, Finished, Outcome, RecordStore } from './store.js';

const batchSize = 500;
const tries = 3;
const betweenTriesMs = 1000;

export interface FinisherOptions {
  workflow: string;
  store: RecordStore;
  spool: Spool;
  guard: StatusGuard;
  /** Where in the spool. */
  place: string;
  clock: Clock;
  log: Logger;
  observer: RecordObserver;
  onSession(outcome: 'ok' | 'failed'): void;
  /** Finished work could not be written for want of a session: nothing new should be begun by anybody. */
  onAway(): void;
}

export interface Finishing extends Outcome {
  /** There was no session to process it with. */
  unprocessed?: boolean;
}

export interface FinishCounts {
  completed: number;
  failed: number;
  /** Somebody else had got the record meanwhile. */
  rejected: number;
  /** Written later. */
  spooled: number;
  /** Left in Processing for the recovery. */
  abandoned: number;
}

/** `left`: locked by somebody, or not tried after the `failure`, which is not about a row. */
interface Settled {
  left: Finishing[];
  failure?: unknown;
}

export const nothingFinished = (): FinishCounts => ({
  completed: 0,
  failed: 0,
  rejected: 0,
  spooled: 0,
  abandoned: 0,
});

export class Finisher {
  readonly #options: FinisherOptions;
  #waiting: Finishing[] = [];
  #flushing: Promise<void> | undefined;
  #replaying: Promise<number> | undefined;
  #owes = false;
  /** Claims of records that were called out. */
  #givenUp: ClaimKey[] = [];
  #isBlocked = false;
  /** What has been done since it was last asked. */
  #counts = nothingFinished();

  constructor(options: FinisherOptions) {
    this.#options = options;
  }

  get backlog(): number {
    return this.#waiting.length;
  }

  /** Something waits in the spool, or may, or claims are to be given up. */
  get owes(): boolean {
    return this.#owes || this.#givenUp.length > 0;
  }

  /** The database answers, and does not take what waits: nothing new should be begun here. */
  get isBlocked(): boolean {
    return this.#isBlocked;
  }

  add(outcome: Finishing): void {
    this.#waiting.push(outcome);
    this.#flushing ??= this.#flush();
  }

  /** The claim was lost while the record was processed: nothing is written. */
  reject(id: string): void {
    this.#reject([id]);
  }

  /** Nobody works on these any more: the recovery gets them as soon as the database answers. */
  giveUp(claims: readonly ClaimKey[]): void {
    this.#givenUp.push(...claims.map(({ id, token }) => ({ id, token })));
  }

  /** Resolves when everything added so far has been written, spooled or called out. */
  async idle(): Promise<void> {
    while (this.#flushing) await this.#flushing;
  }

  takeCounts(): FinishCounts {
    const counts = this.#counts;
    this.#counts = nothingFinished();
    return counts;
  }

  /** What an outage left behind; throws when the database is not there yet. */
  replay(): Promise<number> {
    this.#replaying ??= this.#replay()
      .catch((error: unknown) => {
        if (!isSessionFault(error)) this.#block(error);
        throw error;
      })
      .finally(() => {
        this.#replaying = undefined;
      });
    return this.#replaying;
  }

  async #recoverGivenUp(): Promise<void> {
    const { store, workflow, observer, log } = this.#options;
    const claims = [...this.#givenUp];
    if (claims.length === 0) return;
    const recovered = await store.giveUp(claims);
    this.#givenUp = this.#givenUp.slice(claims.length);
    for (const { outcome } of recovered) observer.recovered?.(workflow, 'given_up', outcome, 1);
    log.warn(
      { workflow, records: claims.length, recovered: recovered.length },
      'claims of records that could not be processed were given up',
    );
  }

  async #replay(): Promise<number> {
    const { workflow, place, spool, observer, log } = this.#options;
    await this.#recoverGivenUp();
    let written = 0;
    let kept = 0;
    this.#owes = true;
    let broken: unknown;
    const isWhole = await spool.replay(place, async (outcomes) => {
      const { left, failure } = await this.#settle(outcomes, true);
      // Nothing of it was written: all of it stays where it is.
      if (failure !== undefined && left.length === outcomes.length) throw failure;
      if (left.length > 0) await spool.add(place, left);
      broken ??= failure;
      kept += left.length;
      written += outcomes.length - left.length;
    });
    this.#owes = !isWhole || kept > 0;
    if (broken === undefined) this.#isBlocked = false;
    if (written > 0) {
      observer.replayed?.(workflow, written);
      log.info({ workflow, records: written }, 'outcomes that waited for the database have been written');
    }
    if (!isWhole) log.warn({ workflow }, 'a spool does not answer: what waits in it is asked for again');
    if (broken !== undefined) throw broken;
    return written;
  }

  async #flush(): Promise<void> {
    // What is finished within the same turn of the event loop goes together.
    await Promise.resolve();
    while (this.#waiting.length > 0) await this.#write(this.#nextBatch());
    this.#flushing = undefined;
  }

  /** A record that was lost and claimed again may be in it twice, with two tokens: then in two batches. */
  #nextBatch(): Finishing[] {
    const ids = new Set<string>();
    const batch: Finishing[] = [];
    for (const outcome of this.#waiting) {
      if (batch.length === batchSize || ids.has(outcome.id)) break;
      ids.add(outcome.id);
      batch.push(outcome);
    }
    this.#waiting.splice(0, batch.length);
    return batch;
  }

  async #write(batch: Finishing[]): Promise<void> {
    const { clock, log, workflow, onSession } = this.#options;
    let left = batch;
    let failure: unknown;
    for (let attempt = 1; left.length > 0; attempt += 1) {
      ({ left, failure } = await this.#settle(left, attempt > 1));
      if (failure === undefined) onSession('ok');
      else {
        if (isSessionFault(failure)) onSession('failed');
        log.warn(
          { workflow, records: left.length, attempt, reason: messageOf(failure) },
          isSessionFault(failure) ? 'no session to finish records with' : 'outcomes could not be written',
        );
      }
      if (left.length === 0) return;
      if (attempt >= tries) return await this.#keep(left, failure);
      await clock.sleep(betweenTriesMs);
    }
  }

  async #settle(batch: Finishing[], mayBeWritten: boolean): Promise<Settled> {
    try {
      return { left: await this.#settleAll(batch, mayBeWritten) };
    } catch (error) {
      if (!isRowFault(error) && !isLocked(error)) return { left: batch, failure: error };
      const [outcome] = batch;
      if (!outcome) return { left: [] };
      if (batch.length === 1 && isLocked(error)) return { left: [outcome] };
      try {
        if (batch.length === 1) {
          await this.#refused(outcome, error);
          return { left: [] };
        }
        const left = isLocked(error) ? await this.#settleFree(batch) : undefined;
        if (left) return { left };
      } catch (failure) {
        return { left: batch, failure };
      }
    }
    const left: Finishing[] = [];
    for (let i = 0; i < batch.length; i += 1) {
      const one = await this.#settle(batch.slice(i, i + 1), mayBeWritten);
      left.push(...one.left);
      // Those before are done with; the rest would meet the same.
      if (one.failure !== undefined) return { left: [...left, ...batch.slice(i + 1)], failure: one.failure };
    }
    return { left };
  }

  /** One statement; throws what the database says of any row. */
  async #settleAll(batch: Finishing[], mayBeWritten: boolean): Promise<Finishing[]> {
    const { store } = this.#options;
    const finished = await store.finish(batch);
    const rest = await this.#notKept(batch, finished);
    const { written } = finished;
    const missing = rest.filter(({ id }) => !written.has(id));
    if (missing.length > 0 && mayBeWritten) for (const id of await store.settled(missing)) written.add(id);
    this.#count(rest, written);
    return [];
  }

  /** Those that nobody keeps locked, at once; resolves to the others, or to undefined if that does not work either. */
  async #settleFree(batch: readonly Finishing[]): Promise<Finishing[] | undefined> {
    const { store } = this.#options;
    try {
      const finished = await store.finishFree(batch);
      const rest = await this.#notKept(batch, finished);
      const { written } = finished;
      const missing = rest.filter(({ id }) => !written.has(id));
      const lost = new Set((await store.lost(missing)).map(({ id, token }) => `${token} ${id}`));
      const isLost = ({ id, token }: Finishing) => lost.has(`${token} ${id}`);
      this.#count(
        rest.filter(({ id }) => written.has(id)),
        written,
      );
      // Not counted as late yet: an answer may have been lost before.
      const late = missing.filter(isLost);
      if (late.length > 0) {
        const settled = new Set(await store.settled(late));
        this.#count(late, settled);
      }
      return missing.filter((outcome) => !isLost(outcome));
    } catch (error) {
      if (!isRowFault(error) && !isLocked(error)) throw error;
      return undefined;
    }
  }

  /** Resolves to the others: those whose token held and that were not written are dealt with here. */
  async #notKept(batch: readonly Finishing[], finished: Finished): Promise<Finishing[]> {
    const { store, guard, log, workflow } = this.#options;
    const { written, setBack, unchanged } = finished;
    if (written.size > 0) guard.accepted();
    const ids = [...setBack, ...unchanged];
    if (ids.length === 0) return [...batch];
    // Without an answer they count as changed by others: the claims are gone either way.
    const seen = new Map((await store.unchanged(ids).catch(() => [])).map((row) => [row.id, row]));
    const reasons = new Map<string, string[]>();
    let refusal: string | undefined;
    for (const outcome of batch) {
      if (!ids.includes(outcome.id)) continue;
      const row = seen.get(outcome.id);
      const { reason, isRefused, isStuck } = whyUnchanged(row, setBack.includes(outcome.id));
      if (isStuck) this.#callOut(outcome, reason, reason);
      else this.#reject([outcome.id], false);
      if (isRefused) refusal ??= reason;
      if (row?.isQueued) guard.doubt();
      reasons.set(reason, [...(reasons.get(reason) ?? []), outcome.id]);
    }
    for (const [reason, records] of reasons)
      log.warn(
        { workflow, records: records.slice(0, 20), count: records.length },
        `a finish changed nothing although the claim held: ${reason}`,
      );
    if (refusal !== undefined && written.size === 0) guard.refused(refusal);
    return batch.filter(({ id }) => !ids.includes(id));
  }

  async #refused(outcome: Finishing, error: unknown): Promise<void> {
    const { store, log, workflow } = this.#options;
    log.error({ workflow, record: outcome.id, err: error }, 'the database refused the outcome of a record');
    const failure = { ...outcome, error: `The outcome was refused: ${messageOf(error)}` };
    try {
      const finished = await store.finish([failure]);
      this.#count(await this.#notKept([failure], finished), finished.written);
    } catch (again) {
      if (!isRowFault(again)) throw again;
      this.#callOut(outcome, again, 'the database refuses its outcome');
    }
  }

  /** The other workflows have nothing to do with it: each of them finds out for itself. */
  #block(error: unknown): void {
    const { workflow, log } = this.#options;
    if (!this.#isBlocked)
      log.error({ workflow, err: error }, 'outcomes cannot be written: nothing new is begun until they can');
    this.#isBlocked = true;
  }

  /** `failure`: why; undefined for rows that somebody keeps locked. */
  async #keep(batch: readonly Finishing[], failure: unknown): Promise<void> {
    const { workflow, place, spool, observer, log, onAway } = this.#options;
    const finished = batch.filter(({ unprocessed }) => unprocessed !== true);
    for (const outcome of batch) {
      if (!outcome.unprocessed) continue;
      this.#callOut(outcome, 'no session could be obtained');
      this.giveUp([outcome]);
    }
    if (finished.length === 0) return;
    try {
      await spool.add(place, finished);
      this.#owes = true;
      this.#counts.spooled += finished.length;
      observer.spooled?.(workflow, finished.length);
      log.warn({ workflow, records: finished.length }, 'outcomes are kept aside until they can be written');
      if (isSessionFault(failure)) onAway();
      else if (failure !== undefined) this.#block(failure);
    } catch (error) {
      for (const outcome of finished) this.#callOut(outcome, error);
      this.giveUp(finished);
    }
  }

  #callOut(outcome: Finishing, error: unknown, why = 'could not obtain error session'): void {
    const { workflow, log, observer } = this.#options;
    this.#counts.abandoned += 1;
    observer.zombie?.(workflow);
    log.fatal(
      { workflow, record: outcome.id, reason: messageOf(error) },
      `ZOMBIE RECORD ALERT: ${workflow} ID ${outcome.id} stuck in Processing - ${why}; the recovery brings it back`,
    );
  }

  #count(batch: readonly Finishing[], written: ReadonlySet<string>): void {
    const { workflow, observer } = this.#options;
    const done = batch.filter(({ id }) => written.has(id));
    const failed = done.filter(({ error }) => error !== null).length;
    this.#counts.completed += done.length - failed;
    this.#counts.failed += failed;
    if (done.length > failed) observer.finished?.(workflow, 'completed', done.length - failed);
    if (failed > 0) observer.finished?.(workflow, 'failed', failed);
    if (done.length < batch.length)
      this.#reject(batch.filter(({ id }) => !written.has(id)).map(({ id }) => id));
  }

  #reject(ids: readonly string[], isLate = true): void {
    const { workflow, observer, log } = this.#options;
    this.#counts.rejected += ids.length;
    observer.rejected?.(workflow, ids.length);
    if (!isLate) return;
    log.warn(
      { workflow, records: ids.slice(0, 20), count: ids.length },
      'late finishes were rejected: the records belong to others by now',
    );
  }
}
