/**
 * The weekly report by workflow: resets by reason and outcome, compared with the week before; the record that was stuck
 * longest; records that were reset repeatedly, with their last trace; records held for a person; late finishes (each is a
 * record taken from a worker that was still alive).
 *
 * Reads only our own schema, not the team's tables. Resets are kept for 90 days, which limits how far back it can go.
 */
import type { Pool } from 'pg';
import { systemClock } from '../clock.js';
import { ConfigError } from '../errors.js';
import { queries } from './queries.generated.js';
import { Sessions } from './sessions.js';

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
  /** In the period of the same length before. */
  before: number;
  /** Requeued by a person: zero is the aim. */
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
  /** Held for a person now. */
  held: number;
  /** Null: no process counts them. */
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
  /** How many different workers held it. */
  workers: number;
  reason: string;
  outcome: string;
  trace: string | null;
}

export interface ResetCount {
  workflow: string;
  reason: string;
  outcome: string;
  records: number;
}

/** A reset as the database returns it. */
export type Reset = Named<Omit<StuckRecord, 'at'>> & { at: Date };

interface WorkflowRow {
  workflow: string;
  held: number;
  late: number | null;
  lateBefore: number | null;
}

type Named<T> = T & { workflow: string };

const weekMs = 7 * 24 * 3_600_000;

export async function weeklyReport(pool: Pool, options: ReportOptions = {}): Promise<WeeklyReport> {
  const db = new Sessions({ pool, clock: systemClock });
  const { rows: clock } = await db.query<{ now: Date }>('SELECT now()');
  const until = options.until ?? clock[0]?.now ?? new Date(0);
  const since = options.since ?? new Date(until.getTime() - weekMs);
  if (!(since < until)) throw new ConfigError(['a report needs a `since` before its `until`']);
  const read = async <T extends object>(query: string, ...more: unknown[]): Promise<T[]> =>
    (await db.query<T>(query, [since, until, ...more])).rows;

  const workflows = new Map<string, WorkflowReport>();
  const of = (name: string): WorkflowReport => {
    const found = workflows.get(name) ?? emptyReport(name);
    workflows.set(name, found);
    return found;
  };
  for (const { workflow, reason, outcome, records, before } of await read<ResetCount & { before: number }>(
    queries.reportResets,
  )) {
    const report = of(workflow);
    report.records += records;
    report.before += before;
    if (records === 0) continue;
    report.byReason[reason] = (report.byReason[reason] ?? 0) + records;
    report.byOutcome[outcome] = (report.byOutcome[outcome] ?? 0) + records;
  }
  for (const { workflow, ...day } of await read<Named<{ day: string; records: number }>>(queries.reportDays))
    of(workflow).byDay.push(day);
  for (const { workflow, at, ...record } of await read<Reset>(queries.reportOldest))
    of(workflow).longestStuck = { ...record, at: at.toISOString() };
  const offenders = await read<Named<Omit<RepeatOffender, 'lastAt'>> & { lastAt: Date }>(
    queries.reportOffenders,
    options.most ?? 10,
  );
  for (const { workflow, lastAt, ...record } of offenders)
    of(workflow).repeatOffenders.push({ ...record, lastAt: lastAt.toISOString() });
  for (const { workflow, held, late, lateBefore } of await read<WorkflowRow>(queries.reportWorkflows)) {
    const report = of(workflow);
    report.held = held;
    if (late !== null || lateBefore !== null)
      report.lateFinishes = { records: late ?? 0, before: lateBefore ?? 0 };
  }

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

function emptyReport(workflow: string): WorkflowReport {
  return {
    ...{ workflow, records: 0, before: 0, byReason: {}, byOutcome: {}, byDay: [] },
    ...{ longestStuck: null, repeatOffenders: [], held: 0, lateFinishes: null },
  };
}
