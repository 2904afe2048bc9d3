/**
 * Prometheus metrics of the record plane. Counters and the histogram belong to this process. The gauges of stuck records
 * come from the database: the same on every replica, absent (not 0) while it does not answer. A router without records
 * has no gauges.
 */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { RecordObserver } from './observer.js';
import type { Waiting } from './store-types.js';

/** The state at a scrape. */
export interface RecordGauges {
  isUp: boolean;
  isPaused: boolean;
  isBraked: boolean;
  /** Undefined: the database does not answer, or was not queried yet. */
  stuck: ReadonlyMap<string, { records: number; oldestSeconds: number }> | undefined;
  waiting?: ReadonlyMap<string, Waiting> | undefined;
}

/** A page takes fractions of a second, a large sitemap minutes. */
const buckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];

/** Counters with the label `workflow` only. */
const workflowCounters = {
  claimed_total: 'Records claimed',
  retried_total: 'Failed records queued again',
  late_finishes_total: 'Finishes rejected because the claim was lost',
  given_back_total: 'Records claimed and released before their handler started',
  zombie_alerts_total: 'Records left in Processing because their failure could not be written',
  spooled_total: 'Outcomes stored in the spool while the database was unreachable',
  replayed_total: 'Outcomes written from the spool',
};
const otherCounters = {
  finished_total: ['Records finished by outcome (completed, failed)', ['workflow', 'outcome']],
  resets_total: ['Stuck records by reason and outcome', ['workflow', 'reason', 'outcome']],
  session_attempts_total: ['Database sessions requested', []],
  session_failures_total: ['Database sessions that were not obtained, or broke', []],
} as const;
const stateGauges = {
  database_up: '1 while the database gives sessions',
  breaker_open: '1 while claiming is paused because sessions fail',
  brake_holding: '1 while the fast sweep waits because most workers missed their heartbeats at once',
};
const stuckGauges = {
  stuck: 'Stuck records',
  oldest_stuck_seconds: 'Age of the oldest stuck record',
  waiting_for_retry: 'Failed records that wait for their retry',
  next_retry_seconds: 'Time until the first of them is due',
  keys_at_limit: 'Keys with as many claimed records as the limit allows',
};

type CounterName = keyof typeof workflowCounters | keyof typeof otherCounters;
type GaugeName = keyof typeof stateGauges | keyof typeof stuckGauges;

export class RecordMetrics {
  readonly #counters = new Map<CounterName, Counter>();
  readonly #gauges = new Map<GaugeName, Gauge>();
  readonly #processing: Histogram<'workflow'>;

  constructor(registry: Registry) {
    const registers = [registry];
    const name = (suffix: string) => `smart_router_records_${suffix}`;
    const addCounter = (key: string, help: string, labelNames: readonly string[]) =>
      this.#counters.set(
        key as CounterName,
        new Counter({ name: name(key), help, labelNames: [...labelNames], registers }),
      );
    const addGauge = (key: string, help: string, labelNames: string[]) =>
      this.#gauges.set(key as GaugeName, new Gauge({ name: name(key), help, labelNames, registers }));
    for (const [key, help] of Object.entries(workflowCounters)) addCounter(key, help, ['workflow']);
    for (const [key, [help, labels]] of Object.entries(otherCounters)) addCounter(key, help, labels);
    for (const [key, help] of Object.entries(stateGauges)) addGauge(key, help, []);
    for (const [key, help] of Object.entries(stuckGauges)) addGauge(key, help, ['workflow']);
    this.#processing = new Histogram({
      name: name('processing_seconds'),
      help: 'Time to process one record',
      labelNames: ['workflow'],
      buckets,
      registers,
    });
    this.render(undefined);
  }

  /** Creates the series at 0, so that the first event is an increase. */
  expect(workflows: readonly string[]): void {
    for (const workflow of workflows) {
      for (const key of Object.keys(workflowCounters)) this.#add(key as CounterName, { workflow }, 0);
      for (const outcome of ['completed', 'failed']) this.#add('finished_total', { workflow, outcome }, 0);
      for (const reason of ['dead_worker', 'timed_out', 'given_up', 'unclaimed', 'by_hand'])
        for (const outcome of ['requeued', 'failed', 'held'])
          this.#add('resets_total', { workflow, reason, outcome }, 0);
    }
  }

  /** Called before every scrape; undefined: this router has no records. */
  render(gauges: RecordGauges | undefined): void {
    for (const key of Object.keys(stateGauges)) this.#gauges.get(key as GaugeName)?.remove();
    for (const key of Object.keys(stuckGauges)) this.#gauges.get(key as GaugeName)?.reset();
    if (!gauges) return;
    this.#gauges.get('database_up')?.set(gauges.isUp ? 1 : 0);
    this.#gauges.get('breaker_open')?.set(gauges.isPaused ? 1 : 0);
    this.#gauges.get('brake_holding')?.set(gauges.isBraked ? 1 : 0);
    for (const [workflow, { waitingForRetry, nextRetrySeconds, keysAtLimit }] of gauges.waiting ?? []) {
      const found = {
        waiting_for_retry: waitingForRetry,
        next_retry_seconds: nextRetrySeconds,
        keys_at_limit: keysAtLimit,
      };
      for (const [key, value] of Object.entries(found))
        if (value !== null) this.#gauges.get(key as GaugeName)?.set({ workflow }, value);
    }
    for (const [workflow, { records, oldestSeconds }] of gauges.stuck ?? []) {
      this.#gauges.get('stuck')?.set({ workflow }, records);
      this.#gauges.get('oldest_stuck_seconds')?.set({ workflow }, oldestSeconds);
    }
  }

  readonly observer: RecordObserver = {
    claimed: (workflow, records) => this.#add('claimed_total', { workflow }, records),
    finished: (workflow, outcome, records) => this.#add('finished_total', { workflow, outcome }, records),
    retried: (workflow, records) => this.#add('retried_total', { workflow }, records),
    rejected: (workflow, records) => this.#add('late_finishes_total', { workflow }, records),
    released: (workflow, records) => this.#add('given_back_total', { workflow }, records),
    recovered: (workflow, reason, outcome, records) =>
      this.#add('resets_total', { workflow, reason, outcome }, records),
    session: (outcome) => {
      this.#add('session_attempts_total', {}, 1);
      if (outcome === 'failed') this.#add('session_failures_total', {}, 1);
    },
    spooled: (workflow, records) => this.#add('spooled_total', { workflow }, records),
    replayed: (workflow, records) => this.#add('replayed_total', { workflow }, records),
    zombie: (workflow) => this.#add('zombie_alerts_total', { workflow }, 1),
    processed: (workflow, seconds) => this.#processing.observe({ workflow }, seconds),
  };

  #add(name: CounterName, labels: Record<string, string>, records: number): void {
    this.#counters.get(name)?.inc(labels, records);
  }
}
