/** The page behind `?`. */
import type { Paint } from '../../terminal/text.js';

const keys: readonly (readonly [string, string])[] = [
  ['1 2 3 4', 'pods, calls, events, alerts; Tab and Shift-Tab go through them'],
  ['up down, j k', 'select; PgUp, PgDn, Home, End go further'],
  ['/', 'filter: every word must be in the row; Esc ends it'],
  ['s, S', 'sort by the next column; turn the order around'],
  ['d, u', 'drain the selected pod, or end its drain; asks first'],
  ['Ctrl-L', 'draw everything again'],
  ['q, Ctrl-C', 'quit'],
];

export function helpLines(paint: Paint): string[] {
  const width = Math.max(...keys.map(([key]) => key.length));
  return [
    ...keys.map(([key, what]) => `  ${paint('bold', key.padEnd(width))}  ${what}`),
    '',
    `  Places in a bar: # a call, ~ draining, x blocked, - free. Any key goes back.`,
  ];
}
