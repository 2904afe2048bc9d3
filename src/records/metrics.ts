/**
 * Prometheus metrics of the record plane. Counters and the histogram belong to this process. The gauges of stuck records
 * come from the database: the same on every replica, absent (not 0) while it does not answer. A router without records
 * has no gauges.
 */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { RecordObserver } from './observer.js';

/** The state at a scrape. */
export interface RecordGauges {
  isUp: boolean;
  isPaused: boolean;
  isBraked: boolean;
  /** Undefined: the database does not answer, or was not queried yet. */
  stuck: ReadonlyMap<string, { records: number; oldestSeconds: number }> | undefined;
}

/** A page takes parts of a second, a large sitemap minutes. */
const seconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];

export class RecordMetrics {
  readonly #registry: Registry;
  readonly #claimed: Counter<'workflow'>;
  readonly #finished: Counter<'workflow' | 'outcome'>;
  readonly #late: Counter<'workflow'>;
  readonly #released: Counter<'workflow'>;
  readonly #resets: Counter<'workflow' | 'reason' | 'outcome'>;
  readonly #attempts: Counter;
  readonly #failures: Counter;
  readonly #zombies: Counter<'workflow'>;
  readonly #spooled: Counter<'workflow'>;
  readonly #replayed: Counter<'workflow'>;
  readonly #processing: Histogram<'workflow'>;
  readonly #up: Gauge;
  readonly #breaker: Gauge;
  readonly #massStall: Gauge;
  readonly #stuck: Gauge<'workflow'>;
  readonly #oldest: Gauge<'workflow'>;

  constructor(registry: Registry) {
    this.#registry = registry;
    this.#claimed = this.#counter('claimed_total', 'Records claimed', ['workflow']);
    this.#finished = this.#counter('finished_total', 'Records finished by outcome (completed, failed)', [
      'workflow',
      'outcome',
    ]);
    this.#late = this.#counter('late_finishes_total', 'Finishes rejected because the claim was lost', [
      'workflow',
    ]);
    this.#released = this.#counter(
      'given_back_total',
      'Records claimed and released before their handler started',
      ['workflow'],
    );
    this.#resets = this.#counter('resets_total', 'Stuck records by reason and outcome', [
      'workflow',
      'reason',
      'outcome',
    ]);
    this.#attempts = this.#counter('session_attempts_total', 'Database sessions requested', []);
    this.#failures = this.#counter(
      'session_failures_total',
      'Database sessions that were not obtained, or broke',
      [],
    );
    this.#zombies = this.#counter(
      'zombie_alerts_total',
      'Records left in Processing because their failure could not be written',
      ['workflow'],
    );
    this.#spooled = this.#counter(
      'spooled_total',
      'Outcomes stored in the spool while the database was unreachable',
      ['workflow'],
    );
    this.#replayed = this.#counter('replayed_total', 'Outcomes written from the spool', ['workflow']);
    this.#processing = new Histogram({
      name: 'smart_router_records_processing_seconds',
      help: 'Time to process one record',
      labelNames: ['workflow'],
      buckets: seconds,
      registers: [registry],
    });
    this.#up = this.#gauge('database_up', '1 while the database gives sessions', []);
    this.#breaker = this.#gauge('breaker_open', '1 while claiming is paused because sessions fail', []);
    this.#massStall = this.#gauge(
      'brake_holding',
      '1 while the fast sweep waits because most workers missed their heartbeats at once',
      [],
    );
    this.#stuck = this.#gauge('stuck', 'Stuck records', ['workflow']);
    this.#oldest = this.#gauge('oldest_stuck_seconds', 'Age of the oldest stuck record', ['workflow']);
    this.render(undefined);
  }

  /** Creates the series at 0, so that the first event is an increase. */
  expect(workflows: readonly string[]): void {
    for (const workflow of workflows) {
      for (const counter of [
        this.#claimed,
        this.#late,
        this.#released,
        this.#zombies,
        this.#spooled,
        this.#replayed,
      ])
        counter.inc({ workflow }, 0);
      for (const outcome of ['completed', 'failed']) this.#finished.inc({ workflow, outcome }, 0);
      for (const reason of ['dead_worker', 'timed_out', 'given_up', 'unclaimed', 'by_hand'])
        for (const outcome of ['requeued', 'failed', 'held'])
          this.#resets.inc({ workflow, reason, outcome }, 0);
    }
  }

  /** Called before every scrape; undefined: this router has no records. */
  render(gauges: RecordGauges | undefined): void {
    for (const gauge of [this.#up, this.#breaker, this.#massStall]) gauge.remove();
    for (const gauge of [this.#stuck, this.#oldest]) gauge.reset();
    if (!gauges) return;
    this.#up.set(gauges.isUp ? 1 : 0);
    this.#breaker.set(gauges.isPaused ? 1 : 0);
    this.#massStall.set(gauges.isBraked ? 1 : 0);
    for (const [workflow, { records, oldestSeconds }] of gauges.stuck ?? []) {
      this.#stuck.set({ workflow }, records);
      this.#oldest.set({ workflow }, oldestSeconds);
    }
  }

  readonly observer: RecordObserver = {
    claimed: (workflow, records) => this.#claimed.inc({ workflow }, records),
    finished: (workflow, outcome, records) => this.#finished.inc({ workflow, outcome }, records),
    rejected: (workflow, records) => this.#late.inc({ workflow }, records),
    released: (workflow, records) => this.#released.inc({ workflow }, records),
    recovered: (workflow, reason, outcome, records) =>
      this.#resets.inc({ workflow, reason, outcome }, records),
    session: (outcome) => {
      this.#attempts.inc();
      if (outcome === 'failed') this.#failures.inc();
    },
    spooled: (workflow, records) => this.#spooled.inc({ workflow }, records),
    replayed: (workflow, records) => this.#replayed.inc({ workflow }, records),
    zombie: (workflow) => this.#zombies.inc({ workflow }),
    processed: (workflow, time) => this.#processing.observe({ workflow }, time),
  };

  #counter<L extends string>(name: string, help: string, labelNames: L[]): Counter<L> {
    return new Counter({
      name: `smart_router_records_${name}`,
      help,
      labelNames,
      registers: [this.#registry],
    });
  }

  #gauge<L extends string>(name: string, help: string, labelNames: L[]): Gauge<L> {
    return new Gauge({ name: `smart_router_records_${name}`, help, labelNames, registers: [this.#registry] });
  }
}
