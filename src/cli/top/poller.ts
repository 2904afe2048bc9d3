/**
 * Reads a router again and again. A snapshot is stale as soon as a read fails or takes too long; reads are then retried.
 * Events come from a stream that resumes after a disconnect.
 */
import type { Clock } from '../../clock.js';
import type { RouterApi } from '../api.js';
import { follow, searchEvents } from '../event-stream.js';
import { toFailure } from '../failure.js';
import type { RouterEvent } from '../replies.js';
import { readSnapshot, type Snapshot, type Stale, type TopState } from './snapshot.js';

interface PollerOptions {
  api: RouterApi;
  clock: Clock;
  intervalMs: number;
  /** Called for every event too: the receiver limits how often it draws. */
  onChange(what: 'snapshot' | 'failure' | 'event'): void;
}

const maxEvents = 5000;
const firstEvents = 200;
const eventsRetryMs = 5000;
/** A read that takes this much longer than the interval is stale before its deadline. */
const staleAfterMs = 3000;
/** With large lists, the router spends at most a fifth of the time on us. */
const restPerWork = 4;

export class Poller {
  readonly #events: RouterEvent[] = [];
  #snapshot: Snapshot | undefined;
  #readAt = { monotonicMs: 0, wallMs: 0 };
  #failure: Stale | undefined;
  #restMs = 0;
  #wake = new AbortController();

  constructor(private readonly options: PollerOptions) {}

  /** The first read. Its failure is an error: the address may be wrong. */
  async start(): Promise<void> {
    await this.#read();
  }

  /** Runs until `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#pollSnapshots(signal), this.#followEvents(signal)]);
  }

  /** Reads again without waiting for the interval. */
  refresh(): void {
    this.#wake.abort();
  }

  state(): TopState {
    const { api, clock } = this.options;
    if (!this.#snapshot) throw new Error('start() has not finished');
    const ageMs = clock.monotonic() - this.#readAt.monotonicMs;
    return {
      url: api.baseUrl,
      snapshot: this.#snapshot,
      events: this.#events,
      stale: this.#stale(ageMs),
      nowMs: clock.now(),
      routerNowMs: this.#snapshot.nowMs + ageMs,
    };
  }

  #stale(ageMs: number): Stale | undefined {
    if (this.#failure) return this.#failure;
    // Depends on the interval: with --interval 1m a snapshot of three seconds is not stale.
    if (ageMs < this.options.intervalMs * 2 + staleAfterMs + this.#restMs) return undefined;
    return { sinceMs: this.#readAt.wallMs, reason: 'the router is slow to answer' };
  }

  async #read(): Promise<void> {
    const { api, clock, intervalMs } = this.options;
    const startMs = clock.monotonic();
    this.#snapshot = await readSnapshot(api, this.#snapshot);
    const endMs = clock.monotonic();
    this.#restMs = Math.max(0, (endMs - startMs) * restPerWork - intervalMs);
    this.#readAt = { monotonicMs: endMs, wallMs: clock.now() };
    this.#failure = undefined;
  }

  async #pollSnapshots(signal: AbortSignal): Promise<void> {
    const { clock, intervalMs, onChange } = this.options;
    signal.addEventListener('abort', () => this.#wake.abort(), { once: true });
    while (!signal.aborted) {
      this.#wake = new AbortController();
      await clock.sleep(intervalMs + this.#restMs, this.#wake.signal);
      if (signal.aborted) return;
      try {
        await this.#read();
        onChange('snapshot');
      } catch (error) {
        const { message } = toFailure(error);
        this.#failure = { sinceMs: this.#failure?.sinceMs ?? this.#readAt.wallMs, reason: message };
        onChange('failure');
      }
    }
  }

  /** Events are additional: failures are retried and not shown. */
  async #followEvents(signal: AbortSignal): Promise<void> {
    const { api, clock, onChange } = this.options;
    while (!signal.aborted) {
      try {
        if (this.#events.length === 0) {
          this.#events.push(...(await searchEvents(api, {}, { since: '0-0', limit: firstEvents })));
          onChange('event');
        }
        await follow(api, clock, {
          since: this.#events.at(-1)?.id ?? '0-0',
          signal,
          onEvent: (event) => {
            this.#events.push(event);
            if (this.#events.length > maxEvents) this.#events.splice(0, maxEvents / 10);
            onChange('event');
          },
        });
      } catch {
        await clock.sleep(eventsRetryMs, signal);
      }
    }
  }
}
