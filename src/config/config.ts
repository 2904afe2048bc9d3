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
import { type Field, type Given, type Lookup, readFields, shown, textOf, type Values } from './entries.js';
import { hasHashTag, isLoopback } from './fields.js';
import { configFields, configTable } from './table.js';
import { showValue } from './tiers.js';
import { misspelt } from './typos.js';

export { hidePassword, type StaticPod } from './fields.js';
export { configTable } from './table.js';

/** Read-only commands (`config`, `doctor`) use the mode that they inspect. */
export type Mode = 'serve' | 'demo';

export interface Config extends Values<typeof configFields> {
  readonly mode: Mode;
  /** Logged once at the start. */
  readonly warnings: readonly string[];
}

const ms = formatDuration;

/** Variables of the command line and of our scripts. */
const otherNames = ['SMART_ROUTER_URL', 'SMART_ROUTER_SETUP', 'DEMO_SPEED'];

class InvalidValue extends Error {}

/** Relations between values, and what is wrong with them. Each is checked only if all values that it takes are valid. */
const relations: readonly ((config: Config) => string | false | undefined)[] = [
  ({ callInfoTtlMs, leaseTtlMs, cleanupIntervalMs }) => {
    const minMs = leaseTtlMs + 2 * cleanupIntervalMs;
    if (callInfoTtlMs >= minMs) return;
    return `CALL_INFO_TTL must be at least LEASE_TTL + 2 * CLEANUP_INTERVAL = ${ms(minMs)}, so that a call is not forgotten before the sweep ends it, got ${ms(callInfoTtlMs)}`;
  },
  ({ noShowTimeoutMs, leaseTtlMs }) =>
    noShowTimeoutMs !== undefined &&
    noShowTimeoutMs >= leaseTtlMs &&
    `NO_SHOW_TIMEOUT must be shorter than LEASE_TTL (${ms(leaseTtlMs)}) or off, got ${ms(noShowTimeoutMs)}`,
  ({ holdClaimTtlMs: claim, holdPollIntervalMs: poll }) =>
    claim <= 3 * poll &&
    `HOLD_CLAIM_TTL must be longer than 3 * HOLD_POLL_INTERVAL (${ms(3 * poll)}), or a held caller finds its pod given away, got ${ms(claim)}`,
  ({ requestTimeoutMs, redisCommandTimeoutMs }) =>
    requestTimeoutMs < redisCommandTimeoutMs &&
    `REQUEST_TIMEOUT must be at least REDIS_COMMAND_TIMEOUT (${ms(redisCommandTimeoutMs)}), got ${ms(requestTimeoutMs)}`,
  ({ requestTimeoutMs, redisCommandTimeoutMs, redisWaitReplicas, redisWaitTimeoutMs }) => {
    const minMs = redisCommandTimeoutMs + 2 * redisWaitTimeoutMs;
    if (redisWaitReplicas === 0 || requestTimeoutMs >= minMs) return;
    return `REQUEST_TIMEOUT must be at least REDIS_COMMAND_TIMEOUT + 2 * REDIS_WAIT_TIMEOUT = ${ms(minMs)} while REDIS_WAIT_REPLICAS is set, got ${ms(requestTimeoutMs)}`;
  },
  ({ leaderElectionDurationMs: lease, leaderElectionRenewDeadlineMs: renew }) =>
    lease <= renew &&
    `LEADER_ELECTION_DURATION must be longer than LEADER_ELECTION_RENEW_DEADLINE (${ms(renew)}), or two replicas lead at once, got ${ms(lease)}`,
  ({ leaderElectionRenewDeadlineMs: renew, leaderElectionRetryPeriodMs: retry }) =>
    renew <= 1.2 * retry &&
    `LEADER_ELECTION_RENEW_DEADLINE must be longer than 1.2 * LEADER_ELECTION_RETRY_PERIOD (${ms(1.2 * retry)}, with jitter), got ${ms(renew)}`,
  ({ workers, leaderElectionEnabled }) =>
    workers > 1 &&
    !leaderElectionEnabled &&
    `WORKERS must be 1 while LEADER_ELECTION_ENABLED is false, or every worker leads, got ${workers}`,
  ({ redisUrl, redisKeyPrefix }) =>
    redisUrl.startsWith('redis+cluster:') &&
    !hasHashTag(redisKeyPrefix) &&
    `REDIS_KEY_PREFIX must carry a hash tag like {voice}: on a Redis Cluster, so that all keys share a slot, got ${showValue(redisKeyPrefix)}`,
  ({ httpPort, metricsPort }) =>
    httpPort !== 0 &&
    httpPort === metricsPort &&
    `METRICS_PORT must differ from HTTP_PORT, or be off, got ${metricsPort} for both`,
  ({ httpHost, apiKey, adminKey, authDisabled }) =>
    !(isLoopback(httpHost) || apiKey || adminKey || authDisabled) &&
    `HTTP_HOST must be a loopback address like 127.0.0.1 while neither SMART_ROUTER_API_KEY nor SMART_ROUTER_ADMIN_KEY is set (AUTH_DISABLED=true allows it), got ${showValue(httpHost)}`,
  ({ apiKey, adminKey, authDisabled }) =>
    authDisabled &&
    (apiKey ?? adminKey) !== undefined &&
    'AUTH_DISABLED must not be true while SMART_ROUTER_API_KEY or SMART_ROUTER_ADMIN_KEY is set: remove one or the other',
  ({ apiKey, adminKey }) =>
    apiKey !== undefined &&
    apiKey === adminKey &&
    'SMART_ROUTER_ADMIN_KEY must differ from SMART_ROUTER_API_KEY, or every voice agent is an operator',
  // The demo has its own pods.
  ({ mode, podSource, staticPods }) =>
    podSource === 'static' &&
    mode !== 'demo' &&
    !staticPods?.length &&
    'STATIC_PODS must name at least one pod when POD_SOURCE=static, like a,b=gold, got none',
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

function givenFor(env: NodeJS.ProcessEnv, mode: Mode, clock: Clock): (field: Field<unknown>) => Given {
  const given = (field: Field<unknown>): Given => {
    const text = textOf(field, env);
    if (text !== undefined) return { text, source: 'environment' };
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

/** Reads and checks everything. Throws a ConfigError with all problems. */
export function loadConfig(env: NodeJS.ProcessEnv, mode: Mode = 'serve', clock: Clock = systemClock): Config {
  const { values, invalid, problems, warnings } = readFields(configFields, givenFor(env, mode, clock));
  const config: Config = { ...values, mode, warnings };
  const valid = new Proxy(config, {
    get(_, key) {
      if (invalid.has(String(key))) throw new InvalidValue();
      return Reflect.get(config, key);
    },
  });
  for (const relation of relations) {
    try {
      const problem = relation(valid);
      if (problem) problems.push(problem);
    } catch (error) {
      if (!(error instanceof InvalidValue)) throw error;
    }
  }
  const names = configTable.map(({ name }) => name);
  const typos = misspelt(env, [...names, ...otherNames]);
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
  readonly source: Given['source'];
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
