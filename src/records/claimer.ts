/**
 * Claims the next batch. If a trigger undoes the claim of all its records, the batch was not claimed (`ClaimRefused`). If
 * the database refuses a row (a constraint added after the row, a trigger), rows are claimed one at a time, and a
 * refused one is skipped for an hour: it would otherwise block the head of the queue. If it cannot be skipped (its id is
 * too long for our index), it is set to Failed.
 *
 * The reply to a claim may be lost after the claim was made. Then this worker holds records that it does not know of, until
 * they time out. So before the next claim it releases its claims with a newer token than the last one received, except those
 * received since. It does so for a minute, because the database may still be executing the claim. For this reason claims run
 * one at a time.
 *
 * A claim returns whole rows, so its size depends on the table. Rows beyond `maxClaimSize` are released at once, and the next
 * claim takes as many rows of the average size as fit. After a timeout it takes half as many: the rows may be too large
 * to arrive in time.
 */
import type { Clock } from '../clock.js';
import { messageOf } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { Breaker } from './breaker.js';
import { maxClaimSize } from './claimed-rows.js';
import type { RecordObserver } from './observer.js';
import { maxUnclear, oneByOne } from './row-faults.js';
import { isReadTimeout, isRowFault, isSessionFault, isStatusKept, mayBeRowFault } from './sessions.js';
import type { StatusGuard } from './status-guard.js';
import type { Claim, RecordStore } from './store.js';
import type { RecordWorker } from './worker.js';
import type { Workflow } from './workflow.js';

/** Longer than a statement runs after its client stopped waiting. */
const unknownMs = 60_000;
const oneByOnePauseMs = 10_000;

/** After a lost reply: the latest token known then, tokens received since, and for how long to look. */
interface Unknown {
  after: bigint;
  known: string[];
  untilMs: number;
}

/** The table did not keep the status of any record of the batch. */
export class ClaimRefused extends Error {
  override readonly name = 'ClaimRefused';
}

export interface ClaimerOptions {
  workflow: Workflow;
  store: RecordStore;
  breaker: Breaker;
  guard: StatusGuard;
  clock: Clock;
  log: Logger;
  observer: RecordObserver;
  worker: Pick<RecordWorker, 'id' | 'beAlive'>;
  release(claims: readonly Claim[]): Promise<void>;
}

export class Claimer {
  readonly #options: ClaimerOptions;
  #turn: Promise<unknown> = Promise.resolve();
  #latestToken = 0n;
  #unknown: Unknown | undefined;
  /** When rows may next be claimed one by one, after an error that may not be the fault of a row. */
  #oneByOneMs = 0;

  #batchSize: number;

  constructor(options: ClaimerOptions) {
    this.#options = options;
    this.#batchSize = options.workflow.batchSize;
  }

  /** How many records the next claim takes: fewer than the workflow's `batchSize` if they are large. */
  get batchSize(): number {
    return this.#batchSize;
  }

  claim(max = Number.POSITIVE_INFINITY): Promise<Claim[]> {
    const mine = this.#turn.then(() => this.#claim(max));
    this.#turn = mine.catch(() => {});
    return mine;
  }

  async #claim(max: number): Promise<Claim[]> {
    const { breaker, observer, worker, workflow, release } = this.#options;
    try {
      await worker.beAlive();
      if (this.#unknown) await this.#releaseUnknown(this.#unknown);
      const claims = await this.#batch(Math.min(max, this.#batchSize));
      breaker.succeeded();
      if (claims.length > 0) observer.claimed?.(workflow.name, claims.length);
      const cut = claims.filter(({ isCut }) => isCut);
      if (cut.length === 0) return claims;
      await release(cut);
      return claims.filter(({ isCut }) => !isCut);
    } catch (error) {
      if (error instanceof ClaimRefused) this.#options.guard.refused(error.message);
      if (isSessionFault(error)) {
        this.#mayHoldUnknown();
        if (isReadTimeout(error)) this.#batchSize = Math.ceil(this.#batchSize / 2);
        breaker.failed();
      }
      throw error;
    }
  }

  #mayHoldUnknown(): void {
    const { after = this.#latestToken, known = [] } = this.#unknown ?? {};
    this.#unknown = { after, known, untilMs: this.#options.clock.monotonic() + unknownMs };
  }

  async #releaseUnknown({ after, known, untilMs }: Unknown): Promise<void> {
    const { store, worker, workflow, log, clock } = this.#options;
    const isOver = clock.monotonic() > untilMs;
    const records = await store.releaseUnknown(worker.id, String(after), known);
    if (isOver) this.#unknown = undefined;
    if (records > 0) log.info({ workflow: workflow.name, records }, 'claim released: its reply was lost');
  }

  async #batch(size: number): Promise<Claim[]> {
    try {
      const claims = await this.#take(size, null);
      this.#fit(claims);
      return await this.#keepProven(claims);
    } catch (error) {
      if (!mayBeRowFault(error)) throw error;
      // The last time no row passed.
      if (!isRowFault(error) && this.#options.clock.monotonic() < this.#oneByOneMs) throw error;
    }
    return this.#keepProven(await this.#takeOneByOne(size));
  }

  #fit(claims: readonly Claim[]): void {
    const { batchSize } = this.#options.workflow;
    const size = sizeOf(claims);
    const fitting = size === 0 ? batchSize : Math.floor((maxClaimSize * claims.length) / size);
    this.#batchSize = Math.min(batchSize, Math.max(1, fitting));
  }

  async #takeOneByOne(size: number): Promise<Claim[]> {
    const { store, clock } = this.#options;
    const claims: Claim[] = [];
    const take = async (id: string) => {
      if (claims.length >= size || sizeOf(claims) > maxClaimSize) return false;
      const claimed = await this.#take(1, [id]);
      claims.push(...claimed);
      return claimed.length > 0;
    };
    try {
      const refused = await oneByOne(await store.queued(Math.max(size, maxUnclear)), take);
      const [first] = [...refused.values()].filter(isStatusKept);
      if (first !== undefined && claims.length === 0) throw new ClaimRefused(messageOf(first));
      for (const [id, error] of refused) await this.#setAside(id, error);
    } catch (error) {
      if (mayBeRowFault(error)) this.#oneByOneMs = clock.monotonic() + oneByOnePauseMs;
      if (claims.length === 0) throw error;
      // Process the claimed ones; the next batch meets the same error.
      if (isSessionFault(error)) this.#mayHoldUnknown();
    }
    return claims;
  }

  async #setAside(id: string, cause: unknown): Promise<void> {
    const { workflow, store, log } = this.#options;
    const reason = messageOf(cause);
    let outcome = 'skipped for an hour';
    try {
      await store.postpone(id);
    } catch (error) {
      if (!mayBeRowFault(error)) throw error;
      outcome = await store.failQueued(id, `The record cannot be claimed: ${reason}`).then(
        () => 'set to Failed',
        (again: unknown) => `it can be neither skipped nor set to Failed: ${messageOf(again)}`,
      );
    }
    log.error(
      { workflow: workflow.name, record: id, reason },
      `record cannot be claimed: the database refuses it; ${outcome}`,
    );
  }

  /** Returns the claims without those that a trigger has set back; looks only if the guard asks for it. */
  async #keepProven(claims: Claim[]): Promise<Claim[]> {
    const { store, guard, log, workflow } = this.#options;
    if (guard.isProven || claims.length === 0) return claims;
    try {
      const restored = new Set(await store.restored(claims));
      if (restored.size === 0) {
        guard.isProven = true;
        return claims;
      }
      await store.release(claims.filter(({ id }) => restored.has(id)));
      const reason = `a trigger sets it back to ${workflow.status.queued} after the claim`;
      if (restored.size === claims.length) throw new ClaimRefused(reason);
      for (const id of restored) await this.#setAside(id, reason);
      return claims.filter(({ id }) => !restored.has(id));
    } catch (error) {
      if (error instanceof ClaimRefused) throw error;
      // They are claimed, so they are processed; the next claim is checked again.
      log.debug({ workflow: workflow.name, reason: messageOf(error) }, 'claim not verified');
      return claims;
    }
  }

  async #take(limit: number, only: string[] | null): Promise<Claim[]> {
    const { store, worker, workflow, clock } = this.#options;
    const claims = await store.claim(worker.id, limit, workflow.timeoutMs, clock.monotonic(), only);
    // All records of one claim have the same token.
    const token = claims[0]?.token;
    if (token === undefined) return claims;
    this.#unknown?.known.push(token);
    if (BigInt(token) > this.#latestToken) this.#latestToken = BigInt(token);
    return claims;
  }
}

const sizeOf = (claims: readonly Claim[]) => claims.reduce((sum, { size }) => sum + size, 0);
