/** The receivers of alerts, as configured. */
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import { type AlertSink, pagerDutySink, webhookSink } from '../observe/alert-delivery.js';

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
