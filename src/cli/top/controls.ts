/** The effect of keys on `top`. `press` changes the state and returns an action for everything else (drain, quit). */
import type { Key } from '../../terminal/keys.js';
import { type Arrangement, type Row, type View, views } from './panels.js';

interface PanelState extends Arrangement {
  /** The selected row; undefined follows the first row. */
  selected: string | undefined;
  /** The previous index, in case the row disappears. */
  index: number;
  /** The first visible row. */
  top: number;
}

export type PodAction = 'drain' | 'undrain';

export interface Controls {
  view: View;
  panels: Record<View, PanelState>;
  mode: 'browse' | 'filter' | 'help';
  /** Waits for a y. The pod was selected when the key was pressed; the selection may move since. */
  asked: { action: PodAction; pod: string } | undefined;
  message: { text: string; isBad: boolean } | undefined;
}

export type Action = { do: 'quit' } | { do: 'redraw' } | { do: PodAction; pod: string };

export function newControls(): Controls {
  const panel = (): PanelState => ({
    filter: '',
    sort: 0,
    reversed: false,
    selected: undefined,
    index: 0,
    top: 0,
  });
  return {
    view: 'pods',
    panels: { pods: panel(), calls: panel(), events: panel(), alerts: panel() },
    mode: 'browse',
    asked: undefined,
    message: undefined,
  };
}

const maxFilterLength = 100;

/** `rows` are the rows of the current view, `page` is the number that fits. */
export function press(controls: Controls, key: Key, rows: readonly Row[], page: number): Action | undefined {
  if (key === 'interrupt') return { do: 'quit' };
  if (key === 'redraw') return { do: 'redraw' };
  controls.message = undefined;
  if (controls.asked) return confirm(controls, controls.asked, key);
  if (controls.mode === 'filter') return void editFilter(controls, key);
  if (controls.mode === 'help') {
    controls.mode = 'browse';
    return key === 'q' ? { do: 'quit' } : undefined;
  }
  const panel = controls.panels[controls.view];
  const at = views.indexOf(controls.view);
  const show = (index: number) => {
    controls.view = views[(index + views.length) % views.length] as View;
  };
  switch (key) {
    case 'q':
      return { do: 'quit' };
    case '?':
    case 'h':
      controls.mode = 'help';
      return undefined;
    case '1':
    case '2':
    case '3':
    case '4':
      return void show(Number(key) - 1);
    case 'tab':
    case 'right':
      return void show(at + 1);
    case 'backtab':
    case 'left':
      return void show(at - 1);
    case '/':
      controls.mode = 'filter';
      return undefined;
    case 'escape':
      panel.filter = '';
      return undefined;
    case 's':
      panel.sort += 1;
      return undefined;
    case 'S':
      panel.reversed = !panel.reversed;
      return undefined;
    case 'd':
    case 'u':
      return void ask(controls, key === 'd' ? 'drain' : 'undrain', rows);
    default:
      return void move(panel, key, rows, page);
  }
}

function move(panel: PanelState, key: Key, rows: readonly Row[], page: number): void {
  const steps: Readonly<Record<string, number>> = {
    up: -1,
    k: -1,
    down: 1,
    j: 1,
    pgup: -page,
    pgdn: page,
    home: Number.NEGATIVE_INFINITY,
    end: Number.POSITIVE_INFINITY,
  };
  if (!Object.hasOwn(steps, key)) return;
  select(panel, selectedIndex(panel, rows) + (steps[key] ?? 0), rows);
}

function select(panel: PanelState, wanted: number, rows: readonly Row[]): void {
  panel.index = Math.max(0, Math.min(rows.length - 1, wanted));
  // The first row is followed, so that the newest or worst row stays visible.
  panel.selected = panel.index === 0 ? undefined : rows[panel.index]?.id;
}

export function selectedIndex(panel: PanelState, rows: readonly Row[]): number {
  if (panel.selected === undefined) return 0;
  const index = rows.findIndex(({ id }) => id === panel.selected);
  return Math.max(0, Math.min(rows.length - 1, index < 0 ? panel.index : index));
}

/** Scrolls just far enough to show the selected row; returns the first visible row. */
export function scroll(panel: PanelState, rows: readonly Row[], page: number): number {
  const index = selectedIndex(panel, rows);
  const latest = Math.max(0, rows.length - page);
  panel.top = Math.max(0, Math.min(panel.top, index, latest));
  if (index >= panel.top + page) panel.top = index - page + 1;
  return panel.top;
}

function editFilter(controls: Controls, key: Key): void {
  const panel = controls.panels[controls.view];
  if (key === 'enter') controls.mode = 'browse';
  else if (key === 'escape') {
    panel.filter = '';
    controls.mode = 'browse';
  } else if (key === 'backspace') panel.filter = [...panel.filter].slice(0, -1).join('');
  else if ([...key].length === 1 && panel.filter.length < maxFilterLength) panel.filter += key;
}

function ask(controls: Controls, action: PodAction, rows: readonly Row[]): void {
  if (controls.view !== 'pods') {
    controls.message = { text: `${action} needs a pod: press 1, select one, and try again`, isBad: true };
    return;
  }
  const pod = rows[selectedIndex(controls.panels.pods, rows)]?.id;
  if (pod === undefined) return;
  controls.asked = { action, pod };
}

/** Any key other than y means no. */
function confirm(
  controls: Controls,
  { action, pod }: NonNullable<Controls['asked']>,
  key: Key,
): Action | undefined {
  controls.asked = undefined;
  if (key === 'y' || key === 'Y') return { do: action, pod };
  controls.message = { text: `${pod} not changed`, isBad: false };
  return undefined;
}
