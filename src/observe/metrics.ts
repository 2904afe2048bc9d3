/**
 * Every metric we export. Counters and histograms are this process's own; gauges of state are read from the
 * store at each scrape, so that they are the same on every replica, and absent (not 0) when the store is gone.
 * docs/metrics.md explains each one, and a test fails when one is missing there.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { StoreOutcome } from '../calls/store/connection.js';
import type { Snapshot } from '../calls/store/replies.js';
import type { LoopState } from '../loop.js';
import { type RecordGauges, RecordMetrics } from '../records/metrics.js';
import { PoolMetrics } from './pool-metrics.js';

const seconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];

/** Pods that are named by a series: those that are set back, at most half of each pool, could be hundreds. */
const mostPodsNamed = 20;

/** The methods of our routes; another one, which a stranger may send, is counted as `other`. */
const methods = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS'];
type RequestLabels = Record<'method' | 'endpoint' | 'status', string>;

function withKnownMethod(labels: RequestLabels): RequestLabels {
  return methods.includes(labels.method) ? labels : { ...labels, method: 'other' };
}

export class Metrics {
  readonly registry = new Registry();

  readonly #httpDuration = this.#histogram('http_request_duration_seconds', 'Time to answer a request', [
    'method',
    'endpoint',
    'status',
  ]);
  readonly #httpRequests = this.#counter('http_requests_total', 'Requests answered', [
    'method',
    'endpoint',
    'status',
  ]);
  readonly httpDuration = {
    observe: (labels: RequestLabels, value: number) =>
      this.#httpDuration.observe(withKnownMethod(labels), value),
  };
  readonly httpRequests = {
    inc: (labels: RequestLabels) => this.#httpRequests.inc(withKnownMethod(labels)),
  };
  readonly requestsInFlight = this.#gauge(
    'smart_router_requests_in_flight',
    'Requests that are being answered, without probes, event streams, drains and audits',
    [],
  );
  readonly requestsLimit = this.#gauge(
    'smart_router_requests_limit',
    'So many in flight, and a new call is refused: MAX_REQUESTS_IN_FLIGHT, less while the event loop is late',
    [],
  );
  readonly requestsShed = this.#counter(
    'smart_router_requests_shed_total',
    'Requests rejected because there were too many: new calls, others, and those of strangers',
    ['kind'],
  );
  readonly connectionsClosed = this.#counter(
    'smart_router_connections_closed_total',
    'Connections closed by the router: over MAX_CONNECTIONS (overall), over the limit of an address, or not read (unread)',
    ['reason'],
  );
  readonly leaderStatus = this.#gauge(
    'smart_router_leader_status',
    '1 on the replica that manages the pools',
    [],
  );
  readonly panicsRecovered = this.#counter(
    'smart_router_panics_recovered_total',
    'Crashes of loops and handlers that were caught',
    [],
  );
  readonly drains = this.#counter('smart_router_drains_total', 'Drains accepted', []);
  readonly zombiesRecovered = this.#counter(
    'smart_router_zombies_recovered_total',
    'Calls ended and pods put back after they lost their owner',
    [],
  );

  readonly allocateDuration = this.#histogram(
    'smart_router_allocate_duration_seconds',
    'Time to allocate a pod, by outcome',
    ['status'],
  );
  readonly callsLost = this.#counter(
    'smart_router_calls_lost_total',
    'Live calls ended because their pod was gone',
    ['reason'],
  );
  readonly podsBlocked = this.#counter(
    'smart_router_pods_blocked_total',
    'Pods that were blocked because they no longer report (awaiting_report), or set back because calls failed (flapping)',
    ['reason'],
  );
  readonly reportedCalls = this.#counter(
    'smart_router_reported_calls_total',
    'Calls in reports of pods by outcome (renewed, adopted, ended, conflict)',
    ['outcome'],
  );
  readonly storeDuration = this.#histogram(
    'smart_router_store_duration_seconds',
    'Time of a store operation',
    ['operation'],
  );
  readonly storeErrors = this.#counter('smart_router_store_errors_total', 'Store operations that failed', [
    'operation',
  ]);
  readonly storeFull = this.#counter(
    'smart_router_store_full_total',
    'Store operations refused because Redis is out of memory',
    [],
  );
  readonly storeUp = this.#gauge('smart_router_store_up', '1 while the connection to the store is up', []);
  readonly loopRestarts = this.#counter('smart_router_loop_restarts_total', 'Crashes of a background loop', [
    'loop',
  ]);
  readonly watchReconnects = this.#counter(
    'smart_router_watch_reconnects_total',
    'Watches of pods that ended and were opened again',
    ['reason'],
  );
  readonly #lastRound = this.#gauge(
    'smart_router_loop_last_round_timestamp_seconds',
    'When a background loop that runs here last ended a round well, or said that it is alive in a long one',
    ['loop'],
  );
  readonly settingsErrors = this.#counter(
    'smart_router_settings_refresh_errors_total',
    'Refreshes of the tier configuration that failed or were invalid',
    [],
  );
  readonly webhookRefusals = this.#counter(
    'smart_router_webhook_refusals_total',
    'Webhooks refused for a wrong or missing signature',
    ['provider'],
  );

  readonly #activeCalls = this.#gauge('smart_router_active_calls', 'Live calls', []);
  readonly #removalsHeld = this.#gauge(
    'smart_router_removals_held',
    'Pods that the removal brake holds: missing from the cluster, and not believed yet',
    [],
  );

  readonly #podSetBack = this.#gauge(
    'smart_router_pod_set_back',
    '1 for a pod that is set back because calls failed on it; at most 20 pods, the first by name',
    ['pod_name'],
  );

  readonly #poolsUnreadable = this.#gauge(
    'smart_router_pools_unreadable',
    'Pools whose key of pods is of a wrong type: their pods are neither swept nor counted',
    [],
  );

  readonly invariantViolations = this.#gauge(
    'smart_router_invariant_violations',
    'Contradictions among calls and pods that the leader found in its last audit; only on the leader, after its first',
    [],
  );

  readonly records = new RecordMetrics(this.registry);
  readonly pools = new PoolMetrics(this.registry);
  readonly allocations = this.pools.allocations;
  readonly releases = this.pools.releases;
  readonly noPods = this.pools.noPods;
  readonly unmetDemand = this.pools.unmetDemand;

  constructor({ processMetrics = true } = {}) {
    // Nobody has looked yet: 0 would say that nothing was found.
    this.invariantViolations.remove();
    // A series that is born with its first event hides that event from `increase`: what pages begins at 0.
    for (const reason of ['removed', 'replaced', 'restarted']) this.callsLost.inc({ reason }, 0);
    for (const reason of ['awaiting_report', 'flapping']) this.podsBlocked.inc({ reason }, 0);
    for (const kind of ['call', 'other', 'stranger']) this.requestsShed.inc({ kind }, 0);
    for (const reason of ['overall', 'address', 'unread']) this.connectionsClosed.inc({ reason }, 0);
    for (const provider of ['twilio', 'plivo', 'exotel']) this.webhookRefusals.inc({ provider }, 0);
    for (const operation of [
      'allocate',
      'release',
      'renew',
      'report',
      'drain',
      'register',
      'sweep',
      'snapshot',
    ])
      this.storeErrors.inc({ operation }, 0);
    if (!processMetrics) return;
    collectDefaultMetrics({ register: this.registry });
    // Gauges that are named like counters: promtool refuses them, and the ones by type say the same.
    for (const kind of ['handles', 'requests', 'resources']) {
      this.registry.removeSingleMetric(`nodejs_active_${kind}_total`);
    }
  }

  observeStore(operation: string, outcome: StoreOutcome, seconds: number): void {
    this.storeDuration.observe({ operation }, seconds);
    if (outcome === 'error') this.storeErrors.inc({ operation });
    if (outcome === 'full') this.storeFull.inc();
  }

  /** The Prometheus text; `snapshot` undefined means that the store did not answer, `records` that there are none. */
  async render(
    snapshot: Snapshot | undefined,
    records?: RecordGauges,
    loops: readonly LoopState[] = [],
  ): Promise<string> {
    this.records.render(records);
    // Those that run: a former leader's sweep is not late, it is somebody else's.
    this.#lastRound.reset();
    for (const { name, running, last_round_at } of loops)
      if (running && last_round_at !== null)
        this.#lastRound.set({ loop: name }, Date.parse(last_round_at) / 1000);
    await this.pools.render(snapshot);
    this.#activeCalls.remove();
    this.#removalsHeld.remove();
    this.#poolsUnreadable.remove();
    this.#podSetBack.reset();
    if (snapshot) {
      this.#activeCalls.set(snapshot.activeCalls);
      this.#removalsHeld.set(snapshot.removalsHeld);
      for (const pod_name of [...snapshot.setBack].sort().slice(0, mostPodsNamed))
        this.#podSetBack.set({ pod_name }, 1);
      this.#poolsUnreadable.set(snapshot.pools.filter((pool) => pool.unreadableKey !== '').length);
    }
    return this.registry.metrics();
  }

  #counter<L extends string>(name: string, help: string, labelNames: readonly L[]): Counter<L> {
    return new Counter({ name, help, labelNames: [...labelNames], registers: [this.registry] });
  }

  #gauge<L extends string>(name: string, help: string, labelNames: readonly L[]): Gauge<L> {
    return new Gauge({ name, help, labelNames: [...labelNames], registers: [this.registry] });
  }

  #histogram<L extends string>(name: string, help: string, labelNames: readonly L[]): Histogram<L> {
    return new Histogram({
      name,
      help,
      labelNames: [...labelNames],
      buckets: seconds,
      registers: [this.registry],
    });
  }
}
