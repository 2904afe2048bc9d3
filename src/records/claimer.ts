/**
 * Takes the next batch. If a trigger undoes the claim of all of its records, it was not made (`ClaimRefused`). If the database refuses one of its rows (a constraint that was added after the row, a trigger),
 * the rows are taken one by one, and the one that is refused is left alone for an hour: it would otherwise stand at
 * the head of the queue and keep everybody behind it.
 *
 * An answer may be lost after the claim has been made. Then this worker holds records that it does not know of, and as
 * it lives nobody else would take them before their timeout: so before it claims again it gives back whatever is newer
 * than what it knew, and is none of what it has learned of since. It does so for a while: the database may still be at
 * a claim that nobody waits for any more. For that, one claim follows the other.
 */
import type { Clock } from '../clock.js';
import { messageOf } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { Breaker } from './breaker.js';
import type { RecordObserver } from './observer.js';
import { isRowFault, isSessionFault } from './sessions.js';
import type { StatusGuard } from './status-guard.js';
import type { Claim, RecordStore } from './store.js';
import type { Workflow } from './workflow.js';

/** Longer than a statement goes on that nobody waits for. */
const unknownMs = 60_000;

/** After an answer that was lost: the latest token that was known then, those since, and for how long it matters. */
interface Unknown {
  after: bigint;
  known: string[];
  untilMs: number;
}

/** The table did not keep the status of a single record of the batch. */
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
  worker(): number;
  /** Before a claim: others must see that this worker lives. */
  beAlive(): Promise<void>;
}

export class Claimer {
  readonly #options: ClaimerOptions;
  #turn: Promise<unknown> = Promise.resolve();
  #latestToken = 0n;
  #unknown: Unknown | undefined;

  constructor(options: ClaimerOptions) {
    this.#options = options;
  }

  claim(): Promise<Claim[]> {
    const mine = this.#turn.then(() => this.#claim());
    this.#turn = mine.catch(() => {});
    return mine;
  }

  async #claim(): Promise<Claim[]> {
    const { breaker, observer, workflow } = this.#options;
    try {
      await this.#options.beAlive();
      if (this.#unknown) await this.#giveBackUnknown(this.#unknown);
      const claims = await this.#batch();
      breaker.succeeded();
      if (claims.length > 0) observer.claimed?.(workflow.name, claims.length);
      return claims;
    } catch (error) {
      if (error instanceof ClaimRefused) this.#options.guard.refused(error.message);
      if (isSessionFault(error)) {
        this.#mayHoldUnknown();
        breaker.failed();
      }
      throw error;
    }
  }

  #mayHoldUnknown(): void {
    const { after = this.#latestToken, known = [] } = this.#unknown ?? {};
    this.#unknown = { after, known, untilMs: this.#options.clock.monotonic() + unknownMs };
  }

  async #giveBackUnknown({ after, known, untilMs }: Unknown): Promise<void> {
    const { store, worker, workflow, log, clock } = this.#options;
    const isOver = clock.monotonic() > untilMs;
    const records = await store.giveBackUnknown(worker(), String(after), known);
    if (isOver) this.#unknown = undefined;
    if (records > 0)
      log.info({ workflow: workflow.name, records }, 'a claim whose answer was lost has been given back');
  }

  async #batch(): Promise<Claim[]> {
    const { workflow } = this.#options;
    try {
      return await this.#kept(await this.#take(workflow.batchSize, null));
    } catch (error) {
      if (!isRowFault(error)) throw error;
    }
    return this.#kept(await this.#oneByOne());
  }

  async #oneByOne(): Promise<Claim[]> {
    const { workflow, store } = this.#options;
    const claims: Claim[] = [];
    const refused = new Map<string, unknown>();
    for (const id of await store.queued(workflow.batchSize)) {
      try {
        claims.push(...(await this.#take(1, [id])));
      } catch (error) {
        if (!isRowFault(error)) {
          if (claims.length === 0) throw error;
          // What has been taken is worked on; the next batch meets the same trouble again.
          if (isSessionFault(error)) this.#mayHoldUnknown();
          break;
        }
        refused.set(id, error);
      }
    }
    const [first] = [...refused.values()].filter(isStatusKept);
    if (first !== undefined && claims.length === 0) throw new ClaimRefused(messageOf(first));
    for (const [id, error] of refused) await this.#postpone(id, error);
    return claims;
  }

  async #postpone(id: string, reason: unknown): Promise<void> {
    const { workflow, store, log } = this.#options;
    log.error(
      { workflow: workflow.name, record: id, reason: messageOf(reason) },
      'the database does not let this record be claimed: it is left alone for an hour',
    );
    await store.postpone(id);
  }

  /** Those that a trigger has not set back after the claim, if that has to be looked at. */
  async #kept(claims: Claim[]): Promise<Claim[]> {
    const { store, guard, log, workflow } = this.#options;
    if (guard.isProven || claims.length === 0) return claims;
    try {
      const restored = new Set(await store.restored(claims));
      if (restored.size === 0) {
        guard.proven();
        return claims;
      }
      await store.giveBack(claims.filter(({ id }) => restored.has(id)));
      const reason = `a trigger sets it back to ${workflow.status.queued} after the claim`;
      if (restored.size === claims.length) throw new ClaimRefused(reason);
      for (const id of restored) await this.#postpone(id, reason);
      return claims.filter(({ id }) => !restored.has(id));
    } catch (error) {
      if (error instanceof ClaimRefused) throw error;
      // They are claimed: they are worked on, and looked at the next time.
      log.debug(
        { workflow: workflow.name, reason: messageOf(error) },
        'a claim could not be looked at again',
      );
      return claims;
    }
  }

  async #take(most: number, only: string[] | null): Promise<Claim[]> {
    const { store, worker, workflow, clock } = this.#options;
    const claims = await store.claim(worker(), most, workflow.timeoutMs, clock.monotonic(), only);
    // All of one claim have the same.
    const token = claims[0]?.token;
    if (token === undefined) return claims;
    this.#unknown?.known.push(token);
    if (BigInt(token) > this.#latestToken) this.#latestToken = BigInt(token);
    return claims;
  }
}

/** As claim.sql says it. */
const isStatusKept = (error: unknown) =>
  messageOf(error).includes('smart_router: the claim left the status at');
