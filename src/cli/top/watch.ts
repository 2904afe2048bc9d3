/**
 * Keeps looking at a router. What it shows is never older than it says: as soon as a look fails, or takes too long, the
 * last one is stale, and it goes on trying. The events come by a stream of their own, which resumes by itself.
 */

import type { Clock } from '../../clock.js';
import type { RouterApi } from '../api.js';
import { follow, type RouterEvent, search } from '../event-stream.js';
import { toFailure } from '../failure.js';
import type { Sight, Stale } from './frame.js';
import { type Look, look, paceOfEvents } from './look.js';

export interface WatchOptions {
  api: RouterApi;
  clock: Clock;
  intervalMs: number;
  /** Something is new. It comes with every event: who draws, draws when there is time. */
  onChange(what: 'look' | 'failure' | 'event'): void;
}

/** Enough for the pace of the last ten seconds where the router does not tell it. */
const mostEvents = 5000;
const firstEvents = 200;
const recentMs = 10 * 60_000;
const eventsRetryMs = 5000;
/** A look that takes longer than this, beyond the interval, is shown as stale before its deadline. */
const patienceMs = 3000;
/** However large the lists are, the router is busy with us for a fifth of the time at most. */
const restPerWork = 4;

export class Watch {
  readonly #options: WatchOptions;
  readonly #events: RouterEvent[] = [];
  #look: Look | undefined;
  #lookedAt = { monotonicMs: 0, wallMs: 0 };
  #failure: Stale | undefined;
  #heardSinceMs: number | undefined;
  #restMs = 0;
  #wake = new AbortController();

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  /** The first look. One that fails is an error: nothing has been shown yet, and the address may be wrong. */
  async begin(): Promise<void> {
    await this.#once();
  }

  /** Until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#looking(signal), this.#listening(signal)]);
  }

  /** Looks again without waiting for the interval. */
  refresh(): void {
    this.#wake.abort();
  }

  sight(): Sight {
    const { api, clock } = this.#options;
    if (!this.#look) throw new Error('there was no look yet');
    const sinceMs = clock.monotonic() - this.#lookedAt.monotonicMs;
    const routerNowMs = this.#look.nowMs + sinceMs;
    const { pace } = this.#look;
    const heardMs = this.#heardSinceMs === undefined ? 0 : clock.monotonic() - this.#heardSinceMs;
    return {
      url: api.baseUrl,
      look: this.#look,
      pace:
        pace.callsPerSecond === null
          ? { ...paceOfEvents(this.#events, routerNowMs, heardMs), p99Ms: pace.p99Ms }
          : pace,
      events: this.#events,
      stale: this.#stale(sinceMs),
      nowMs: clock.now(),
      routerNowMs,
    };
  }

  #stale(sinceMs: number): Stale | undefined {
    if (this.#failure) return this.#failure;
    // Relative to how long the waits are: with --interval 1m a look is not stale after three seconds.
    if (sinceMs < this.#options.intervalMs * 2 + patienceMs + this.#restMs) return undefined;
    return { sinceMs: this.#lookedAt.wallMs, reason: 'the router takes long to answer' };
  }

  async #once(): Promise<void> {
    const { api, clock } = this.#options;
    const startMs = clock.monotonic();
    this.#look = await look(api, this.#look);
    const endMs = clock.monotonic();
    this.#restMs = Math.max(0, (endMs - startMs) * restPerWork - this.#options.intervalMs);
    this.#lookedAt = { monotonicMs: endMs, wallMs: clock.now() };
    this.#failure = undefined;
  }

  async #looking(signal: AbortSignal): Promise<void> {
    const { clock, intervalMs, onChange } = this.#options;
    while (!signal.aborted) {
      this.#wake = new AbortController();
      await clock.sleep(intervalMs + this.#restMs, AbortSignal.any([signal, this.#wake.signal]));
      if (signal.aborted) return;
      try {
        await this.#once();
        onChange('look');
      } catch (error) {
        const { message } = toFailure(error);
        this.#failure = { sinceMs: this.#failure?.sinceMs ?? this.#lookedAt.wallMs, reason: message };
        onChange('failure');
      }
    }
  }

  /** Without events there is still everything else: whatever keeps them away is tried again later. */
  async #listening(signal: AbortSignal): Promise<void> {
    const { api, clock, onChange } = this.#options;
    while (!signal.aborted) {
      try {
        const last = this.#events.at(-1)?.id;
        const kept = last === undefined ? await search(api, {}, '0-0', firstEvents) : undefined;
        this.#events.push(...(kept ?? []));
        const start = last ?? kept?.at(-1)?.id ?? this.#recently(kept !== undefined);
        this.#heardSinceMs ??= clock.monotonic();
        if (kept?.length) onChange('event');
        await follow(api, clock, {
          since: start,
          signal,
          onEvent: (event) => {
            this.#events.push(event);
            if (this.#events.length > mostEvents) this.#events.splice(0, mostEvents / 10);
            onChange('event');
          },
        });
      } catch {
        await clock.sleep(eventsRetryMs, signal);
      }
    }
  }
  /** A router without a search sends what it keeps when it is asked from before; one with it keeps nothing yet. */
  #recently(hasSearch: boolean): string {
    return hasSearch ? '0-0' : String(Math.max(0, Math.floor((this.#look?.nowMs ?? 0) - recentMs)));
  }
}
