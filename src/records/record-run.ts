/** One record while its handler runs: the handler's context, its transactions, and how it is stopped. */
import type { PoolClient } from 'pg';
import { type Clock, unlessAborted } from '../clock.js';
import { isInstance, messageOf, messageWithCauseOf, plainText } from '../errors.js';
import type { Logger } from '../observe/log.js';
import { isConflict, SessionError } from './sessions.js';
import type { Claim, RecordStore } from './store.js';
import { resetSession, transactionClient } from './transaction-client.js';
import type { RecordContext, Workflow } from './workflow.js';

export class ClaimLost extends Error {
  override readonly name = 'ClaimLost';
}

const maxNoteLength = 1000;
/** Sessions that may break under one `ctx.tx` before it fails. */
const maxBrokenSessions = 5;

/** Shared by all runs of a workflow. */
export interface RecordRunOptions {
  store: RecordStore;
  onTrace(claim: Claim, note: string): void;
  /** Milliseconds until the database ends an idle transaction of a run that started at `startedMs`. */
  endsInMs(startedMs: number): number;
  /** After a failed session: resolves to true when the database may answer, to false if the signal aborts first. */
  databaseReady(signal: AbortSignal): Promise<boolean>;
}

/** What a handler has thrown. */
interface Failure {
  error: unknown;
  message: string;
}

const ignore = () => {};

export class RecordRun implements RecordContext {
  readonly claim: Claim;
  readonly startedMs: number;
  readonly #options: RecordRunOptions;
  /** Created on first use: most handlers end before anything could stop them. */
  #controller: AbortController | undefined;
  #reason: Error | undefined;
  #hasNoDatabase = false;
  failure: Failure | undefined;
  /** Releases the slot of a handler that ignores its signal. */
  abandon = ignore;

  constructor(claim: Claim, startedMs: number, options: RecordRunOptions) {
    this.claim = claim;
    this.startedMs = startedMs;
    this.#options = options;
  }

  /** The record timed out, or the loop stopped, before the database could take its transaction. */
  get hasNoDatabase(): boolean {
    return this.#hasNoDatabase;
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#reason) this.#controller.abort(this.#reason);
    return this.#controller.signal;
  }

  /** Why the handler was stopped, if it was. */
  get stopped(): Error | undefined {
    return this.#reason;
  }

  /** If the handler was aborted, the message begins with the reason of the abort. */
  fail(error: unknown): Failure {
    const message = messageWithCauseOf(error);
    const stopped = this.#reason?.message;
    const isOwn = stopped === undefined || message === stopped;
    this.failure = { error, message: isOwn ? message : `${stopped}: ${message}` };
    return this.failure;
  }

  abort(reason: Error): void {
    if (this.#reason) return;
    this.#reason = reason;
    this.#controller?.abort(reason);
  }

  // Getters, so that a handler may destructure the context; unused ones cost nothing.
  get trace(): RecordContext['trace'] {
    return (note) =>
      this.#options.onTrace(
        this.claim,
        typeof note === 'string' ? plainText(note.slice(0, maxNoteLength)) : messageOf(note),
      );
  }

  get tx(): RecordContext['tx'] {
    return (work) => this.#tx(work);
  }

  /**
   * Runs a transaction again, until the claim times out, if the database could not take it: a restart of the database
   * loses no finished work.
   *
   * If the reply to COMMIT is lost, the transaction may have been applied, and running it again would apply it twice. So
   * the last check of the claim also reads the transaction id, and `pg_xact_status` decides: PostgreSQL keeps it across
   * restarts and crashes. While it is "in progress" (the old session never got the COMMIT, or waits in it), we wait; it
   * ends with the claim's time at the latest, because `hold` limits it. Limit: after a failover to a replica that lost
   * the transaction, its id may belong to another one.
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
        // A transaction that breaks its own session repeatedly is not the database's fault.
        if (running && !commit) broken += 1;
        if (broken >= maxBrokenSessions) throw error;
        // The callback that lost its session may still be running: never two at once.
        if (running)
          await unlessAborted(
            running.catch(() => {}),
            this.signal,
          );
        await this.#untilReady(error);
        if (commit && (await this.#isApplied(commit.xact, error))) return commit.result;
      }
    }
  }

  async #untilReady(error: unknown): Promise<void> {
    if (await this.#options.databaseReady(this.signal)) return;
    this.#hasNoDatabase = true;
    throw error;
  }

  async #isApplied(xact: string, error: unknown): Promise<boolean> {
    for (;;) {
      try {
        const isCommitted = await this.#options.store.isCommitted(xact);
        if (isCommitted !== undefined) return isCommitted;
      } catch (failure) {
        // An id that this server has not reached: a replica that lost the transaction.
        if (!isInstance(failure, SessionError)) return false;
      }
      await this.#untilReady(error);
    }
  }

  #attempt<T>(work: (client: PoolClient) => Promise<T>, attempt: Attempt<T>): Promise<T> {
    const { sessions } = this.#options.store;
    return sessions.transaction(async (client) => {
      attempt.commit = undefined;
      if (this.#reason) throw this.#reason;
      // Locks the claim before the row, as every statement does: the other order could deadlock. The lock keeps the
      // recovery out until the end; a reset by an operator is noticed by the last check.
      await this.#assertHeld(client, false);
      let conflict: unknown;
      let isOver = false;
      const guarded = transactionClient(client, {
        isOver: () => isOver,
        onState: () => sessions.spoil(client),
        onError: (error) => {
          if (isConflict(error)) conflict = error;
        },
      });
      try {
        attempt.running = Promise.resolve(work(guarded));
        const result = await attempt.running;
        // Before the check: the role that the handler has set may lack the right to read the claim.
        if (sessions.isSpoiled(client)) await sessions.queryOn(client, resetSession);
        attempt.commit = { xact: await this.#assertHeld(client, true), result };
        return result;
      } catch (error) {
        // Even if the handler caught the conflict, the transaction must run again.
        throw conflict ?? error;
      } finally {
        isOver = true;
      }
    });
  }

  async #assertHeld(client: PoolClient, isLast: boolean): Promise<string> {
    const { store, endsInMs } = this.#options;
    const xact = await store.hold(client, this.claim, endsInMs(this.startedMs), isLast);
    if (xact !== undefined) return xact;
    const lost = new ClaimLost('claim lost: the transaction was rolled back');
    this.abort(lost);
    throw lost;
  }
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}

/** One run of a transaction. */
interface Attempt<T> {
  /** The handler's callback, once it has started. */
  running?: Promise<T>;
  /** Set when only the COMMIT is left. */
  commit?: { xact: string; result: T } | undefined;
}

const gatherMs = 20;

/**
 * Stores the notes of handlers with their claims, within milliseconds, so that a record that kills its process is found
 * with its last note. Notes that arrive during a write go together; notes of finished records are dropped.
 */
export class TraceWriter {
  readonly #options: { store: RecordStore; workflow: Workflow; clock: Clock; log: Logger };
  readonly #notes = new Map<Claim, string>();
  #isWriting = false;

  constructor(options: { store: RecordStore; workflow: Workflow; clock: Clock; log: Logger }) {
    this.#options = options;
  }

  add(claim: Claim, note: string): void {
    this.#notes.set(claim, note);
    if (this.#isWriting) return;
    this.#isWriting = true;
    this.#options.clock.after(gatherMs, () => void this.#write(), { unref: true });
  }

  drop(claim: Claim): void {
    this.#notes.delete(claim);
  }

  async #write(): Promise<void> {
    const { store, log, workflow } = this.#options;
    while (this.#notes.size > 0) {
      const notes = [...this.#notes].map(([{ id, token }, note]) => ({ id, token, note }));
      this.#notes.clear();
      await store.trace(notes).catch((error: unknown) => {
        log.debug({ workflow: workflow.name, reason: messageOf(error) }, 'trace not stored');
      });
    }
    this.#isWriting = false;
  }
}
