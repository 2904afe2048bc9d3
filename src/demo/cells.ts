/** How one agent looks, and what that means: the same in the picture, in the lines and in the legend. */
import type { Paint, Style } from './lines.js';
import type { Cell, CellState } from './view.js';

/** Each has a shape of its own, for terminals without colours. */
const looks: Record<CellState, { style: Style; idle: string; busy: string }> = {
  free: { style: 'green', idle: '□', busy: '■' },
  busy: { style: 'green', idle: '□', busy: '■' },
  draining: { style: 'yellow', idle: '▢', busy: '▣' },
  starting: { style: 'dim', idle: '·', busy: '·' },
  crashed: { style: 'red', idle: '✕', busy: '✕' },
  gone: { style: 'dim', idle: ' ', busy: ' ' },
};

/** A shared agent shows how many calls it has. */
export function drawCell({ state, calls }: Cell, isShared: boolean, paint: Paint): string {
  const { style, idle, busy } = looks[state];
  if (calls === 0) return paint(style, idle);
  return paint(style, isShared ? String(calls) : busy);
}

export function legend(paint: Paint): string {
  const shown = (state: CellState, look: 'idle' | 'busy') => paint(looks[state].style, looks[state][look]);
  return [
    `${shown('busy', 'busy')} busy`,
    `${shown('free', 'idle')} free`,
    `${shown('draining', 'busy')} draining`,
    `${shown('draining', 'idle')} drained`,
    `${shown('starting', 'idle')} starting`,
    `${shown('crashed', 'idle')} crashed`,
    '1 2 3 calls',
  ].join('  ');
}
