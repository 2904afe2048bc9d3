/** Creates the parts of a router from a configuration, starts them in order, stops them in reverse order. */
import { createHash } from 'node:crypto';
import { AliveStamp } from '../calls/alive-stamp.js';
import { Auditor } from '../calls/audit/auditor.js';
import { EventSearch } from '../calls/event-search.js';
import { EventFeed } from '../calls/events.js';
import { History } from '../calls/history/history.js';
import { prepareStore } from '../calls/import.js';
import { collectProcessMetrics, type MetricData, Metrics } from '../calls/metrics.js';
import { CallRouter } from '../calls/router.js';
import { Settings } from '../calls/settings.js';
import { checkStore } from '../calls/store/check.js';
import { PoolStore } from '../calls/store/pool-store.js';
import { checkRights } from '../calls/store/rights.js';
import { CallStore } from '../calls/store/store.js';
import { WaitStore } from '../calls/store/wait-store.js';
import { WaitQueue } from '../calls/wait-queue.js';
import { type Clock, systemClock } from '../clock.js';
import { type Config, hidePassword } from '../config/config.js';
import { defaultTierConfig } from '../config/tiers.js';
import { Admission } from '../http/admission.js';
import type { App, HttpContext } from '../http/context.js';
import { closeServer, listen, startMetricsServer } from '../http/ports.js';
import { createServer } from '../http/server.js';
import { SupervisedLoop } from '../loop.js';
import { type AlertSink, pagerDutySink, webhookSink } from '../observe/alert-delivery.js';
import { Alerts } from '../observe/alerts.js';
import { createLogger, type Logger } from '../observe/log.js';
import type { Tracing } from '../observe/tracing.js';
import { announce } from '../pool/registration.js';
import { RecordMetrics } from '../records/metrics.js';
import { combineObservers } from '../records/observer.js';
import { createManager } from './leader.js';
import type { RecordsListener, RecordsPlane } from './records-plane.js';
import type { startRecordsProcess } from './records-process.js';
import { openEngine, openReplication, openStore, prepareUntilDone } from './store.js';

/** The longest wait for the first reconcile at the start. */
const maxFirstReconcileMs = 5000;

export interface RunningRouter {
  /** The address of the API, with the actual port. */
  url: string;
  metricsUrl: string | undefined;
  redisUrl: string;
  context: HttpContext;
  /** Resolves when this replica loses its leadership and LEADER_LOSS=exit. */
  lostLeadership: Promise<void>;
  collectMetrics(): Promise<MetricData[]>;
  /** Finishes requests in flight, for at most `SHUTDOWN_TIMEOUT`. */
  stop(): Promise<void>;
}

export interface StartOptions {
  clock?: Clock;
  log?: Logger;
  /** Adds routes: benchmarks compare with an empty one. */
  extend?: (app: App) => Promise<void>;
  /** Instead of a separate process: tests with their own clock run the record plane in this one, one worker for all. */
  openRecords?: (...args: Parameters<typeof startRecordsProcess>) => Promise<RecordsPlane>;
  /** Whether the leader is another worker of this group. It has no numbers of records, so this process sends their alerts. */
  hasRecordsOf?: (leader: string | null) => boolean;
  renderGroup?: HttpContext['renderGroup'];
}

export async function startRouter(config: Config, options: StartOptions = {}): Promise<RunningRouter> {
  const clock = options.clock ?? systemClock;
  const log = options.log ?? createLogger({ level: config.logLevel, format: config.logFormat });
  for (const warning of config.warnings) log.warn(warning);

  const stops: (() => Promise<void> | void)[] = [];
  const stopping = new AbortController();
  const stopAll = async () => {
    stopping.abort();
    for (const stop of stops.splice(0).reverse()) await stop();
  };
  /** Runs `stop` as soon as the router begins to stop, beside the requests in flight: each may take all of SHUTDOWN_TIMEOUT. */
  const stopEarly = (stop: () => Promise<void>) => {
    stopping.signal.addEventListener('abort', () => void stop().catch(() => {}), { once: true });
    stops.push(stop);
  };
  try {
    const metrics = new Metrics();
    collectProcessMetrics(metrics.registry);
    const tracing = await openTracing(config, clock, log);
    if (tracing) stops.push(() => tracing.stop());
    const redisUrl = await openEngine(config, stops, log);
    let onStoreUp = () => {};
    const connection = openStore(config, redisUrl, { clock, log, metrics, tracing, onUp: () => onStoreUp() });
    stops.push(() => connection.close());

    const times = { ...config, noShowTimeoutMs: config.noShowTimeoutMs ?? 0 };
    const store = new CallStore(connection, times);
    const pools = new PoolStore(connection, times.reportGraceMs);
    const settings = new Settings({
      connection,
      log,
      initial: config.tierConfig ?? defaultTierConfig,
      initialGiven: config.tierConfig !== undefined,
      onRefreshError: () => metrics.settingsErrors.inc(),
      onChange: () => queue.nudge(),
    });
    const replication = openReplication(config, redisUrl, connection, { clock, log, metrics });
    if (replication) stops.push(() => replication.close());
    const feed = new EventFeed(connection, clock);
    stops.push(() => feed.close());
    let isPrepared = false;
    const onCrash = (loop: string) => {
      metrics.panicsRecovered.inc();
      metrics.loopRestarts.inc({ loop });
    };
    const alive = new AliveStamp({
      ...{ connection, clock, log, afterFailover: config.afterFailover, onCrash },
      onGeneration: () => metrics.generations.inc(),
    });
    const queue = new WaitQueue(new WaitStore(connection, times), {
      ...{ settings, feed, metrics, clock, log, onCrash },
      isPrepared: () => isPrepared,
    });
    let loseLeadership = () => {};
    const lostLeadership = new Promise<void>((resolve) => {
      loseLeadership = resolve;
    });
    const auditor = new Auditor(connection, stopping.signal);
    const { manager, close } = await createManager(config, {
      store,
      pools,
      settings,
      ...{ auditor, alive, metrics, clock, log, onCrash },
      onLost: () => {
        if (config.leaderLoss === 'exit') loseLeadership();
      },
    });
    stops.push(close);
    onStoreUp = () => manager.nudge();
    const alerts = new Alerts({
      sinks: alertSinks(config, clock),
      source: config.podName,
      clock,
      log,
      intervalMs: config.alertIntervalMs,
      isActive: (condition) =>
        manager.isLeader ||
        (condition.startsWith('records.') && options.hasRecordsOf?.(manager.leader) === true),
      stallsAfterMs: stallsAfter(config),
      onCrash,
    });
    stopEarly(() => alerts.stop());
    const recordMetrics = new RecordMetrics(metrics.registry);
    const records = await openRecords(
      { ...config, redisUrl },
      {
        clock,
        log,
        open: options.openRecords,
        listener: {
          ...combineObservers([
            recordMetrics.observer,
            alerts.records.observer,
            ...(tracing ? [tracing.records] : []),
          ]),
          loopCrashed: onCrash,
          storeAnswered: (operation, outcome, seconds) => metrics.observeStore(operation, outcome, seconds),
        },
      },
    );
    recordMetrics.expect((await records?.status())?.workflows.map(({ name }) => name) ?? []);
    metrics.onScrape = () => recordMetrics.render(records?.gauges());
    if (records) stopEarly(() => records.stop());
    const refresh = new SupervisedLoop({
      name: 'settings',
      intervalMs: config.tierConfigRefreshIntervalMs,
      clock,
      log,
      runAtStart: false,
      onCrash,
      runOnce: async () => {
        await settings.refresh();
        return {};
      },
    });
    const loops = () => [
      ...manager.loops,
      ...[alive.loop, refresh, queue.loop, history.loop].map(({ state }) => state),
      ...alerts.loops,
      ...(records?.loops ?? []),
    ];
    const history = new History({
      ...{ connection, store, metrics, alerts, clock, log, loops, onCrash },
      name: config.podName,
      setup: setupOf(config),
      leadership: manager,
      isPrepared: () => isPrepared,
      records: () => records?.gauges(),
    });
    stops.push(async () => {
      // The history stores the last counts of the records.
      await records?.stop();
      await history.loop.stop();
    });

    // A little less than the timeout of a command, so that a late reply is still used.
    const patienceMs = 0.9 * Math.min(config.requestTimeoutMs, config.redisCommandTimeoutMs);
    const context: HttpContext = {
      config,
      router: new CallRouter({
        store,
        settings,
        metrics,
        clock,
        patienceMs,
        replication,
        replicationPolicy: config.redisWaitPolicy,
        isPrepared: () => isPrepared,
        generation: () => alive.generation,
        ...(config.podSource === 'registered'
          ? { announce: (pod) => announce(pools, settings.tiers, pod) }
          : {}),
      }),
      store,
      pools,
      settings,
      auditor,
      feed,
      queue,
      search: new EventSearch(connection),
      history,
      admission: new Admission({
        clock,
        maxInFlight: config.maxRequestsInFlight,
        delayMs: config.overloadDelayMs,
      }),
      metrics,
      log,
      tracing,
      clock,
      records,
      stopping: stopping.signal,
      renderGroup: options.renderGroup,
      leadership: manager,
      loops,
    };

    // The ports first: a router that cannot listen must not take the pools from one that does. Until the store has been
    // adopted, calls get 503.
    let prepared: ReturnType<typeof prepareUntilDone> | undefined;
    // Early: another replica can take over at once.
    let leadershipEnded: Promise<void> | undefined;
    const stopLeading = () => {
      leadershipEnded ??= (async () => {
        await prepared?.ended;
        await Promise.all([manager.stop(), refresh.stop(), queue.loop.stop()]);
        await alive.loop.stop();
      })();
      return leadershipEnded;
    };
    stopEarly(stopLeading);
    const app = await createServer(context, options.extend);
    stops.push(() => closeServer(app, clock, config.shutdownTimeoutMs, log));
    const url = await listen(app, config);
    const metricsServer =
      config.metricsPort === undefined
        ? undefined
        : await startMetricsServer(app, log, config.httpHost, config.metricsPort);
    if (metricsServer) stops.push(metricsServer.stop);
    records?.start();
    history.loop.start();
    alerts.start();

    // Wrong data or a wrong engine is an error at once; a store that does not respond yet is retried, not ready.
    const prepare = async () => {
      await checkRights(connection);
      await checkStore(connection, config);
      await prepareStore({ connection, times, log, tiers: config.tierConfig ?? defaultTierConfig });
      await alive.start();
      await settings.start();
      metrics.noPods.inc({ chain: settings.chainFor('').steps.join(' ') }, 0);
      refresh.start();
      queue.loop.start();
      const started = manager.start();
      // Wait only for a local source, and not long: with an unreachable API server or lock, calls are still served.
      const timeout = clock.sleep(maxFirstReconcileMs, stopping.signal);
      if (config.podSource !== 'kubernetes') await Promise.race([started, timeout]);
      isPrepared = true;
      history.loop.nudge();
    };
    prepared = prepareUntilDone(prepare, {
      clock,
      log,
      address: hidePassword(redisUrl),
      signal: stopping.signal,
    });
    await prepared.firstTry;
    log.info({ url, metrics: metricsServer?.url }, 'smart-router is listening');
    const collectMetrics = () => app.probes.collect();
    return {
      ...{ url, metricsUrl: metricsServer?.url, redisUrl },
      ...{ context, lostLeadership, collectMetrics, stop: stopAll },
    };
  } catch (error) {
    await stopAll();
    throw error;
  }
}

async function openTracing(config: Config, clock: Clock, log: Logger): Promise<Tracing | undefined> {
  const { otelExporterOtlpEndpoint } = config;
  if (otelExporterOtlpEndpoint === undefined) return undefined;
  const { Tracing } = await import('../observe/tracing.js');
  return new Tracing({ ...config, otelExporterOtlpEndpoint }, { clock, log });
}

function alertSinks(config: Config, clock: Clock): AlertSink[] {
  const { alertWebhookUrl: url, alertWebhookSecret: secret, pagerdutyRoutingKey: routingKey } = config;
  const { pagerdutyUrl, pagerdutyLeastSeverity: minSeverity } = config;
  const sinks: AlertSink[] = [];
  if (url !== undefined) sinks.push(webhookSink({ url, secret, clock }));
  if (routingKey !== undefined)
    sinks.push(pagerDutySink({ routingKey, url: pagerdutyUrl, minSeverity, clock }));
  return sinks;
}

/** Three rounds without an end, and a minute for slow ones. */
function stallsAfter(config: Config): Map<string, number> {
  const rounds = (intervalMs: number) => 3 * intervalMs + 60_000;
  return new Map([
    ['sweep', rounds(config.cleanupIntervalMs)],
    ['records-fast-sweep', rounds(20_000)],
    ['records-slow-sweep', rounds(config.zombieCleanupIntervalMs)],
  ]);
}

async function openRecords(
  config: Config,
  parts: {
    clock: Clock;
    log: Logger;
    listener: RecordsListener;
    open: StartOptions['openRecords'];
  },
): Promise<RecordsPlane | undefined> {
  const { databaseUrl } = config;
  if (databaseUrl === undefined) return undefined;
  if (config.recordsWorkflows.length === 0 && config.recordsModule === undefined) {
    parts.log.warn(
      'DATABASE_URL is set but no workflow is configured; set RECORDS_MODULE (your own workflows) or RECORDS_WORKFLOWS (the shipped ones)',
    );
    return undefined;
  }
  // Loaded only where it is used: most routers have no records.
  const open = parts.open ?? (await import('./records-process.js')).startRecordsProcess;
  return open({ ...config, databaseUrl }, parts);
}

/** Hashes the `sharedVariables`. */
function setupOf({ podSource, staticPods, tierConfig, ...config }: Config): string {
  const { leaseTtlMs, noShowTimeoutMs, reportGraceMs } = config;
  const text = JSON.stringify([
    podSource,
    staticPods,
    tierConfig,
    leaseTtlMs,
    noShowTimeoutMs,
    reportGraceMs,
  ]);
  return createHash('sha256').update(text).digest('hex').slice(0, 12);
}
