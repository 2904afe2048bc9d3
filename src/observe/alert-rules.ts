/**
 * Every alert, once. The in-process alerts take name, severity, scope and runbook page from here; `npm run docs`
 * generates deploy/prometheus/smart-router.rules.yaml and the chart's copy from the same rows. The page of a rule is
 * the section of docs/runbook.md with the rule's name.
 *
 * PromQL: gauges of state are the same on every replica and are aggregated with max; counters are summed. Every
 * expression keeps `job` and `namespace`, so that two installations in one Prometheus stay apart.
 */
import { lastRound, recordRules } from './record-alert-rules.js';

export type Severity = 'warning' | 'critical' | 'page';

export interface AlertRule {
  /** The name in Prometheus. */
  readonly alert: string;
  /** The name in the router's own alerts, for a rule that the router evaluates too. */
  readonly condition?: string;
  /** True: every replica reads the same value from the store or the database. False: the value is of one process. */
  readonly isShared?: boolean;
  /** How long the condition must hold in the router before it fires. Default: 0. */
  readonly pendingMs?: number;
  readonly severity: Severity;
  /** How long the expression must hold in Prometheus before it fires. */
  readonly for?: string;
  readonly expr: string;
  readonly summary: string;
  readonly description: string;
}

/** By group of the Prometheus file. */
export const alertRules = {
  routers: [
    {
      alert: 'SmartRouterRouterAbsent',
      severity: 'page',
      for: '2m',
      expr: 'absent(smart_router_leader_status)',
      summary: 'Prometheus scrapes no router',
      description:
        'Prometheus has had no sample of any router for two minutes: no router runs, or none is scraped. No other alert of Smart Router can fire until this one ends.',
    },
    {
      alert: 'SmartRouterRouterDown',
      severity: 'warning',
      for: '2m',
      expr: 'up{job=~".*smart-router.*"} == 0',
      summary: 'Router {{ $labels.instance }} does not respond',
      description:
        '{{ $labels.instance }} of {{ $labels.job }} has not responded to a scrape for two minutes. The other routers serve calls.',
    },
    {
      alert: 'SmartRouterNoLeader',
      condition: 'calls.no_leader',
      // An election after a crash takes 20 s.
      pendingMs: 30_000,
      severity: 'critical',
      for: '1m',
      expr: 'sum by (job, namespace) (smart_router_leader_status) == 0',
      summary: 'No router is the leader',
      description:
        'No router has managed the pools for a minute; an election takes 20 seconds. Calls are served. New pods get no calls, deleted pods stay in their pools, and pods of lost calls are freed only when an allocate finds no other pod.',
    },
    {
      alert: 'SmartRouterTwoLeaders',
      severity: 'critical',
      for: '1m',
      expr: 'sum by (job, namespace) (smart_router_leader_status) > 1',
      summary: '{{ $value }} routers report that they are the leader',
      description:
        'More than one router has reported for a minute that it is the leader. The store accepts writes of the newest epoch only, so no pod is allocated twice, but the election is broken.',
    },
    {
      alert: 'SmartRouterLeaderFlaps',
      severity: 'warning',
      expr: 'sum by (job, namespace) (changes(smart_router_leader_status[15m])) > 6',
      summary: 'The leader changes too often',
      description:
        '{{ $value }} changes within 15 minutes; a rollout of three routers makes at most six. After each change pods are not updated for up to 20 seconds.',
    },
    {
      alert: 'SmartRouterSweepStalled',
      condition: 'calls.sweeps_stalled',
      severity: 'critical',
      for: '5m',
      expr: `(max by (job, namespace) (smart_router_leader_status) == 1)
unless (
  (time() - ${lastRound('sweep')} < 300)
  and
  (time() - ${lastRound('reconcile')} < 300)
)`,
      summary: 'The sweep or the reconcile loop of the leader is stalled',
      description:
        'There is a leader, but its sweep (every 30 s) or its reconcile loop (every 60 s) has finished no round for five minutes or more. Pods of lost calls are not freed, and new pods get no calls.',
    },
    {
      alert: 'SmartRouterLoopCrashing',
      condition: 'calls.loop_crashes',
      severity: 'warning',
      for: '10m',
      expr: 'sum by (job, namespace, instance, loop) (increase(smart_router_loop_restarts_total[5m])) > 3',
      summary: 'Loop {{ $labels.loop }} of {{ $labels.instance }} keeps crashing',
      description: 'The loop has crashed and restarted for more than ten minutes. Its work is not done.',
    },
    {
      alert: 'SmartRouterSettingsInvalid',
      severity: 'warning',
      for: '10m',
      expr: 'sum by (job, namespace) (increase(smart_router_settings_refresh_errors_total[10m])) > 3',
      summary: 'The tier configuration in the store cannot be read',
      description:
        'Routers have failed to refresh the tier configuration for ten minutes. They use the copy in their memory.',
    },
    {
      alert: 'SmartRouterWebhooksRefused',
      severity: 'warning',
      expr: 'sum by (job, namespace, provider) (increase(smart_router_webhook_refusals_total[15m])) > 10',
      summary: 'Webhooks of {{ $labels.provider }} are rejected',
      description:
        'More than ten requests within 15 minutes had a wrong or missing signature: a changed token, a wrong PUBLIC_URL, or requests that are not from the provider. If they are, its calls get no pod.',
    },
  ],
  store: [
    {
      alert: 'SmartRouterStoreDown',
      condition: 'calls.store_down',
      // Two failed checks: a single one may have hit a failover.
      pendingMs: 5_000,
      severity: 'page',
      for: '30s',
      expr: `count by (job, namespace) (smart_router_store_up)
unless count by (job, namespace) (smart_router_active_calls)`,
      summary: 'No router reaches the store',
      description:
        'Routers are scraped, but none can read the state of the calls from Redis. Every allocate gets 503 store_unavailable; live calls continue.',
    },
    {
      alert: 'SmartRouterStoreErrors',
      severity: 'warning',
      for: '2m',
      expr: 'sum by (job, namespace) (increase(smart_router_store_errors_total[5m])) > 3',
      summary: 'Store operations fail',
      description:
        '{{ $value | humanize }} operations failed within five minutes: Redis is slow, rejects commands, or is unreachable for some routers.',
    },
    {
      alert: 'SmartRouterStoreFull',
      condition: 'calls.store_full',
      severity: 'page',
      expr: 'sum by (job, namespace) (increase(smart_router_store_full_total[5m])) > 0',
      summary: 'Redis is out of memory',
      description:
        'Redis has reached its maxmemory and rejected {{ $value | humanize }} operations within five minutes. Live calls continue; new calls and changes of tiers and merchants get 503 store_full.',
    },
    {
      alert: 'SmartRouterNotReplicated',
      severity: 'warning',
      for: '2m',
      expr: 'sum by (job, namespace) (increase(smart_router_replication_confirmations_total{outcome!="confirmed"}[5m])) > 3',
      summary: 'Replicas of Redis do not confirm writes',
      description:
        'Fewer than REDIS_WAIT_REPLICAS replicas confirmed {{ $value | humanize }} allocates, releases or drains within five minutes. A failover now may lose them. With REDIS_WAIT_POLICY=refuse, new calls get 503 not_replicated.',
    },
  ],
  calls: [
    {
      alert: 'SmartRouterNoCapacity',
      condition: 'calls.no_pods',
      severity: 'page',
      // The first failure of a chain creates its series: `increase` alone would not see that call.
      expr: `sum by (job, namespace, chain) (increase(smart_router_no_pods_total[5m])) > 0
or
sum by (job, namespace, chain) (smart_router_no_pods_total unless smart_router_no_pods_total offset 5m) > 0`,
      summary: 'Calls get no pod ({{ $labels.chain }})',
      description:
        'Within five minutes about {{ $value | humanize }} calls found no pod in any pool of the chain {{ $labels.chain }}. Their callers heard that all agents are busy.',
    },
    {
      alert: 'SmartRouterOverloaded',
      condition: 'calls.overloaded',
      severity: 'page',
      expr: 'sum by (job, namespace) (increase(smart_router_requests_shed_total{kind="call"}[5m])) > 0',
      summary: 'Overloaded routers reject calls',
      description:
        'Within five minutes about {{ $value | humanize }} new calls got 503 overloaded: a router had too many requests in flight.',
    },
    {
      alert: 'SmartRouterWaitLong',
      condition: 'calls.wait_long',
      isShared: true,
      pendingMs: 60_000,
      severity: 'warning',
      for: '1m',
      expr: 'max by (job, namespace) (smart_router_oldest_wait_seconds) > 30',
      summary: 'A call has waited {{ $value | humanizeDuration }} for a pod',
      description:
        'For a minute there has been a call that waits for a pod for more than 30 seconds. Most callers hang up before that.',
    },
    {
      alert: 'SmartRouterWaitsUnserved',
      condition: 'calls.waits_unserved',
      severity: 'warning',
      expr: `sum by (job, namespace) (increase(smart_router_waits_total{outcome=~"abandoned|expired"}[10m]))
/ (sum by (job, namespace) (increase(smart_router_waits_total{outcome!="queue_full"}[10m])) >= 10)
> 0.1`,
      summary: '{{ $value | humanizePercentage }} of the calls that waited for a pod got none',
      description:
        'Of the calls whose wait ended within ten minutes, more than one in ten got no pod: their callers hung up, or waited as long as max_wait allows.',
    },
    {
      alert: 'SmartRouterPoolNearlyFull',
      severity: 'warning',
      for: '5m',
      expr: `max by (job, namespace, tier) (smart_router_pool_active_calls)
/ (max by (job, namespace, tier) (smart_router_pool_capacity_calls) > 0)
> 0.9`,
      summary: 'Pool {{ $labels.tier }} is nearly full',
      description:
        '{{ $value | humanizePercentage }} of the capacity of its pods has been in use for five minutes. When the pool is full, calls overflow to the next pool of their chain, or get no pod.',
    },
    {
      alert: 'SmartRouterLeakedPods',
      severity: 'warning',
      for: '15m',
      // Counted by the router: a shared pod may have many calls, so pods minus calls says nothing.
      expr: 'max by (job, namespace, tier) (smart_router_pool_stranded_pods) > 0',
      summary: '{{ $value }} pods of {{ $labels.tier }} have no call and cannot get one',
      description:
        'For 15 minutes pods have been assigned to the pool without being available and without a call: a repeated drain, pods that never report, or a sweep that does not free them.',
    },
    {
      alert: 'SmartRouterPodsBlocked',
      severity: 'warning',
      expr: 'sum by (job, namespace) (increase(smart_router_pods_blocked_total{reason="awaiting_report"}[10m])) > 0',
      summary: 'Pods stopped reporting within 10 minutes, and were blocked',
      description:
        'Pods that report at an interval stopped reporting, for example because their node died. `smart-router pods --state blocked` lists them.',
    },
    {
      alert: 'SmartRouterPodSetBack',
      condition: 'calls.pods_set_back',
      isShared: true,
      severity: 'warning',
      // A pod is set back for 10 s to 5 min at a time: with a range of 5 minutes one scrape that saw it is enough.
      expr: 'max by (job, namespace, pod_name) (max_over_time(smart_router_pod_set_back[5m])) > 0',
      summary: 'Calls fail again and again on {{ $labels.pod_name }}',
      description:
        'Three calls in a row ended within 5 s of their allocation, or their callers could not connect. The pod is set back: it gets calls only when no other pod is free.',
    },
    {
      alert: 'SmartRouterRemovalsHeld',
      condition: 'pool.removals_held',
      isShared: true,
      severity: 'critical',
      expr: 'max by (job, namespace) (smart_router_removals_held) > 0',
      summary: '{{ $value }} pods are missing from the cluster; the removal brake holds them',
      description:
        'Held pods get no new calls. After three lists, about two minutes, they are removed with their calls. If a selector is wrong, roll it back before that.',
    },
    {
      alert: 'SmartRouterPoolUnreadable',
      condition: 'calls.pool_unreadable',
      isShared: true,
      severity: 'critical',
      expr: 'max by (job, namespace) (smart_router_pools_unreadable) > 0',
      summary: '{{ $value }} pools cannot be read',
      description:
        'A key of each pool has the wrong Redis type. Its pods still get calls, but are not swept, counted or removed. Other pools are not affected. `smart-router status` lists the keys.',
    },
    {
      alert: 'SmartRouterInvariantViolations',
      condition: 'calls.invariant_violations',
      severity: 'critical',
      expr: 'max by (job, namespace) (smart_router_invariant_violations) > 0',
      summary: 'The last audit found {{ $value }} invariant violations among calls and pods',
      description:
        'The last audit of the leader found an exclusive pod with two calls, a call on two pods, or the like. Keys were changed by hand, the store lost keys, or the router has a bug.',
    },
    {
      alert: 'SmartRouterCallsLost',
      severity: 'critical',
      expr: 'sum by (job, namespace, reason) (increase(smart_router_calls_lost_total[10m])) > 0',
      summary: 'Live calls were lost ({{ $labels.reason }})',
      description:
        'About {{ $value | humanize }} live calls ended within ten minutes because their pod was {{ $labels.reason }}.',
    },
    {
      alert: 'SmartRouterZombies',
      severity: 'warning',
      for: '5m',
      expr: 'sum by (job, namespace) (rate(smart_router_zombies_recovered_total[15m])) > 0.1',
      summary: 'Many calls are not released',
      description:
        'The sweep recovers {{ $value | humanize }} calls or pods per second: agents crash, or do not release their calls. Each pod was idle until its lease expired.',
    },
    {
      alert: 'SmartRouterAllocateSlow',
      severity: 'warning',
      for: '5m',
      expr: `histogram_quantile(0.99, sum by (job, namespace, le) (rate(smart_router_allocate_duration_seconds_bucket[5m])))
> 0.1`,
      summary: 'Allocations are slow',
      description:
        'The p99 is {{ $value | humanizeDuration }}; normal is a few milliseconds. Requests that exceed REQUEST_TIMEOUT get 503.',
    },
  ],
  records: recordRules,
} as const satisfies Record<string, readonly AlertRule[]>;

type Rows = (typeof alertRules)[keyof typeof alertRules][number];
export type ConditionName = Extract<Rows, { condition: string }>['condition'];

export const runbookOf = ({ alert }: AlertRule) => `docs/runbook.md#${alert.toLowerCase()}`;

const rulesByCondition = new Map(
  Object.values<readonly AlertRule[]>(alertRules)
    .flat()
    .map((rule) => [rule.condition, rule]),
);

/** A row of the table with the values that decide it now. */
export interface Condition {
  /** The same on every replica, so that a receiver can deduplicate. */
  readonly key: string;
  readonly name: ConditionName;
  readonly workflow?: string;
  readonly isShared: boolean;
  readonly severity: Severity;
  readonly pendingMs: number;
  /** When its values were read, by the monotonic clock. */
  readonly atMs: number;
  /** Undefined means unknown: then nothing starts and nothing ends. */
  readonly holds: (isFiring: boolean) => boolean | undefined;
  readonly summary: string;
  readonly details: Readonly<Record<string, string | number>>;
  readonly runbook: string;
}

/** PagerDuty takes 255 characters; names have at most 64 each. */
const maxKeyLength = 255;

export function condition(
  name: ConditionName,
  atMs: number,
  values: Pick<Condition, 'holds' | 'summary' | 'workflow'> & { details?: Condition['details'] },
): Condition {
  const rule = rulesByCondition.get(name) as AlertRule;
  const suffix = values.workflow === undefined ? '' : `/${values.workflow}`;
  return {
    details: {},
    ...values,
    name,
    key: `smart-router/${name}${suffix}`.slice(0, maxKeyLength),
    atMs,
    isShared: rule.isShared ?? false,
    severity: rule.severity,
    pendingMs: rule.pendingMs ?? 0,
    runbook: runbookOf(rule),
  };
}
