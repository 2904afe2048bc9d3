import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, expectTypeOf, it, onTestFinished } from 'vitest';
import { type Clock, systemClock } from '../../src/clock.js';
import { type Config, configTable, describeConfig, loadConfig, type Mode } from '../../src/config/config.js';
import { quotaCores } from '../../src/config/fields.js';
import type { TierConfig } from '../../src/config/tiers.js';
import { ConfigError } from '../../src/errors.js';

type Env = Record<string, string>;

function problemsOf(env: Env, mode: Mode = 'serve'): readonly string[] {
  try {
    loadConfig(env, mode);
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
}

/** The one problem of an environment, which must name its variable first. */
function problemOf(env: Env, variable = Object.keys(env)[0]): string {
  const problems = problemsOf(env);
  expect(problems).toHaveLength(1);
  expect(problems[0]).toMatch(new RegExp(`^${variable}\\b`));
  return problems[0] ?? '';
}

const key = 'k'.repeat(16);
const otherKey = 'o'.repeat(16);

describe('defaults', () => {
  it('are the documented ones for serve', () => {
    const config = loadConfig({}, 'serve');
    expect(config).toMatchObject({
      mode: 'serve',
      warnings: [],
      httpHost: '127.0.0.1',
      httpPort: 8080,
      metricsPort: 9090,
      publicUrl: undefined,
      trustProxy: false,
      apiKey: undefined,
      authDisabled: false,
      voiceAgentBaseUrl: 'ws://localhost:8081',
      wsUrlTemplate: '{base}/ws/pod/{pod}/agent/voice/breeze-buddy/{provider}/callback/{template}{flow}',
      redisUrl: 'redis://localhost:6379',
      redisKeyPrefix: 'voice:',
      redisCommandTimeoutMs: 1_000,
      requestTimeoutMs: 2_000,
      shutdownTimeoutMs: 30_000,
      tierConfig: undefined,
      tierConfigRefreshIntervalMs: 30_000,
      leaseTtlMs: 900_000,
      callInfoTtlMs: 3_600_000,
      drainingTtlMs: 360_000,
      reportGraceMs: 30_000,
      noShowTimeoutMs: undefined,
      cleanupIntervalMs: 30_000,
      reconcileIntervalMs: 60_000,
      auditIntervalMs: 300_000,
      afterFailover: 'report',
      podSource: 'kubernetes',
      staticPods: undefined,
      podLabelSelector: 'app=voice-agent',
      namespace: 'default',
      kubeconfig: undefined,
      kubernetesWatchTimeoutMs: 150_000,
      registeredPodTtlMs: 45_000,
      leaderElectionEnabled: true,
      leaderElectionLockName: 'smart-router-leader',
      leaderElectionNamespace: 'default',
      leaderElectionDurationMs: 15_000,
      leaderElectionRenewDeadlineMs: 10_000,
      leaderElectionRetryPeriodMs: 2_000,
      leaderLoss: 'exit',
      logLevel: 'info',
      logFormat: 'json',
      databaseUrl: undefined,
      zombieCleanupEnabled: true,
      zombieCleanupIntervalMs: 15 * 60_000,
      zombieStuckThresholdMs: 60 * 60_000,
      recordsReportEnabled: true,
      recordsReportFolder: undefined,
      recordsReportWebhookUrl: undefined,
      recordsReportWebhookSecret: undefined,
      alertWebhookUrl: undefined,
      alertWebhookSecret: undefined,
      pagerdutyRoutingKey: undefined,
      pagerdutyUrl: 'https://events.pagerduty.com/v2/enqueue',
      pagerdutyLeastSeverity: 'critical',
      alertIntervalMs: 15_000,
    });
  });

  it('need nothing outside for the demo', () => {
    expect(loadConfig({}, 'demo')).toMatchObject({
      redisUrl: 'embedded',
      databaseUrl: undefined,
      metricsPort: undefined,
      warnings: [],
    });
  });

  it('hold for empty and blank variables', () => {
    const empty = Object.fromEntries(configTable.map(({ name }) => [name, '']));
    const fixed: Clock = { ...systemClock, random: () => 0.5 };
    expect(loadConfig(empty, 'serve', fixed)).toEqual(loadConfig({}, 'serve', fixed));
    expect(loadConfig({ LEASE_TTL: '  ' }).leaseTtlMs).toBe(900_000);
  });

  it('give every replica its own name, and the Lease the namespace of the pods', () => {
    expect(loadConfig({}).podName).not.toBe(loadConfig({}).podName);
    expect(loadConfig({ POD_NAME: 'router-0' }).podName).toBe('router-0');
    expect(loadConfig({ NAMESPACE: 'voice' }).leaderElectionNamespace).toBe('voice');
    expect(loadConfig({ NAMESPACE: 'v', LEADER_ELECTION_NAMESPACE: 'w' }).leaderElectionNamespace).toBe('w');
  });

  it('make LEADER_LOSS exit only with Kubernetes, unless it is set', () => {
    expect(loadConfig({ POD_SOURCE: 'kubernetes' }).leaderLoss).toBe('exit');
    expect(loadConfig({ POD_SOURCE: 'static', STATIC_PODS: 'a' }).leaderLoss).toBe('follow');
    expect(loadConfig({ POD_SOURCE: 'registered' }).leaderLoss).toBe('follow');
    expect(loadConfig({ POD_SOURCE: 'registered', LEADER_LOSS: 'exit' }).leaderLoss).toBe('exit');
    expect(loadConfig({ LEADER_LOSS: 'follow' }).leaderLoss).toBe('follow');
  });

  it('are one worker; auto is one per core', () => {
    expect(loadConfig({}).workers).toBe(1);
    expect(loadConfig({ WORKERS: 'auto' }).workers).toBe(Math.min(availableParallelism(), quotaCores(), 128));
  });

  it.each([
    [{ 'cpu.max': '150000 100000\n' }, 2],
    [{ 'cpu.max': '5000 100000\n' }, 1],
    [{ 'cpu.max': 'max 100000\n' }, Number.POSITIVE_INFINITY],
    [{ 'cpu/cpu.cfs_quota_us': '250000\n', 'cpu/cpu.cfs_period_us': '100000\n' }, 3],
    [{ 'cpu/cpu.cfs_quota_us': '-1\n', 'cpu/cpu.cfs_period_us': '100000\n' }, Number.POSITIVE_INFINITY],
    [{}, Number.POSITIVE_INFINITY],
  ])('limit auto to the CPU quota of the container: %j', (files, cores) => {
    const folder = mkdtempSync(join(tmpdir(), 'cgroup-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    mkdirSync(join(folder, 'cpu'));
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    expect(quotaCores(folder)).toBe(cores);
  });

  it('have the types their users expect', () => {
    expectTypeOf<Config['leaseTtlMs']>().toEqualTypeOf<number>();
    expectTypeOf<Config['metricsPort']>().toEqualTypeOf<number | undefined>();
    expectTypeOf<Config['apiKey']>().toEqualTypeOf<string | undefined>();
    expectTypeOf<Config['podSource']>().toEqualTypeOf<'kubernetes' | 'static' | 'registered'>();
    expectTypeOf<Config['tierConfig']>().toEqualTypeOf<TierConfig | undefined>();
  });
});

describe('values', () => {
  it.each<[Env, Partial<Config>]>([
    [
      { HTTP_PORT: '0', METRICS_PORT: '0' },
      { httpPort: 0, metricsPort: 0 },
    ],
    [{ METRICS_PORT: 'Off' }, { metricsPort: undefined }],
    [
      { LEASE_TTL: ' 100ms ', CLEANUP_INTERVAL: '0.1s' },
      { leaseTtlMs: 100, cleanupIntervalMs: 100 },
    ],
    [{ NO_SHOW_TIMEOUT: '45s' }, { noShowTimeoutMs: 45_000 }],
    [{ NO_SHOW_TIMEOUT: '0' }, { noShowTimeoutMs: undefined }],
    [{ NO_SHOW_TIMEOUT: '0s' }, { noShowTimeoutMs: undefined }],
    [{ LEADER_ELECTION_ENABLED: 'No' }, { leaderElectionEnabled: false }],
    [{ LEADER_ELECTION_ENABLED: '1' }, { leaderElectionEnabled: true }],
    [{ LOG_LEVEL: 'WARN' }, { logLevel: 'warn' }],
    [{ TRUST_PROXY: 'true' }, { trustProxy: true }],
    [{ TRUST_PROXY: '1' }, { trustProxy: 1 }],
    [{ TRUST_PROXY: '0' }, { trustProxy: false }],
    [{ TRUST_PROXY: '10.0.0.0/8, ::1,loopback' }, { trustProxy: ['10.0.0.0/8', '::1', 'loopback'] }],
    [{ PUBLIC_URL: 'https://voice.example.com/' }, { publicUrl: 'https://voice.example.com' }],
    [{ PUBLIC_URL: 'http://localhost:8080/router/' }, { publicUrl: 'http://localhost:8080/router' }],
    [{ VOICE_AGENT_BASE_URL: 'wss://a.example/x//' }, { voiceAgentBaseUrl: 'wss://a.example/x' }],
    [
      { WS_URL_TEMPLATE: 'wss://{pod}.v.example/{template}' },
      { wsUrlTemplate: 'wss://{pod}.v.example/{template}' },
    ],
    [{ REDIS_URL: 'EMBEDDED' }, { redisUrl: 'embedded' }],
    [{ HTTP_HOST: '[::1]' }, { httpHost: '::1' }],
    [{ HTTP_HOST: 'localhost' }, { httpHost: 'localhost' }],
    [{ HTTP_HOST: '127.0.0.2' }, { httpHost: '127.0.0.2' }],
    [{ DATABASE_URL: 'postgresql://u:p@h/db' }, { databaseUrl: 'postgresql://u:p@h/db' }],
    [{ ZOMBIE_CLEANUP_INTERVAL_MINUTES: '1' }, { zombieCleanupIntervalMs: 60_000 }],
    [{ AUDIT_INTERVAL: '0' }, { auditIntervalMs: undefined }],
    [{ AUDIT_INTERVAL: 'off' }, { auditIntervalMs: undefined }],
    [{ AUDIT_INTERVAL: '1h' }, { auditIntervalMs: 3_600_000 }],
    [{}, { recordsWorkflows: [] }],
    [{ DATABASE_URL: 'postgresql://h/db' }, { recordsWorkflows: [] }],
    [{ DATABASE_URL: 'embedded' }, { recordsWorkflows: ['sitemap-import', 'page-curation'] }],
    [{ DATABASE_URL: 'embedded', RECORDS_MODULE: 'x.mjs' }, { recordsWorkflows: [] }],
    [{ RECORDS_MODULE: 'x.mjs' }, { recordsModule: 'x.mjs', recordsWorkflows: [] }],
    [{ RECORDS_MODULE: 'x.mjs', RECORDS_WORKFLOWS: 'wf7' }, { recordsWorkflows: ['page-curation'] }],
    [
      { RECORDS_WORKFLOWS: 'WF7, page-curation,wf6' },
      { recordsWorkflows: ['page-curation', 'sitemap-import'] },
    ],
    [{ RECORDS_WORKFLOWS: 'none' }, { recordsWorkflows: [] }],
    [
      { ALERT_WEBHOOK_URL: 'https://hooks.example/T0?to=team' },
      { alertWebhookUrl: 'https://hooks.example/T0?to=team' },
    ],
    [{ PAGERDUTY_LEAST_SEVERITY: 'Warning' }, { pagerdutyLeastSeverity: 'warning' }],
  ])('reads %j', (env, expected) => {
    expect(loadConfig(env)).toMatchObject(expected);
  });

  it.each([
    'redis://localhost',
    'redis://u:p%40ss@10.0.0.1:6379/3',
    'rediss://:pw@[::1]:6380',
    'redis+sentinel://a:26379,b:26379/mymaster',
    'redis+sentinel://:pw@a,b,c/main?tls=true',
  ])('accepts %s', (REDIS_URL) => {
    expect(loadConfig({ REDIS_URL }).redisUrl).toBe(REDIS_URL);
  });

  it('reads static pods', () => {
    const { staticPods } = loadConfig({
      POD_SOURCE: 'static',
      STATIC_PODS: 'a, b=gold,\nc=merchant:acme,',
      LEADER_ELECTION_ENABLED: 'false',
    });
    expect(staticPods).toEqual([{ name: 'a' }, { name: 'b', tier: 'gold' }, { name: 'c', merchant: 'acme' }]);
  });

  it('reads tiers and passes their warnings on', () => {
    const { tierConfig, warnings } = loadConfig({
      TIER_CONFIG: '{"tiers":{"a":{}},"default_chain":["b","a"]}',
    });
    expect(tierConfig?.defaultChain).toEqual(['a']);
    expect(warnings).toEqual(['TIER_CONFIG: default_chain[0] names no tier: "b" is dropped']);
  });

  it('warns about variables that are set and not used', () => {
    expect(loadConfig({ STATIC_PODS: 'a' }).warnings).toEqual([
      'STATIC_PODS is not used with POD_SOURCE=kubernetes',
    ]);
    expect(loadConfig({ POD_SOURCE: 'registered' }).warnings).toEqual([]);
    expect(loadConfig({ RECORDS_MODULE: 'x.mjs', DATABASE_FOLDER: 'x' }).warnings).toEqual([
      'RECORDS_MODULE is not used without DATABASE_URL',
      'DATABASE_FOLDER is used only with DATABASE_URL=embedded',
    ]);
    expect(loadConfig({ ALERT_WEBHOOK_SECRET: key, RECORDS_REPORT_WEBHOOK_SECRET: key }).warnings).toEqual([
      'ALERT_WEBHOOK_SECRET is not used without ALERT_WEBHOOK_URL',
      'RECORDS_REPORT_WEBHOOK_SECRET is not used without RECORDS_REPORT_WEBHOOK_URL',
    ]);
  });
});

describe('refusals', () => {
  it.each<[Env, string]>([
    [{ HTTP_PORT: '65536' }, 'a whole number from 0 to 65535; got "65536"'],
    [{ HTTP_PORT: '8080x' }, 'got "8080x"'],
    [{ HTTP_PORT: '-1' }, 'got "-1"'],
    [{ HTTP_PORT: '1e3' }, 'got "1e3"'],
    [{ METRICS_PORT: 'none' }, ', or off; got "none"'],
    [{ WORKERS: '0' }, 'a whole number from 1 to 128, or auto; got "0"'],
    [{ WORKERS: '-1' }, 'got "-1"'],
    [{ WORKERS: '1000' }, 'got "1000"'],
    [{ WORKERS: 'x' }, 'got "x"'],
    [{ HTTP_HOST: 'a b' }, 'an IP address or a host name'],
    [{ HTTP_HOST: '300.1.1.1' }, 'an IP address or a host name'],
    [{ HTTP_HOST: '127.0.0.1:80' }, 'without a port'],
    [{ LEASE_TTL: '900' }, 'a duration from 100ms to 24h like 500ms, 30s or 1h30m; got "900"'],
    [{ LEASE_TTL: '99ms' }, 'from 100ms'],
    [{ LEASE_TTL: '25h' }, 'to 24h'],
    [{ AUTH_DISABLED: 'maybe' }, 'true or false'],
    [{ POD_SOURCE: 'docker' }, 'one of kubernetes, static, registered; got "docker"'],
    [{ LOG_LEVEL: 'verbose' }, 'one of trace, debug, info, warn, error, fatal'],
    [{ LEADER_LOSS: 'panic' }, 'one of exit, follow'],
    [{ AFTER_FAILOVER: 'wait' }, 'one of report, trust'],
    [{ KUBERNETES_WATCH_TIMEOUT: '2h' }, 'from 100ms to 1h'],
    [{ REGISTERED_POD_TTL: '45' }, 'a duration from 100ms to 24h'],
    [{ TRUST_PROXY: '10.0.0.0/33' }, 'addresses like'],
    [{ TRUST_PROXY: '99' }, 'hops from 1 to 32'],
    [{ PUBLIC_URL: 'voice.example.com' }, 'a URL like https://'],
    [{ PUBLIC_URL: 'ftp://voice.example.com' }, 'schemes: http, https'],
    [{ PUBLIC_URL: 'https://a.example/?x=1' }, 'without query'],
    [{ PUBLIC_URL: 'https://a.example/?' }, 'without query'],
    [{ VOICE_AGENT_BASE_URL: 'http://a.example' }, 'schemes: ws, wss'],
    [{ WS_URL_TEMPLATE: '{base}/{template}' }, 'with {pod} in it'],
    [{ WS_URL_TEMPLATE: '{base}/{pod}/{call}' }, 'unknown placeholders: "call"'],
    [{ WS_URL_TEMPLATE: '{base}/{pod}/{' }, 'template of a ws://'],
    [{ WS_URL_TEMPLATE: '/ws/{pod}' }, 'template of a ws://'],
    [{ REDIS_URL: 'localhost:6379' }, 'redis://host:port'],
    [{ REDIS_URL: 'http://localhost' }, 'redis://host:port'],
    [{ REDIS_URL: 'redis://' }, 'redis://host:port'],
    [{ REDIS_URL: 'redis://a,b' }, 'redis://host:port'],
    [{ REDIS_URL: 'redis://a:99999' }, 'redis://host:port'],
    [{ REDIS_URL: 'redis://a/x' }, 'redis://host:port'],
    [{ REDIS_URL: 'redis+sentinel://a:1,b:2' }, 'host:port/name'],
    [{ REDIS_URL: 'redis://u:%zz@a' }, 'percent-encoded'],
    [{ REDIS_URL: 'redis://:a/b@host:6379' }, 'percent-encoded (@ as %40, / as %2F)'],
    [{ DATABASE_URL: 'postgres://u:a/b@host/db' }, 'percent-encoded (@ as %40, / as %2F)'],
    [{ REDIS_KEY_PREFIX: 'a b' }, 'visible ASCII'],
    [{ REDIS_KEY_PREFIX: 'voice*' }, 'without * ?'],
    [{ REDIS_KEY_PREFIX: 'x'.repeat(65) }, '1 to 64'],
    [{ DATABASE_URL: 'mysql://h/db' }, 'postgres://'],
    [{ RECORDS_WORKFLOWS: 'wf6,wf8' }, 'none, or some of sitemap-import (wf6), page-curation (wf7)'],
    [{ RECORDS_WORKFLOWS: 'constructor' }, 'none, or some of'],
    [{ RECORDS_POOL_SIZE: '1' }, 'a whole number from 2 to 1000'],
    [{ ALERT_WEBHOOK_URL: 'hooks.example/T0' }, 'an http:// or https:// address'],
    [{ ALERT_WEBHOOK_URL: 'ftp://hooks.example' }, 'an http:// or https:// address'],
    [{ RECORDS_REPORT_WEBHOOK_URL: 'https://hooks.example/T0\n' }, 'may end in a line break'],
    [{ ALERT_WEBHOOK_SECRET: 'short' }, '16 to 512 visible ASCII characters'],
    [{ PAGERDUTY_URL: 'events.pagerduty.com' }, 'an http:// or https:// address'],
    [{ PAGERDUTY_LEAST_SEVERITY: 'info' }, 'one of warning, critical, page'],
    [{ ALERT_INTERVAL: '10m' }, 'a duration from 100ms to 5m'],
    [{ NAMESPACE: 'Voice' }, 'a DNS label'],
    [{ LEADER_ELECTION_LOCK_NAME: 'a..b' }, 'a DNS name'],
    [{ POD_NAME: 'a\tb' }, 'without control characters'],
    [{ ZOMBIE_STUCK_THRESHOLD_MINUTES: '0' }, 'a whole number from 1 to 35000 (minutes)'],
    [
      { TIER_CONFIG: '{"gold":{"target":"ten"}}' },
      ': gold.target must be a whole number from 0 to 1000000, got "ten"',
    ],
    [{ TIER_CONFIG: 'gold' }, ': is not valid JSON'],
    [{ STATIC_PODS: 'a,B,metadata,c=', POD_SOURCE: 'static' }, '"B", "metadata", "c="'],
    [{ STATIC_PODS: 'a,b,a=gold', POD_SOURCE: 'static' }, 'names pods twice: "a"'],
  ])('names the variable, the rule and the value for %j', (env, message) => {
    expect(problemOf(env)).toContain(message);
  });

  it('come all at once, one line each', () => {
    const problems = problemsOf({
      HTTP_PORT: 'x',
      LEASE_TTL: 'y',
      LOG_LEVEL: 'z',
      TIER_CONFIG: '{"a":-1,"b":-1}',
    });
    expect(problems.map((problem) => problem.split(/[ :]/)[0])).toEqual([
      'HTTP_PORT',
      'TIER_CONFIG',
      'TIER_CONFIG',
      'LEASE_TTL',
      'LOG_LEVEL',
    ]);
  });

  it('take at most 100,000 static pods', () => {
    const pods = (count: number) => Array.from({ length: count }, (_, i) => `p${i}`).join(',');
    expect(loadConfig({ POD_SOURCE: 'static', STATIC_PODS: pods(100_000) }).staticPods).toHaveLength(100_000);
    expect(problemOf({ STATIC_PODS: pods(100_001) })).toContain('has 100001 pods');
  });
});

describe('relations', () => {
  it.each<[Env, string]>([
    [{ CALL_INFO_TTL: '15m' }, 'at least LEASE_TTL + 2 * CLEANUP_INTERVAL = 16m'],
    [{ NO_SHOW_TIMEOUT: '15m' }, 'shorter than LEASE_TTL (15m) or off, got 15m'],
    [{ HOLD_CLAIM_TTL: '15s' }, 'a held caller finds its pod given away, got 15s'],
    [{ REQUEST_TIMEOUT: '900ms' }, 'at least REDIS_COMMAND_TIMEOUT (1s), got 900ms'],
    [{ LEADER_ELECTION_DURATION: '10s' }, 'longer than LEADER_ELECTION_RENEW_DEADLINE (10s)'],
    [{ LEADER_ELECTION_RENEW_DEADLINE: '2.4s' }, 'longer than 1.2 * LEADER_ELECTION_RETRY_PERIOD (2.4s'],
    [{ METRICS_PORT: '8080' }, 'must differ from HTTP_PORT'],
    [{ WORKERS: '2', LEADER_ELECTION_ENABLED: 'false' }, 'or every worker leads, got 2'],
    [{ HTTP_HOST: '0.0.0.0' }, 'a loopback address'],
    [{ HTTP_HOST: '::' }, 'a loopback address'],
    [{ HTTP_HOST: 'router.example.com' }, 'a loopback address'],
    [{ AUTH_DISABLED: 'true', SMART_ROUTER_API_KEY: key }, 'must not be true while'],
    [{ AUTH_DISABLED: 'true', SMART_ROUTER_ADMIN_KEY: key }, 'must not be true while'],
    [{ SMART_ROUTER_ADMIN_KEY: key, SMART_ROUTER_API_KEY: key }, 'must differ from SMART_ROUTER_API_KEY'],
  ])('refuse %j', (env, message) => {
    expect(problemOf(env)).toContain(message);
  });

  it('require pods for a static source', () => {
    expect(problemOf({ POD_SOURCE: 'static' }, 'STATIC_PODS')).toContain('at least one pod');
    expect(problemOf({ POD_SOURCE: 'static', STATIC_PODS: ',' }, 'STATIC_PODS')).toContain(
      'at least one pod',
    );
  });

  it('require a hash tag on a cluster', () => {
    const REDIS_URL = 'redis+cluster://a:6379,b:6379';
    for (const prefix of ['voice:', '{}:', '}x{:', '{voice']) {
      const problem = problemOf({ REDIS_URL, REDIS_KEY_PREFIX: prefix }, 'REDIS_KEY_PREFIX');
      expect(problem).toContain('hash tag like {voice}:');
    }
    expect(loadConfig({ REDIS_URL, REDIS_KEY_PREFIX: '{voice}:' }).redisUrl).toBe(REDIS_URL);
  });

  it('let a key, or AUTH_DISABLED, open the door beyond loopback', () => {
    for (const env of [
      { SMART_ROUTER_API_KEY: key },
      { SMART_ROUTER_ADMIN_KEY: key },
      { AUTH_DISABLED: 'yes' },
    ]) {
      expect(loadConfig({ HTTP_HOST: '0.0.0.0', ...env }).httpHost).toBe('0.0.0.0');
    }
    expect(loadConfig({ SMART_ROUTER_API_KEY: key, SMART_ROUTER_ADMIN_KEY: otherKey }).adminKey).toBe(
      otherKey,
    );
  });

  it('say nothing about a value that could not be read', () => {
    expect(problemsOf({ HTTP_HOST: '0.0.0.0', SMART_ROUTER_API_KEY: 'short' })).toHaveLength(1);
    expect(problemsOf({ LEASE_TTL: '48h', CALL_INFO_TTL: '1s' })).toHaveLength(1);
  });
});

describe('secrets', () => {
  it.each(['short', 'k'.repeat(513), `${key} `, `${key}\n`, `${key}é`])(
    'refuses the key %j without showing it',
    (value) => {
      const problem = problemOf({ SMART_ROUTER_API_KEY: value });
      expect(problem).toContain('16 to 512 visible ASCII characters');
      expect(problem).not.toContain(value.trim());
    },
  );

  it('hides passwords of URLs in problems, also of invalid URLs', () => {
    for (const REDIS_URL of [
      'redis://u:hunter2@host:port',
      'redis://:hunter2@/',
      'redis://hunter2@a:1,b@c:x',
      'u:hunter2@host',
      'http://u:hun@ter2@hunter2@h',
      'redis+sentinel://a:1?sentinel_password=hunter2',
    ]) {
      expect(problemOf({ REDIS_URL })).not.toContain('hunter2');
    }
    expect(problemOf({ PUBLIC_URL: 'https://u:hunter2@h' })).not.toContain('hunter2');
    expect(problemOf({ PAGERDUTY_URL: 'https://u:hunter2@h' })).not.toContain('hunter2');
    expect(problemOf({ ALERT_WEBHOOK_URL: 'https://hunter2@h/hunter2' })).not.toContain('hunter2');
    expect(problemOf({ DATABASE_URL: 'mysql://u:hunter2@h/db' })).toContain('mysql://u:********@h/db');
  });

  it('are hidden in the description, with the source of every value', () => {
    const rows = describeConfig({
      SMART_ROUTER_API_KEY: key,
      TWILIO_AUTH_TOKEN: 'twilio-token',
      REDIS_URL: 'redis://u:hunter2@host:6379/0',
      DATABASE_URL: 'postgres://host/db?password=hunter2',
      LEASE_TTL: '10m',
    });
    const row = (name: string) => rows.find((candidate) => candidate.name === name);
    expect(rows.map(({ name }) => name)).toEqual(configTable.map(({ name }) => name));
    expect(row('SMART_ROUTER_API_KEY')).toMatchObject({ value: '********', source: 'environment' });
    expect(row('SMART_ROUTER_ADMIN_KEY')).toMatchObject({ value: '', source: 'default' });
    expect(row('REDIS_URL')?.value).toBe('redis://u:********@host:6379/0');
    expect(row('DATABASE_URL')?.value).toBe('postgres://host/db?password=********');
    expect(row('LEASE_TTL')).toMatchObject({ value: '10m', source: 'environment' });
    expect(row('HTTP_PORT')).toMatchObject({ value: '8080', source: 'default', section: 'Server' });
    expect(JSON.stringify(rows)).not.toMatch(/hunter2|twilio-token|kkkk/);
  });

  it('never appear in a problem or a description', () => {
    const secretNames = configTable.filter((field) => field.secret === true).map(({ name }) => name);
    fc.assert(
      fc.property(
        fc.constantFrom(...secretNames),
        fc.stringMatching(/^[^kK]{0,9}SeCrEt[^kK]{0,9}$/),
        (name, value) => {
          const env = { [name]: value };
          expect(problemsOf(env).join('\n')).not.toContain('SeCrEt');
          expect(JSON.stringify(describeConfig(env))).not.toContain('SeCrEt');
        },
      ),
    );
  });
});

describe('the table', () => {
  it('names every variable once, with a section, a description and a readable default', () => {
    expect(new Set(configTable.map(({ name }) => name)).size).toBe(configTable.length);
    for (const field of configTable) {
      expect(field.name).toMatch(/^[A-Z][A-Z_]+$/);
      expect(field.section).not.toBe('');
      expect(field.description).not.toBe('');
      for (const text of [field.fallback, field.demoFallback]) {
        if (typeof text === 'string') expect(field.kind.read(text)).toHaveProperty('value');
      }
    }
  });

  it('accepts or rejects any text in a variable, and throws only ConfigErrors', () => {
    const names = configTable.map(({ name }) => name);
    const text = fc.oneof(fc.string(), fc.string({ unit: 'binary' }), fc.json(), fc.webUrl());
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom(...names), text), (env) => {
        for (const problem of problemsOf(env)) expect(problem).not.toMatch(/[\n\r]/);
      }),
      { numRuns: 500 },
    );
  });
});

describe('misspelt variables', () => {
  const warnings = (env: Env) => loadConfig({ REDIS_URL: 'embedded', ...env }).warnings;

  it.each([
    ['LEASE_TLL', '15s', 'LEASE_TTL'],
    ['LEASE_TTTL', '15s', 'LEASE_TTL'],
    ['TTL_LEASE', '15s', 'LEASE_TTL'],
    ['LEASETTL', '15s', 'LEASE_TTL'],
    ['lease_ttl', '15s', 'LEASE_TTL'],
    ['HTTP_PROT', '80', 'HTTP_PORT'],
    ['LOGLEVEL', 'debug', 'LOG_LEVEL'],
    ['SMARTROUTER_API_KEY', 'x', 'SMART_ROUTER_API_KEY'],
    ['VOICE_AGENTS_BASE_URL', 'x', 'VOICE_AGENT_BASE_URL'],
    ['LEADER_ELECTON_ENABELD', 'x', 'LEADER_ELECTION_ENABLED'],
    ['SMART_ROUTER_ULR', 'x', 'SMART_ROUTER_URL'],
  ])('%s=%s is a warning that names %s', (given, value, meant) => {
    expect(warnings({ [given]: value })).toEqual([
      `${given} is not a variable of Smart Router and is ignored: did you mean ${meant}?`,
    ]);
  });

  it('are named beside the problem that they cause', () => {
    expect(problemsOf({ POD_SOURCE: 'static', STATIC_POD: 'a,b' })).toEqual([
      expect.stringMatching(/^STATIC_PODS must name/),
      'STATIC_POD is not a variable of Smart Router and is ignored: did you mean STATIC_PODS?',
    ]);
  });

  it('are not what Kubernetes, npm, CI and other programs set', () => {
    const service = (name: string) => ({
      [`${name}_SERVICE_HOST`]: '10.0.0.1',
      [`${name}_SERVICE_PORT`]: '8080',
      [`${name}_SERVICE_PORT_HTTP`]: '8080',
      [`${name}_PORT`]: 'tcp://10.0.0.1:8080',
      [`${name}_PORT_8080_TCP`]: 'tcp://10.0.0.1:8080',
      [`${name}_PORT_8080_TCP_PROTO`]: 'tcp',
      [`${name}_PORT_8080_TCP_PORT`]: '8080',
      [`${name}_PORT_8080_TCP_ADDR`]: '10.0.0.1',
    });
    const others = Object.fromEntries(
      `PATH HOME SHELL LANG LC_ALL TERM PWD OLDPWD USER LOGNAME HOSTNAME EDITOR TMPDIR DEBUG NO_COLOR CI
      NODE_ENV NODE_OPTIONS NODE_EXTRA_CA_CERTS npm_config_loglevel npm_package_name HTTP_PROXY HTTPS_PROXY NO_PROXY
      KUBECONFIG POD_IP NODE_NAME JOB_NAME APP_NAME DB_NAME BUILD_URL GIT_URL BASE_URL APP_URL DATABASE_HOST
      DATABASE_USER DATABASE_NAME DATABASE_PORT REDIS_HOST REDIS_PORT REDIS_PASSWORD PGHOST PGUSER PGPASSWORD
      TWILIO_ACCOUNT_SID PLIVO_AUTH_ID OTEL_EXPORTER_OTLP_PROTOCOL OTEL_LOG_LEVEL AWS_REGION`
        .split(/\s+/)
        .map((name) => [name, 'x']),
    );
    expect(
      warnings({ ...others, ...service('SMART_ROUTER'), ...service('HTPP'), ...service('LEASE_TLL') }),
    ).toEqual([]);
  });

  it('are not reported if the right variable is set too, or the value is empty', () => {
    expect(warnings({ REDIS_URI: 'redis://of-another-program', LEASE_TLL: '' })).toEqual([]);
  });
});
