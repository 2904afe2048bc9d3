/** What is known of the record plane at this moment, without asking the database: for `/status` and the gauges. */
import type { Clock } from '../clock.js';
import type { RecordGauges } from '../records/metrics.js';
import type { RecordObserver } from '../records/observer.js';

/** The sweeps tell every 20 s (or every minute, if they only look): what is older was told by a database that is gone. */
const staleAfterMs = 150_000;
const timesKept = 1000;
/** A hundredth of fewer is nobody. */
const timesNeeded = 100;

export class RecordsPulse {
  readonly #clock: Clock;
  readonly #stuck = new Map<string, { records: number; oldestSeconds: number; atMs: number }>();
  /** The latest of each workflow; the oldest is overwritten. */
  readonly #times = new Map<string, { seconds: number[]; next: number }>();
  #answers = false;
  #isPaused = false;
  #isBraked = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The last word of the database itself. */
  answered(answers: boolean): void {
    this.#answers = answers;
  }

  gauges(): RecordGauges {
    const isUp = this.#answers && !this.#isPaused;
    const sinceMs = this.#clock.monotonic() - staleAfterMs;
    const fresh = [...this.#stuck].filter(([, { atMs }]) => atMs >= sinceMs);
    return {
      isUp,
      isPaused: this.#isPaused,
      isBraked: this.#isBraked,
      stuck: isUp ? new Map(fresh) : undefined,
    };
  }

  p99(workflow: string): number | null {
    const { seconds = [] } = this.#times.get(workflow) ?? {};
    if (seconds.length < timesNeeded) return null;
    const sorted = [...seconds].sort((a, b) => a - b);
    return sorted[Math.ceil(0.99 * sorted.length) - 1] ?? null;
  }

  readonly observer: RecordObserver = {
    session: (outcome) => {
      this.#answers = outcome === 'ok';
    },
    breaker: (isOpen) => {
      this.#isPaused = isOpen;
    },
    brake: (isHolding) => {
      this.#isBraked = isHolding;
    },
    stuck: (workflow, records, oldestSeconds) => {
      this.#stuck.set(workflow, { records, oldestSeconds, atMs: this.#clock.monotonic() });
    },
    processed: (workflow, seconds) => {
      const times = this.#times.get(workflow) ?? { seconds: [], next: 0 };
      times.seconds[times.next] = seconds;
      times.next = (times.next + 1) % timesKept;
      this.#times.set(workflow, times);
    },
  };
}

type Events = Required<RecordObserver>;

export const eventNames = [
  ...([
    'claimed',
    'finished',
    'rejected',
    'gaveBack',
    'recovered',
    'session',
    'spooled',
    'replayed',
  ] as const),
  ...(['zombie', 'breaker', 'stuck', 'brake', 'processed'] as const),
] satisfies readonly (keyof Events)[];

/** An observer that hands every event to `hear`, by name. */
export function eventsTo(hear: (name: keyof Events, args: unknown[]) => void): Events {
  const entries = eventNames.map((name) => [name, (...args: unknown[]) => hear(name, args)]);
  return Object.fromEntries(entries) as Events;
}

/** One observer that tells all of them. */
export function tellAll(observers: readonly RecordObserver[]): RecordObserver {
  return eventsTo((name, args) => {
    for (const observer of observers)
      (observer[name] as ((...all: unknown[]) => void) | undefined)?.(...args);
  });
}
