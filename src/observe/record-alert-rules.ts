/** The rows of alert-rules.ts about records. */
export const thresholds = {
  /** Stuck records of one workflow. */
  stuckWarning: 10,
  stuckCritical: 50,
  /** Of the sessions of the last 15 minutes. */
  sessionFailureRate: 0.01,
  /** One failed session out of twenty is chance, not 5 %. */
  minSessionFailures: 3,
};

const { stuckWarning, stuckCritical, sessionFailureRate, minSessionFailures } = thresholds;
/** When a loop last finished a round, in PromQL. */
export const lastRound = (loop: string) =>
  `max by (job, namespace) (smart_router_loop_last_round_timestamp_seconds{loop="${loop}"})`;
const stuck = 'max by (job, namespace, workflow) (smart_router_records_stuck)';
const sessionFailures =
  'sum by (job, namespace) (increase(smart_router_records_session_failures_total[15m]))';

export const recordRules = [
  {
    alert: 'SmartRouterRecordsStuck',
    condition: 'records.stuck_warning',
    isShared: true,
    severity: 'warning',
    for: '1m',
    expr: `${stuck} > ${stuckWarning}`,
    summary: '{{ $labels.workflow }}: {{ $value }} records are stuck in Processing',
    description: `More than ${stuckWarning} records have lost their worker and are not requeued yet.`,
  },
  {
    alert: 'SmartRouterRecordsStuckMany',
    condition: 'records.stuck_critical',
    isShared: true,
    severity: 'critical',
    for: '1m',
    expr: `${stuck} > ${stuckCritical}`,
    summary: '{{ $labels.workflow }}: {{ $value }} records are stuck in Processing',
    description: `More than ${stuckCritical} records have lost their worker and are not requeued yet.`,
  },
  {
    alert: 'SmartRouterRecordsStuckDoubled',
    condition: 'records.stuck_doubled',
    isShared: true,
    severity: 'page',
    for: '1m',
    // Against the lowest of the hour. From 0 to some is not a doubling: the next sweep may requeue them.
    expr: `(${stuck} > ${stuckWarning})
>= 2 * (min_over_time(${stuck}[1h:1m]) > 0)`,
    summary: '{{ $labels.workflow }}: stuck records doubled within an hour, to {{ $value }}',
    description:
      'Records become stuck faster than they are requeued: processes die, handlers hang, or recovery does not run.',
  },
  {
    alert: 'SmartRouterRecordsStuckForAnHour',
    condition: 'records.stuck_for_an_hour',
    isShared: true,
    severity: 'warning',
    for: '1m',
    expr: 'max by (job, namespace, workflow) (smart_router_records_oldest_stuck_seconds) >= 3600',
    summary:
      '{{ $labels.workflow }}: a record has been stuck in Processing for {{ $value | humanizeDuration }}',
    description: 'The sweep has not requeued the record, or it is held for an operator.',
  },
  {
    alert: 'SmartRouterRecordsSessionFailures',
    condition: 'records.session_failures',
    severity: 'critical',
    expr: `${sessionFailures}
/ sum by (job, namespace) (increase(smart_router_records_session_attempts_total[15m]))
> ${sessionFailureRate}
and ${sessionFailures} >= ${minSessionFailures}`,
    summary: '{{ $value | humanizePercentage }} of the database sessions fail',
    description: 'More than 1 % of the sessions of the last 15 minutes could not be opened, or broke.',
  },
  {
    alert: 'SmartRouterRecordsDatabaseDown',
    severity: 'critical',
    for: '1m',
    expr: 'max by (job, namespace) (smart_router_records_database_up) == 0',
    summary: 'The database gives no router a session',
    description:
      'No records are processed or requeued, and the number of stuck records is unknown. Outcomes of running records wait in Redis or on disk. Calls are not affected.',
  },
  {
    alert: 'SmartRouterRecordsBreakerOpen',
    condition: 'records.breaker_open',
    // A database failover is over by then.
    pendingMs: 30_000,
    severity: 'critical',
    for: '30s',
    expr: 'max by (job, namespace, instance) (smart_router_records_breaker_open) == 1',
    summary: '{{ $labels.instance }} claims no records: its database sessions fail',
    description: 'Three sessions failed in a row. The router retries every 1 to 30 s and resumes on success.',
  },
  {
    alert: 'SmartRouterRecordsMassStall',
    condition: 'records.mass_stall',
    isShared: true,
    severity: 'critical',
    expr: 'max by (job, namespace) (smart_router_records_brake_holding) == 1',
    summary: 'Most record workers missed their heartbeats at once',
    description:
      'The fast sweep leaves their records alone for another 45 seconds: the network or the database is a likelier cause than the workers.',
  },
  {
    alert: 'SmartRouterRecordsZombies',
    condition: 'records.zombie',
    severity: 'critical',
    expr: 'sum by (job, namespace, workflow) (increase(smart_router_records_zombie_alerts_total[15m])) > 0',
    summary: '{{ $labels.workflow }}: records stay in Processing because their failure could not be written',
    description: 'Three sessions in a row could not be opened. Recovery requeues the records.',
  },
  {
    alert: 'SmartRouterRecordsLateFinishes',
    severity: 'warning',
    expr: 'sum by (job, namespace, workflow) (increase(smart_router_records_late_finishes_total[1h])) > 0',
    summary: '{{ $labels.workflow }}: records were processed twice, and counted once',
    description:
      'Workers finished records that another worker had claimed by then: the timeout is too short, or a live worker missed its heartbeats.',
  },
  {
    alert: 'SmartRouterRecordsSweepStalled',
    condition: 'records.sweeps_stalled',
    severity: 'critical',
    for: '5m',
    // With ZOMBIE_CLEANUP_ENABLED=false the loop records-look runs instead of the sweeps.
    expr: `(max by (job, namespace) (smart_router_records_database_up) == 1)
unless ${lastRound('records-look')}
unless (
  (time() - ${lastRound('records-fast-sweep')} < 300)
  and
  (time() - ${lastRound('records-slow-sweep')} < 2700)
)`,
    summary: 'The sweeps for stuck records are stalled',
    description:
      'The database responds, but on no router has the fast sweep (every 20 s) finished a round for five minutes, or the slow one (every 15 minutes) for 45.',
  },
] as const;
