/**
 * Writes outcomes in batches: while one batch is written the next one gathers, so batches grow with the load.
 *
 * A failed write is retried three times, a second apart. Then finished work is spooled and written when the
 * database is back; until then no new work starts. A record that was never processed for lack of a session
 * (`unprocessed`) is not spooled: a ZOMBIE RECORD ALERT is logged, and its claim is given up as soon as the database
 * answers, because the recovery would wait for its timeout while this worker lives. A row that the database refuses, or
 * that another transaction keeps locked, is written separately, so that it does not fail its batch. Where nothing can be
 * written although sessions work (a column was dropped), this workflow alone starts no new work (`WriteBlock`).
 *
 * A finish may change nothing although its token holds: the row was deleted, changed by another program, or kept by a
 * trigger or a policy. Then the log says which (`StatusGuard`).
 *
 * A reply may be lost after the write. So before a retry counts an outcome as late, it asks the database whether the
 * outcome is there already.
 */
import { type Clock, singleFlight } from '../clock.js';
import { messageOf } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { Breaker } from './breaker.js';
import type { RecordObserver } from './observer.js';
import { oneByOne } from './row-faults.js';
import { isLocked, isSessionFault, mayBeRowFault } from './sessions.js';
import type { Spool } from './spool.js';
import { type StatusGuard, whyUnchanged } from './status-guard.js';
import type { ClaimKey, Finished, Outcome, RecordStore } from './store.js';
import { keyOf } from './store-types.js';
import { WriteBlock } from './write-block.js';

const batchSize = 500;
const maxTries = 3;
const betweenTriesMs = 1000;
const maxIdsInLog = 20;

export interface FinisherOptions {
  workflow: string;
  store: RecordStore;
  spool: Spool;
  guard: StatusGuard;
  /** The key of this workflow in the spool. */
  place: string;
  clock: Clock;
  log: Logger;
  observer: RecordObserver;
  breaker: Breaker;
  /** Claims have ended: places under a limit may be free. */
  onWritten?(): void;
}

/** How records ended, counted by a finisher since it was last asked. */
export interface FinishCounts {
  completed: number;
  failed: number;
  /** Failed, and queued again. */
  retried: number;
  /** The claim was lost before. */
  rejected: number;
  /** To be written later. */
  spooled: number;
  /** Left in Processing for the recovery. */
  abandoned: number;
}

export const noCounts = (): FinishCounts => ({
  ...{ completed: 0, failed: 0, retried: 0, rejected: 0, spooled: 0, abandoned: 0 },
});

export interface PendingOutcome extends Outcome {
  /** There was no session to process it with. */
  unprocessed?: boolean;
}

/** `left`: locked, or not tried after the `failure`, an error not caused by a row. */
interface Attempt {
  left: PendingOutcome[];
  failure?: unknown;
}

export class Finisher {
  readonly #options: FinisherOptions;
  #pending: PendingOutcome[] = [];
  #flushing: Promise<void> | undefined;
  #mayHaveSpooled = false;
  #givenUp: ClaimKey[] = [];
  readonly block: WriteBlock;
  /** Since the last `takeCounts`. */
  #counts = noCounts();

  constructor(options: FinisherOptions) {
    this.#options = options;
    this.block = new WriteBlock(options);
  }

  get backlog(): number {
    return this.#pending.length;
  }

  /** The spool may contain outcomes, or claims are to be given up. */
  get owes(): boolean {
    return this.#mayHaveSpooled || this.#givenUp.length > 0;
  }

  add(outcome: PendingOutcome): void {
    this.#pending.push(outcome);
    this.#flushing ??= this.#flush();
  }

  /** No worker processes these any more: the recovery gets them as soon as the database answers. */
  giveUp(claims: readonly ClaimKey[]): void {
    this.#givenUp.push(...claims.map(({ id, token }) => ({ id, token })));
  }

  /** Resolves when everything added so far is written, spooled or reported as a zombie. */
  async idle(): Promise<void> {
    while (this.#flushing) await this.#flushing;
  }

  takeCounts(): FinishCounts {
    const counts = this.#counts;
    this.#counts = noCounts();
    return counts;
  }

  /** Writes spooled outcomes and gives up claims; throws while the database is unreachable. */
  readonly replay = singleFlight(() =>
    this.#replay().catch((error: unknown) => {
      if (!isSessionFault(error)) this.block.begin(error);
      throw error;
    }),
  );

  async #recoverGivenUp(): Promise<void> {
    const { store, workflow, observer, log } = this.#options;
    const claims = [...this.#givenUp];
    if (claims.length === 0) return;
    const recovered = await store.giveUp(claims);
    this.#givenUp = this.#givenUp.slice(claims.length);
    for (const { outcome } of recovered) observer.recovered?.(workflow, 'given_up', outcome, 1);
    log.warn(
      { workflow, records: claims.length, recovered: recovered.length },
      'claims given up: their records could not be processed',
    );
  }

  async #replay(): Promise<number> {
    const { workflow, place, spool, observer, log } = this.#options;
    await this.#recoverGivenUp();
    let [written, kept] = [0, 0];
    this.#mayHaveSpooled = true;
    let firstFailure: unknown;
    const isComplete = await spool.replay(place, async (outcomes) => {
      const left: PendingOutcome[] = [];
      let failure: unknown;
      for (const rest = [...outcomes]; rest.length > 0; ) {
        const attempt = await this.#write(takeBatch(rest), true);
        left.push(...attempt.left);
        failure ??= attempt.failure;
      }
      // Nothing was written: the batch stays in the spool.
      if (failure !== undefined && left.length === outcomes.length) throw failure;
      if (left.length > 0) await spool.add(place, left);
      firstFailure ??= failure;
      kept += left.length;
      written += outcomes.length - left.length;
    });
    this.#mayHaveSpooled = !isComplete || kept > 0;
    if (firstFailure === undefined) this.block.end();
    if (written > 0) {
      observer.replayed?.(workflow, written);
      log.info({ workflow, records: written }, 'spooled outcomes written');
    }
    if (!isComplete) log.warn({ workflow }, 'spool unreachable; retrying');
    if (firstFailure !== undefined) throw firstFailure;
    return written;
  }

  async #flush(): Promise<void> {
    // Outcomes of the same turn of the event loop go into one batch.
    await Promise.resolve();
    while (this.#pending.length > 0) await this.#writeWithRetries(takeBatch(this.#pending));
    this.#flushing = undefined;
  }

  async #writeWithRetries(batch: PendingOutcome[]): Promise<void> {
    const { clock, log, workflow, breaker } = this.#options;
    let left = batch;
    let failure: unknown;
    for (let attempt = 1; left.length > 0; attempt += 1) {
      ({ left, failure } = await this.#write(left, attempt > 1));
      if (failure === undefined) breaker.succeeded();
      else {
        if (isSessionFault(failure)) breaker.failed();
        log.warn(
          { workflow, records: left.length, attempt, reason: messageOf(failure) },
          isSessionFault(failure) ? 'no session to finish records' : 'outcomes not written',
        );
      }
      if (left.length === 0) return;
      if (attempt >= maxTries) return await this.#keep(left, failure);
      await clock.sleep(betweenTriesMs);
    }
  }

  /** All in one statement; if that fails because of a row, the unlocked ones, or one at a time. Never throws. */
  async #write(batch: PendingOutcome[], mayBeWritten: boolean): Promise<Attempt> {
    try {
      return await this.#finish(batch, mayBeWritten);
    } catch (error) {
      if (!isLocked(error)) return this.#writeAfter(error, batch, mayBeWritten);
      if (batch.length === 1) return { left: batch };
    }
    try {
      return await this.#finish(batch, true, true);
    } catch (error) {
      return this.#writeAfter(error, batch, mayBeWritten);
    }
  }

  /** After an error of a batch: one at a time, if the error may be of a row. */
  async #writeAfter(error: unknown, batch: PendingOutcome[], mayBeWritten: boolean): Promise<Attempt> {
    if (!mayBeRowFault(error) && !isLocked(error)) return { left: batch, failure: error };
    const left = new Set(batch);
    const write = async (outcome: PendingOutcome) => {
      try {
        const { hasWritten } = await this.#finish([outcome], mayBeWritten);
        left.delete(outcome);
        return hasWritten;
      } catch (refusal) {
        if (isLocked(refusal)) return false;
        throw refusal;
      }
    };
    try {
      for (const [outcome, refusal] of await oneByOne(batch, write, this.block.othersPass)) {
        await this.#writeRefused(outcome, refusal);
        left.delete(outcome);
      }
      return { left: [...left] };
    } catch (failure) {
      return { left: [...left], failure };
    }
  }

  /** `left`: with `onlyUnlocked`, the outcomes of locked rows. */
  async #finish(
    batch: readonly PendingOutcome[],
    mayBeWritten: boolean,
    onlyUnlocked = false,
  ): Promise<{ left: PendingOutcome[]; hasWritten: boolean }> {
    const { store } = this.#options;
    const finished = await store.finish(batch, { onlyUnlocked });
    const rest = await this.#handleUnchanged(batch, finished);
    const { written } = finished;
    if (written.size > 0) this.block.passed();
    let late = rest.filter(({ id }) => !written.has(id));
    let left: PendingOutcome[] = [];
    if (onlyUnlocked) {
      const lost = new Set((await store.lost(late)).map(keyOf));
      left = late.filter((outcome) => !lost.has(keyOf(outcome)));
      late = late.filter((outcome) => lost.has(keyOf(outcome)));
    }
    // Before they count as late: an earlier reply may have been lost.
    if (late.length > 0 && mayBeWritten) for (const id of await store.settled(late)) written.add(id);
    const handled = rest.filter((outcome) => !left.includes(outcome));
    this.#count(handled, finished);
    return { left, hasWritten: written.size > 0 };
  }

  /** Reports outcomes whose token held and that were not written; resolves to the others. */
  async #handleUnchanged(
    batch: readonly PendingOutcome[],
    { written, restored, unchanged }: Finished,
  ): Promise<PendingOutcome[]> {
    const { store, guard, log, workflow } = this.#options;
    if (written.size > 0) guard.accepted();
    const ids = [...restored, ...unchanged];
    if (ids.length === 0) return [...batch];
    // Without a reply they count as changed by another program: the claims are deleted either way.
    const rows = new Map((await store.unchanged(ids).catch(() => [])).map((row) => [row.id, row]));
    const reasons = new Map<string, string[]>();
    let refusal: string | undefined;
    for (const outcome of batch) {
      if (!ids.includes(outcome.id)) continue;
      const row = rows.get(outcome.id);
      const { reason, isRefused, isStuck } = whyUnchanged(row, restored.includes(outcome.id));
      if (isStuck) this.#alertZombie(outcome, reason, reason);
      else this.reject([outcome.id], false);
      if (isRefused) refusal ??= reason;
      if (row?.isQueued) guard.isProven = false;
      reasons.set(reason, [...(reasons.get(reason) ?? []), outcome.id]);
    }
    for (const [reason, records] of reasons)
      log.warn(
        { workflow, records: records.slice(0, maxIdsInLog), count: records.length },
        `finish changed nothing although the claim held: ${reason}`,
      );
    if (refusal !== undefined && written.size === 0) guard.refused(refusal);
    return batch.filter(({ id }) => !ids.includes(id));
  }

  /** Writes the refusal as the record's failure. */
  async #writeRefused(outcome: PendingOutcome, error: unknown): Promise<void> {
    const { store, log, workflow } = this.#options;
    log.error({ workflow, record: outcome.id, err: error }, 'outcome refused by the database');
    const failure = { ...outcome, error: `The outcome was refused: ${messageOf(error)}` };
    try {
      const finished = await store.finish([failure], { isFinal: true });
      this.#count(await this.#handleUnchanged([failure], finished), finished);
    } catch (again) {
      if (!mayBeRowFault(again)) throw again;
      this.#alertZombie(outcome, again, 'the database refuses its outcome');
    }
  }

  /** Spools finished work. `failure` is undefined for locked rows. */
  async #keep(batch: readonly PendingOutcome[], failure: unknown): Promise<void> {
    const { workflow, place, spool, observer, log, breaker } = this.#options;
    const finished = batch.filter(({ unprocessed }) => unprocessed !== true);
    for (const outcome of batch) {
      if (!outcome.unprocessed) continue;
      this.#alertZombie(outcome, 'no session could be obtained');
      this.giveUp([outcome]);
    }
    if (finished.length === 0) return;
    try {
      await spool.add(place, finished);
      this.#mayHaveSpooled = true;
      this.#counts.spooled += finished.length;
      observer.spooled?.(workflow, finished.length);
      log.warn({ workflow, records: finished.length }, 'outcomes spooled until they can be written');
      // No workflow starts new work that could not be finished.
      if (isSessionFault(failure)) breaker.open();
      else if (failure !== undefined) this.block.begin(failure);
    } catch (error) {
      for (const outcome of finished) this.#alertZombie(outcome, error);
      this.giveUp(finished);
    }
  }

  #alertZombie(outcome: PendingOutcome, error: unknown, why = 'could not obtain error session'): void {
    const { workflow, log, observer } = this.#options;
    this.#counts.abandoned += 1;
    observer.zombie?.(workflow);
    log.fatal(
      { workflow, record: outcome.id, reason: messageOf(error) },
      `ZOMBIE RECORD ALERT: ${workflow} ID ${outcome.id} stuck in Processing - ${why}; the recovery requeues it`,
    );
  }

  #count(batch: readonly PendingOutcome[], { written, retried }: Finished): void {
    const { workflow, observer, log } = this.#options;
    const done = batch.filter(({ id }) => written.has(id));
    const failed = done.filter(({ error }) => error !== null).length - retried.size;
    const completed = done.length - failed - retried.size;
    this.#counts.completed += completed;
    this.#counts.retried += retried.size;
    this.#counts.failed += failed;
    if (completed > 0) observer.finished?.(workflow, 'completed', completed);
    if (failed > 0) observer.finished?.(workflow, 'failed', failed);
    if (retried.size > 0) {
      observer.retried?.(workflow, retried.size);
      log.info({ workflow, records: [...retried].slice(0, maxIdsInLog) }, 'failed records queued again');
    }
    this.#options.onWritten?.();
    if (done.length < batch.length)
      this.reject(batch.filter(({ id }) => !written.has(id)).map(({ id }) => id));
  }

  /** Counts outcomes that are not written. `isLate`: because their claims were lost. */
  reject(ids: readonly string[], isLate = true): void {
    const { workflow, observer, log } = this.#options;
    this.#counts.rejected += ids.length;
    observer.rejected?.(workflow, ids.length);
    if (!isLate) return;
    log.warn(
      { workflow, records: ids.slice(0, maxIdsInLog), count: ids.length },
      'late finishes rejected: the claims were lost',
    );
  }
}

/** Removes the first outcomes. A record that was lost and claimed again may be there twice, with two tokens: in two batches. */
function takeBatch(outcomes: PendingOutcome[]): PendingOutcome[] {
  const ids = new Set<string>();
  const end = outcomes.findIndex(({ id }) => ids.size === batchSize || ids.size === ids.add(id).size);
  return outcomes.splice(0, end === -1 ? outcomes.length : end);
}
