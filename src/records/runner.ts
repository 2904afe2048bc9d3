/**
 * The job loop of one workflow: claims batches ahead of need, runs `concurrency` records at once, hands outcomes to the
 * finisher. A record that is past its timeout is told to stop; a handler that does not listen is left behind after a
 * while, so that it does not keep its slot for ever.
 */
import type { Clock } from '../clock.js';
import { formatDuration } from '../config/durations.js';
import { isInstance, messageOf } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { Breaker } from './breaker.js';
import { type Suspicion, Waiting } from './claim-queue.js';
import { Claimer, ClaimRefused } from './claimer.js';
import type { FinishCounts, Finisher } from './finisher.js';
import { notify } from './listener.js';
import { Notes } from './notes.js';
import type { RecordObserver } from './observer.js';
import { ClaimLost, Running } from './record-run.js';
import { SessionError, type Sessions } from './sessions.js';
import type { StatusGuard } from './status-guard.js';
import type { Claim, RecordStore } from './store.js';
import { cut } from './table.js';
import type { Workflow } from './workflow.js';

export interface RunnerOptions {
  workflow: Workflow;
  store: RecordStore;
  sessions: Sessions;
  finisher: Finisher;
  breaker: Breaker;
  guard: StatusGuard;
  clock: Clock;
  log: Logger;
  observer: RecordObserver;
  /** Longest pause between two looks for work when there was none. */
  pollMs: number;
  worker(): number;
  beAlive(): Promise<void>;
  suspicion: Suspicion;
}

export interface BatchCounts extends FinishCounts {
  claimed: number;
}

/** How often running records are looked after: timeouts, lost claims. */
const lookAfterMs = 500;
/** Between two questions to the database whether claims still hold, and between two looks into the spool. */
const askEveryMs = 5000;
/** A handler that ignores its signal keeps its slot for so long. */
const leaveBehindMs = 5000;
/** And a transaction in which nothing happens, before that. */
const endTransactionMs = 3000;
/** Of a handler's message, in the log. */
const longestReason = 1024;
const triesForSession = 3;
const betweenTriesMs = 1000;

export class WorkflowRunner {
  readonly #options: RunnerOptions;
  readonly #claimer: Claimer;
  readonly #notes: Notes;
  readonly #running = new Set<Running>();
  readonly #leaving = new WeakMap<Running, () => void>();
  readonly #stopping = new AbortController();
  /** Of the loop, and one for each `runOnce` under way. */
  readonly #waiting = new Set<Waiting>();
  readonly #queue: Waiting;
  #refilling: Promise<void> | undefined;
  #pausing: Promise<void> | undefined;
  #wake = new AbortController();
  #slots: Promise<void>[] = [];
  readonly #rounds = new Set<Promise<BatchCounts>>();
  #lookAfter: Promise<void> | undefined;

  constructor(options: RunnerOptions) {
    this.#options = options;
    this.#claimer = new Claimer(options);
    this.#notes = new Notes(options);
    this.#queue = this.#newQueue();
  }

  get name(): string {
    return this.#options.workflow.name;
  }

  start(): void {
    this.#lookAfter ??= this.#lookAfterRunning(this.#stopping.signal);
    this.#slots = Array.from({ length: this.#options.workflow.concurrency }, () => this.#slot());
  }

  /** There may be work: look now. */
  wake(): void {
    this.#wake.abort();
  }

  /** Finishes what runs, gives back what was not begun. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#wake.abort();
    await this.#refilling?.catch(() => {});
    await this.#giveBack([...this.#waiting].flatMap((waiting) => waiting.takeAll()));
    await Promise.all(this.#slots);
    await Promise.allSettled(this.#rounds);
    await this.#options.finisher.idle();
    await this.#lookAfter;
  }

  /** Every claim of this process is void: what runs is told so, what waits is forgotten. */
  loseAll(): void {
    for (const waiting of this.#waiting)
      for (const claim of waiting.takeAll()) this.#options.finisher.reject(claim.id);
    for (const running of this.#running) running.abort(new ClaimLost('this worker was given up'));
  }

  /** One batch, finished on return. */
  runOnce(): Promise<BatchCounts> {
    const round = this.#round().finally(() => this.#rounds.delete(round));
    this.#rounds.add(round);
    return round;
  }

  async #round(): Promise<BatchCounts> {
    const { finisher, workflow } = this.#options;
    const over = new AbortController();
    const lookAfter = this.#lookAfterRunning(over.signal);
    const waiting = this.#newQueue();
    let claimed = 0;
    try {
      if (finisher.owes) await finisher.replay();
      finisher.takeCounts();
      const claims = await this.#claimer.claim();
      claimed = claims.length;
      // Told to stop while they were on their way: they were not begun.
      if (this.#stopping.signal.aborted) await this.#giveBack(claims);
      else waiting.add(claims);
      const slot = async () => {
        for (let claim = await this.#take(waiting); claim; claim = await this.#take(waiting)) {
          await this.#process(claim);
          waiting.done(claim);
        }
      };
      await Promise.all(Array.from({ length: Math.min(workflow.concurrency, claimed) }, slot));
      // Suspects, while another batch or workflow works on one.
      await this.#giveBack(waiting.takeAll());
      await finisher.idle();
    } finally {
      this.#waiting.delete(waiting);
      over.abort();
      await lookAfter;
    }
    return { claimed, ...finisher.takeCounts() };
  }

  #newQueue(): Waiting {
    const { store, clock, suspicion, finisher } = this.#options;
    const waiting = new Waiting({ store, clock, suspicion, onLost: ({ id }) => finisher.reject(id) });
    this.#waiting.add(waiting);
    return waiting;
  }

  /** Three tries; then those that wait have no session to be processed with, and are told apart from failed work. */
  async #take(waiting: Waiting): Promise<Claim | undefined> {
    const { clock, finisher } = this.#options;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await waiting.take();
      } catch {
        if (attempt < triesForSession) await clock.sleep(betweenTriesMs);
        else
          for (const claim of waiting.takeAll()) {
            const outcome = noSession(claim.id, claim.token);
            this.#tell(claim, outcome.error);
            finisher.add(outcome);
          }
      }
    }
  }

  async #slot(): Promise<void> {
    const { signal } = this.#stopping;
    for (;;) {
      const claim = await this.#next(signal);
      if (!claim) return;
      await this.#process(claim);
      this.#queue.done(claim);
      // The next suspect may have waited for this one.
      if (claim.isSuspect) this.wake();
    }
  }

  async #next(signal: AbortSignal): Promise<Claim | undefined> {
    const { workflow, finisher } = this.#options;
    for (;;) {
      if (signal.aborted) return undefined;
      // The next batch is on its way while this one is worked on.
      if (this.#queue.size <= workflow.batchSize / 2 && finisher.backlog <= 4 * workflow.batchSize)
        this.#refilling ??= this.#refill(signal);
      try {
        const claim = await this.#queue.take();
        if (claim) return claim;
      } catch {
        // Whether they still hold can be asked when the database answers again; until then they wait.
        // One pause for all slots: each with its own would hang as many listeners on the one signal.
        this.#pausing ??= this.#pause(signal);
        await this.#pausing;
        continue;
      }
      if (this.#refilling) await this.#refilling;
      else await finisher.idle();
    }
  }

  /** The database did not answer: resolves when it may again. */
  async #pause(signal: AbortSignal): Promise<void> {
    const { breaker, clock } = this.#options;
    breaker.failed();
    await clock.sleep(betweenTriesMs, signal);
    await breaker.ready(signal);
    this.#pausing = undefined;
  }

  /** Resolves when there is something in the queue, or a pause was made because there was nothing. */
  async #refill(signal: AbortSignal): Promise<void> {
    const { breaker, guard, clock, pollMs, log, workflow, finisher } = this.#options;
    try {
      this.#wake = new AbortController();
      await guard.ready(signal);
      await breaker.ready(signal);
      if (signal.aborted) return;
      let found = 0;
      try {
        if (finisher.isBlocked) throw new Error('outcomes of this workflow cannot be written');
        const claims = await this.#claimer.claim();
        found = claims.length;
        if (signal.aborted) await this.#giveBack(claims);
        else this.#queue.add(claims);
      } catch (error) {
        const level = error instanceof ClaimRefused ? 'debug' : 'warn';
        log[level]({ workflow: workflow.name, reason: messageOf(error) }, 'records could not be claimed');
      }
      if (found === 0 && this.#queue.size === 0) {
        const pauseMs = pollMs * (0.9 + 0.2 * clock.random());
        await clock.sleep(pauseMs, AbortSignal.any([signal, this.#wake.signal]));
      }
    } finally {
      this.#refilling = undefined;
    }
  }

  async #giveBack(claims: readonly Claim[]): Promise<void> {
    const { store, sessions, workflow, observer, log, finisher } = this.#options;
    if (claims.length === 0) return;
    try {
      const records = await store.giveBack(claims);
      observer.gaveBack?.(workflow.name, records);
      await notify(sessions, workflow.name);
    } catch (error) {
      log.warn(
        { workflow: workflow.name, records: claims.length, reason: messageOf(error) },
        'records could not be given back: their claims are given up when the database answers',
      );
      finisher.giveUp(claims);
    }
  }

  async #process(claim: Claim): Promise<void> {
    const { workflow, store, sessions, clock, finisher, observer, log } = this.#options;
    const startedMs = clock.monotonic();
    const onTrace = (note: string) => this.#notes.add(claim, note);
    const endMs = startedMs + workflow.timeoutMs + endTransactionMs;
    const endsInMs = () => Math.max(1000, endMs - clock.monotonic());
    const databaseReady = (signal: AbortSignal) => this.#databaseReady(signal);
    const running = new Running(claim, startedMs, { store, sessions, onTrace, endsInMs, databaseReady });
    this.#running.add(running);
    let failure: { error: unknown } | undefined;
    let left = false;
    const fail = (error: unknown) => {
      failure = { error };
      // Nobody waits for it any more.
      if (left) this.#tell(claim, this.#messageOf(running, error));
    };
    try {
      const work: unknown = workflow.process(claim.record, running);
      // A handler that has nothing to wait for is not made to: six promises per record would cost more than the rest.
      if (isThenable(work)) {
        const done = Promise.resolve(work).then(() => false, fail);
        left = (await Promise.race([done, this.#leftBehind(running)])) === true;
      }
    } catch (error) {
      fail(error);
    }
    this.#running.delete(running);
    this.#notes.drop(claim);
    observer.processed?.(workflow.name, (clock.monotonic() - startedMs) / 1000);
    if (left) {
      log.error(
        { workflow: workflow.name, record: claim.id },
        'a handler goes on after its time: it is left behind, and the recovery takes its record',
      );
      return;
    }
    const { id, token } = claim;
    if (failure) this.#tell(claim, this.#messageOf(running, failure.error));
    if (running.stopped instanceof ClaimLost) finisher.reject(id);
    else if (!failure) finisher.add({ id, token, error: null });
    else if (running.hasNoDatabase || (isInstance(failure.error, SessionError) && !running.stopped))
      finisher.add(noSession(id, token));
    else finisher.add({ id, token, error: this.#messageOf(running, failure.error) });
  }

  async #databaseReady(signal: AbortSignal): Promise<boolean> {
    const { breaker, clock } = this.#options;
    const over = AbortSignal.any([signal, this.#stopping.signal]);
    breaker.failed();
    await clock.sleep(betweenTriesMs, over);
    await breaker.ready(over);
    return !over.aborted;
  }

  /** What a handler threw is kept in the error column; where there is none, this line is all that is left of it. */
  #tell(claim: Claim, message: string): void {
    const { log, workflow } = this.#options;
    const level = workflow.error === undefined ? 'warn' : 'debug';
    log[level](
      { workflow: workflow.name, record: claim.id, reason: cut(message, longestReason) },
      'a record failed',
    );
  }

  #messageOf(running: Running, error: unknown): string {
    const message = messageOf(error);
    const stopped = running.stopped?.message;
    return stopped === undefined || message === stopped ? message : `${stopped}: ${message}`;
  }

  /** Resolves, to true, only for a handler that was told to stop and does not. */
  #leftBehind(running: Running): Promise<boolean> {
    return new Promise((resolve) => {
      this.#leaving.set(running, () => resolve(true));
    });
  }

  async #lookAfterRunning(signal: AbortSignal): Promise<void> {
    const { clock, workflow } = this.#options;
    let askedMs = clock.monotonic();
    const isDone = () => signal.aborted && this.#running.size === 0;
    while (!isDone()) {
      // After the signal it goes on until the last record has ended.
      await clock.sleep(lookAfterMs, signal.aborted ? undefined : signal);
      const nowMs = clock.monotonic();
      for (const running of this.#running) {
        const overMs = nowMs - running.startedMs - workflow.timeoutMs;
        if (overMs < 0) continue;
        running.abort(new Error(`Timed out after ${formatDuration(workflow.timeoutMs)}`));
        if (overMs >= leaveBehindMs) this.#leaving.get(running)?.();
      }
      if (nowMs - askedMs < askEveryMs) continue;
      askedMs = nowMs;
      await this.#findLost();
      await this.#catchUp();
    }
  }

  /** Claims that wait are renewed, outcomes that could not be written are tried again. */
  async #catchUp(): Promise<void> {
    const { finisher, breaker, log, workflow } = this.#options;
    try {
      for (const waiting of this.#waiting) await waiting.renewOld();
      if (finisher.owes && !breaker.isOpen) await finisher.replay();
    } catch (error) {
      log.debug({ workflow: workflow.name, reason: messageOf(error) }, 'the database does not answer');
    }
  }

  async #findLost(): Promise<void> {
    const { store, log, workflow } = this.#options;
    const held = new Map(
      [...this.#running].map((running) => [`${running.claim.token} ${running.claim.id}`, running]),
    );
    if (held.size === 0) return;
    try {
      // Only what the database says for certain counts; a question without an answer changes nothing.
      for (const { id, token } of await store.lost([...held.values()].map(({ claim }) => claim)))
        held.get(`${token} ${id}`)?.abort(new ClaimLost('the claim was lost'));
    } catch (error) {
      log.debug({ workflow: workflow.name, reason: messageOf(error) }, 'claims could not be looked at');
    }
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}

const noSession = (id: string, token: string) => ({
  id,
  token,
  error: 'Failed to obtain processing session',
  unprocessed: true,
});
