/**
 * Every environment variable: name, kind, default, meaning. config.ts reads this table, `smart-router config` prints it, and
 * a test checks that docs/configuration.md lists it. In the code, `LEASE_TTL` is `config.leaseTtlMs`: see entries.ts.
 *
 * A default is text, as in the environment, and is checked in the same way.
 */
import { hostname } from 'node:os';
import { type Default, type Field, field, optional, section } from './entries.js';
import * as kinds from './fields.js';

const { boolean, choice, duration, line, orOff, secret, webhookUrl, wholeNumber } = kinds;
const interval = duration('100ms', '1h');
const ofADay = duration('100ms', '24h');
const port = wholeNumber(0, 65_535);
const hidden = { secret: true } as const;
const withPassword = { secret: 'password' } as const;

const podName: Default = {
  note: 'host name and a random part',
  compute: (_, clock) =>
    `${hostname().slice(0, 200) || 'smart-router'}-${Math.floor(clock.random() * 36 ** 6)
      .toString(36)
      .padStart(6, '0')}`,
};
const sameNamespace: Default = { note: 'NAMESPACE', compute: (lookup) => lookup('NAMESPACE') };

/** With the lock in the store, every longer outage of the store ends leadership, and a restart would not help. */
const lossDefault: Default = {
  note: 'exit with POD_SOURCE=kubernetes, else follow',
  compute: (lookup) => (lookup('POD_SOURCE') === 'kubernetes' ? 'exit' : 'follow'),
};

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

export const configFields = {
  ...section('Server', {
    HTTP_HOST: field(kinds.host, '127.0.0.1', 'Address the API listens on'),
    HTTP_PORT: field(port, '8080', 'Port of the API; 0: any free port'),
    METRICS_PORT: field(orOff(port, 'off'), '9090', 'Second port with /metrics only; 0: any free port', {
      demo: 'off',
    }),
    PUBLIC_URL: optional(
      kinds.baseUrl('http', 'https'),
      'Address that providers call; their signatures include it',
      withPassword,
    ),
    TRUST_PROXY: field(
      kinds.trustProxy,
      'false',
      'Whose X-Forwarded headers count: false, true, a number of hops, or addresses',
    ),
    REQUEST_TIMEOUT: field(duration('50ms', '1m'), '2s', 'Timeout of a request that needs the store'),
    MAX_REQUESTS_IN_FLIGHT: field(
      wholeNumber(1, 100_000),
      '1000',
      'Requests in flight from which new calls are rejected; twice as many for other requests',
    ),
    OVERLOAD_DELAY: field(
      orOff(duration('1ms', '10s'), 'off'),
      '25ms',
      'Event loop delay above which a router accepts fewer new calls',
    ),
    MAX_CONNECTIONS: field(
      wholeNumber(10, 1_000_000),
      '10000',
      'Open connections; above, the oldest unauthenticated one is closed',
    ),
    MAX_CONNECTIONS_PER_ADDRESS: field(
      wholeNumber(10, 1_000_000),
      '2000',
      'Unauthenticated connections from one address; with TRUST_PROXY, open requests by forwarded address',
    ),
    WORKERS: field(
      kinds.workers,
      '1',
      'Routers to run as processes that share the ports; auto: one per core',
    ),
    SHUTDOWN_TIMEOUT: field(interval, '30s', 'Longest time of a clean stop'),
  }),
  ...section('Access', {
    SMART_ROUTER_API_KEY: optional(secret(16), 'Bearer key of the voice agents', hidden),
    SMART_ROUTER_ADMIN_KEY: optional(secret(16), 'Bearer key of operators', hidden),
    AUTH_DISABLED: field(boolean, 'false', 'Listen beyond loopback without a key'),
    CONSOLE_SESSION_TTL: field(duration('1m', '168h'), '8h', 'How long a sign-in to the console lasts'),
    TWILIO_AUTH_TOKEN: optional(secret(1), 'Checks the signature of Twilio webhooks', hidden),
    PLIVO_AUTH_TOKEN: optional(secret(1), 'Checks the signature of Plivo webhooks', hidden),
    EXOTEL_WEBHOOK_TOKEN: optional(secret(1), 'Token Exotel sends as query token or basic auth', hidden),
  }),
  ...section('Voice agents', {
    VOICE_AGENT_BASE_URL: field(
      kinds.baseUrl('ws', 'wss'),
      'ws://localhost:8081',
      'Address for the audio of a call: {base} of the template',
      withPassword,
    ),
    WS_URL_TEMPLATE: field(
      kinds.wsUrlTemplate,
      '{base}/ws/pod/{pod}/agent/voice/breeze-buddy/{provider}/callback/{template}{flow}',
      'The ws_url of a call; {flow} is /v2 or nothing',
      withPassword,
    ),
  }),
  ...section('Store', {
    REDIS_URL: field(
      kinds.redisUrl,
      'redis://localhost:6379',
      'The store; embedded runs one inside the process, not persisted',
      { demo: 'embedded', secret: 'password' },
    ),
    REDIS_KEY_PREFIX: field(
      kinds.keyPrefix,
      'voice:',
      'Starts every key; on a cluster with a hash tag: {voice}:',
    ),
    REDIS_COMMAND_TIMEOUT: field(duration('10ms', '1m'), '1s', 'Longest one command may take'),
    REDIS_WAIT_REPLICAS: field(
      wholeNumber(0, 10),
      '0',
      'Replicas that must have an allocate, release or drain before it is answered; 0: not checked',
    ),
    REDIS_WAIT_TIMEOUT: field(duration('1ms', '10s'), '100ms', 'How long to wait for those replicas'),
    REDIS_WAIT_POLICY: field(
      choice('mark', 'refuse'),
      'mark',
      'An allocate without them: mark answers it with replicated: false, refuse answers 503 not_replicated',
    ),
    AFTER_FAILOVER: field(
      choice('report', 'trust'),
      'report',
      'After a failover of the store, pods that report take new calls once they have reported; trust: at once',
    ),
  }),
  ...section('Calls', {
    TIER_CONFIG: optional(
      kinds.tierConfig,
      'Tiers and default chain, in JSON; written to the store only if it has none. Unset: gold 10, standard 20, overflow 5',
    ),
    TIER_CONFIG_REFRESH_INTERVAL: field(
      interval,
      '30s',
      'Time between two reads of the tiers from the store',
    ),
    LEASE_TTL: field(ofADay, '15m', 'How long a call keeps its pod without renewal'),
    CALL_INFO_TTL: field(duration('100ms', '168h'), '1h', 'How long the store keeps a call without renewal'),
    DRAINING_TTL: field(ofADay, '6m', 'How long a drain lasts'),
    REPORT_GRACE: field(
      interval,
      '30s',
      'How long a call may be missing from the reports of its pod, and how long an ended call cannot be adopted',
    ),
    NO_SHOW_TIMEOUT: field(
      orOff(ofADay, 'off', '0', '0s'),
      'off',
      'Ends a call that was not renewed or reported by then',
    ),
  }),
  ...section('Waiting', {
    HOLD_POLL_INTERVAL: field(
      duration('1s', '30s'),
      '5s',
      'How often a held caller asks again; a call that misses three is removed from the queue',
    ),
    HOLD_CLAIM_TTL: field(
      duration('3s', '5m'),
      '20s',
      'How long a pod is kept for a waiting call until its caller asks again',
    ),
    HOLD_AUDIO_URL: optional(
      webhookUrl,
      'What a held caller hears, 4 to 6 seconds of audio; without it, HOLD_MESSAGE',
    ),
    HOLD_MESSAGE: field(
      line(500),
      'All our agents are busy. Please hold the line.',
      'What a held caller hears without HOLD_AUDIO_URL',
    ),
    HOLD_ANNOUNCE_POSITION: field(
      boolean,
      'false',
      'Tell a held caller the place in the queue, each time it improves',
    ),
  }),
  ...section('Pods', {
    POD_SOURCE: field(choice('kubernetes', 'static', 'registered'), 'kubernetes', 'Where pods come from'),
    STATIC_PODS: optional(
      kinds.staticPods,
      'The pods of POD_SOURCE=static: name, name=tier or name=merchant:id, separated by commas',
    ),
    POD_LABEL_SELECTOR: field(line(1_024), 'app=voice-agent', 'Which pods are voice agents'),
    NAMESPACE: field(kinds.dnsLabel, 'default', 'Namespace of the voice agents'),
    KUBECONFIG: optional(line(4_096), 'How to reach Kubernetes from outside, as for kubectl'),
    KUBERNETES_SERVICE_HOST: optional(
      kinds.host,
      'Address of the API server for a router without KUBECONFIG; Kubernetes sets it in every pod',
    ),
    KUBERNETES_SERVICE_PORT: field(
      port,
      '443',
      'Port of KUBERNETES_SERVICE_HOST; Kubernetes sets it in every pod',
    ),
    KUBERNETES_WATCH_TIMEOUT: field(
      duration('100ms', '1h'),
      '150s',
      'A watch without an event for this long is reopened',
    ),
    REGISTERED_POD_TTL: field(
      ofADay,
      '45s',
      'With POD_SOURCE=registered: a pod without a report for this long is not ready',
    ),
    CLEANUP_INTERVAL: field(interval, '30s', 'Time between two zombie sweeps'),
    RECONCILE_INTERVAL: field(interval, '60s', 'Time between two full comparisons with the pod source'),
    AUDIT_INTERVAL: field(
      orOff(ofADay, 'off', '0', '0s'),
      '5m',
      'Time between two consistency audits by the leader',
    ),
  }),
  ...section('Leadership', {
    POD_NAME: field(line(253), podName, 'Identity of this replica'),
    LEADER_ELECTION_ENABLED: field(
      boolean,
      'true',
      'false: this replica is always the leader; for a single replica',
    ),
    LEADER_ELECTION_LOCK_NAME: field(kinds.dnsName, 'smart-router-leader', 'Name of the Kubernetes Lease'),
    LEADER_ELECTION_NAMESPACE: field(kinds.dnsLabel, sameNamespace, 'Namespace of the Lease'),
    LEADER_ELECTION_DURATION: field(
      interval,
      '15s',
      'A leader that does not renew for this long is replaced',
    ),
    LEADER_ELECTION_RENEW_DEADLINE: field(
      interval,
      '10s',
      'A leader that cannot renew for this long gives up',
    ),
    LEADER_ELECTION_RETRY_PERIOD: field(interval, '2s', 'Time between two tries to get or renew the Lease'),
    LEADER_LOSS: field(
      choice('exit', 'follow'),
      lossDefault,
      'What a replica does when it loses leadership: exit cleanly, or continue as a follower',
    ),
  }),
  ...section('Records', {
    DATABASE_URL: optional(
      kinds.databaseUrl,
      'PostgreSQL with the records; embedded starts one as a child process; unset: no records',
      withPassword,
    ),
    DATABASE_FOLDER: optional(
      line(4_096),
      'Data folder of DATABASE_URL=embedded; unset: data is deleted at the end',
    ),
    RECORDS_POOL_SIZE: field(
      wholeNumber(2, 1_000),
      '10',
      'Database connections of one replica, besides one for its heartbeat and one for wake-ups',
    ),
    RECORDS_HEAP_MB: field(
      wholeNumber(64, 65_536),
      heapMb,
      'Heap limit of the records process; a handler that needs more ends it, not the router',
    ),
    RECORDS_WORKFLOWS: field(
      kinds.shippedWorkflows,
      shippedWorkflows,
      'The shipped workflows to run, separated by commas',
    ),
    RECORDS_MODULE: optional(line(4_096), 'Path of an ES module that exports your own workflows'),
    RECORDS_ALLOW_PRIVATE_ADDRESSES: field(
      boolean,
      'false',
      'Whether the shipped workflows may fetch from private addresses',
    ),
    RECORDS_SPOOL_FOLDER: optional(
      line(4_096),
      'Folder for outcomes while both the database and the store are unreachable; unset: in the folder for temporary files',
    ),
    ZOMBIE_CLEANUP_ENABLED: field(boolean, 'true', 'Whether stuck records are requeued'),
    ZOMBIE_CLEANUP_INTERVAL_MINUTES: field(
      kinds.minutes(1, 10_080),
      '15',
      'Time between two slow sweeps over records',
    ),
    ZOMBIE_STUCK_THRESHOLD_MINUTES: field(
      kinds.minutes(1, 35_000),
      '60',
      'A record in Processing without a claim for this long is stuck',
    ),
    RECORDS_REPORT_ENABLED: field(boolean, 'true', 'Whether there is a weekly report'),
    RECORDS_REPORT_FOLDER: optional(line(4_096), 'Folder for the weekly report'),
    RECORDS_REPORT_WEBHOOK_URL: optional(webhookUrl, 'Address that gets the weekly report', hidden),
    RECORDS_REPORT_WEBHOOK_SECRET: optional(secret(16), 'Signs the weekly report', hidden),
  }),
  ...section('Alerts', {
    ALERT_WEBHOOK_URL: optional(webhookUrl, 'Address that gets alerts as JSON', hidden),
    ALERT_WEBHOOK_SECRET: optional(secret(16), 'Signs alerts', hidden),
    PAGERDUTY_ROUTING_KEY: optional(secret(1), 'Sends alerts to PagerDuty', hidden),
    PAGERDUTY_URL: field(
      webhookUrl,
      'https://events.pagerduty.com/v2/enqueue',
      'Events API v2 of PagerDuty',
      withPassword,
    ),
    PAGERDUTY_LEAST_SEVERITY: field(
      choice('warning', 'critical', 'page'),
      'critical',
      'Less severe alerts are not sent to PagerDuty',
    ),
    ALERT_INTERVAL: field(
      duration('100ms', '5m'),
      '15s',
      'Time between two evaluations of the alerts for receivers',
    ),
  }),
  ...section('Logging', {
    LOG_LEVEL: field(
      choice('trace', 'debug', 'info', 'warn', 'error', 'fatal'),
      'info',
      'Lowest level that is logged',
    ),
    LOG_FORMAT: field(choice('json', 'pretty'), 'json', 'JSON lines, or pretty lines for a terminal'),
  }),
  ...section('Tracing', {
    OTEL_EXPORTER_OTLP_ENDPOINT: optional(
      kinds.baseUrl('http', 'https'),
      'OpenTelemetry collector for traces (OTLP over HTTP, /v1/traces is appended)',
    ),
    OTEL_EXPORTER_OTLP_HEADERS: optional(
      kinds.headerList,
      'Headers of every request to the collector: name=value, separated by commas',
      hidden,
    ),
    OTEL_SERVICE_NAME: field(line(100), 'smart-router', 'Service name of the traces'),
    OTEL_TRACES_SAMPLER_ARG: field(
      kinds.share,
      '1',
      'Share of the requests that are traced, 0 to 1; a request that its caller traces always is',
    ),
  }),
};

/** Every variable there is, in the order of the documentation. */
export const configTable: readonly Field<unknown>[] = Object.values(configFields);
