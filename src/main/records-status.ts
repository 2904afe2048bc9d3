/** The state of the record plane, from its events, without a query: for `/status` and the gauges. */
import type { Clock } from '../clock.js';
import type { RecordGauges } from '../records/metrics.js';
import type { RecordObserver } from '../records/observer.js';
import type { Waiting } from '../records/store-types.js';

/** The sweeps report every 20 s (without clean-up every minute): older counts come from a database that stopped answering. */
const staleAfterMs = 150_000;
const maxDurations = 1000;
/** A p99 needs at least 100 samples. */
const minDurations = 100;

export class RecordsStatusTracker {
  readonly #waiting = new Map<string, Waiting>();
  readonly #stuck = new Map<string, { records: number; oldestSeconds: number; atMs: number }>();
  /** The latest durations of each workflow; the oldest is overwritten. */
  readonly #durations = new Map<string, { seconds: number[]; next: number }>();
  /** Whether the last session worked. */
  #isAnswering = false;
  #isPaused = false;
  #isBraked = false;

  constructor(private readonly clock: Clock) {}

  answered(isAnswering: boolean): void {
    this.#isAnswering = isAnswering;
  }

  gauges(): RecordGauges {
    const isUp = this.#isAnswering && !this.#isPaused;
    const sinceMs = this.clock.monotonic() - staleAfterMs;
    const fresh = [...this.#stuck].filter(([, { atMs }]) => atMs >= sinceMs);
    return {
      isUp,
      isPaused: this.#isPaused,
      isBraked: this.#isBraked,
      stuck: isUp ? new Map(fresh) : undefined,
      waiting: isUp ? new Map(this.#waiting) : undefined,
    };
  }

  p99(workflow: string): number | null {
    const { seconds = [] } = this.#durations.get(workflow) ?? {};
    if (seconds.length < minDurations) return null;
    const sorted = [...seconds].sort((a, b) => a - b);
    return sorted[Math.ceil(0.99 * sorted.length) - 1] ?? null;
  }

  readonly observer: RecordObserver = {
    session: (outcome) => this.answered(outcome === 'ok'),
    breaker: (isOpen) => {
      this.#isPaused = isOpen;
    },
    massStall: (isHolding) => {
      this.#isBraked = isHolding;
    },
    waiting: (workflow, waiting) => void this.#waiting.set(workflow, waiting),
    stuck: (workflow, records, oldestSeconds) => {
      this.#stuck.set(workflow, { records, oldestSeconds, atMs: this.clock.monotonic() });
    },
    processed: (workflow, seconds) => {
      const durations = this.#durations.get(workflow) ?? { seconds: [], next: 0 };
      durations.seconds[durations.next] = seconds;
      durations.next = (durations.next + 1) % maxDurations;
      this.#durations.set(workflow, durations);
    },
  };
}
