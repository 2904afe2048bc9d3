/** The lists of `top`: pods, calls, events and alerts, with their columns and sort keys. */

import type { Cell } from '../../terminal/table.js';
import { severityColour, severityWord } from '../commands/alerts.js';
import { eventColour, eventText, shorten } from '../commands/events.js';
import { podColumns, soonest, stateOf } from '../commands/pods.js';
import { age, byText, leaseCell } from '../format.js';
import type { Alert, RouterEvent } from '../replies.js';
import type { Snapshot } from './snapshot.js';

export const views = ['pods', 'calls', 'events', 'alerts'] as const;
export type View = (typeof views)[number];

export interface Row {
  /** Stable across snapshots. */
  id: string;
  cells: readonly Cell[];
  /** A line below the list, for the selected row. */
  detail?: string;
  /** One per sort. */
  keys: readonly (string | number)[];
}

export interface Panel {
  /** `from`: the minimum terminal width. */
  columns: readonly (readonly [head: string, from?: number | undefined])[];
  /** The names of the sorts; the first is the default. */
  sorts: readonly string[];
  rows: readonly Row[];
  empty: string;
}

export interface Arrangement {
  filter: string;
  sort: number;
  reversed: boolean;
}

export const timeOfDay = (at: string | number) => new Date(at).toLocaleTimeString('en-GB');

/** Most urgent first. */
const stateOrder = ['blocked', 'draining', 'busy', 'free'];
const never = Number.MAX_SAFE_INTEGER;

export function panelOf(
  view: View,
  snapshot: Snapshot,
  events: readonly RouterEvent[],
  nowMs: number,
): Panel {
  if (view === 'pods') return podsPanel(snapshot, nowMs);
  if (view === 'calls') return callsPanel(snapshot, nowMs);
  return view === 'events' ? eventsPanel(events) : alertsPanel(snapshot.alerts, nowMs);
}

function podsPanel({ pods, status }: Snapshot, nowMs: number): Panel {
  const columns = podColumns(status.pools, nowMs);
  const minWidths = [0, 0, 0, 50, 64, 72];
  return {
    columns: columns.map(([head], i) => [head, minWidths[i]]),
    sorts: ['pool', 'name', 'state', 'calls', 'lease'],
    empty: 'no pods',
    rows: pods.map((pod) => {
      const ends = soonest(pod);
      const endsMs = ends === undefined ? never : Date.parse(ends);
      const urgency = stateOrder.indexOf(stateOf(pod));
      return {
        id: pod.pod_name,
        cells: [shorten(pod.pod_name), ...columns.slice(1).map(([, cellOf]) => cellOf(pod))],
        keys: [pod.tier, pod.pod_name, urgency, -pod.calls.length, endsMs],
      };
    }),
  };
}

function callsPanel({ calls }: Snapshot, nowMs: number): Panel {
  return {
    columns: [['CALL'], ['POD'], ['>AGE', 50], ['LEASE', 60], ['POOL', 72], ['MERCHANT', 72]],
    sorts: ['age', 'call', 'pod', 'pool', 'lease'],
    empty: 'no live calls',
    rows: calls.map((call) => ({
      id: call.call_sid,
      cells: [
        shorten(call.call_sid),
        shorten(call.pod_name),
        age(call.allocated_at, nowMs),
        leaseCell(call.lease_expires_at, nowMs),
        call.source_pool,
        call.merchant_id || '-',
      ],
      keys: [
        call.allocated_at,
        call.call_sid,
        call.pod_name,
        call.source_pool,
        Date.parse(call.lease_expires_at),
      ],
    })),
  };
}

function eventsPanel(events: readonly RouterEvent[]): Panel {
  return {
    columns: [['TIME'], ['EVENT'], ['WHAT', 40]],
    sorts: ['time'],
    empty: 'no events yet',
    rows: events.toReversed().map((event, newest) => ({
      id: event.id,
      cells: [
        { text: timeOfDay(event.at), colour: 'dim' },
        { text: event.type, colour: eventColour(event.type) },
        eventText(event),
      ],
      keys: [newest],
    })),
  };
}

function alertsPanel(alerts: readonly Alert[] | null, nowMs: number): Panel {
  return {
    columns: [['SEVERITY'], ['>SINCE'], ['ALERT'], ['WHAT', 50], ['RUNBOOK', 150]],
    sorts: ['severity'],
    empty: alerts === null ? 'alerts cannot be read' : 'no alerts',
    rows: (alerts ?? []).map((alert, place) => ({
      id: `${alert.name} ${alert.workflow ?? ''}`,
      cells: [
        { text: severityWord(alert.severity), colour: severityColour(alert.severity) },
        age(alert.since, nowMs),
        alert.name,
        alert.summary,
        alert.runbook,
      ],
      detail: `what to do: ${alert.runbook}`,
      keys: [place],
    })),
  };
}

const textOf = (cell: Cell) => (typeof cell === 'object' ? cell.text : String(cell));

/** Filters and sorts the rows; ties are sorted by id, so that rows do not jump. */
export function arrange({ rows, sorts }: Panel, { filter, sort, reversed }: Arrangement): readonly Row[] {
  const words = filter
    .toLowerCase()
    .split(' ')
    .filter((word) => word !== '');
  const kept = rows.filter(({ cells }) => {
    if (words.length === 0) return true;
    const text = cells.map(textOf).join(' ').toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const by = sort % sorts.length;
  const direction = reversed ? -1 : 1;
  return kept.sort((a, b) => direction * compare(a.keys[by], b.keys[by]) || byText(a.id, b.id));
}

function compare(a: string | number | undefined, b: string | number | undefined): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return byText(String(a), String(b));
}
