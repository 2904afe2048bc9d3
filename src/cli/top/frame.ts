/**
 * One picture of `top` as lines. Everything fits 80 columns and 24 rows; with less room the last events go first, then
 * columns on the right, then the pools.
 */
import { columnWidths, headLine, tableLine } from '../../terminal/table.js';
import { type Colour, clean, clip, paint, withoutColours } from '../../terminal/text.js';
import { severityColour, severityWord } from '../commands/alerts.js';
import { eventLine } from '../commands/events.js';
import type { State } from '../commands/pods.js';
import { span } from '../format.js';
import type { RouterEvent } from '../replies.js';
import { type Controls, scroll, selectedIndex } from './controls.js';
import { arrange, type Panel, panelOf, type Row, timeOfDay, views } from './panels.js';
import { type PoolUse, poolUses, type Snapshot, type Stale, type TopState } from './snapshot.js';

export interface FrameOptions {
  state: TopState;
  controls: Controls;
  columns: number;
  rows: number;
  /** False if the input is not a terminal. */
  hasKeys: boolean;
}

export type Frame = ReturnType<typeof frame>;

/** Minimum heights for the pools and for the last events. */
const poolRows = 14;
const stripRows = 20;
const stripLines = 4;

export function frame(options: FrameOptions) {
  const { state, controls, columns, rows } = options;
  const panel = panelOf(controls.view, state.snapshot, state.events, state.routerNowMs);
  const panelState = controls.panels[controls.view];
  const arranged = arrange(panel, panelState);
  const top = [
    ...header(state, columns),
    ...(rows >= poolRows ? poolLines(poolUses(state.snapshot), Math.floor(rows / 4), columns) : []),
    ...(rows >= stripRows ? [''] : []),
    tabs(options, arranged.length, panel),
  ];
  const isStrip = rows >= stripRows && ['pods', 'calls'].includes(controls.view);
  const detail = arranged[selectedIndex(panelState, arranged)]?.detail;
  const bottom = [
    ...(isStrip ? strip(state.events) : []),
    ...(detail === undefined || rows < poolRows ? [] : [paint('cyan', ` ${clean(detail)}`)]),
    footer(options),
  ];
  const room = Math.max(0, rows - top.length - bottom.length);
  const page = Math.max(1, room - 1);
  const list =
    controls.mode === 'help' ? helpLines().slice(0, room) : listLines(options, panel, arranged, page);
  while (list.length < room) list.push('');
  const lines = [...top, ...list.slice(0, room)].slice(0, Math.max(0, rows - bottom.length));
  return {
    lines: [...lines, ...bottom].slice(-rows).map((line) => clip(line, columns - 1)),
    /** The rows of the current list, and how many fit. */
    rows: arranged,
    page,
  };
}

function header({ url, snapshot, stale, nowMs }: TopState, columns: number): string[] {
  const { status, replicas } = snapshot;
  const state = stale
    ? paint('red', 'stale')
    : paint(status.status === 'up' ? 'green' : 'red', status.status);
  const leader = status.leader ?? (status.is_leader ? 'this router' : 'unknown');
  const first = [
    paint('bold', `Smart Router ${clean(status.version)}`),
    state,
    ...(columns >= 60 ? [paint('cyan', clean(url))] : []),
    paint('dim', timeOfDay(nowMs)),
  ];
  const second = loadParts(snapshot);
  const third = [`leader ${clean(leader)}`, `replicas ${replicas ?? '-'}`];
  // Two lines on a narrow terminal.
  const facts = columns >= 110 ? [[...second, ...third]] : [second, third];
  return [
    ` ${first.join('  ')}`,
    ...facts.map((parts) => ` ${parts.join('   ')}`),
    ...problemLines(snapshot, stale, nowMs).map((line) => ` ${line}`),
  ];
}

export function loadParts({ status, load }: Snapshot): string[] {
  const { callsPerSecond, noPodsPerSecond, p99Ms } = load;
  const missed = noPodsPerSecond !== null && noPodsPerSecond > 0 ? 'red' : undefined;
  return [
    paint('bold', `calls ${status.active_calls ?? '-'} live`),
    ...(status.waiting_calls ? [paint('yellow', `${status.waiting_calls} waiting`)] : []),
    `${rate(callsPerSecond)} calls/s`,
    paint(missed, `${rate(noPodsPerSecond)} no-pods/s`),
    `p99 ${p99Ms === null ? '-' : `${p99Ms < 10 ? p99Ms.toFixed(1) : Math.round(p99Ms)} ms`}`,
  ];
}

const rate = (perSecond: number | null) => (perSecond === null ? '-' : perSecond.toFixed(1));

/** One line per problem. */
export function problemLines(
  { status, alerts, listsProblem }: Snapshot,
  stale: Stale | undefined,
  nowMs: number,
): string[] {
  const [worst, ...more] = alerts ?? [];
  const held = status.removals_held ?? 0;
  const lines: string[] = [];
  if (stale) {
    const since = `${timeOfDay(stale.sinceMs)} (${span(nowMs - stale.sinceMs)})`;
    lines.push(paint('red', `stale since ${since}, retrying: ${clean(stale.reason)}`));
  } else if (listsProblem) lines.push(paint('red', `pods and calls are old: ${clean(listsProblem)}`));
  if (worst) {
    const text = `${severityWord(worst.severity)}: ${clean(worst.summary)}`;
    const rest = more.length > 0 ? paint('dim', ` and ${more.length} more (4)`) : '';
    lines.push(paint(severityColour(worst.severity), text) + rest);
  } else if (held > 0) lines.push(paint('red', `the removal brake holds ${held} pods`));
  return lines;
}

/** Each state has its own mark, for terminals without colours. */
const marks: readonly (readonly [State, string, Colour])[] = [
  ['busy', '#', 'green'],
  ['draining', '~', 'yellow'],
  ['blocked', 'x', 'red'],
  ['free', '-', 'dim'],
];

export function poolLines(pools: readonly PoolUse[], max: number, columns: number): string[] {
  const shown = pools.slice(0, pools.length > max ? max - 1 : max);
  const width = Math.min(24, Math.max(0, ...shown.map(({ name }) => name.length)));
  const barWidth = Math.max(4, Math.min(30, columns - width - 50));
  const lines = shown.map((pool) => {
    const { name, states, assigned, activeCalls, capacity } = pool;
    const counts = marks
      .filter(([state]) => states[state] > 0 || state === 'free')
      .map(([state, , colour]) => paint(states[state] > 0 ? colour : 'dim', `${states[state]} ${state}`));
    const label = clean(name).slice(0, width).padEnd(width);
    const use = `${activeCalls}/${capacity} calls`.padEnd(11);
    return ` ${label} [${poolBar(pool, barWidth)}] ${use} ${counts.join(' ')} ${paint('dim', `of ${assigned}`)}`;
  });
  const left = pools.length - shown.length;
  return left > 0 ? [...lines, paint('dim', ` and ${left} more pools`)] : lines;
}

/** Calls against capacity. Every state in use has at least one mark if there is room. */
export function poolBar({ slots }: Pick<PoolUse, 'slots'>, width: number): string {
  const total = marks.reduce((sum, [state]) => sum + slots[state], 0);
  if (total === 0) return ' '.repeat(width);
  let room = width;
  let left = total;
  return marks
    .map(([state, mark, colour]) => {
      const some = slots[state];
      if (some === 0) return '';
      const cells = left === some ? room : Math.min(room, Math.max(1, Math.round((room * some) / left)));
      room -= cells;
      left -= some;
      return paint(colour, mark.repeat(cells));
    })
    .join('');
}

function tabs({ controls, state, columns }: FrameOptions, shown: number, { rows, sorts }: Panel): string {
  const { pods, calls, alerts } = state.snapshot;
  const counts = { pods: pods.length, calls: calls.length, events: undefined, alerts: alerts?.length };
  const names = views.map((view, i) => {
    const text = ` ${i + 1} ${view}${counts[view] === undefined ? '' : ` ${counts[view]}`} `;
    // Brackets for terminals without colours.
    return view === controls.view ? paint('inverse', `[${text.trim()}]`) : paint('dim', text);
  });
  const { filter, sort, reversed } = controls.panels[controls.view];
  const by = `  by ${sorts[sort % sorts.length]}${reversed ? ', reversed' : ''}`;
  const only = filter === '' ? '' : paint('yellow', `  /${clean(filter)}: ${shown} of ${rows.length}`);
  return ` ${names.join(' ')}${columns >= 70 ? paint('dim', by) : ''}${only}`;
}

function listLines(
  { controls, columns, hasKeys }: FrameOptions,
  { columns: all, empty, rows: unfiltered }: Panel,
  rows: readonly Row[],
  page: number,
): string[] {
  if (rows.length === 0)
    return [paint('dim', `   ${unfiltered.length > 0 ? 'no rows match the filter' : empty}`)];
  const hasRoom = (i: number) => columns >= (all[i]?.[1] ?? 0);
  const heads = all.map(([head]) => head).filter((_, i) => hasRoom(i));
  const cellsOf = (row: Row) => row.cells.filter((_, i) => hasRoom(i));
  const panel = controls.panels[controls.view];
  const top = scroll(panel, rows, page);
  // Of all rows: columns must not jump while scrolling.
  const widths = columnWidths(heads, rows.map(cellsOf));
  const selected = hasKeys ? selectedIndex(panel, rows) : -1;
  const lines = rows.slice(top, top + page).map((row, i) => {
    if (top + i !== selected) return `  ${tableLine(heads, widths, cellsOf(row))}`;
    const line = `> ${withoutColours(tableLine(heads, widths, cellsOf(row)))}`;
    return paint('inverse', clip(line, columns - 1).padEnd(columns - 1));
  });
  return [`  ${headLine(heads, widths)}`, ...lines];
}

function strip(events: readonly RouterEvent[]): string[] {
  const lines = events.slice(-stripLines).map((event) => ` ${eventLine(event, timeOfDay(event.at))}`);
  while (lines.length < stripLines) lines.push('');
  return [paint('dim', ' last events'), ...lines];
}

function footer({ controls, hasKeys }: FrameOptions): string {
  const { mode, asked, message, view, panels } = controls;
  if (asked) {
    const what =
      asked.action === 'drain'
        ? `Drain ${clean(asked.pod)}: no new calls, running calls continue?`
        : `End the drain of ${clean(asked.pod)}: it gets calls again?`;
    return ` ${paint('yellow', what)} ${paint('bold', 'y')} yes, any other key no`;
  }
  if (mode === 'filter') {
    return ` ${paint('bold', '/')}${clean(panels[view].filter)}_  ${paint('dim', 'Enter keeps it, Esc clears it')}`;
  }
  if (message) return ` ${paint(message.isBad ? 'red' : 'green', clean(message.text))}`;
  if (!hasKeys) return paint('dim', ' Ctrl-C quits');
  const keys = [
    ['q', 'quit'],
    ['Tab', 'view'],
    ['/', 'filter'],
    ['s', 'sort'],
    ['d', 'drain'],
    ['u', 'undrain'],
    ['?', 'help'],
  ] as const;
  return ` ${keys.map(([key, what]) => `${paint('bold', key)} ${paint('dim', what)}`).join('  ')}`;
}

const keys: readonly (readonly [string, string])[] = [
  ['1 2 3 4', 'pods, calls, events, alerts; Tab and Shift-Tab switch'],
  ['up down, j k', 'select; also PgUp, PgDn, Home, End'],
  ['/', 'filter: rows must contain every word; Esc clears it'],
  ['s, S', 'sort by the next column; reverse the order'],
  ['d, u', 'drain the selected pod, or end its drain, after a question'],
  ['Ctrl-L', 'redraw'],
  ['q, Ctrl-C', 'quit'],
];

function helpLines(): string[] {
  const width = Math.max(...keys.map(([key]) => key.length));
  return [
    ...keys.map(([key, what]) => `  ${paint('bold', key.padEnd(width))}  ${what}`),
    '',
    '  Slots: # call, ~ draining, x blocked, - free. Any key closes this page.',
  ];
}
