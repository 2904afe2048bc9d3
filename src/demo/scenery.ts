/**
 * What the demo plays with: a dozen agents, three tiers, one merchant's own pool, and times short enough to
 * watch. Everything else of the configuration is the router's own.
 */
import { type Config, loadConfig } from '../config.js';
import { formatDuration } from '../durations.js';

const tiers = {
  tiers: {
    gold: { type: 'exclusive', target: 3 },
    standard: { type: 'exclusive', target: 4 },
    basic: { type: 'shared', target: 3, max_concurrent: 3 },
    // Exclusive and outside the chain: the merchant pool of that name.
    acme: { type: 'exclusive', target: 2 },
  },
  default_chain: ['gold', 'standard', 'basic'],
};

/** `acme` has a pool of its own and falls back to standard; `thrifty` never takes gold. */
export const merchants = {
  acme: { pool: 'acme', tier: 'standard' },
  thrifty: { fallback: ['basic', 'standard'] },
};

export const pods: readonly string[] = Object.entries(tiers.tiers).flatMap(([tier, { target }]) =>
  Array.from({ length: target }, (_, i) => `${tier}-${i + 1}`),
);

const tierOf = (pod: string) => pod.replace(/-\d+$/, '');

/** Seconds of the demo's time. A crashed agent's call is back within lease + sweep = 13 s. */
export const seconds = { lease: 10, sweep: 3, report: 2.5, grace: 6, drain: 60, guest: 120 } as const;

/** Which variable holds the key that opens everything here, if the caller has set one. */
export function keyVariable(env: NodeJS.ProcessEnv): string | undefined {
  return ['SMART_ROUTER_ADMIN_KEY', 'SMART_ROUTER_API_KEY'].find((name) => env[name]);
}

/**
 * The caller's environment with what the demo must decide itself. A `REDIS_URL` is honoured, but under a prefix
 * of the demo's own: its pods must never replace real ones, whatever shell it is started from.
 */
export function demoConfig(env: NodeJS.ProcessEnv, speed: number, port?: number): Config {
  const time = (value: number) => formatDuration(Math.max(100, Math.round((value * 1000) / speed)));
  const key = keyVariable(env);
  return loadConfig(
    {
      ...env,
      ...(port === undefined ? {} : { HTTP_PORT: String(port) }),
      METRICS_PORT: env.METRICS_PORT || 'off',
      SHUTDOWN_TIMEOUT: '1s',
      LOG_LEVEL: env.LOG_LEVEL || 'warn',
      LOG_FORMAT: env.LOG_FORMAT || 'pretty',
      // One key opens everything: there is nothing here to keep from whoever started it.
      SMART_ROUTER_API_KEY: '',
      SMART_ROUTER_ADMIN_KEY: key === undefined ? '' : env[key],
      ...(env.REDIS_URL ? { REDIS_KEY_PREFIX: '{smart-router-demo}:' } : {}),
      DATABASE_URL: '',
      POD_SOURCE: 'static',
      LEADER_ELECTION_ENABLED: 'false',
      TIER_CONFIG: JSON.stringify(tiers),
      STATIC_PODS: pods.map((pod) => `${pod}=${tierOf(pod)}`).join(','),
      LEASE_TTL: time(seconds.lease),
      CALL_INFO_TTL: '1h',
      CLEANUP_INTERVAL: time(seconds.sweep),
      REPORT_GRACE: time(seconds.grace),
      DRAINING_TTL: time(seconds.drain),
      NO_SHOW_TIMEOUT: 'off',
    },
    'demo',
  );
}
