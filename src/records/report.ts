/**
 * What was brought back in a week, by workflow: how much, why, with what outcome, against the week before; which record
 * was stuck longest, which came back again and again and what they were doing; what waits for a person; how many
 * finishes came too late (each is a record that was taken from a worker that still lived).
 *
 * Read from our own schema alone, so the team's tables are not touched. Resets are kept for 90 days: that is how far
 * back a report can look.
 */
import type { Pool } from 'pg';
import { systemClock } from '../clock.js';
import { ConfigError } from '../errors.js';
import { queries } from './queries.generated.js';
import { type Queryable, Sessions } from './sessions.js';

export interface ReportOptions {
  /** Default: seven days before `until`. */
  since?: Date;
  /** Default: now, by the database's clock. */
  until?: Date;
  /** Repeat offenders per workflow. Default: 10. */
  most?: number;
}

export interface WeeklyReport {
  since: string;
  until: string;
  records: number;
  /** In the same time before. */
  before: number;
  /** Brought back by a person: zero is the aim. */
  byHand: number;
  workflows: WorkflowReport[];
}

export interface WorkflowReport {
  workflow: string;
  records: number;
  before: number;
  byReason: Record<string, number>;
  byOutcome: Record<string, number>;
  byDay: { day: string; records: number }[];
  longestStuck: StuckRecord | null;
  repeatOffenders: RepeatOffender[];
  /** Policy `hold`: they wait for a person, now. */
  held: number;
  /** Null: no process counts them here. */
  lateFinishes: { records: number; before: number } | null;
}

export interface StuckRecord {
  id: string;
  at: string;
  reason: string;
  outcome: string;
  stuckSeconds: number | null;
  worker: string | null;
  trace: string | null;
}

export interface RepeatOffender {
  id: string;
  times: number;
  lastAt: string;
  /** How many different workers it was taken from. */
  workers: number;
  reason: string;
  outcome: string;
  trace: string | null;
}

const weekMs = 7 * 24 * 3_600_000;

export async function weeklyReport(pool: Pool, options: ReportOptions = {}): Promise<WeeklyReport> {
  const db = new Sessions({ pool, clock: systemClock });
  const until = options.until ?? (await databaseNow(db));
  const since = options.since ?? new Date(until.getTime() - weekMs);
  if (!(since < until)) throw new ConfigError(['a report needs a `since` that is before its `until`']);
  const window = [since, until];
  const resets = await db.query<ResetsRow>(queries.reportResets, window);
  const days = await db.query<DaysRow>(queries.reportDays, window);
  const oldest = await db.query<OldestRow>(queries.reportOldest, window);
  const offenders = await db.query<OffenderRow>(queries.reportOffenders, [...window, options.most ?? 10]);
  const known = await db.query<WorkflowRow>(queries.reportWorkflows, window);

  const workflows = new Map<string, WorkflowReport>();
  const of = (name: string): WorkflowReport => {
    const found = workflows.get(name) ?? nothing(name);
    workflows.set(name, found);
    return found;
  };
  for (const row of known.rows) {
    const report = of(row.workflow);
    report.held = Number(row.held);
    if (row.late !== null || row.late_before !== null)
      report.lateFinishes = { records: Number(row.late ?? 0), before: Number(row.late_before ?? 0) };
  }
  for (const row of resets.rows) {
    const report = of(row.workflow);
    const records = Number(row.records);
    report.records += records;
    report.before += Number(row.before);
    if (records === 0) continue;
    report.byReason[row.reason] = (report.byReason[row.reason] ?? 0) + records;
    report.byOutcome[row.outcome] = (report.byOutcome[row.outcome] ?? 0) + records;
  }
  for (const { workflow, day, records } of days.rows)
    of(workflow).byDay.push({ day, records: Number(records) });
  for (const row of oldest.rows) of(row.workflow).longestStuck = stuckRecord(row);
  for (const row of offenders.rows) of(row.workflow).repeatOffenders.push(repeatOffender(row));

  const all = [...workflows.values()].sort((a, b) => (a.workflow < b.workflow ? -1 : 1));
  const sum = (count: (report: WorkflowReport) => number) =>
    all.reduce((total, report) => total + count(report), 0);
  return {
    since: since.toISOString(),
    until: until.toISOString(),
    records: sum(({ records }) => records),
    before: sum(({ before }) => before),
    byHand: sum(({ byReason }) => byReason.by_hand ?? 0),
    workflows: all,
  };
}

async function databaseNow(db: Queryable): Promise<Date> {
  const { rows } = await db.query<{ now: Date }>('SELECT now()');
  if (!rows[0]) throw new Error('the database did not say what time it is');
  return rows[0].now;
}

interface ResetsRow {
  workflow: string;
  reason: string;
  outcome: string;
  records: string;
  before: string;
}

interface DaysRow {
  workflow: string;
  day: string;
  records: string;
}

interface OldestRow {
  workflow: string;
  record_id: string;
  at: Date;
  reason: string;
  outcome: string;
  stuck_seconds: number | null;
  worker: string | null;
  trace: string | null;
}

interface OffenderRow {
  workflow: string;
  record_id: string;
  times: string;
  last_at: Date;
  workers: string;
  reason: string;
  outcome: string;
  trace: string | null;
}

interface WorkflowRow {
  workflow: string;
  held: string;
  late: string | null;
  late_before: string | null;
}

function nothing(workflow: string): WorkflowReport {
  return {
    workflow,
    records: 0,
    before: 0,
    byReason: {},
    byOutcome: {},
    byDay: [],
    longestStuck: null,
    repeatOffenders: [],
    held: 0,
    lateFinishes: null,
  };
}

function stuckRecord(row: OldestRow): StuckRecord {
  const { record_id, at, reason, outcome, stuck_seconds, worker, trace } = row;
  return {
    id: record_id,
    at: at.toISOString(),
    reason,
    outcome,
    stuckSeconds: stuck_seconds === null ? null : Math.round(stuck_seconds),
    worker,
    trace,
  };
}

function repeatOffender(row: OffenderRow): RepeatOffender {
  const { record_id, times, last_at, workers, reason, outcome, trace } = row;
  return {
    id: record_id,
    times: Number(times),
    lastAt: last_at.toISOString(),
    workers: Number(workers),
    reason,
    outcome,
    trace,
  };
}
