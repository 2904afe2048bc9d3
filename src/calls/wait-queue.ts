/**
 * Calls that wait for a pod. The store keeps the queue and hands over pods (lua/lib/queues.lua); this part serves the callers.
 *
 * - Once a second it runs the step that Redis has no trigger for (lua/serve_waiting.lua), on every replica.
 * - It tells the store about requests that wait on an open connection, every `HOLD_POLL_INTERVAL`, so that their calls keep
 *   their places, and wakes them when their calls have a pod.
 *
 * Failure modes: an event that is missed costs at most one interval. If this replica dies, its calls count as abandoned
 * after three intervals, unless their callers ask another replica: the place in the queue belongs to the call.
 */
import { isDeepStrictEqual } from 'node:util';
import { type Clock, WakeableSleep } from '../clock.js';
import { AppError, isStoreDown } from '../errors.js';
import { SupervisedLoop } from '../loop.js';
import type { Logger } from '../observe/log.js';
import type { EventFeed } from './events.js';
import type { Metrics } from './metrics.js';
import type { Settings } from './settings.js';
import type { WaitingCall } from './store/replies.js';
import type { Page } from './store/store.js';
import type { QueueRules, WaitStore } from './store/wait-store.js';

export interface WaitQueueOptions {
  settings: Settings;
  feed: EventFeed;
  metrics: Metrics;
  clock: Clock;
  log: Logger;
  isPrepared(): boolean;
  onCrash?: ((loop: string) => void) | undefined;
}

const serveEveryMs = 1000;
const maxPerRefresh = 1000;
/** Events after which a call no longer waits. */
const endings = new Set(['call_assigned', 'call_adopted', 'wait_expired', 'wait_abandoned']);

export class WaitQueue {
  readonly #store: WaitStore;
  readonly #options: WaitQueueOptions;
  readonly #waiters = new Map<string, Set<WakeableSleep>>();
  readonly loop: SupervisedLoop;
  #unsubscribe: (() => void) | undefined;
  #refreshAtMs = 0;
  #openRequests = 0;

  constructor(store: WaitStore, options: WaitQueueOptions) {
    this.#store = store;
    this.#options = options;
    this.loop = new SupervisedLoop({
      ...options,
      name: 'wait-queue',
      intervalMs: serveEveryMs,
      runOnce: () => this.#runOnce(),
    });
  }

  /** Requests that wait on an open connection. */
  get openRequests(): number {
    return this.#openRequests;
  }

  /** One page of the waiting calls, in no order. */
  calls(cursor: string, count: number): Promise<Page<WaitingCall>> {
    return this.#store.calls(cursor, count);
  }

  /** Applies changed rules now. */
  nudge(): void {
    this.loop.nudge();
  }

  /**
   * Registers a request that waits. Call it before the store is asked: `next` resolves at the next sign that the call has a
   * pod or no longer waits, after `ms`, or when the signal aborts.
   */
  open(callSid: string): { next(ms: number, signal: AbortSignal): Promise<unknown>; close(): void } {
    const sleep = new WakeableSleep(this.#options.clock);
    const waiters = this.#waiters.get(callSid) ?? new Set();
    this.#waiters.set(callSid, waiters.add(sleep));
    this.#openRequests += 1;
    this.#unsubscribe ??= this.#options.feed.subscribe(
      ({ type, fields }) => {
        if (endings.has(type)) this.#wake(fields.call ?? '');
      },
      () => {
        this.#refreshAtMs = 0;
        this.loop.nudge();
      },
    );
    return {
      next: (ms, signal) => sleep.for(ms, signal),
      close: () => {
        waiters.delete(sleep);
        this.#openRequests -= 1;
        if (waiters.size === 0 && this.#waiters.get(callSid) === waiters) this.#waiters.delete(callSid);
        if (this.#waiters.size > 0) return;
        this.#unsubscribe?.();
        this.#unsubscribe = undefined;
      },
    };
  }

  #wake(callSid: string): void {
    for (const sleep of this.#waiters.get(callSid) ?? []) sleep.wake();
  }

  async #runOnce(): Promise<Record<string, number>> {
    if (!this.#options.isPrepared()) return {};
    try {
      await this.#refresh();
      return await this.#serve();
    } catch (error) {
      // The connection reports it, and the next round tries again.
      if (error instanceof AppError && isStoreDown(error)) return {};
      throw error;
    }
  }

  async #refresh(): Promise<void> {
    const { clock } = this.#options;
    const store = this.#store;
    if (this.#waiters.size === 0 || clock.monotonic() < this.#refreshAtMs) return;
    this.#refreshAtMs = clock.monotonic() + store.pollIntervalMs - serveEveryMs / 2;
    const calls = [...this.#waiters.keys()];
    for (let first = 0; first < calls.length; first += maxPerRefresh) {
      const ended = await store.refresh(calls.slice(first, first + maxPerRefresh));
      for (const callSid of ended) this.#wake(callSid);
    }
  }

  async #serve(): Promise<Record<string, number>> {
    const { settings, metrics } = this.#options;
    const store = this.#store;
    const counts = { waiting: 0, expired: 0, abandoned: 0, recovered: 0 };
    const step = async (changed: readonly QueueRules[]) => {
      const { queues, oldestMs, ...served } = await store.serve(changed);
      counts.waiting = served.waiting;
      for (const name of ['expired', 'abandoned', 'recovered'] as const) counts[name] += served[name];
      metrics.oldestWaitMs = oldestMs;
      return queues;
    };
    const queues = await step([]);
    const differing = () =>
      queues.flatMap((known) => {
        const rules = settings.rulesOfQueue(known.queue);
        return isDeepStrictEqual(rules, known) ? [] : [rules];
      });
    // The copy in memory may be older than the rules that another replica applied.
    if (differing().length > 0) {
      await settings.refreshOrThrow();
      await step(differing());
    }
    metrics.waits.inc({ outcome: 'expired' }, counts.expired);
    metrics.waits.inc({ outcome: 'abandoned' }, counts.abandoned);
    metrics.zombiesRecovered.inc(counts.recovered);
    return counts;
  }
}
