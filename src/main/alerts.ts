/** The receivers of alerts and of the weekly report of records, as configured. */
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import { type AlertSink, pagerDutySink, webhookSink } from '../observe/alert-delivery.js';
import type { Logger } from '../observe/log.js';
import type { RecordsCompanion } from './records-plane.js';

export function alertSinks(config: Config, clock: Clock): AlertSink[] {
  const { alertWebhookUrl: url, alertWebhookSecret: secret, pagerDutyRoutingKey: routingKey } = config;
  const { pagerDutyUrl, pagerDutyLeastSeverity: minSeverity } = config;
  return [
    ...(url === undefined ? [] : [webhookSink({ url, secret, clock })]),
    ...(routingKey === undefined
      ? []
      : [pagerDutySink({ routingKey, url: pagerDutyUrl, minSeverity, clock })]),
  ];
}

/** Undefined when the weekly report is off. Loaded only by routers with records. */
export async function prepareReporter(
  config: Config,
  { clock, log, onCrash }: { clock: Clock; log: Logger; onCrash(loop: string): void },
): Promise<RecordsCompanion | undefined> {
  if (!config.recordsReportEnabled) return undefined;
  const { Reporter } = await import('../records/report-schedule.js');
  const { recordsReportWebhookUrl: url, recordsReportWebhookSecret: secret } = config;
  return new Reporter({
    clock,
    log,
    source: config.podName,
    to: { folder: config.recordsReportFolder, webhook: url === undefined ? undefined : { url, secret } },
    onCrash: () => onCrash('records-report'),
  });
}
