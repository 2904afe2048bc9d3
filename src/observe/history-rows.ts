/**
 * One row of the history: what one replica counted since its last row, what the store looked like, and who it is. In
 * the store it is an entry of a stream whose fields are always the same, which the store then keeps only once.
 */
import { type Counts, noCounts, plainCounts, type RecordCounts } from './history-counts.js';

export interface Gauges {
  activeCalls: number;
  available: number;
  assigned: number;
  capacity: number;
}

/** As it is told to the console and, through the row, to the other replicas. */
export interface ToldAlert {
  name: string;
  severity: 'warning' | 'critical' | 'page';
  summary: string;
  since: string;
  workflow: string | null;
  runbook: string;
}

export interface Row {
  name: string;
  version: string;
  /** A hash of where its pods come from and of its tiers; empty from a router that does not write it. */
  setup: string;
  isLeader: boolean;
  startedAtMs: number;
  /** The number of this row's look, and of the first one that is in it: more than one if the store did not take them. */
  look: number;
  firstLook: number;
  /** The time that it is about. */
  ms: number;
  counts: Counts;
  gauges: Gauges;
  alerts: ToldAlert[];
}

/** With when it was written, by the store's clock. */
export interface WrittenRow extends Row {
  atMs: number;
}

/** The last moment that has a date. */
const latestMs = 8.64e15;
const gaugeNames = ['activeCalls', 'available', 'assigned', 'capacity'] as const;

export function toFields(row: Row): string[] {
  const { counts, gauges } = row;
  const total = [...counts.latency.values()].reduce((sum, count) => sum + count, 0);
  const fields: Record<string, string | number> = {
    name: row.name,
    version: row.version,
    setup: row.setup,
    leader: row.isLeader ? 1 : 0,
    started: row.startedAtMs,
    look: row.look,
    first: row.firstLook,
    ms: Math.round(row.ms),
    counts: plainCounts.map((name) => counts[name]).join(','),
    latency: total === 0 ? '' : [...counts.latency].map(([bound, count]) => `${bound}:${count}`).join(','),
    gauges: gaugeNames.map((name) => gauges[name]).join(','),
    records: counts.records.size === 0 ? '' : JSON.stringify(Object.fromEntries(counts.records)),
    alerts: row.alerts.length === 0 ? '' : JSON.stringify(row.alerts),
  };
  return Object.entries(fields).flatMap(([name, value]) => [name, String(value)]);
}

/** Undefined for what is no row of ours: another version may write others beside it. */
export function parseRow(id: string, fields: ReadonlyMap<string, string>): WrittenRow | undefined {
  const text = (name: string) => fields.get(name) ?? '';
  const numbers = (name: string) => text(name).split(',').map(Number);
  const counts = noCounts();
  const counted = numbers('counts');
  // A router from before `shed` or `full` wrote a row without it.
  for (const [i, name] of plainCounts.entries())
    counts[name] = counted[i] ?? (name === 'shed' || name === 'full' ? 0 : Number.NaN);
  for (const pair of text('latency').split(',')) {
    const [bound, count] = pair.split(':');
    if (Number(bound) > 0 && Number.isFinite(Number(count))) counts.latency.set(Number(bound), Number(count));
  }
  for (const [workflow, of] of Object.entries(parsed(text('records')) ?? {}))
    if (isRecordCounts(of)) counts.records.set(workflow, of);
  const alerts = parsed(text('alerts'));
  const [activeCalls = 0, available = 0, assigned = 0, capacity = 0] = numbers('gauges');
  const row = {
    atMs: Number(id.split('-')[0]),
    name: text('name'),
    version: text('version'),
    setup: text('setup'),
    isLeader: text('leader') === '1',
    startedAtMs: Number(text('started')),
    look: Number(text('look')),
    firstLook: Number(text('first')),
    ms: Math.max(1, Number(text('ms'))),
    counts,
    gauges: { activeCalls, available, assigned, capacity },
    alerts: Array.isArray(alerts) ? alerts.filter(isAlert) : [],
  };
  const known = [
    row.atMs,
    row.startedAtMs,
    row.look,
    row.firstLook,
    row.ms,
    counts.lost,
    counts.shed,
    counts.full,
    capacity,
  ];
  const isTime = Math.abs(row.startedAtMs) <= latestMs;
  return row.name !== '' && isTime && known.every(Number.isFinite) ? row : undefined;
}

function parsed(text: string): unknown {
  if (text === '') return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A field of another version costs that field, not the answer. */
function isRecordCounts(value: unknown): value is RecordCounts {
  const { completed, failed, recovered } = Object(value);
  return [completed, failed, recovered].every(Number.isFinite);
}

function isAlert(value: unknown): value is ToldAlert {
  const { name, severity, summary, since, workflow, runbook } = Object(value);
  const isText = (each: unknown) => typeof each === 'string';
  return (
    [name, summary, since, runbook].every(isText) &&
    (workflow === null || isText(workflow)) &&
    ['warning', 'critical', 'page'].includes(severity)
  );
}

/**
 * Without those that a later row contains: its writer was told that the store had not taken them, and it had. Oldest
 * first, as they come.
 */
export function withoutDoubles(rows: readonly WrittenRow[]): WrittenRow[] {
  const lowest = new Map<string, number>();
  const newestFirst = rows.reduceRight<WrittenRow[]>((kept, row) => {
    const process = `${row.startedAtMs} ${row.name}`;
    const limit = lowest.get(process);
    if (limit === undefined || row.look < limit) {
      kept.push(row);
      lowest.set(process, row.firstLook);
    }
    return kept;
  }, []);
  return newestFirst.reverse();
}
