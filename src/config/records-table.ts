/** The variables of the record plane, of alerts and of traces; see table.ts. */
import { type Default, field, optional, section } from './entries.js';
import * as kinds from './fields.js';

const { boolean, choice, duration, line, minutes, secret, webhookUrl, wholeNumber } = kinds;
const hidden = { secret: true } as const;
const withPassword = { secret: 'password' } as const;

/** They work on tables of their own, which a team's database has only if somebody asked for them. */
const shippedWorkflows: Default = {
  note: 'none; with DATABASE_URL=embedded and no RECORDS_MODULE sitemap-import,page-curation',
  compute: (lookup) =>
    lookup('DATABASE_URL') === 'embedded' && lookup('RECORDS_MODULE') === ''
      ? 'sitemap-import,page-curation'
      : 'none',
};
/** Enough for four hostile sitemaps at once, and never so much that the container ends the router with it. */
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
      'PostgreSQL with the records; embedded runs one beside the process; unset: no records',
      withPassword,
    ),
    databaseFolder: optional(
      'DATABASE_FOLDER',
      line(4_096),
      'Where DATABASE_URL=embedded keeps its data; unset: nothing is kept',
    ),
    recordsPoolSize: field(
      'RECORDS_POOL_SIZE',
      wholeNumber(2, 1_000),
      '10',
      'Most connections to the database of one replica, beside one for its heartbeat and one for wake-ups',
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
      'Which of the shipped workflows run, separated by commas',
    ),
    recordsModule: optional(
      'RECORDS_MODULE',
      line(4_096),
      'Path of an ES module that exports workflows of your own',
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
      'Where outcomes wait if both the database and the store are away; unset: below the folder for temporary files',
    ),
    zombieCleanupEnabled: field(
      'ZOMBIE_CLEANUP_ENABLED',
      boolean,
      'true',
      'Whether stuck records are brought back',
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
    recordsReportFolder: optional('RECORDS_REPORT_FOLDER', line(4_096), 'Where the weekly report is kept'),
    recordsReportWebhookUrl: optional(
      'RECORDS_REPORT_WEBHOOK_URL',
      webhookUrl,
      'Where the weekly report is sent',
      hidden,
    ),
    recordsReportWebhookSecret: optional('RECORDS_REPORT_WEBHOOK_SECRET', secret(16), 'Signs it', hidden),
  }),
  ...section('Alerts', {
    alertWebhookUrl: optional('ALERT_WEBHOOK_URL', webhookUrl, 'Where alerts are sent, as JSON', hidden),
    alertWebhookSecret: optional('ALERT_WEBHOOK_SECRET', secret(16), 'Signs them', hidden),
    pagerDutyRoutingKey: optional('PAGERDUTY_ROUTING_KEY', secret(1), 'Sends them to PagerDuty too', hidden),
    pagerDutyUrl: field(
      'PAGERDUTY_URL',
      webhookUrl,
      'https://events.pagerduty.com/v2/enqueue',
      'Its Events API v2',
      withPassword,
    ),
    pagerDutyLeastSeverity: field(
      'PAGERDUTY_LEAST_SEVERITY',
      choice('warning', 'critical', 'page'),
      'critical',
      'Less severe alerts are not sent to PagerDuty',
    ),
    alertIntervalMs: field('ALERT_INTERVAL', duration('100ms', '5m'), '15s', 'Time between two looks'),
  }),
};

export const tracingFields = section('Tracing', {
  otlpEndpoint: optional(
    'OTEL_EXPORTER_OTLP_ENDPOINT',
    kinds.baseUrl('http', 'https'),
    'Collector of OpenTelemetry that gets traces (OTLP over HTTP, /v1/traces is added)',
  ),
  otlpHeaders: optional(
    'OTEL_EXPORTER_OTLP_HEADERS',
    kinds.headerList,
    'What every request to it carries: name=value, separated by commas',
    hidden,
  ),
  otelServiceName: field('OTEL_SERVICE_NAME', line(100), 'smart-router', 'Under this name traces appear'),
  traceRatio: field(
    'OTEL_TRACES_SAMPLER_ARG',
    kinds.share,
    '1',
    'Share of the requests that are traced, 0 to 1; one whose caller traces it always is',
  ),
});
