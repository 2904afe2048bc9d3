/** One record while it is processed: what its handler sees, and how it is told to stop. */
import type { PoolClient } from 'pg';
import { messageOf, plainText } from '../errors.js';
import { LentClient, resetSession } from './lent-client.js';
import { isConflict, type Sessions } from './sessions.js';
import type { Claim, RecordStore } from './store.js';
import type { RecordContext } from './workflow.js';

export class ClaimLost extends Error {
  override readonly name = 'ClaimLost';
}

const longestNote = 1000;

export class Running implements RecordContext {
  readonly claim: Claim;
  readonly startedMs: number;
  readonly #store: RecordStore;
  readonly #sessions: Sessions;
  readonly #onTrace: (note: string) => void;
  readonly #endsInMs: () => number;
  /** Made when somebody looks: most handlers are done before anything could happen to them. */
  #controller: AbortController | undefined;
  #reason: Error | undefined;

  constructor(
    claim: Claim,
    startedMs: number,
    parts: { store: RecordStore; sessions: Sessions; onTrace(note: string): void; endsInMs(): number },
  ) {
    this.claim = claim;
    this.startedMs = startedMs;
    this.#store = parts.store;
    this.#sessions = parts.sessions;
    this.#onTrace = parts.onTrace;
    this.#endsInMs = parts.endsInMs;
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
      this.#onTrace(typeof note === 'string' ? plainText(note.slice(0, longestNote)) : messageOf(note));
  }

  get tx(): RecordContext['tx'] {
    return (work) => this.#tx(work);
  }

  async #tx<T>(work: (client: PoolClient) => Promise<T>): Promise<T> {
    const sessions = this.#sessions;
    return sessions.transaction(async (client) => {
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
        const result = await work(lent.client);
        // First, because the role that the handler has taken may not be allowed to look at the claim.
        if (sessions.isSpoiled(client)) await sessions.queryOn(client, resetSession, []);
        await this.#assertHeld(client, true);
        return result;
      } catch (error) {
        // Whatever the handler made of it: the transaction runs again.
        throw conflict ?? error;
      } finally {
        lent.end();
      }
    });
  }

  async #assertHeld(client: PoolClient, last: boolean): Promise<void> {
    if (await this.#store.hold(client, this.claim, this.#endsInMs(), last)) return;
    const lost = new ClaimLost('the claim was lost: nothing of this transaction is kept');
    this.abort(lost);
    throw lost;
  }
}
