/** The variables of the record plane, of alerts and of traces; see table.ts. */
import { type Default, field, optional, section } from './entries.js';
import * as kinds from './fields.js';

const { boolean, choice, duration, line, minutes, secret, webhookUrl, wholeNumber } = kinds;
const hidden = { secret: true } as const;
const withPassword = { secret: 'password' } as const;

/** They need their own tables, which a team's database has only on request. */
const shippedWorkflows: Default = {
  note: 'none; with DATABASE_URL=embedded and no RECORDS_MODULE sitemap-import,page-curation',
  compute: (lookup) =>
    lookup('DATABASE_URL') === 'embedded' && lookup('RECORDS_MODULE') === ''
      ? 'sitemap-import,page-curation'
      : 'none',
};
/** Enough for four hostile sitemaps at once, and never so much that the container is killed with the router. */
const heapMb: Default = {
  note: '512, at most half of the memory of the container',
  compute: () => {
    const container = Math.floor((process.constrainedMemory() || Number.POSITIVE_INFINITY) / 1024 ** 2);
    return String(Math.max(64, Math.min(512, Math.floor(container / 2))));
  },
};
export const recordFields = {
  ...section('Records', {
    databaseUrl: optional(
      'DATABASE_URL',
      kinds.databaseUrl,
      'PostgreSQL with the records; embedded starts one as a child process; unset: no records',
      withPassword,
    ),
    databaseFolder: optional(
      'DATABASE_FOLDER',
      line(4_096),
      'Data folder of DATABASE_URL=embedded; unset: data is deleted at the end',
    ),
    recordsPoolSize: field(
      'RECORDS_POOL_SIZE',
      wholeNumber(2, 1_000),
      '10',
      'Database connections of one replica, besides one for its heartbeat and one for wake-ups',
    ),
    recordsHeapMb: field(
      'RECORDS_HEAP_MB',
      wholeNumber(64, 65_536),
      heapMb,
      'Heap limit of the records process; a handler that needs more ends it, not the router',
    ),
    recordsWorkflows: field(
      'RECORDS_WORKFLOWS',
      kinds.shippedWorkflows,
      shippedWorkflows,
      'The shipped workflows to run, separated by commas',
    ),
    recordsModule: optional(
      'RECORDS_MODULE',
      line(4_096),
      'Path of an ES module that exports your own workflows',
    ),
    recordsAllowPrivateAddresses: field(
      'RECORDS_ALLOW_PRIVATE_ADDRESSES',
      boolean,
      'false',
      'Whether the shipped workflows may fetch from private addresses',
    ),
    recordsSpoolFolder: optional(
      'RECORDS_SPOOL_FOLDER',
      line(4_096),
      'Folder for outcomes while both the database and the store are unreachable; unset: in the folder for temporary files',
    ),
    zombieCleanupEnabled: field(
      'ZOMBIE_CLEANUP_ENABLED',
      boolean,
      'true',
      'Whether stuck records are requeued',
    ),
    zombieCleanupIntervalMs: field(
      'ZOMBIE_CLEANUP_INTERVAL_MINUTES',
      minutes(1, 10_080),
      '15',
      'Time between two slow sweeps over records',
    ),
    zombieStuckThresholdMs: field(
      'ZOMBIE_STUCK_THRESHOLD_MINUTES',
      minutes(1, 35_000),
      '60',
      'A record in Processing without a claim for this long is stuck',
    ),
    recordsReportEnabled: field(
      'RECORDS_REPORT_ENABLED',
      boolean,
      'true',
      'Whether there is a weekly report',
    ),
    recordsReportFolder: optional('RECORDS_REPORT_FOLDER', line(4_096), 'Folder for the weekly report'),
    recordsReportWebhookUrl: optional(
      'RECORDS_REPORT_WEBHOOK_URL',
      webhookUrl,
      'Address that gets the weekly report',
      hidden,
    ),
    recordsReportWebhookSecret: optional(
      'RECORDS_REPORT_WEBHOOK_SECRET',
      secret(16),
      'Signs the weekly report',
      hidden,
    ),
  }),
  ...section('Alerts', {
    alertWebhookUrl: optional('ALERT_WEBHOOK_URL', webhookUrl, 'Address that gets alerts as JSON', hidden),
    alertWebhookSecret: optional('ALERT_WEBHOOK_SECRET', secret(16), 'Signs alerts', hidden),
    pagerDutyRoutingKey: optional('PAGERDUTY_ROUTING_KEY', secret(1), 'Sends alerts to PagerDuty', hidden),
    pagerDutyUrl: field(
      'PAGERDUTY_URL',
      webhookUrl,
      'https://events.pagerduty.com/v2/enqueue',
      'Events API v2 of PagerDuty',
      withPassword,
    ),
    pagerDutyLeastSeverity: field(
      'PAGERDUTY_LEAST_SEVERITY',
      choice('warning', 'critical', 'page'),
      'critical',
      'Less severe alerts are not sent to PagerDuty',
    ),
    alertIntervalMs: field(
      'ALERT_INTERVAL',
      duration('100ms', '5m'),
      '15s',
      'Time between two evaluations of the alerts for receivers',
    ),
  }),
};

export const tracingFields = section('Tracing', {
  otlpEndpoint: optional(
    'OTEL_EXPORTER_OTLP_ENDPOINT',
    kinds.baseUrl('http', 'https'),
    'OpenTelemetry collector for traces (OTLP over HTTP, /v1/traces is appended)',
  ),
  otlpHeaders: optional(
    'OTEL_EXPORTER_OTLP_HEADERS',
    kinds.headerList,
    'Headers of every request to the collector: name=value, separated by commas',
    hidden,
  ),
  otelServiceName: field('OTEL_SERVICE_NAME', line(100), 'smart-router', 'Service name of the traces'),
  traceRatio: field(
    'OTEL_TRACES_SAMPLER_ARG',
    kinds.share,
    '1',
    'Share of the requests that are traced, 0 to 1; a request that its caller traces always is',
  ),
});
