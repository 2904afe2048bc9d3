/**
 * One row of the history: what one replica counted since its last row, the state of the store, and the replica's
 * identity. A row is an entry of a Redis stream; its field names are always the same, so Redis stores them once.
 */
import type { ActiveAlert } from '../../observe/alerts.js';
import {
  type Counts,
  firstPlainCounts,
  noCounts,
  plainCounts,
  type RecordCounts,
  recordCounts,
} from './counts.js';

/** With their names in the API. */
export const gaugeNames = ['active_calls', 'available', 'assigned', 'capacity', 'waiting'] as const;
export type Gauges = Record<(typeof gaugeNames)[number], number>;

export interface Row {
  name: string;
  version: string;
  /** A hash of the `sharedVariables`. */
  setup: string;
  isLeader: boolean;
  startedAtMs: number;
  /** The number of the check of this row, and of the first check in it: several if the store did not take a row. */
  check: number;
  firstCheck: number;
  /** The time that it covers. */
  ms: number;
  counts: Counts;
  gauges: Gauges;
  alerts: ActiveAlert[];
}

export interface WrittenRow extends Row {
  /** When it was written, by the store's clock. */
  atMs: number;
}

/** The last moment that a Date can hold. */
const maxDateMs = 8.64e15;

export function toFields(row: Row): string[] {
  const { counts, gauges } = row;
  const total = [...counts.latency.values()].reduce((sum, count) => sum + count, 0);
  const fields: Record<string, string | number> = {
    name: row.name,
    version: row.version,
    setup: row.setup,
    leader: row.isLeader ? 1 : 0,
    started: row.startedAtMs,
    look: row.check,
    first: row.firstCheck,
    ms: Math.round(row.ms),
    counts: plainCounts.map((name) => counts[name]).join(','),
    latency: total === 0 ? '' : [...counts.latency].map(([bound, count]) => `${bound}:${count}`).join(','),
    gauges: gaugeNames.map((name) => gauges[name]).join(','),
    records: counts.records.size === 0 ? '' : JSON.stringify(Object.fromEntries(counts.records)),
    alerts: row.alerts.length === 0 ? '' : JSON.stringify(row.alerts),
  };
  return Object.entries(fields).flatMap(([name, value]) => [name, String(value)]);
}

/** Undefined for a row that this version does not understand. */
export function parseRow(id: string, fields: ReadonlyMap<string, string>): WrittenRow | undefined {
  const text = (name: string) => fields.get(name) ?? '';
  if (text('name') === '') return undefined;
  const numbers = (name: string) => text(name).split(',').map(Number);
  const counts = noCounts();
  const plain = numbers('counts');
  for (const [i, name] of plainCounts.entries())
    counts[name] = plain[i] ?? (i < firstPlainCounts ? Number.NaN : 0);
  for (const pair of text('latency').split(',')) {
    const [bound, count] = pair.split(':');
    if (Number(bound) > 0 && Number.isFinite(Number(count))) counts.latency.set(Number(bound), Number(count));
  }
  for (const [workflow, of] of Object.entries(parsed(text('records')) ?? {}))
    if (isRecordCounts(of)) counts.records.set(workflow, of);
  const alerts = parsed(text('alerts'));
  const gauges = numbers('gauges');
  const row = {
    atMs: Number(id.split('-')[0]),
    name: text('name'),
    version: text('version'),
    setup: text('setup'),
    isLeader: text('leader') === '1',
    startedAtMs: Number(text('started')),
    check: Number(text('look')),
    firstCheck: Number(text('first')),
    ms: Math.max(1, Number(text('ms'))),
    counts,
    gauges: Object.fromEntries(gaugeNames.map((name, i) => [name, gauges[i] ?? 0])) as Gauges,
    alerts: Array.isArray(alerts) ? alerts.filter(isAlert) : [],
  };
  const required = [
    row.atMs,
    row.startedAtMs,
    row.check,
    row.firstCheck,
    row.ms,
    counts.full,
    row.gauges.capacity,
  ];
  const isTime = Math.abs(row.startedAtMs) <= maxDateMs;
  return isTime && required.every(Number.isFinite) ? row : undefined;
}

function parsed(text: string): unknown {
  if (text === '') return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A field that another version writes differently is dropped; the rest of the row is used. */
function isRecordCounts(value: unknown): value is RecordCounts {
  return recordCounts.every((name) => Number.isFinite(Object(value)[name]));
}

function isAlert(value: unknown): value is ActiveAlert {
  const { name, severity, summary, since, workflow, runbook } = Object(value);
  const isText = (each: unknown) => typeof each === 'string';
  return (
    [name, summary, since, runbook].every(isText) &&
    (workflow === null || isText(workflow)) &&
    ['warning', 'critical', 'page'].includes(severity)
  );
}

/**
 * Drops rows that a later row of the same process contains: the store took them, but the reply was lost. Oldest first.
 */
export function withoutDuplicates(rows: readonly WrittenRow[]): WrittenRow[] {
  const lowest = new Map<string, number>();
  const newestFirst = rows.reduceRight<WrittenRow[]>((kept, row) => {
    const process = `${row.startedAtMs} ${row.name}`;
    const limit = lowest.get(process);
    if (limit === undefined || row.check < limit) {
      kept.push(row);
      lowest.set(process, row.firstCheck);
    }
    return kept;
  }, []);
  return newestFirst.reverse();
}
