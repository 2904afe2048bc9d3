/**
 * When somebody should know. Each rule says whether its condition holds now; one that is being told already holds on to
 * four fifths of its threshold, so that a number that trembles around it does not flap. `undefined` means that nobody
 * can say: then nothing begins and nothing ends.
 *
 * A `shared` condition is read from a store that all replicas see; a `local` one is about this process alone.
 */
import type { Samples } from './alerts-samples.js';
import { hourMs } from './alerts-samples.js';

export type Severity = 'warning' | 'critical' | 'page';

export interface AlertThresholds {
  /** Stuck records of one workflow above which there is a warning. */
  stuckWarning: number;
  stuckCritical: number;
  /** Of the sessions of the last quarter of an hour. */
  sessionFailureRate: number;
}

export const defaultThresholds: AlertThresholds = {
  stuckWarning: 10,
  stuckCritical: 50,
  sessionFailureRate: 0.01,
};

export interface Condition {
  /** The same on every replica: whoever receives it from several folds them into one. */
  readonly key: string;
  readonly name: string;
  readonly workflow?: string;
  readonly scope: 'shared' | 'local';
  readonly severity: Severity;
  /** It has to last so long before it is told. */
  readonly forMs: number;
  readonly holds: (isTold: boolean) => boolean | undefined;
  readonly summary: string;
  readonly details: Readonly<Record<string, string | number>>;
  readonly runbook: string;
}

const keep = 0.8;
const quarterMs = hourMs / 4;
/** One failed session out of twenty is bad luck, not 5 %. */
const leastSessionFailures = 3;
/** A database that fails over is back by then. */
const breakerForMs = 30_000;

export function conditions(samples: Samples, thresholds: AlertThresholds, nowMs: number): Condition[] {
  return [
    ...[...samples.stuck.keys()].flatMap((workflow) => stuck(workflow, samples, thresholds, nowMs)),
    ...[...samples.zombies].map(([workflow, tally]) =>
      condition({
        name: 'records.zombie',
        workflow,
        scope: 'local',
        severity: 'critical',
        holds: () => tally.within(quarterMs, nowMs) > 0,
        summary: `${workflow}: records stay in Processing because not even their failure could be written`,
        details: { records: tally.within(hourMs, nowMs) },
        runbook: 'zombie-record-alert',
      }),
    ),
    sessions(samples, thresholds, nowMs),
    condition({
      name: 'records.breaker_open',
      scope: 'local',
      severity: 'critical',
      forMs: breakerForMs,
      holds: () => samples.isBreakerOpen,
      summary: 'no records are claimed: sessions of the database fail',
      details: {},
      runbook: 'claiming-is-paused',
    }),
    condition({
      name: 'records.mass_stall',
      scope: 'shared',
      severity: 'critical',
      holds: () => samples.isBraked,
      summary: 'most record workers fell silent at once: their records are left alone for one bound',
      details: {},
      runbook: 'most-workers-are-silent',
    }),
    removals(samples, nowMs),
  ];
}

function stuck(workflow: string, samples: Samples, thresholds: AlertThresholds, nowMs: number): Condition[] {
  const level = samples.stuck.get(workflow);
  const records = level?.latest(nowMs);
  if (!level || records === undefined) return [];
  const { stuckWarning, stuckCritical } = thresholds;
  const oldest = Math.round(samples.oldestSeconds.get(workflow) ?? 0);
  const lowest = level.lowestOfHour(nowMs);
  const shared = {
    workflow,
    scope: 'shared' as const,
    details: { records, oldest_seconds: oldest, lowest_of_last_hour: lowest },
    runbook: 'stuck-records',
  };
  const above = (threshold: number) => (isTold: boolean) => records > threshold * (isTold ? keep : 1);
  return [
    condition({
      ...shared,
      name: 'records.stuck_critical',
      severity: 'critical',
      holds: above(stuckCritical),
      summary: `${workflow}: ${records} records are stuck in Processing (more than ${stuckCritical})`,
    }),
    condition({
      ...shared,
      name: 'records.stuck_warning',
      severity: 'warning',
      // Who hears of the critical one need not hear of this as well; it goes on if it was there first.
      holds: (isTold) => above(stuckWarning)(isTold) && (isTold || !above(stuckCritical)(false)),
      summary: `${workflow}: ${records} records are stuck in Processing (more than ${stuckWarning})`,
    }),
    condition({
      ...shared,
      name: 'records.stuck_doubled',
      severity: 'page',
      holds: (isTold) => {
        // From none to some is no doubling: the sweep may clear it within its interval.
        if (!above(stuckWarning)(isTold) || lowest === 0) return false;
        if (records >= 2 * lowest * (isTold ? keep : 1)) return true;
        return level.knowsAnHour(nowMs) ? false : undefined;
      },
      summary: `${workflow}: stuck records doubled within an hour, from ${lowest} to ${records}`,
    }),
    condition({
      ...shared,
      name: 'records.stuck_for_an_hour',
      severity: 'warning',
      holds: () => records > 0 && 1000 * oldest >= hourMs,
      summary: `${workflow}: ${records} records are stuck in Processing, the oldest for ${Math.round(oldest / 60)} min`,
    }),
  ];
}

function sessions(samples: Samples, { sessionFailureRate }: AlertThresholds, nowMs: number): Condition {
  const failed = samples.sessionsFailed.within(quarterMs, nowMs);
  const attempts = failed + samples.sessionsOk.within(quarterMs, nowMs);
  const rate = attempts === 0 ? 0 : failed / attempts;
  const percent = (value: number) => `${Number((100 * value).toPrecision(2))} %`;
  return condition({
    name: 'records.session_failures',
    scope: 'local',
    severity: 'critical',
    holds: (isTold) => failed >= leastSessionFailures && rate > sessionFailureRate * (isTold ? keep : 1),
    summary: `${percent(rate)} of the database sessions failed in the last 15 minutes (more than ${percent(sessionFailureRate)})`,
    details: { failed, attempts },
    runbook: 'sessions-fail',
  });
}

function removals(samples: Samples, nowMs: number): Condition {
  const held = samples.removals.latest(nowMs);
  return condition({
    name: 'pool.removals_held',
    scope: 'shared',
    severity: 'critical',
    holds: () => (held === undefined ? undefined : held > 0),
    summary: `${held ?? 0} pods are missing from the cluster and not believed gone yet: the removal brake holds them`,
    details: { pods: held ?? 0 },
    runbook: 'the-removal-brake',
  });
}

const runbooks: Record<string, string> = {
  records: 'docs/runbook-records.md',
  pool: 'docs/operations.md',
  calls: 'docs/runbook.md',
};
/** PagerDuty takes 255 characters; names have at most 64 each. */
const longestKey = 255;

export function condition(parts: Omit<Condition, 'key' | 'forMs'> & { forMs?: number }): Condition {
  const { name, workflow, runbook } = parts;
  const page = runbooks[name.split('.')[0] ?? ''];
  const key = `smart-router/${name}${workflow === undefined ? '' : `/${workflow}`}`.slice(0, longestKey);
  return { forMs: 0, ...parts, key, runbook: `${page}#${runbook}` };
}
