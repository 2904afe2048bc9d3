/**
 * The configuration of the demo: twenty agents in five StatefulSets, three tiers and two merchant pools, three routers,
 * and times short enough to watch. All other settings are the router's defaults.
 */

import { type MerchantConfig, resolveChain } from '../calls/chain.js';
import { formatDuration } from '../config/durations.js';
import { type PoolId, parseTierConfig, type TierConfig } from '../config/tiers.js';
import { ConfigError } from '../errors.js';

export interface AgentSet {
  /** The name of the StatefulSet; its pods are `{name}-0` and so on. */
  name: string;
  pool: PoolId;
  replicas: number;
  /** How many calls one agent can serve at once. */
  calls: number;
}

/** One StatefulSet per pool, as in production: a pod and its replacement then belong to the same pool. */
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

/** The agent that the address of a stream names. */
export const podIn = (url: string) =>
  new RegExp(`\\b(?:${sets.map(({ name }) => name).join('|')})-\\d+\\b`).exec(url)?.[0];

export function annotationsOf({ name, pool }: AgentSet): Record<string, string> {
  const key = pool.startsWith('merchant:') ? 'smart-router/merchant' : 'smart-router/tier';
  // After Redis has lost its data, an agent gets no call before it has reported the ones it has.
  return { [key]: name, 'smart-router/report': 'required' };
}

const inChain = sets.filter(({ pool }) => pool.startsWith('pool:'));
/** How long a caller waits for an agent. */
export const maxWait = '30s';
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
  hold: { max_wait: maxWait, max_waiting: 100 },
};

/**
 * `acme` has its own pool and falls back to standard; `thrifty` never uses gold; `nova` has two agents and no fallback,
 * so its callers are the first to get a busy tone.
 */
export const merchants: Readonly<Record<string, MerchantConfig>> = {
  acme: { pool: 'acme', tier: 'standard' },
  nova: { pool: 'nova', fallback: ['merchant:nova'] },
  thrifty: { fallback: ['basic', 'standard'] },
};

const tierConfig = parseTierConfig(tiers).config as TierConfig;

/** The pools that a call of this merchant tries, in order. */
export const chainOf = (merchant: string): PoolId[] => resolveChain(tierConfig, merchants[merchant]).steps;

/** In seconds of the demo, which pass faster with DEMO_SPEED. */
export const seconds = {
  report: 1,
  /** How long a visitor's call lasts without a release; simulated callers talk for at most 10 s. */
  visitorCall: 120,
  /** The termination grace period of agents. */
  grace: 180,
  agentStart: 0.4,
  agentReady: 0.8,
  agentRestart: 1.5,
  routerRestart: 5,
  storePause: 5,
  /** How long a drained agent stays drained after its last call. */
  drained: 8,
  /** The interval between new sites, and the timeout of a site that does not answer. */
  site: 4,
  siteTimeout: 4,
  /** Of the record workers; in production 10, 45 and 20. */
  heartbeat: 1,
  deadWorker: 5,
  sweep: 2,
  /** Longer than it takes to requeue its records: the other worker gets them. */
  workerRestart: 10,
} as const;

/**
 * The routers' times, with a minimum for a demo that runs fast: a busy machine alone must not cost a leader its Lease
 * or a call its agent.
 */
const times = {
  LEASE_TTL: { ms: 15_000, minMs: 8000 },
  REPORT_GRACE: { ms: 5000, minMs: 4000 },
  CLEANUP_INTERVAL: { ms: 3000, minMs: 500 },
  DRAINING_TTL: { ms: 60_000, minMs: 10_000 },
  RECONCILE_INTERVAL: { ms: 2000, minMs: 500 },
  TIER_CONFIG_REFRESH_INTERVAL: { ms: 2000, minMs: 500 },
  KUBERNETES_WATCH_TIMEOUT: { ms: 5000, minMs: 2000 },
  LEADER_ELECTION_DURATION: { ms: 3000, minMs: 2500 },
  LEADER_ELECTION_RENEW_DEADLINE: { ms: 2000, minMs: 1800 },
  LEADER_ELECTION_RETRY_PERIOD: { ms: 500, minMs: 300 },
  HOLD_POLL_INTERVAL: { ms: 3000, minMs: 1000 },
} as const;

/** The variable that holds the API key of the demo, if the user has set one. */
export function keyVariable(env: NodeJS.ProcessEnv): string | undefined {
  return ['SMART_ROUTER_ADMIN_KEY', 'SMART_ROUTER_API_KEY'].find((name) => env[name]);
}

/** The user's own databases, workflows and alert receivers: none of them may be used here. */
const productionVariables = /^(PG[A-Z]+|DATABASE_\w+|RECORDS_\w+|ZOMBIE_\w+|ALERT_\w+|PAGERDUTY_\w+)$/;

/**
 * Combines the user's environment with the settings of the demo, without validation: `smart-router config --mode demo`
 * shows invalid values too. Each router gets it, with its name, its port and the addresses of store and cluster.
 *
 * `REDIS_URL` is used with the demo's own key prefix, so that its pods never replace real ones. `KUBECONFIG`,
 * `DATABASE_URL` and alert receivers are ignored: the demo must not reach a real cluster, a real database or a person on
 * call.
 */
export function routerEnvOf(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const speed = speedOf(env);
  const key = keyVariable(env);
  const shell = Object.entries(env).filter(([name]) => !productionVariables.test(name));
  const routerEnv: NodeJS.ProcessEnv = {
    ...Object.fromEntries(shell),
    METRICS_PORT: 'off',
    SHUTDOWN_TIMEOUT: '1s',
    LOG_LEVEL: 'info',
    LOG_FORMAT: 'json',
    // One key for everything: the user may do all of it.
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
    HOLD_ANNOUNCE_POSITION: 'true',
    // The demo's callers read what they hear.
    HOLD_AUDIO_URL: '',
    // A router with keys checks the signatures of the demo's Twilio.
    TWILIO_AUTH_TOKEN: env.TWILIO_AUTH_TOKEN || (key === undefined ? '' : env[key]),
  };
  for (const [name, { ms, minMs }] of Object.entries(times))
    routerEnv[name] = formatDuration(Math.max(minMs, Math.round(ms / speed)));
  return routerEnv;
}

/** `DEMO_SPEED`, for tests: 10 makes a minute last six seconds. */
export function speedOf(env: NodeJS.ProcessEnv): number {
  const text = env.DEMO_SPEED?.trim() || '1';
  const speed = Number(text);
  if (speed >= 0.1 && speed <= 20) return speed;
  throw new ConfigError([`DEMO_SPEED must be a number from 0.1 to 20, got ${JSON.stringify(text)}`]);
}
