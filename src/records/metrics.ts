/**
 * The numbers of the record plane. Counters and the histogram are this process's own. The gauges of stuck records are
 * the database's, the same on every replica, and absent, not 0, while it does not answer; those of a router without
 * records are never there.
 */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { RecordObserver } from './observer.js';

/** What holds at the moment of a scrape. */
export interface RecordGauges {
  isUp: boolean;
  isPaused: boolean;
  isBraked: boolean;
  /** Undefined: the database does not answer, or has not been asked yet. */
  stuck: ReadonlyMap<string, { records: number; oldestSeconds: number }> | undefined;
}

/** A page takes parts of a second, a large sitemap minutes. */
const seconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];

export class RecordMetrics {
  readonly #registry: Registry;
  readonly #claimed: Counter<'workflow'>;
  readonly #finished: Counter<'workflow' | 'outcome'>;
  readonly #late: Counter<'workflow'>;
  readonly #givenBack: Counter<'workflow'>;
  readonly #resets: Counter<'workflow' | 'reason' | 'outcome'>;
  readonly #attempts: Counter;
  readonly #failures: Counter;
  readonly #zombies: Counter<'workflow'>;
  readonly #spooled: Counter<'workflow'>;
  readonly #replayed: Counter<'workflow'>;
  readonly #processing: Histogram<'workflow'>;
  readonly #up: Gauge;
  readonly #breaker: Gauge;
  readonly #brake: Gauge;
  readonly #stuck: Gauge<'workflow'>;
  readonly #oldest: Gauge<'workflow'>;

  constructor(registry: Registry) {
    this.#registry = registry;
    this.#claimed = this.#counter('claimed_total', 'Records claimed', ['workflow']);
    this.#finished = this.#counter('finished_total', 'Records finished by outcome (completed, failed)', [
      'workflow',
      'outcome',
    ]);
    this.#late = this.#counter(
      'late_finishes_total',
      'Finishes rejected because the record belonged to somebody else by then',
      ['workflow'],
    );
    this.#givenBack = this.#counter('given_back_total', 'Records claimed and given back unbegun', [
      'workflow',
    ]);
    this.#resets = this.#counter('resets_total', 'Stuck records by reason and by what became of them', [
      'workflow',
      'reason',
      'outcome',
    ]);
    this.#attempts = this.#counter('session_attempts_total', 'Sessions of the database asked for', []);
    this.#failures = this.#counter(
      'session_failures_total',
      'Sessions of the database that could not be had, or broke',
      [],
    );
    this.#zombies = this.#counter(
      'zombie_alerts_total',
      'Records left in Processing because not even their failure could be written',
      ['workflow'],
    );
    this.#spooled = this.#counter('spooled_total', 'Outcomes kept aside while the database was away', [
      'workflow',
    ]);
    this.#replayed = this.#counter('replayed_total', 'Outcomes kept aside and written since', ['workflow']);
    this.#processing = new Histogram({
      name: 'smart_router_records_processing_seconds',
      help: 'Time to process one record',
      labelNames: ['workflow'],
      buckets: seconds,
      registers: [registry],
    });
    this.#up = this.#gauge('database_up', '1 while the database gives sessions', []);
    this.#breaker = this.#gauge('breaker_open', '1 while nothing is claimed because sessions fail', []);
    this.#brake = this.#gauge(
      'brake_holding',
      '1 while the fast sweep waits because most workers fell silent at once',
      [],
    );
    this.#stuck = this.#gauge('stuck', 'Records that are stuck', ['workflow']);
    this.#oldest = this.#gauge('oldest_stuck_seconds', 'For how long the oldest of them has been', [
      'workflow',
    ]);
    this.render(undefined);
  }

  /** Series that are there before anything has happened, so that the first event counts as an increase. */
  expect(workflows: readonly string[]): void {
    for (const workflow of workflows) {
      for (const counter of [
        this.#claimed,
        this.#late,
        this.#givenBack,
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

  /** Called before every scrape; undefined: no records here. */
  render(gauges: RecordGauges | undefined): void {
    for (const gauge of [this.#up, this.#breaker, this.#brake]) gauge.remove();
    for (const gauge of [this.#stuck, this.#oldest]) gauge.reset();
    if (!gauges) return;
    this.#up.set(gauges.isUp ? 1 : 0);
    this.#breaker.set(gauges.isPaused ? 1 : 0);
    this.#brake.set(gauges.isBraked ? 1 : 0);
    for (const [workflow, { records, oldestSeconds }] of gauges.stuck ?? []) {
      this.#stuck.set({ workflow }, records);
      this.#oldest.set({ workflow }, oldestSeconds);
    }
  }

  readonly observer: RecordObserver = {
    claimed: (workflow, records) => this.#claimed.inc({ workflow }, records),
    finished: (workflow, outcome, records) => this.#finished.inc({ workflow, outcome }, records),
    rejected: (workflow, records) => this.#late.inc({ workflow }, records),
    gaveBack: (workflow, records) => this.#givenBack.inc({ workflow }, records),
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
