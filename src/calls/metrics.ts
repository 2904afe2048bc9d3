/**
 * The metrics of the router. Counters and histograms are of this process. Gauges of state are read from the store at
 * each scrape: they are the same on every replica, and absent (not 0) while the store does not respond. docs/metrics.md
 * documents each metric, which a test checks. Those by pool are in pool-metrics.ts, those of records in
 * records/metrics.ts.
 */
import { type Aggregator, Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { LoopState } from '../loop.js';
import { PoolMetrics } from './pool-metrics.js';
import type { StoreOutcome } from './store/connection.js';
import { confirmationOutcomes } from './store/replication.js';
import type { Snapshot } from './store/replies.js';

const buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];

/** Pods with a series of their own: those that are set back, at most half of each pool, could be hundreds. */
const maxPodsNamed = 20;

/** The methods of our routes; any other is counted as `other`, so that strangers cannot create series. */
const methods = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS'];
type RequestLabels = Record<'method' | 'endpoint' | 'status', string>;

function withKnownMethod(labels: RequestLabels): RequestLabels {
  return methods.includes(labels.method) ? labels : { ...labels, method: 'other' };
}

/** Adds the metrics of Node and of this process. */
export function collectProcessMetrics(registry: Registry): void {
  collectDefaultMetrics({ register: registry });
  // Gauges named like counters: promtool rejects them, and the gauges by type carry the same values.
  for (const kind of ['handles', 'requests', 'resources'])
    registry.removeSingleMetric(`nodejs_active_${kind}_total`);
  // Of a group of workers: the first start, and the slowest event loop, which an average would hide.
  for (const metric of registry.getMetricsAsArray()) {
    if (metric.name === 'process_start_time_seconds') metric.aggregator = 'min';
    if (metric.name.startsWith('nodejs_eventloop_lag_')) metric.aggregator = 'max';
  }
}

/** One metric with its values. */
export type MetricData = Awaited<ReturnType<Registry['getMetricsAsJSON']>>[number];

export class Metrics {
  readonly registry = new Registry();
  /** How long the oldest waiting call has waited; the loop of the queue keeps it up to date. */
  oldestWaitMs = 0;
  /** Runs before every scrape, for metrics that other parts add to the registry. */
  onScrape = () => {};

  readonly #httpDuration = this.#histogram('http_request_duration_seconds', 'Duration of a request', [
    'method',
    'endpoint',
    'status',
  ]);
  readonly #httpRequests = this.#counter('http_requests_total', 'Requests', ['method', 'endpoint', 'status']);
  readonly httpDuration = {
    observe: (labels: RequestLabels, value: number) =>
      this.#httpDuration.observe(withKnownMethod(labels), value),
  };
  readonly httpRequests = {
    inc: (labels: RequestLabels) => this.#httpRequests.inc(withKnownMethod(labels)),
  };
  readonly requestsInFlight = this.#gauge(
    'smart_router_requests_in_flight',
    'Requests in flight, without probes, event streams, drains and audits',
  );
  readonly requestsLimit = this.#gauge(
    'smart_router_requests_limit',
    'Requests in flight from which new calls are rejected: MAX_REQUESTS_IN_FLIGHT, less while the event loop lags',
  );
  readonly requestsShed = this.#counter(
    'smart_router_requests_shed_total',
    'Requests rejected for overload by kind (call, other, stranger)',
    ['kind'],
  );
  readonly connectionsClosed = this.#counter(
    'smart_router_connections_closed_total',
    'Connections closed by the router: over MAX_CONNECTIONS (overall), over the limit of an address (address), too many requests in progress (pipelined), response not read (unread)',
    ['reason'],
  );
  readonly leaderStatus = this.#gauge('smart_router_leader_status', '1 on the leader');
  readonly panicsRecovered = this.#counter(
    'smart_router_panics_recovered_total',
    'Crashes of loops and handlers that the router survived',
  );
  readonly drains = this.#counter('smart_router_drains_total', 'Drains accepted');
  readonly zombiesRecovered = this.#counter(
    'smart_router_zombies_recovered_total',
    'Expired calls ended and misplaced pods freed by the sweep',
  );

  readonly allocateDuration = this.#histogram(
    'smart_router_allocate_duration_seconds',
    'Duration of an allocation by outcome',
    ['status'],
  );
  readonly waits = this.#counter(
    'smart_router_waits_total',
    'Waits for a pod that ended, by outcome (served, expired, abandoned) or were refused (queue_full)',
    ['outcome'],
  );
  readonly waitDuration = this.#histogram(
    'smart_router_wait_duration_seconds',
    'How long calls waited that got a pod',
    [],
    [0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300],
  );
  readonly callsLost = this.#counter(
    'smart_router_calls_lost_total',
    'Live calls that ended because their pod was removed, replaced or restarted',
    ['reason'],
  );
  readonly podsBlocked = this.#counter(
    'smart_router_pods_blocked_total',
    'Pods blocked because they stopped reporting (awaiting_report), or set back because calls failed (flapping)',
    ['reason'],
  );
  readonly reportedCalls = this.#counter(
    'smart_router_reported_calls_total',
    'Calls in reports of pods by outcome (renewed, adopted, ended, conflict)',
    ['outcome'],
  );
  readonly storeDuration = this.#histogram(
    'smart_router_store_duration_seconds',
    'Duration of a store operation',
    ['operation'],
  );
  readonly storeErrors = this.#counter('smart_router_store_errors_total', 'Store operations that failed', [
    'operation',
  ]);
  readonly storeFull = this.#counter(
    'smart_router_store_full_total',
    'Store operations rejected because Redis is out of memory',
  );
  readonly confirmations = this.#counter(
    'smart_router_replication_confirmations_total',
    'Allocates, releases and drains by outcome of the wait for replicas (confirmed, timeout, failover, replica_left, error)',
    ['outcome'],
  );
  readonly generations = this.#counter(
    'smart_router_generations_total',
    'Changes of the master of the store that this replica noticed first',
  );
  readonly storeUp = this.#gauge('smart_router_store_up', '1 while connected to the store', [], 'min');
  readonly loopRestarts = this.#counter('smart_router_loop_restarts_total', 'Crashes of a background loop', [
    'loop',
  ]);
  readonly watchReconnects = this.#counter(
    'smart_router_watch_reconnects_total',
    'Watches of pods that ended and were reopened',
    ['reason'],
  );
  readonly #lastRound = this.#gauge(
    'smart_router_loop_last_round_timestamp_seconds',
    'When a running background loop last finished a round, or reported progress in a long one',
    ['loop'],
    'min',
  );
  readonly settingsErrors = this.#counter(
    'smart_router_settings_refresh_errors_total',
    'Refreshes of the tier configuration that failed or were invalid',
  );
  readonly webhookRefusals = this.#counter(
    'smart_router_webhook_refusals_total',
    'Webhooks rejected for a wrong or missing signature',
    ['provider'],
  );

  readonly #activeCalls = this.#gauge('smart_router_active_calls', 'Live calls', [], 'first');
  readonly #waitingCalls = this.#gauge(
    'smart_router_waiting_calls',
    'Calls that wait for a pod',
    [],
    'first',
  );
  readonly #oldestWait = this.#gauge(
    'smart_router_oldest_wait_seconds',
    'How long the oldest waiting call has waited; 0 if none waits',
    [],
    'max',
  );
  readonly #removalsHeld = this.#gauge(
    'smart_router_removals_held',
    'Pods that are missing from the cluster and held by the removal brake',
    [],
    'first',
  );
  readonly #podSetBack = this.#gauge(
    'smart_router_pod_set_back',
    '1 for a pod that is set back because calls failed on it; at most 20 pods, the first by name',
    ['pod_name'],
    'first',
  );
  readonly #poolsUnreadable = this.#gauge(
    'smart_router_pools_unreadable',
    'Pools whose key has a wrong type: their pods are not swept or counted',
    [],
    'first',
  );
  readonly invariantViolations = this.#gauge(
    'smart_router_invariant_violations',
    'Invariant violations in the last audit; only on the leader, after its first audit',
    [],
    'max',
  );

  readonly pools = new PoolMetrics(this.registry);
  readonly allocations = this.pools.allocations;
  readonly releases = this.pools.releases;
  readonly noPods = this.pools.noPods;
  readonly unmetDemand = this.pools.unmetDemand;

  constructor() {
    // Before the first audit 0 would be wrong.
    this.invariantViolations.remove();
    // A series that starts with its first event hides that event from `increase`: series with alerts start at 0.
    for (const reason of ['removed', 'replaced', 'restarted']) this.callsLost.inc({ reason }, 0);
    for (const reason of ['awaiting_report', 'flapping']) this.podsBlocked.inc({ reason }, 0);
    for (const outcome of ['served', 'expired', 'abandoned', 'queue_full']) this.waits.inc({ outcome }, 0);
    for (const outcome of confirmationOutcomes) this.confirmations.inc({ outcome }, 0);
    for (const kind of ['call', 'other', 'stranger']) this.requestsShed.inc({ kind }, 0);
    for (const reason of ['overall', 'address', 'pipelined', 'unread'])
      this.connectionsClosed.inc({ reason }, 0);
    for (const provider of ['twilio', 'plivo', 'exotel']) this.webhookRefusals.inc({ provider }, 0);
    const operations = ['allocate', 'release', 'renew', 'report', 'drain', 'register', 'sweep', 'snapshot'];
    for (const operation of operations) this.storeErrors.inc({ operation }, 0);
  }

  observeStore(operation: string, outcome: StoreOutcome, seconds: number): void {
    this.storeDuration.observe({ operation }, seconds);
    if (outcome === 'error') this.storeErrors.inc({ operation });
    if (outcome === 'full') this.storeFull.inc();
  }

  /** Sets the gauges for a scrape. `snapshot` is undefined when the store does not respond. */
  async update(snapshot: Snapshot | undefined, loops: readonly LoopState[]): Promise<void> {
    this.onScrape();
    // Only running loops: the sweep of a former leader is not late.
    this.#lastRound.reset();
    for (const { name, running, last_round_at } of loops)
      if (running && last_round_at !== null)
        this.#lastRound.set({ loop: name }, Date.parse(last_round_at) / 1000);
    await this.pools.render(snapshot);
    this.#activeCalls.remove();
    this.#waitingCalls.remove();
    this.#oldestWait.remove();
    this.#removalsHeld.remove();
    this.#poolsUnreadable.remove();
    this.#podSetBack.reset();
    if (snapshot) {
      this.#activeCalls.set(snapshot.activeCalls);
      this.#waitingCalls.set(snapshot.waitingCalls);
      this.#oldestWait.set(snapshot.waitingCalls === 0 ? 0 : this.oldestWaitMs / 1000);
      this.#removalsHeld.set(snapshot.removalsHeld);
      for (const pod_name of [...snapshot.setBack].sort().slice(0, maxPodsNamed))
        this.#podSetBack.set({ pod_name }, 1);
      this.#poolsUnreadable.set(snapshot.pools.filter((pool) => pool.unreadableKey !== '').length);
    }
  }

  #counter<L extends string>(name: string, help: string, labelNames: L[] = []): Counter<L> {
    return new Counter({ name, help, labelNames, registers: [this.registry] });
  }

  /** `aggregator`: the value of a group of workers (`serve --workers`), from theirs. */
  #gauge<L extends string>(
    name: string,
    help: string,
    labelNames: L[] = [],
    aggregator: Aggregator = 'sum',
  ): Gauge<L> {
    return new Gauge({ name, help, labelNames, aggregator, registers: [this.registry] });
  }

  #histogram<L extends string>(
    name: string,
    help: string,
    labelNames: L[],
    bounds: number[] = buckets,
  ): Histogram<L> {
    return new Histogram({ name, help, labelNames, buckets: bounds, registers: [this.registry] });
  }
}
