/**
 * Who is told, as the configuration says: alerts go to a webhook and to PagerDuty, the weekly report of records to a
 * folder and a webhook.
 *
 * Alerts live as long as the router, with or without records: calls and the removal brake alert too, and a database that
 * cannot be opened is worth telling. What sweeps and job loop notice they hear as observers of the record plane; of
 * calls they take what the history has seen; the rest they look up, at least once a minute. A store that does not answer is no news about the brake: then nothing begins
 * and nothing ends. Without a receiver there are no alerts at all.
 */
import type { CallStore } from '../calls/store/store.js';
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import { AppError } from '../errors.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import { type AlertSink, Alerts, pagerDutySink, webhookSink } from '../observe/alerts.js';
import type { Condition } from '../observe/alerts-rules.js';
import type { Logger } from '../observe/log.js';
import type { RecordsAdmin } from '../records/admin.js';
import type { RecordObserver } from '../records/observer.js';

export interface AlertingParts {
  store: Pick<CallStore, 'snapshot'>;
  clock: Clock;
  log: Logger;
  /** What there is to say of calls, by the last look of the history. */
  callConditions(): readonly Condition[];
  /** Of what all replicas see, one of them tells the webhook. */
  isLeader(): boolean;
  onCrash(loop: string): void;
}

export interface Alerting {
  /** For the record plane. */
  readonly observer: RecordObserver;
  readonly loops: LoopState[];
  start(records: Pick<RecordsAdmin, 'gauges'> | undefined): void;
  /** Gives what is on its way a few seconds. */
  stop(): Promise<void>;
}

const lookAtLeastEveryMs = 60_000;

export function prepareAlerting(config: Config, parts: AlertingParts): Alerting | undefined {
  const { store, clock, log, callConditions, isLeader, onCrash } = parts;
  const sinks = sinksOf(config, clock);
  if (sinks.length === 0) return undefined;
  const alerts = new Alerts({
    sinks,
    source: config.podName,
    clock,
    log,
    intervalMs: config.alertIntervalMs,
    isActive: isLeader,
    more: () => callConditions(),
    onCrash: () => onCrash('alerts'),
  });
  let records: Pick<RecordsAdmin, 'gauges'> | undefined;
  const look = new SupervisedLoop({
    name: 'alerts-look',
    intervalMs: Math.min(config.alertIntervalMs, lookAtLeastEveryMs),
    clock,
    log,
    onCrash: () => onCrash('alerts-look'),
    runOnce: async () => {
      if (records) {
        // The breaker's own word comes from a loop that runs: not from one whose database was never there.
        const { isUp, isPaused } = records.gauges();
        alerts.observe({ kind: 'breaker', isOpen: isPaused || !isUp });
      }
      const held = await removalsHeld(store);
      if (held === undefined) return {};
      alerts.observe({ kind: 'removals', held });
      return { held };
    },
  });
  let stopped: Promise<void> | undefined;
  return {
    observer: alerts.observer,
    get loops() {
      return [...alerts.loops, look.state];
    },
    start(plane) {
      records = plane;
      look.start();
      alerts.start();
    },
    stop() {
      stopped ??= Promise.all([look.stop(), alerts.stop()]).then(() => undefined);
      return stopped;
    },
  };
}

/** Undefined: the store does not answer. */
async function removalsHeld(store: AlertingParts['store']): Promise<number | undefined> {
  try {
    return (await store.snapshot()).removalsHeld;
  } catch (error) {
    if (error instanceof AppError) return undefined;
    throw error;
  }
}

function sinksOf(config: Config, clock: Clock): AlertSink[] {
  const { alertWebhookUrl, alertWebhookSecret, pagerDutyRoutingKey } = config;
  const sinks: AlertSink[] = [];
  if (alertWebhookUrl !== undefined)
    sinks.push(webhookSink({ url: alertWebhookUrl, secret: alertWebhookSecret, clock }));
  if (pagerDutyRoutingKey !== undefined)
    sinks.push(
      pagerDutySink({
        routingKey: pagerDutyRoutingKey,
        url: config.pagerDutyUrl,
        least: config.pagerDutyLeastSeverity,
        clock,
      }),
    );
  return sinks;
}
