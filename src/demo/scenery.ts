/**
 * What the demo plays with: twenty agents in five StatefulSets, three tiers and two merchants' own pools, three
 * routers, and times short enough to watch. Everything else of the configuration is the router's own.
 */

import { type Config, loadConfig } from '../config/config.js';
import { formatDuration } from '../config/durations.js';
import type { PoolId } from '../config/tiers.js';
import { ConfigError } from '../errors.js';

export interface AgentSet {
  /** Of the StatefulSet and, with a number behind it, of its pods. */
  name: string;
  pool: PoolId;
  replicas: number;
  /** What one agent can serve at once. */
  calls: number;
}

/** One StatefulSet per pool, as in production: an agent and its successor then belong to the same pool. */
export const sets: readonly AgentSet[] = [
  { name: 'gold', pool: 'pool:gold', replicas: 6, calls: 1 },
  { name: 'standard', pool: 'pool:standard', replicas: 4, calls: 1 },
  { name: 'basic', pool: 'pool:basic', replicas: 5, calls: 3 },
  { name: 'acme', pool: 'merchant:acme', replicas: 3, calls: 1 },
  { name: 'nova', pool: 'merchant:nova', replicas: 2, calls: 1 },
];

export const agentCount = sets.reduce((sum, { replicas }) => sum + replicas, 0);
export const routerNames = ['router-1', 'router-2', 'router-3'] as const;

export const setOf = (pod: string) => sets.find(({ name }) => pod.replace(/-\d+$/, '') === name);

export function annotationsOf({ name, pool }: AgentSet): Record<string, string> {
  const where = pool.startsWith('merchant:') ? 'smart-router/merchant' : 'smart-router/tier';
  // Should Redis lose its content, an agent gets no call before it has said which ones it has.
  return { [where]: name, 'smart-router/report': 'required' };
}

const inChain = sets.filter(({ pool }) => pool.startsWith('pool:'));
const tiers = {
  tiers: Object.fromEntries(
    inChain.map(({ name, replicas, calls }) => [
      name,
      calls === 1
        ? { type: 'exclusive', target: replicas }
        : { type: 'shared', target: replicas, max_concurrent: calls },
    ]),
  ),
  default_chain: inChain.map(({ name }) => name),
};

/**
 * `acme` has a pool of its own and falls back to standard; `thrifty` never takes gold; `nova` wants its own two agents
 * and nobody else, so its callers are the first to hear a busy tone.
 */
export const merchants: Readonly<Record<string, { config: object; chain: readonly PoolId[] }>> = {
  acme: {
    config: { pool: 'acme', tier: 'standard' },
    chain: ['merchant:acme', 'pool:standard', 'pool:basic'],
  },
  nova: { config: { pool: 'nova', fallback: ['merchant:nova'] }, chain: ['merchant:nova'] },
  thrifty: { config: { fallback: ['basic', 'standard'] }, chain: ['pool:basic', 'pool:standard'] },
};

/** Where a call of this merchant looks for an agent, in order. */
export const chainOf = (merchant: string): readonly PoolId[] =>
  merchants[merchant]?.chain ?? inChain.map(({ pool }) => pool);

/** Seconds of the demo's time. `grace` is what Kubernetes gives an agent to let its calls end. */
export const seconds = {
  report: 1,
  /** How long a visitor's call is held; a caller of the demo talks for ten at most. */
  guest: 120,
  grace: 180,
  agentStarts: 0.4,
  agentBecomesReady: 0.8,
  agentRestarts: 1.5,
  routerRestarts: 5,
  storePause: 5,
  /** How long an agent that was drained by hand stays so after its last call. */
  drained: 8,
  /** Between two sites that appear, and how long one may be silent. */
  site: 4,
  siteSilence: 4,
  /** Of the workers on records; in production 10, 45 and 20. */
  heartbeat: 1,
  workerIsDead: 5,
  sweep: 2,
  /** Later than its records come back: they go to the other one. */
  workerRestarts: 10,
} as const;

/**
 * The routers' times, and how short they may become when the demo runs fast: no busy machine alone may cost a leader
 * its Lease or a call its agent.
 */
const times = {
  LEASE_TTL: { ms: 15_000, least: 8000 },
  REPORT_GRACE: { ms: 5000, least: 4000 },
  CLEANUP_INTERVAL: { ms: 3000, least: 500 },
  DRAINING_TTL: { ms: 60_000, least: 10_000 },
  RECONCILE_INTERVAL: { ms: 2000, least: 500 },
  TIER_CONFIG_REFRESH_INTERVAL: { ms: 2000, least: 500 },
  KUBERNETES_WATCH_TIMEOUT: { ms: 5000, least: 2000 },
  LEADER_ELECTION_DURATION: { ms: 3000, least: 2500 },
  LEADER_ELECTION_RENEW_DEADLINE: { ms: 2000, least: 1800 },
  LEADER_ELECTION_RETRY_PERIOD: { ms: 500, least: 300 },
} as const;

/** Which variable holds the key that opens everything here, if the caller has set one. */
export function keyVariable(env: NodeJS.ProcessEnv): string | undefined {
  return ['SMART_ROUTER_ADMIN_KEY', 'SMART_ROUTER_API_KEY'].find((name) => env[name]);
}

/** Why there are no records, if the caller wants none. Another database than the demo's own is never used. */
export function recordsLeftOut(env: NodeJS.ProcessEnv): string | undefined {
  return env.DATABASE_URL === 'off' ? 'DATABASE_URL is off' : undefined;
}

/** Databases, workflows and receivers of alerts that the caller has, for something else than this. */
const ofRealRecords = /^(PG[A-Z]+|DATABASE_\w+|RECORDS_\w+|ZOMBIE_\w+|ALERT_\w+|PAGERDUTY_\w+)$/;

export interface Scene {
  /** What the demo itself listens to: address, key, store. */
  config: Config;
  /** The environment of each router, but for its name, its port and where the store and the cluster are. */
  routerEnv: NodeJS.ProcessEnv;
}

/**
 * The caller's environment with what the demo must decide itself. A `REDIS_URL` is honoured, but under a prefix
 * of the demo's own: its pods must never replace real ones, whatever shell it is started from. A `KUBECONFIG` is
 * not: the only cluster here is the simulated one. Nor is a `DATABASE_URL`: records are made up, and belong in no
 * database but the demo's own. And nobody is woken by what happens here: receivers of alerts are left out.
 */
export function setScene(env: NodeJS.ProcessEnv, speed: number, port?: number): Scene {
  const routerEnv = routerEnvOf(env, speed);
  const own = port === undefined ? {} : { HTTP_PORT: String(port) };
  return { config: loadConfig({ ...routerEnv, ...own }, 'demo'), routerEnv };
}

/** The environment alone, judged by nobody: `smart-router config --mode demo` shows what is wrong with it too. */
export function routerEnvOf(env: NodeJS.ProcessEnv, speed: number): NodeJS.ProcessEnv {
  const key = keyVariable(env);
  const shell = Object.entries(env).filter(([name]) => !ofRealRecords.test(name));
  const routerEnv: NodeJS.ProcessEnv = {
    ...Object.fromEntries(shell),
    METRICS_PORT: 'off',
    SHUTDOWN_TIMEOUT: '1s',
    LOG_LEVEL: 'info',
    LOG_FORMAT: 'json',
    // One key opens everything: there is nothing here to keep from whoever started it.
    SMART_ROUTER_API_KEY: '',
    SMART_ROUTER_ADMIN_KEY: key === undefined ? '' : env[key],
    ...(env.REDIS_URL ? { REDIS_KEY_PREFIX: '{smart-router-demo}:' } : {}),
    KUBECONFIG: '',
    POD_SOURCE: 'kubernetes',
    STATIC_PODS: '',
    NAMESPACE: 'default',
    POD_LABEL_SELECTOR: 'app=voice-agent',
    LEADER_ELECTION_ENABLED: 'true',
    LEADER_ELECTION_NAMESPACE: '',
    LEADER_LOSS: 'exit',
    TIER_CONFIG: JSON.stringify(tiers),
    CALL_INFO_TTL: '1h',
    NO_SHOW_TIMEOUT: 'off',
  };
  for (const [name, { ms, least }] of Object.entries(times))
    routerEnv[name] = formatDuration(Math.max(least, Math.round(ms / speed)));
  return routerEnv;
}

/** `DEMO_SPEED`, for tests: 10 plays a minute in six seconds. */
export function speedOf(env: NodeJS.ProcessEnv): number {
  const text = env.DEMO_SPEED?.trim() || '1';
  const speed = Number(text);
  if (speed >= 0.1 && speed <= 20) return speed;
  throw new ConfigError([`DEMO_SPEED must be a number from 0.1 to 20, got ${JSON.stringify(text)}`]);
}
