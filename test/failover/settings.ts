/** What is compared: the settings of the routers for a failover, and the times of the fleet. */
export const settings = {
  plain: { AFTER_FAILOVER: 'trust' },
  wait: { AFTER_FAILOVER: 'trust', REDIS_WAIT_REPLICAS: '1', REDIS_WAIT_POLICY: 'refuse' },
  report: { AFTER_FAILOVER: 'report' },
  both: { AFTER_FAILOVER: 'report', REDIS_WAIT_REPLICAS: '1', REDIS_WAIT_POLICY: 'refuse' },
} as const;
export type Setting = keyof typeof settings;

export const faultNames = ['kill', 'stop', 'partition', 'planned'] as const;
export type FaultName = (typeof faultNames)[number];

export interface FailoverOptions {
  rounds: number;
  settings: readonly Setting[];
  faults: readonly FaultName[];
  /** False: pods never report. */
  agents: boolean;
  seed: number;
  callsPerSecond: number;
  pods: number;
  signal?: AbortSignal;
  onRound?: (round: Round) => void;
  onProgress?: (line: string) => void;
}

/** What one failover did. Times in milliseconds. */
export interface Round {
  setting: Setting;
  number: number;
  fault: FaultName;
  calls: number;
  /** Pods with two calls at once, by the answers to the callers. */
  doubles: number;
  longestOverlapMs: number;
  /** Released with the answer 200, and still in the store after the failover. */
  lostReleases: number;
  /** From the release, but not before there was a new master, until the pod was free: the slowest. */
  lostReleaseFreeMs: number;
  /** Calls that got no pod, by the code of the last answer. */
  refused: Record<string, number>;
  /** Calls that a report's answer ended. */
  dropped: number;
  newMasterMs: number;
  /** On the clock of the process. */
  masterAtMs: number;
  fullCapacityMs: number;
}

export const times = {
  reportEveryMs: 3000,
  leaseMs: 20_000,
  graceMs: 5000,
  /** A caller asks again for this long after errors; `no_pods` is final, except where it waits. */
  patienceMs: 5000,
  holdPatienceMs: 20_000,
};

export const pool = 'pool:gold';
export const prefix = 'voice:';
export const apiKey = 'the-key-of-failover';

export function podNames(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `gold-${i}`);
}

export function environment(setting: Setting, pods: number): Record<string, string> {
  return {
    ...settings[setting],
    SMART_ROUTER_ADMIN_KEY: apiKey,
    METRICS_PORT: 'off',
    LOG_FORMAT: 'json',
    OVERLOAD_DELAY: 'off',
    POD_SOURCE: 'static',
    STATIC_PODS: podNames(pods)
      .map((pod) => `${pod}=gold`)
      .join(','),
    TIER_CONFIG: JSON.stringify({
      tiers: { gold: { type: 'exclusive', target: pods } },
      default_chain: ['gold'],
      hold: { max_wait: '20s', max_waiting: 2000 },
    }),
    LEADER_ELECTION_DURATION: '3s',
    LEADER_ELECTION_RENEW_DEADLINE: '2s',
    LEADER_ELECTION_RETRY_PERIOD: '400ms',
    LEASE_TTL: `${times.leaseMs}ms`,
    REPORT_GRACE: `${times.graceMs}ms`,
    CLEANUP_INTERVAL: '1s',
    RECONCILE_INTERVAL: '5s',
  };
}
