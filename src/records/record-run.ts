/** One record while it is processed: what its handler sees, and how it is told to stop. */
import type { PoolClient } from 'pg';
import { isInstance, messageOf, plainText } from '../errors.js';
import { isConflict, SessionError, type Sessions } from './sessions.js';
import type { Claim, RecordStore } from './store.js';
import { LentClient, resetSession } from './transaction-client.js';
import type { RecordContext } from './workflow.js';

export class ClaimLost extends Error {
  override readonly name = 'ClaimLost';
}

const longestNote = 1000;
/** So many sessions may break under one transaction. */
const mostBroken = 5;

export interface RunningParts {
  store: RecordStore;
  sessions: Sessions;
  onTrace(note: string): void;
  /** Until the database itself ends a transaction in which nothing happens. */
  endsInMs(): number;
  /** After a session that failed: resolves to true when the database may answer, to false when the signal aborts first. */
  databaseReady(signal: AbortSignal): Promise<boolean>;
}

export class Running implements RecordContext {
  readonly claim: Claim;
  readonly startedMs: number;
  readonly #parts: RunningParts;
  /** Made when somebody looks: most handlers are done before anything could happen to them. */
  #controller: AbortController | undefined;
  #reason: Error | undefined;

  #hasNoDatabase = false;

  constructor(claim: Claim, startedMs: number, parts: RunningParts) {
    this.claim = claim;
    this.startedMs = startedMs;
    this.#parts = parts;
  }

  /** Its time was over, or the loop stopped, before the database could take its transaction. */
  get hasNoDatabase(): boolean {
    return this.#hasNoDatabase;
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#reason) this.#controller.abort(this.#reason);
    return this.#controller.signal;
  }

  /** Why it was told to stop, if it was. */
  get stopped(): Error | undefined {
    return this.#reason;
  }

  abort(reason: Error): void {
    if (this.#reason) return;
    this.#reason = reason;
    this.#controller?.abort(reason);
  }

  // Getters, so that a handler may take them out of the context, and so that one that does not costs nothing.
  get trace(): RecordContext['trace'] {
    return (note) =>
      this.#parts.onTrace(typeof note === 'string' ? plainText(note.slice(0, longestNote)) : messageOf(note));
  }

  get tx(): RecordContext['tx'] {
    return (work) => this.#tx(work);
  }

  /**
   * A transaction that the database could not take is run again when it answers, for as long as the claim has time: a
   * restart of the database costs no finished work.
   *
   * The reply to a COMMIT may be lost, and then the transaction may or may not have been applied. Running it again
   * without knowing would apply it twice. So its number is read together with the last look at the claim, and
   * `pg_xact_status` decides: PostgreSQL keeps that across restarts and crashes. While the old session is still at it
   * ("in progress": it never got the COMMIT, or waits in it), we wait; it ends at the latest with the claim's time,
   * because `hold` has bounded it. Limit: a failover to a replica that has lost the transaction may have given its
   * number to another one.
   */
  async #tx<T>(work: (client: PoolClient) => Promise<T>): Promise<T> {
    for (let broken = 0; ; ) {
      const attempt: Attempt<T> = {};
      try {
        return await this.#attempt(work, attempt);
      } catch (error) {
        if (!isInstance(error, SessionError)) throw error;
        const { running, commit } = attempt;
        if (this.#reason) {
          this.#hasNoDatabase ||= !running;
          throw error;
        }
        // A transaction that ends its own session again and again is not the database's fault.
        if (running && !commit) broken += 1;
        if (broken >= mostBroken) throw error;
        // The callback that lost its session may still be at something else: never two at once.
        await Promise.race([running?.catch(() => {}), aborted(this.signal)]);
        await this.#untilReady(error);
        if (commit && (await this.#isApplied(commit.xact, error))) return commit.result;
      }
    }
  }

  async #untilReady(error: unknown): Promise<void> {
    if (await this.#parts.databaseReady(this.signal)) return;
    this.#hasNoDatabase = true;
    throw error;
  }

  async #isApplied(xact: string, error: unknown): Promise<boolean> {
    for (;;) {
      try {
        const isCommitted = await this.#parts.store.isCommitted(xact);
        if (isCommitted !== undefined) return isCommitted;
      } catch (failure) {
        // A number that this server has not reached: a replica that has lost the transaction.
        if (!isInstance(failure, SessionError)) return false;
      }
      await this.#untilReady(error);
    }
  }

  #attempt<T>(work: (client: PoolClient) => Promise<T>, attempt: Attempt<T>): Promise<T> {
    const { sessions } = this.#parts;
    return sessions.transaction(async (client) => {
      attempt.commit = undefined;
      if (this.#reason) throw this.#reason;
      // First, because everybody locks the claim before the row: the other way round two could wait for each other.
      // The lock keeps the recovery away until the end; a person who resets the record by hand is noticed there.
      await this.#assertHeld(client, false);
      let conflict: unknown;
      const lent = new LentClient(client, {
        onState: () => sessions.spoil(client),
        onError: (error) => {
          if (isConflict(error)) conflict = error;
        },
      });
      try {
        attempt.running = Promise.resolve(work(lent.client));
        const result = await attempt.running;
        // First, because the role that the handler has taken may not be allowed to look at the claim.
        if (sessions.isSpoiled(client)) await sessions.queryOn(client, resetSession, []);
        attempt.commit = { xact: await this.#assertHeld(client, true), result };
        return result;
      } catch (error) {
        // Whatever the handler made of it: the transaction runs again.
        throw conflict ?? error;
      } finally {
        lent.end();
      }
    });
  }

  async #assertHeld(client: PoolClient, last: boolean): Promise<string> {
    const { store, endsInMs } = this.#parts;
    const xact = await store.hold(client, this.claim, endsInMs(), last);
    if (xact !== undefined) return xact;
    const lost = new ClaimLost('the claim was lost: nothing of this transaction is kept');
    this.abort(lost);
    throw lost;
  }
}

/** One run of a transaction. */
interface Attempt<T> {
  /** The handler's callback, once it has begun. */
  running?: Promise<T>;
  /** Set when nothing but the COMMIT is left. */
  commit?: { xact: string; result: T } | undefined;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
