/** Where alerts go: a webhook of the team's own, and PagerDuty's Events API v2. */
import type { Clock } from '../clock.js';
import { parseAddress, post, signature, signatureHeader } from './alerts-http.js';
import type { Severity } from './alerts-rules.js';

export interface AlertMessage {
  event: 'trigger' | 'resolve';
  key: string;
  condition: string;
  workflow: string | undefined;
  severity: Severity;
  summary: string;
  source: string;
  startedAtMs: number;
  atMs: number;
  details: Readonly<Record<string, string | number>>;
  runbook: string;
}

export interface AlertSink {
  readonly name: string;
  /** Less severe alerts are not sent here. */
  readonly least: Severity;
  /** While a condition lasts it is told again after this. */
  readonly remindAfterMs: number;
  /**
   * True: every replica tells, because the receiver folds what has the same key, and ignores the end of what it does
   * not know. False: of what all replicas see, only the active one tells.
   */
  readonly folds: boolean;
  /** Rejects with a DeliveryError. */
  send(message: AlertMessage, signal: AbortSignal): Promise<void>;
}

const hourMs = 3_600_000;

export interface WebhookOptions {
  url: string;
  /** Signs what is sent. */
  secret?: string | undefined;
  least?: Severity;
  /** Default: 4 h. */
  remindAfterMs?: number;
  clock: Clock;
}

export function webhookSink(options: WebhookOptions): AlertSink {
  const { secret, least = 'warning', remindAfterMs = 4 * hourMs, clock } = options;
  const url = parseAddress(options.url, 'the address of the alert webhook');
  return {
    name: 'webhook',
    least,
    remindAfterMs,
    folds: false,
    async send(message, signal) {
      const body = JSON.stringify(webhookBody(message));
      const headers = secret ? { [signatureHeader]: signature(secret, body, clock.now()) } : {};
      await post({ url, body, headers, clock, signal });
    },
  };
}

function webhookBody(message: AlertMessage): Record<string, unknown> {
  const { event, key, condition, workflow, severity, summary, source, startedAtMs, atMs } = message;
  return {
    event,
    dedup_key: key,
    condition,
    workflow: workflow ?? null,
    severity,
    // Chat tools show this field.
    text: event === 'trigger' ? `[${severity}] ${summary}` : `[resolved] ${summary}`,
    summary,
    source,
    started_at: new Date(startedAtMs).toISOString(),
    at: new Date(atMs).toISOString(),
    details: message.details,
    runbook: message.runbook,
  };
}

export interface PagerDutyOptions {
  routingKey: string;
  /** Default: `critical`: warnings can wait for the morning. */
  least?: Severity;
  /** Default: 15 min. PagerDuty adds it to the open alert without waking anybody. */
  remindAfterMs?: number;
  /** Default: the Events API v2; another for the EU region (`events.eu.pagerduty.com`). */
  url?: string;
  clock: Clock;
}

const pagerDutySeverity: Record<Severity, string> = {
  warning: 'warning',
  critical: 'critical',
  page: 'critical',
};
const longestSummary = 1024;

export function pagerDutySink(options: PagerDutyOptions): AlertSink {
  const { routingKey, least = 'critical', remindAfterMs = hourMs / 4, clock } = options;
  const url = parseAddress(
    options.url ?? 'https://events.pagerduty.com/v2/enqueue',
    'the address of PagerDuty',
  );
  return {
    name: 'pagerduty',
    least,
    remindAfterMs,
    folds: true,
    send: (message, signal) =>
      post({ url, body: JSON.stringify(pagerDutyBody(message, routingKey)), clock, signal }),
  };
}

function pagerDutyBody(message: AlertMessage, routingKey: string): Record<string, unknown> {
  const { event, key, condition, workflow, severity, summary, source, atMs, details, runbook } = message;
  const envelope = { routing_key: routingKey, event_action: event, dedup_key: key };
  if (event === 'resolve') return envelope;
  return {
    ...envelope,
    client: 'Smart Router',
    payload: {
      summary: summary.slice(0, longestSummary),
      source,
      severity: pagerDutySeverity[severity],
      timestamp: new Date(atMs).toISOString(),
      component: workflow ?? 'smart-router',
      class: condition,
      custom_details: { ...details, runbook },
    },
  };
}
