/** Which columns of a table are shown, by the room there is. */
import { expect, it } from 'vitest';
import { fitColumns } from '../../console/src/ui/columns.js';

const columns = [
  { head: 'name', width: 'minmax(100px, 2fr)', narrow: 'minmax(0, 1fr)' },
  { head: 'age', width: '50px', spare: 1 },
  { head: 'place', width: 'minmax(60px, 1fr)', spare: 2 },
  { head: 'reason', width: 'minmax(80px, 1fr)' },
  { head: 'act', width: '40px', narrow: '40px' },
];
const headsAt = (room: number) => fitColumns(columns, room).shown.map(({ head }) => head);

it('shows all columns when they fit, each with its own track', () => {
  // 330 of columns, four gaps of 16, 18 at either side.
  const { shown, tracks, isNarrow } = fitColumns(columns, 430);
  expect(shown).toEqual(columns);
  expect(tracks).toBe('minmax(100px, 2fr) 50px minmax(60px, 1fr) minmax(80px, 1fr) 40px');
  expect(isNarrow).toBe(false);
  expect(fitColumns(columns, Number.POSITIVE_INFINITY).shown).toEqual(columns);
});

it('drops spare columns in order when there is less room', () => {
  expect(headsAt(429)).toEqual(['name', 'place', 'reason', 'act']);
  expect(headsAt(364)).toEqual(['name', 'place', 'reason', 'act']);
  expect(headsAt(363)).toEqual(['name', 'reason', 'act']);
  expect(headsAt(288)).toEqual(['name', 'reason', 'act']);
});

it('shows only essential columns, on flexible tracks, when there is little room', () => {
  const { shown, tracks, isNarrow } = fitColumns(columns, 287);
  expect(shown.map(({ head }) => head)).toEqual(['name', 'act']);
  expect(tracks).toBe('minmax(0, 1fr) 40px');
  expect(isNarrow).toBe(true);
});
