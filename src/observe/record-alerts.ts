/** The alert conditions of records, from the events of the record plane. */
import type { Clock } from '../clock.js';
import { type Condition, condition } from './alert-rules.js';
import { EventCount, Gauge, hourMs } from './alert-samples.js';
import { thresholds } from './record-alert-rules.js';

/** A firing condition lasts down to this share of its threshold, so that a value around the threshold does not flap. */
const clearRatio = 0.8;
const quarterMs = hourMs / 4;
/** Workflow names come from the configuration; a mistake there must not fill the memory. */
const maxWorkflows = 1000;

interface StuckRecords {
  gauge: Gauge;
  oldestSeconds: number;
}

export class RecordAlerts {
  readonly #stuck = new Map<string, StuckRecords>();
  readonly #zombies = new Map<string, EventCount>();
  readonly #sessionsOk = new EventCount();
  readonly #sessionsFailed = new EventCount();
  #isBreakerOpen: boolean | undefined;
  #isMassStall: boolean | undefined;

  constructor(private readonly clock: Clock) {}

  /** For the record plane. */
  readonly observer = {
    stuck: (workflow: string, records: number, oldestSeconds: number) => {
      const stuck = bounded(this.#stuck, workflow, () => ({ gauge: new Gauge(), oldestSeconds }));
      if (!stuck) return;
      stuck.gauge.set(records, this.clock.monotonic());
      stuck.oldestSeconds = oldestSeconds;
    },
    session: (outcome: 'ok' | 'failed') => {
      const count = outcome === 'ok' ? this.#sessionsOk : this.#sessionsFailed;
      count.add(1, this.clock.monotonic());
    },
    zombie: (workflow: string) => {
      bounded(this.#zombies, workflow, () => new EventCount())?.add(1, this.clock.monotonic());
    },
    breaker: (isOpen: boolean) => {
      this.#isBreakerOpen = isOpen;
    },
    massStall: (isHolding: boolean) => {
      this.#isMassStall = isHolding;
    },
  };

  conditions(nowMs: number): Condition[] {
    return [
      ...[...this.#stuck].flatMap(([workflow, records]) => stuckConditions(workflow, records, nowMs)),
      ...[...this.#zombies].map(([workflow, count]) =>
        condition('records.zombie', nowMs, {
          workflow,
          holds: () => count.within(quarterMs, nowMs) > 0,
          summary: `${workflow}: records stay in Processing because their failure could not be written`,
          details: { records: count.within(hourMs, nowMs) },
        }),
      ),
      this.#sessionFailures(nowMs),
      condition('records.breaker_open', nowMs, {
        holds: () => this.#isBreakerOpen,
        summary: 'no records are claimed: database sessions fail',
      }),
      condition('records.mass_stall', nowMs, {
        holds: () => this.#isMassStall,
        summary:
          'most record workers missed their heartbeats at once; their records are not requeued for 45 s',
      }),
    ];
  }

  #sessionFailures(nowMs: number): Condition {
    const { sessionFailureRate, minSessionFailures } = thresholds;
    const failed = this.#sessionsFailed.within(quarterMs, nowMs);
    const attempts = failed + this.#sessionsOk.within(quarterMs, nowMs);
    const rate = attempts === 0 ? 0 : failed / attempts;
    const percent = (value: number) => `${Number((100 * value).toPrecision(2))} %`;
    return condition('records.session_failures', nowMs, {
      holds: (isFiring) =>
        failed >= minSessionFailures && rate > sessionFailureRate * (isFiring ? clearRatio : 1),
      summary: `${percent(rate)} of the database sessions failed in the last 15 minutes (more than ${percent(sessionFailureRate)})`,
      details: { failed, attempts },
    });
  }
}

function stuckConditions(
  workflow: string,
  { gauge, oldestSeconds }: StuckRecords,
  nowMs: number,
): Condition[] {
  const records = gauge.latest(nowMs);
  if (records === undefined) return [];
  const { stuckWarning, stuckCritical } = thresholds;
  const oldest = Math.round(oldestSeconds);
  const lowest = gauge.lowestOfHour(nowMs);
  const shared = {
    workflow,
    details: { records, oldest_seconds: oldest, lowest_of_last_hour: lowest },
  };
  const above = (threshold: number) => (isFiring: boolean) =>
    records > threshold * (isFiring ? clearRatio : 1);
  return [
    condition('records.stuck_critical', nowMs, {
      ...shared,
      holds: above(stuckCritical),
      summary: `${workflow}: ${records} records are stuck in Processing (more than ${stuckCritical})`,
    }),
    condition('records.stuck_warning', nowMs, {
      ...shared,
      // The critical alert replaces the warning, unless the warning fired first.
      holds: (isFiring) => above(stuckWarning)(isFiring) && (isFiring || !above(stuckCritical)(false)),
      summary: `${workflow}: ${records} records are stuck in Processing (more than ${stuckWarning})`,
    }),
    condition('records.stuck_doubled', nowMs, {
      ...shared,
      holds: (isFiring) => {
        // From 0 to some is not a doubling: the next sweep may requeue them.
        if (!above(stuckWarning)(isFiring) || lowest === 0) return false;
        if (records >= 2 * lowest * (isFiring ? clearRatio : 1)) return true;
        return gauge.coversAnHour(nowMs) ? false : undefined;
      },
      summary: `${workflow}: stuck records doubled within an hour, from ${lowest} to ${records}`,
    }),
    condition('records.stuck_for_an_hour', nowMs, {
      ...shared,
      holds: () => records > 0 && 1000 * oldest >= hourMs,
      summary: `${workflow}: ${records} records are stuck in Processing, the oldest for ${Math.round(oldest / 60)} min`,
    }),
  ];
}

function bounded<T>(map: Map<string, T>, name: string, create: () => T): T | undefined {
  const found = map.get(name);
  if (found || map.size >= maxWorkflows) return found;
  const created = create();
  map.set(name, created);
  return created;
}
