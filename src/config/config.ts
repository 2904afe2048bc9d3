/**
 * The only reader of the environment.
 *
 * Guarantee: `loadConfig` returns a configuration in which every value and every relation between values is valid, or
 * throws one ConfigError with all problems, one line each: the variable, the expected value, the actual value. Secrets and
 * passwords never appear in a message. An empty variable counts as unset.
 *
 * An unknown variable with a name close to one of ours is a warning with the right name (typos.ts). Other unknown
 * variables are ignored, because the environment is shared with other programs.
 */

import { type Clock, systemClock } from '../clock.js';
import { ConfigError } from '../errors.js';
import { formatDuration } from './durations.js';
import type { Field, Lookup } from './entries.js';
import { hasHashTag, hidePassword, isLoopback } from './fields.js';
import { configFields, configTable } from './table.js';
import { showValue } from './tiers.js';
import { misspelt } from './typos.js';

export { hidePassword, type StaticPod } from './fields.js';
export { configTable } from './table.js';

/** Read-only commands (`config`, `doctor`) use the mode that they inspect. */
export type Mode = 'serve' | 'demo';

type Fields = typeof configFields;
export type ConfigKey = keyof Fields;
type Values = { readonly [K in ConfigKey]: Fields[K] extends Field<infer T> ? T : never };

export interface Config extends Values {
  readonly mode: Mode;
  /** Logged once at the start. */
  readonly warnings: readonly string[];
}

const ms = formatDuration;

/** Variables of the command line and of our scripts. */
const otherNames = ['SMART_ROUTER_URL', 'SMART_ROUTER_SETUP', 'DEMO_SPEED'];

/** Each is checked only if all its values are valid, so that one mistake gives one line. */
const relations: readonly { of: readonly ConfigKey[]; problem(c: Config): string | false | undefined }[] = [
  {
    of: ['callInfoTtlMs', 'leaseTtlMs', 'cleanupIntervalMs'],
    problem({ callInfoTtlMs, leaseTtlMs, cleanupIntervalMs }) {
      const minMs = leaseTtlMs + 2 * cleanupIntervalMs;
      if (callInfoTtlMs >= minMs) return;
      return `CALL_INFO_TTL must be at least LEASE_TTL + 2 * CLEANUP_INTERVAL = ${ms(minMs)}, so that a call is not forgotten before the sweep ends it, got ${ms(callInfoTtlMs)}`;
    },
  },
  {
    of: ['noShowTimeoutMs', 'leaseTtlMs'],
    problem: ({ noShowTimeoutMs, leaseTtlMs }) =>
      noShowTimeoutMs !== undefined &&
      noShowTimeoutMs >= leaseTtlMs &&
      `NO_SHOW_TIMEOUT must be shorter than LEASE_TTL (${ms(leaseTtlMs)}) or off, got ${ms(noShowTimeoutMs)}`,
  },
  {
    of: ['holdClaimTtlMs', 'holdPollIntervalMs'],
    problem: ({ holdClaimTtlMs: claim, holdPollIntervalMs: poll }) =>
      claim <= 3 * poll &&
      `HOLD_CLAIM_TTL must be longer than 3 * HOLD_POLL_INTERVAL (${ms(3 * poll)}), or a held caller finds its pod given away, got ${ms(claim)}`,
  },
  {
    of: ['requestTimeoutMs', 'redisCommandTimeoutMs'],
    problem: ({ requestTimeoutMs, redisCommandTimeoutMs }) =>
      requestTimeoutMs < redisCommandTimeoutMs &&
      `REQUEST_TIMEOUT must be at least REDIS_COMMAND_TIMEOUT (${ms(redisCommandTimeoutMs)}), got ${ms(requestTimeoutMs)}`,
  },
  {
    of: ['requestTimeoutMs', 'redisCommandTimeoutMs', 'redisWaitReplicas', 'redisWaitTimeoutMs'],
    problem({ requestTimeoutMs, redisCommandTimeoutMs, redisWaitReplicas, redisWaitTimeoutMs }) {
      const minMs = redisCommandTimeoutMs + 2 * redisWaitTimeoutMs;
      if (redisWaitReplicas === 0 || requestTimeoutMs >= minMs) return;
      return `REQUEST_TIMEOUT must be at least REDIS_COMMAND_TIMEOUT + 2 * REDIS_WAIT_TIMEOUT = ${ms(minMs)} while REDIS_WAIT_REPLICAS is set, got ${ms(requestTimeoutMs)}`;
    },
  },
  {
    of: ['leaderElectionDurationMs', 'leaderElectionRenewDeadlineMs'],
    problem: ({ leaderElectionDurationMs: lease, leaderElectionRenewDeadlineMs: renew }) =>
      lease <= renew &&
      `LEADER_ELECTION_DURATION must be longer than LEADER_ELECTION_RENEW_DEADLINE (${ms(renew)}), or two replicas lead at once, got ${ms(lease)}`,
  },
  {
    of: ['leaderElectionRenewDeadlineMs', 'leaderElectionRetryPeriodMs'],
    problem: ({ leaderElectionRenewDeadlineMs: renew, leaderElectionRetryPeriodMs: retry }) =>
      renew <= 1.2 * retry &&
      `LEADER_ELECTION_RENEW_DEADLINE must be longer than 1.2 * LEADER_ELECTION_RETRY_PERIOD (${ms(1.2 * retry)}, with jitter), got ${ms(renew)}`,
  },
  {
    of: ['workers', 'leaderElectionEnabled'],
    problem: ({ workers, leaderElectionEnabled }) =>
      workers > 1 &&
      !leaderElectionEnabled &&
      `WORKERS must be 1 while LEADER_ELECTION_ENABLED is false, or every worker leads, got ${workers}`,
  },
  {
    of: ['redisUrl', 'redisKeyPrefix'],
    problem: ({ redisUrl, redisKeyPrefix }) =>
      redisUrl.startsWith('redis+cluster:') &&
      !hasHashTag(redisKeyPrefix) &&
      `REDIS_KEY_PREFIX must carry a hash tag like {voice}: on a Redis Cluster, so that all keys share a slot, got ${showValue(redisKeyPrefix)}`,
  },
  {
    of: ['httpPort', 'metricsPort'],
    problem: ({ httpPort, metricsPort }) =>
      httpPort !== 0 &&
      httpPort === metricsPort &&
      `METRICS_PORT must differ from HTTP_PORT, or be off, got ${metricsPort} for both`,
  },
  {
    of: ['httpHost', 'apiKey', 'adminKey', 'authDisabled'],
    problem: ({ httpHost, apiKey, adminKey, authDisabled }) =>
      !(isLoopback(httpHost) || apiKey || adminKey || authDisabled) &&
      `HTTP_HOST must be a loopback address like 127.0.0.1 while neither SMART_ROUTER_API_KEY nor SMART_ROUTER_ADMIN_KEY is set (AUTH_DISABLED=true allows it), got ${showValue(httpHost)}`,
  },
  {
    of: ['apiKey', 'adminKey', 'authDisabled'],
    problem: ({ apiKey, adminKey, authDisabled }) =>
      authDisabled &&
      (apiKey ?? adminKey) !== undefined &&
      'AUTH_DISABLED must not be true while SMART_ROUTER_API_KEY or SMART_ROUTER_ADMIN_KEY is set: remove one or the other',
  },
  {
    of: ['apiKey', 'adminKey'],
    problem: ({ apiKey, adminKey }) =>
      apiKey !== undefined &&
      apiKey === adminKey &&
      'SMART_ROUTER_ADMIN_KEY must differ from SMART_ROUTER_API_KEY, or every voice agent is an operator',
  },
  {
    // The demo has its own pods.
    of: ['podSource', 'staticPods'],
    problem: ({ mode, podSource, staticPods }) =>
      podSource === 'static' &&
      mode !== 'demo' &&
      !staticPods?.length &&
      'STATIC_PODS must name at least one pod when POD_SOURCE=static, like a,b=gold, got none',
  },
];

function warningsOf(config: Config): string[] {
  const { podSource, staticPods, databaseUrl, databaseFolder, recordsModule } = config;
  const warnings: string[] = [];
  if (databaseUrl === undefined && recordsModule !== undefined)
    warnings.push('RECORDS_MODULE is not used without DATABASE_URL');
  if (databaseUrl !== 'embedded' && databaseFolder !== undefined)
    warnings.push('DATABASE_FOLDER is used only with DATABASE_URL=embedded');
  if (config.alertWebhookSecret !== undefined && config.alertWebhookUrl === undefined)
    warnings.push('ALERT_WEBHOOK_SECRET is not used without ALERT_WEBHOOK_URL');
  if (config.recordsReportWebhookSecret !== undefined && config.recordsReportWebhookUrl === undefined)
    warnings.push('RECORDS_REPORT_WEBHOOK_SECRET is not used without RECORDS_REPORT_WEBHOOK_URL');
  if (podSource !== 'static' && staticPods)
    warnings.push(`STATIC_PODS is not used with POD_SOURCE=${podSource}`);
  return warnings;
}

interface Given {
  readonly text: string | undefined;
  readonly source: 'default' | 'environment';
}

function givenFor(env: NodeJS.ProcessEnv, mode: Mode, clock: Clock): (field: Field<unknown>) => Given {
  const given = (field: Field<unknown>): Given => {
    // Blanks around a value are removed, except in a secret, whose check rejects them.
    const text = field.secret === true ? env[field.name] : env[field.name]?.trim();
    if (text) return { text, source: 'environment' };
    const fallback = (mode === 'demo' ? field.demoFallback : undefined) ?? field.fallback;
    const computed = typeof fallback === 'object' ? fallback.compute(lookup, clock) : fallback;
    return { text: computed, source: 'default' };
  };
  const lookup: Lookup = (name) => {
    const field = configTable.find((candidate) => candidate.name === name);
    return (field && given(field).text) ?? '';
  };
  return given;
}

function shown(field: Field<unknown>, text: string): string {
  // Also for an address in the wrong variable.
  return field.secret === 'password' || text.includes('://') ? hidePassword(text) : text;
}

/** Reads and checks everything. Throws a ConfigError with all problems. */
export function loadConfig(env: NodeJS.ProcessEnv, mode: Mode = 'serve', clock: Clock = systemClock): Config {
  const problems: string[] = [];
  const warnings: string[] = [];
  const values: Record<string, unknown> = {};
  const unread = new Set<string>();
  const given = givenFor(env, mode, clock);

  for (const [key, field] of Object.entries<Field<unknown>>(configFields)) {
    const { text, source } = given(field);
    values[key] = undefined;
    if (text === undefined) continue;
    const reading = field.kind.read(text);
    if ('value' in reading) {
      values[key] = reading.value;
      warnings.push(...(reading.warnings ?? []).map((warning) => `${field.name}: ${warning}`));
      continue;
    }
    unread.add(key);
    // A default from another, invalid variable (the namespace of the Lease): that variable has its own line.
    if (source === 'default') continue;
    const got = field.secret === true ? 'the value is not shown' : `got ${showValue(shown(field, text))}`;
    // Some kinds quote the value: not if it is an address with a password.
    const quotable = field.secret !== false || shown(field, text) === text ? reading.problems : [];
    if (quotable.length === 0) problems.push(`${field.name} must be ${field.kind.expects}; ${got}`);
    problems.push(...quotable.map((problem) => `${field.name}: ${problem}`));
  }

  const config = { ...values, mode, warnings } as unknown as Config;
  for (const { of, problem } of relations) {
    const found = !of.some((key) => unread.has(key)) && problem(config);
    if (found) problems.push(found);
  }
  const names = configTable.map(({ name }) => name);
  const typos = misspelt(env, [...names, ...otherNames]).map(
    ({ given: name, meant }) =>
      `${name} is not a variable of Smart Router and is ignored: did you mean ${meant}?`,
  );
  // With problems too: the misspelt variable is often their cause.
  if (problems.length > 0) throw new ConfigError([...problems, ...typos]);
  warnings.push(...warningsOf(config), ...typos);
  return config;
}

export interface ConfigRow {
  readonly name: string;
  readonly section: string;
  /** Empty when unset without a default. */
  readonly value: string;
  readonly source: 'default' | 'environment';
  readonly description: string;
}

/** The rows of `smart-router config`; checks nothing, so it also works with an invalid environment. */
export function describeConfig(
  env: NodeJS.ProcessEnv,
  mode: Mode = 'serve',
  clock: Clock = systemClock,
): ConfigRow[] {
  const given = givenFor(env, mode, clock);
  return configTable.map((field) => {
    const { text = '', source } = given(field);
    const value = field.secret === true && text ? '********' : shown(field, text);
    return { name: field.name, section: field.section, value, source, description: field.description };
  });
}
