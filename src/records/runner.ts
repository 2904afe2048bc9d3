/**
 * The job loop of one workflow: claims batches ahead of need, runs `concurrency` records at once, passes outcomes to the
 * finisher. A handler that ignores the abort at its timeout loses its slot 5 s later, and the recovery takes its record.
 */
import { setMaxListeners } from 'node:events';
import { abortWith, type Clock, singleFlight } from '../clock.js';
import { formatDuration } from '../config/durations.js';
import { isInstance, messageOf } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { Breaker } from './breaker.js';
import { ClaimQueue, type SuspectSlot } from './claim-queue.js';
import { Claimer, ClaimRefused } from './claimer.js';
import type { FinishCounts, Finisher } from './finisher.js';
import { notify } from './listener.js';
import type { RecordObserver } from './observer.js';
import { ClaimLost, isThenable, RecordRun, type RecordRunOptions, TraceWriter } from './record-run.js';
import { SessionError } from './sessions.js';
import type { StatusGuard } from './status-guard.js';
import type { Claim, RecordStore } from './store.js';
import { keyOf } from './store-types.js';
import { truncate } from './table.js';
import type { RecordWorker } from './worker.js';
import type { Workflow } from './workflow.js';

export interface RunnerOptions {
  workflow: Workflow;
  store: RecordStore;
  finisher: Finisher;
  breaker: Breaker;
  guard: StatusGuard;
  clock: Clock;
  log: Logger;
  observer: RecordObserver;
  /** Maximum pause between two claims when the queue is empty. */
  pollMs: number;
  worker: Pick<RecordWorker, 'id' | 'beAlive'>;
  suspectSlot: SuspectSlot;
}

export interface BatchCounts extends FinishCounts {
  claimed: number;
}

/** How often running records are checked for their timeout. */
const checkEveryMs = 500;
/** How often claims are verified and the spool is replayed. */
const askEveryMs = 5000;
/** How long a handler that ignores its signal keeps its slot. */
const abandonAfterMs = 5000;
/** How long after the timeout the database ends an idle transaction: before the slot is released. */
const endTransactionMs = 3000;
/** Of a handler's message in the log. */
const maxReasonLength = 1024;
const sessionTries = 3;
const betweenTriesMs = 1000;

export class WorkflowRunner {
  readonly #options: RunnerOptions;
  readonly #claimer: Claimer;
  readonly #traces: TraceWriter;
  readonly #runOptions: RecordRunOptions;
  readonly #running = new Set<RecordRun>();
  readonly #stopping = new AbortController();
  /** The queue of the loop, and one for each `runOnce` in progress. */
  readonly #queues = new Set<ClaimQueue>();
  readonly #queue: ClaimQueue;
  #refilling: Promise<void> | undefined;
  /** One pause for all slots: a pause each would add as many listeners to the one signal. */
  readonly #pauseSlots = singleFlight(() => this.#pause(this.#stopping.signal));
  #wake = new AbortController();
  #slots: Promise<void>[] = [];
  readonly #rounds = new Set<Promise<BatchCounts>>();
  #checking: Promise<void> | undefined;

  constructor(options: RunnerOptions) {
    this.#options = options;
    // Each record that waits for the database listens; Node warns of a leak from 11 on.
    setMaxListeners(0, this.#stopping.signal);
    this.#claimer = new Claimer({ ...options, release: (claims) => this.#release(claims) });
    this.#traces = new TraceWriter(options);
    const { store, clock, workflow } = options;
    this.#runOptions = {
      store,
      onTrace: (claim, note) => this.#traces.add(claim, note),
      endsInMs: (startedMs) =>
        Math.max(1000, startedMs + workflow.timeoutMs + endTransactionMs - clock.monotonic()),
      databaseReady: (signal) => this.#databaseReady(signal),
    };
    this.#queue = this.#newQueue();
  }

  get name(): string {
    return this.#options.workflow.name;
  }

  start(): void {
    this.#checking ??= this.#checkRunning(this.#stopping.signal);
    this.#slots = Array.from({ length: this.#options.workflow.concurrency }, () => this.#slot());
  }

  /** Claims now instead of at the next poll. */
  wake(): void {
    this.#wake.abort();
  }

  /** Finishes running records and releases claims that were not started. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#wake.abort();
    await this.#refilling?.catch(() => {});
    await this.#release([...this.#queues].flatMap((queue) => queue.takeAll()));
    await Promise.all(this.#slots);
    await Promise.allSettled(this.#rounds);
    await this.#options.finisher.idle();
    await this.#checking;
  }

  /** Every claim of this process is void: aborts running records, drops waiting claims. */
  loseAll(): void {
    for (const queue of this.#queues)
      for (const claim of queue.takeAll()) this.#options.finisher.reject([claim.id]);
    for (const run of this.#running) run.abort(new ClaimLost('claim lost: the worker was declared dead'));
  }

  /** Processes one batch, finished on return. */
  runOnce(): Promise<BatchCounts> {
    const round = this.#round().finally(() => this.#rounds.delete(round));
    this.#rounds.add(round);
    return round;
  }

  async #round(): Promise<BatchCounts> {
    const { finisher, workflow } = this.#options;
    const over = new AbortController();
    const checking = this.#checkRunning(over.signal);
    const queue = this.#newQueue();
    let claimed = 0;
    try {
      if (finisher.owes) await finisher.replay();
      finisher.takeCounts();
      const claims = await this.#claimer.claim();
      claimed = claims.length;
      if (this.#stopping.signal.aborted) await this.#release(claims);
      else queue.add(claims);
      const slot = async () => {
        for (let claim = await this.#take(queue); claim; claim = await this.#take(queue)) {
          await this.#process(claim);
          queue.done(claim);
        }
      };
      await Promise.all(Array.from({ length: Math.min(workflow.concurrency, claimed) }, slot));
      // Suspects, while another batch or workflow runs one.
      await this.#release(queue.takeAll());
      await finisher.idle();
    } finally {
      this.#queues.delete(queue);
      over.abort();
      await checking;
    }
    return { claimed, ...finisher.takeCounts() };
  }

  #newQueue(): ClaimQueue {
    const { store, clock, suspectSlot, finisher } = this.#options;
    const queue = new ClaimQueue({ store, clock, suspectSlot, onLost: ({ id }) => finisher.reject([id]) });
    this.#queues.add(queue);
    return queue;
  }

  /** After three tries the waiting claims end without a session: distinct from failed work. */
  async #take(queue: ClaimQueue): Promise<Claim | undefined> {
    const { clock, finisher } = this.#options;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await queue.take();
      } catch {
        if (attempt < sessionTries) await clock.sleep(betweenTriesMs);
        else
          for (const claim of queue.takeAll()) {
            const outcome = withoutSession(claim.id, claim.token);
            this.#logFailure(claim, outcome.error);
            finisher.add(outcome);
          }
      }
    }
  }

  async #slot(): Promise<void> {
    const { signal } = this.#stopping;
    const { workflow, finisher } = this.#options;
    while (!signal.aborted) {
      // Claims the next batch while this one is processed.
      if (this.#queue.size <= this.#claimer.batchSize / 2 && finisher.backlog <= 4 * workflow.batchSize)
        this.#refilling ??= this.#refill(signal);
      const claim = this.#queue.takeFresh() ?? (await this.#next());
      if (!claim) continue;
      const running = this.#process(claim);
      if (running) await running;
      this.#queue.done(claim);
      // The next suspect may have waited for this one.
      if (claim.isSuspect) this.wake();
    }
  }

  /** Resolves to undefined when the queue may have changed. */
  async #next(): Promise<Claim | undefined> {
    try {
      const claim = await this.#queue.take();
      if (claim) return claim;
    } catch {
      // Claims wait until the database can confirm them.
      await this.#pauseSlots();
      return undefined;
    }
    await (this.#refilling ?? this.#options.finisher.idle());
    return undefined;
  }

  /** After a failed session: resolves when the database may answer again, or the signal aborts. */
  async #pause(signal: AbortSignal): Promise<void> {
    const { breaker, clock } = this.#options;
    breaker.failed();
    await clock.sleep(betweenTriesMs, signal);
    await breaker.ready(signal);
  }

  /** Resolves when the queue has claims, or after a pause if there were none. */
  async #refill(signal: AbortSignal): Promise<void> {
    const { breaker, guard, clock, pollMs, log, workflow, finisher } = this.#options;
    try {
      this.#wake = new AbortController();
      await guard.ready(signal);
      await breaker.ready(signal);
      if (signal.aborted) return;
      let found = 0;
      try {
        const claims = await this.#claimer.claim(finisher.block.maxClaims());
        found = claims.length;
        finisher.block.claimed(found);
        if (signal.aborted) await this.#release(claims);
        else this.#queue.add(claims);
      } catch (error) {
        const level = error instanceof ClaimRefused ? 'debug' : 'warn';
        log[level]({ workflow: workflow.name, reason: messageOf(error) }, 'claim failed');
      }
      if (found === 0 && this.#queue.size === 0) {
        const pauseMs = pollMs * (0.9 + 0.2 * clock.random());
        await clock.sleep(pauseMs, this.#wake.signal);
      }
    } finally {
      this.#refilling = undefined;
    }
  }

  async #release(claims: readonly Claim[]): Promise<void> {
    const { store, workflow, observer, log, finisher } = this.#options;
    if (claims.length === 0) return;
    try {
      const records = await store.release(claims);
      observer.released?.(workflow.name, records);
      await notify(store.sessions, workflow.name);
    } catch (error) {
      log.warn(
        { workflow: workflow.name, records: claims.length, reason: messageOf(error) },
        'claims not released; retrying when the database answers',
      );
      finisher.giveUp(claims);
    }
  }

  /** A synchronous handler is not awaited: the promises of a record would cost more than the rest. */
  #process(claim: Claim): Promise<void> | undefined {
    const { workflow, clock } = this.#options;
    const run = new RecordRun(claim, clock.monotonic(), this.#runOptions);
    try {
      const work: unknown = workflow.process(claim.record, run);
      if (isThenable(work)) return this.#await(run, work);
    } catch (error) {
      run.fail(error);
    }
    this.#finish(run);
    return undefined;
  }

  async #await(run: RecordRun, work: PromiseLike<unknown>): Promise<void> {
    const { workflow, log } = this.#options;
    this.#running.add(run);
    let isAbandoned = false;
    const fail = (error: unknown) => {
      const { message } = run.fail(error);
      // The slot was released before: log it here.
      if (isAbandoned) this.#logFailure(run.claim, message);
    };
    try {
      const done = Promise.resolve(work).then(() => false, fail);
      const abandoned = new Promise<true>((resolve) => {
        run.abandon = () => resolve(true);
      });
      isAbandoned = (await Promise.race([done, abandoned])) === true;
    } catch (error) {
      fail(error);
    }
    this.#running.delete(run);
    if (!isAbandoned) return this.#finish(run);
    this.#end(run);
    log.error(
      { workflow: workflow.name, record: run.claim.id },
      'handler ignored its timeout; slot released',
    );
  }

  #end(run: RecordRun): void {
    const { workflow, clock, observer } = this.#options;
    this.#traces.drop(run.claim);
    observer.processed?.(workflow.name, (clock.monotonic() - run.startedMs) / 1000);
  }

  #finish(run: RecordRun): void {
    const { finisher } = this.#options;
    const { claim, failure } = run;
    const { id, token } = claim;
    this.#end(run);
    if (failure) this.#logFailure(claim, failure.message);
    if (run.stopped instanceof ClaimLost) finisher.reject([id]);
    else if (!failure) finisher.add({ id, token, error: null });
    else if (run.hasNoDatabase || (isInstance(failure.error, SessionError) && !run.stopped))
      finisher.add(withoutSession(id, token));
    else finisher.add({ id, token, error: failure.message });
  }

  async #databaseReady(signal: AbortSignal): Promise<boolean> {
    const over = new AbortController();
    const unlink = [signal, this.#stopping.signal].map((either) => abortWith(over, either));
    await this.#pause(over.signal);
    for (const end of unlink) end();
    return !over.signal.aborted;
  }

  /** The message goes to the error column; without one, this line is the only place that has it. */
  #logFailure(claim: Claim, message: string): void {
    const { log, workflow } = this.#options;
    const level = workflow.error === undefined ? 'warn' : 'debug';
    const reason = truncate(message, maxReasonLength);
    log[level]({ workflow: workflow.name, record: claim.id, reason }, 'record failed');
  }

  async #checkRunning(signal: AbortSignal): Promise<void> {
    const { clock, workflow } = this.#options;
    let askedMs = clock.monotonic();
    const isDone = () => signal.aborted && this.#running.size === 0;
    while (!isDone()) {
      // After the signal it continues until the last record has ended.
      await clock.sleep(checkEveryMs, signal.aborted ? undefined : signal);
      const nowMs = clock.monotonic();
      for (const run of this.#running) {
        const overMs = nowMs - run.startedMs - workflow.timeoutMs;
        if (overMs < 0) continue;
        run.abort(new Error(`Timed out after ${formatDuration(workflow.timeoutMs)}`));
        if (overMs >= abandonAfterMs) run.abandon();
      }
      if (nowMs - askedMs < askEveryMs) continue;
      askedMs = nowMs;
      await this.#abortLost();
      await this.#catchUp();
    }
  }

  /** Renews waiting claims, and retries outcomes that could not be written. */
  async #catchUp(): Promise<void> {
    const { finisher, breaker, log, workflow } = this.#options;
    try {
      for (const queue of this.#queues) await queue.renewOld();
      if (finisher.owes && !breaker.isOpen) await finisher.replay();
    } catch (error) {
      log.debug({ workflow: workflow.name, reason: messageOf(error) }, 'renewal or replay failed');
    }
  }

  async #abortLost(): Promise<void> {
    const { store, log, workflow } = this.#options;
    const runs = new Map([...this.#running].map((run) => [keyOf(run.claim), run]));
    if (runs.size === 0) return;
    try {
      // Only a reply of the database counts; without one, nothing changes.
      for (const claim of await store.lost([...runs.values()].map((run) => run.claim)))
        runs.get(keyOf(claim))?.abort(new ClaimLost('claim lost'));
    } catch (error) {
      log.debug({ workflow: workflow.name, reason: messageOf(error) }, 'claims not verified');
    }
  }
}

const withoutSession = (id: string, token: string) => ({
  id,
  token,
  error: 'Failed to obtain processing session',
  unprocessed: true,
});
