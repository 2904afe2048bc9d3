/**
 * Every environment variable: name, kind, default, meaning. config.ts reads this table, `smart-router config` prints it, and
 * a test checks that docs/configuration.md lists it.
 *
 * A default is text, as in the environment, and is checked in the same way.
 */
import { hostname } from 'node:os';
import { type Default, type Field, field, optional, section } from './entries.js';
import * as kinds from './fields.js';
import { recordFields, tracingFields } from './records-table.js';

const { boolean, choice, duration, line, orOff, secret, wholeNumber } = kinds;
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

export const configFields = {
  ...section('Server', {
    httpHost: field('HTTP_HOST', kinds.host, '127.0.0.1', 'Address the API listens on'),
    httpPort: field('HTTP_PORT', port, '8080', 'Port of the API; 0: any free port'),
    metricsPort: field(
      'METRICS_PORT',
      orOff(port, 'off'),
      '9090',
      'Second port with /metrics only; 0: any free port',
      { demo: 'off' },
    ),
    publicUrl: optional(
      'PUBLIC_URL',
      kinds.baseUrl('http', 'https'),
      'Address that providers call; their signatures include it',
      withPassword,
    ),
    trustProxy: field(
      'TRUST_PROXY',
      kinds.trustProxy,
      'false',
      'Whose X-Forwarded headers count: false, true, a number of hops, or addresses',
    ),
    requestTimeoutMs: field(
      'REQUEST_TIMEOUT',
      duration('50ms', '1m'),
      '2s',
      'Timeout of a request that needs the store',
    ),
    maxRequestsInFlight: field(
      'MAX_REQUESTS_IN_FLIGHT',
      wholeNumber(1, 100_000),
      '1000',
      'Requests in flight from which new calls are rejected; twice as many for other requests',
    ),
    overloadDelayMs: field(
      'OVERLOAD_DELAY',
      orOff(duration('1ms', '10s'), 'off'),
      '25ms',
      'Event loop delay above which a router accepts fewer new calls',
    ),
    maxConnections: field(
      'MAX_CONNECTIONS',
      wholeNumber(10, 1_000_000),
      '10000',
      'Open connections; above, the oldest unauthenticated one is closed',
    ),
    maxConnectionsPerAddress: field(
      'MAX_CONNECTIONS_PER_ADDRESS',
      wholeNumber(10, 1_000_000),
      '2000',
      'Unauthenticated connections from one address; with TRUST_PROXY, open requests by forwarded address',
    ),
    workers: field(
      'WORKERS',
      kinds.workers,
      '1',
      'Routers to run as processes that share the ports; auto: one per core',
    ),
    shutdownTimeoutMs: field('SHUTDOWN_TIMEOUT', interval, '30s', 'Longest time of a clean stop'),
  }),
  ...section('Access', {
    apiKey: optional('SMART_ROUTER_API_KEY', secret(16), 'Bearer key of the voice agents', hidden),
    adminKey: optional('SMART_ROUTER_ADMIN_KEY', secret(16), 'Bearer key of operators', hidden),
    authDisabled: field('AUTH_DISABLED', boolean, 'false', 'Listen beyond loopback without a key'),
    consoleSessionTtlMs: field(
      'CONSOLE_SESSION_TTL',
      duration('1m', '168h'),
      '8h',
      'How long a sign-in to the console lasts',
    ),
    twilioAuthToken: optional(
      'TWILIO_AUTH_TOKEN',
      secret(1),
      'Checks the signature of Twilio webhooks',
      hidden,
    ),
    plivoAuthToken: optional('PLIVO_AUTH_TOKEN', secret(1), 'Checks the signature of Plivo webhooks', hidden),
    exotelWebhookToken: optional(
      'EXOTEL_WEBHOOK_TOKEN',
      secret(1),
      'Token Exotel sends as query token or basic auth',
      hidden,
    ),
  }),
  ...section('Voice agents', {
    voiceAgentBaseUrl: field(
      'VOICE_AGENT_BASE_URL',
      kinds.baseUrl('ws', 'wss'),
      'ws://localhost:8081',
      'Address for the audio of a call: {base} of the template',
      withPassword,
    ),
    wsUrlTemplate: field(
      'WS_URL_TEMPLATE',
      kinds.wsUrlTemplate,
      '{base}/ws/pod/{pod}/agent/voice/breeze-buddy/{provider}/callback/{template}{flow}',
      'The ws_url of a call; {flow} is /v2 or nothing',
      withPassword,
    ),
  }),
  ...section('Store', {
    redisUrl: field(
      'REDIS_URL',
      kinds.redisUrl,
      'redis://localhost:6379',
      'The store; embedded runs one inside the process, not persisted',
      { demo: 'embedded', secret: 'password' },
    ),
    redisKeyPrefix: field(
      'REDIS_KEY_PREFIX',
      kinds.keyPrefix,
      'voice:',
      'Starts every key; on a cluster with a hash tag: {voice}:',
    ),
    redisCommandTimeoutMs: field(
      'REDIS_COMMAND_TIMEOUT',
      duration('10ms', '1m'),
      '1s',
      'Longest one command may take',
    ),
    redisWaitReplicas: field(
      'REDIS_WAIT_REPLICAS',
      wholeNumber(0, 10),
      '0',
      'Replicas that must have an allocate, release or drain before it is answered; 0: not checked',
    ),
    redisWaitTimeoutMs: field(
      'REDIS_WAIT_TIMEOUT',
      duration('1ms', '10s'),
      '100ms',
      'How long to wait for those replicas',
    ),
    redisWaitPolicy: field(
      'REDIS_WAIT_POLICY',
      choice('mark', 'refuse'),
      'mark',
      'An allocate without them: mark answers it with replicated: false, refuse answers 503 not_replicated',
    ),
    afterFailover: field(
      'AFTER_FAILOVER',
      choice('report', 'trust'),
      'report',
      'After a failover of the store, pods that report take new calls once they have reported; trust: at once',
    ),
  }),
  ...section('Calls', {
    tierConfig: optional(
      'TIER_CONFIG',
      kinds.tierConfig,
      'Tiers and default chain, in JSON; written to the store only if it has none. Unset: gold 10, standard 20, overflow 5',
    ),
    tierConfigRefreshIntervalMs: field(
      'TIER_CONFIG_REFRESH_INTERVAL',
      interval,
      '30s',
      'Time between two reads of the tiers from the store',
    ),
    leaseTtlMs: field('LEASE_TTL', ofADay, '15m', 'How long a call keeps its pod without renewal'),
    callInfoTtlMs: field(
      'CALL_INFO_TTL',
      duration('100ms', '168h'),
      '1h',
      'How long the store keeps a call without renewal',
    ),
    drainingTtlMs: field('DRAINING_TTL', ofADay, '6m', 'How long a drain lasts'),
    reportGraceMs: field(
      'REPORT_GRACE',
      interval,
      '30s',
      'How long a call may be missing from the reports of its pod, and how long an ended call cannot be adopted',
    ),
    noShowTimeoutMs: field(
      'NO_SHOW_TIMEOUT',
      orOff(ofADay, 'off', '0', '0s'),
      'off',
      'Ends a call that was not renewed or reported by then',
    ),
  }),
  ...section('Waiting', {
    holdPollIntervalMs: field(
      'HOLD_POLL_INTERVAL',
      duration('1s', '30s'),
      '5s',
      'How often a held caller asks again; a call that misses three is removed from the queue',
    ),
    holdClaimTtlMs: field(
      'HOLD_CLAIM_TTL',
      duration('3s', '5m'),
      '20s',
      'How long a pod is kept for a waiting call until its caller asks again',
    ),
    holdAudioUrl: optional(
      'HOLD_AUDIO_URL',
      kinds.webhookUrl,
      'What a held caller hears, 4 to 6 seconds of audio; without it, HOLD_MESSAGE',
    ),
    holdMessage: field(
      'HOLD_MESSAGE',
      line(500),
      'All our agents are busy. Please hold the line.',
      'What a held caller hears without HOLD_AUDIO_URL',
    ),
    holdAnnouncePosition: field(
      'HOLD_ANNOUNCE_POSITION',
      boolean,
      'false',
      'Tell a held caller the place in the queue, each time it improves',
    ),
  }),
  ...section('Pods', {
    podSource: field(
      'POD_SOURCE',
      choice('kubernetes', 'static', 'registered'),
      'kubernetes',
      'Where pods come from',
    ),
    staticPods: optional(
      'STATIC_PODS',
      kinds.staticPods,
      'The pods of POD_SOURCE=static: name, name=tier or name=merchant:id, separated by commas',
    ),
    podLabelSelector: field(
      'POD_LABEL_SELECTOR',
      line(1_024),
      'app=voice-agent',
      'Which pods are voice agents',
    ),
    namespace: field('NAMESPACE', kinds.dnsLabel, 'default', 'Namespace of the voice agents'),
    kubeconfig: optional('KUBECONFIG', line(4_096), 'How to reach Kubernetes from outside, as for kubectl'),
    kubernetesServiceHost: optional(
      'KUBERNETES_SERVICE_HOST',
      kinds.host,
      'Address of the API server for a router without KUBECONFIG; Kubernetes sets it in every pod',
    ),
    kubernetesServicePort: field(
      'KUBERNETES_SERVICE_PORT',
      port,
      '443',
      'Port of KUBERNETES_SERVICE_HOST; Kubernetes sets it in every pod',
    ),
    kubernetesWatchTimeoutMs: field(
      'KUBERNETES_WATCH_TIMEOUT',
      duration('100ms', '1h'),
      '150s',
      'A watch without an event for this long is reopened',
    ),
    registeredPodTtlMs: field(
      'REGISTERED_POD_TTL',
      ofADay,
      '45s',
      'With POD_SOURCE=registered: a pod without a report for this long is not ready',
    ),
    cleanupIntervalMs: field('CLEANUP_INTERVAL', interval, '30s', 'Time between two zombie sweeps'),
    reconcileIntervalMs: field(
      'RECONCILE_INTERVAL',
      interval,
      '60s',
      'Time between two full syncs with the pod source',
    ),
    auditIntervalMs: field(
      'AUDIT_INTERVAL',
      orOff(ofADay, 'off', '0', '0s'),
      '5m',
      'Time between two consistency audits by the leader',
    ),
  }),
  ...section('Leadership', {
    podName: field('POD_NAME', line(253), podName, 'Identity of this replica'),
    leaderElectionEnabled: field(
      'LEADER_ELECTION_ENABLED',
      boolean,
      'true',
      'false: this replica is always the leader; for a single replica',
    ),
    leaderElectionLockName: field(
      'LEADER_ELECTION_LOCK_NAME',
      kinds.dnsName,
      'smart-router-leader',
      'Name of the Kubernetes Lease',
    ),
    leaderElectionNamespace: field(
      'LEADER_ELECTION_NAMESPACE',
      kinds.dnsLabel,
      sameNamespace,
      'Namespace of the Lease',
    ),
    leaderElectionDurationMs: field(
      'LEADER_ELECTION_DURATION',
      interval,
      '15s',
      'A leader that does not renew for this long is replaced',
    ),
    leaderElectionRenewDeadlineMs: field(
      'LEADER_ELECTION_RENEW_DEADLINE',
      interval,
      '10s',
      'A leader that cannot renew for this long gives up',
    ),
    leaderElectionRetryPeriodMs: field(
      'LEADER_ELECTION_RETRY_PERIOD',
      interval,
      '2s',
      'Time between two tries to get or renew the Lease',
    ),
    leaderLoss: field(
      'LEADER_LOSS',
      choice('exit', 'follow'),
      lossDefault,
      'What a replica does when it loses leadership: exit cleanly, or continue as a follower',
    ),
  }),
  ...recordFields,
  ...section('Logging', {
    logLevel: field(
      'LOG_LEVEL',
      choice('trace', 'debug', 'info', 'warn', 'error', 'fatal'),
      'info',
      'Lowest level that is logged',
    ),
    logFormat: field(
      'LOG_FORMAT',
      choice('json', 'pretty'),
      'json',
      'JSON lines, or pretty lines for a terminal',
    ),
  }),
  ...tracingFields,
};

/** Every variable there is, in the order of the documentation. */
export const configTable: readonly Field<unknown>[] = Object.values(configFields);
