/**
 * The times of the fleet: those of production scaled down, so that a lease runs out and a leader is replaced many times in
 * a run of minutes.
 */
export const times = {
  leaseMs: 10_000,
  graceMs: 5000,
  drainMs: 120_000,
  /** Of an agent. */
  reportEveryMs: 1000,
  /**
   * How long a caller waits for one reply. Below the grace: an unreported call is safe for that long, so a reply is still
   * true when it arrives.
   */
  patienceMs: 4000,
  /**
   * From the start of a container until its agent listens. The API tells the start in whole seconds, and a router's idea
   * of the store's clock may be a slow answer behind: calls of that time are ended as if they were older.
   */
  agentStartsMs: 2000,
  /** Within which everything must be well again after the last fault. For a minute after an outage no lease ends. */
  healedWithinMs: 150_000,
};

export const goldPods = 16;
export const basicPods = 8;
export const podNames: readonly string[] = Array.from(
  { length: goldPods + basicPods },
  (_, i) => `agent-${i}`,
);
export const limits = { 'pool:gold': 1, 'pool:basic': 3 };

export const apiKey = 'the-key-of-chaos';

export const env = {
  SMART_ROUTER_ADMIN_KEY: apiKey,
  TWILIO_AUTH_TOKEN: 'the-token-of-chaos',
  METRICS_PORT: 'off',
  LOG_FORMAT: 'json',
  POD_SOURCE: 'kubernetes',
  LEADER_ELECTION_ENABLED: 'true',
  LEADER_ELECTION_DURATION: '3s',
  LEADER_ELECTION_RENEW_DEADLINE: '2s',
  LEADER_ELECTION_RETRY_PERIOD: '400ms',
  TIER_CONFIG: JSON.stringify({
    tiers: {
      gold: { type: 'exclusive', target: goldPods },
      basic: { type: 'shared', target: basicPods, max_concurrent: limits['pool:basic'] },
    },
    default_chain: ['gold', 'basic'],
    hold: { max_wait: '10s', max_waiting: 200 },
  }),
  HOLD_POLL_INTERVAL: '1s',
  HOLD_CLAIM_TTL: '4s',
  LEASE_TTL: `${times.leaseMs}ms`,
  // Longer than any outage here and the minute after it in which no lease ends: a record must not end before its lease.
  CALL_INFO_TTL: '5m',
  REPORT_GRACE: `${times.graceMs}ms`,
  DRAINING_TTL: `${times.drainMs}ms`,
  CLEANUP_INTERVAL: '500ms',
  AUDIT_INTERVAL: '2s',
  RECONCILE_INTERVAL: '2s',
  TIER_CONFIG_REFRESH_INTERVAL: '2s',
  KUBERNETES_WATCH_TIMEOUT: '3s',
} as const;
