/**
 * Which columns of a table there is room for. Measured, not guessed from the window: a panel beside the table takes room
 * as a small screen does. First go the spare ones, one by one; then all that is not essential at once, and what they say
 * moves to a second line of every row.
 */
export interface Track {
  /** A CSS grid track; the first number of pixels in it is the least the column needs. */
  width: string;
  /** Track of an essential column where there is little room; a column without one is not essential. */
  narrow?: string | undefined;
  /** The order in which it goes before the others do: 1 is the first. */
  spare?: number | undefined;
}

export interface Fitted<T extends Track> {
  shown: readonly T[];
  /** For `grid-template-columns`. */
  tracks: string;
  /** Only what is essential is left. */
  isNarrow: boolean;
}

/** As in the style sheet. */
const gap = 16;
const padding = 18;

const leastOf = ({ width }: Track) => Number(/(\d+)px/.exec(width)?.[1] ?? 0);
const needOf = (columns: readonly Track[]) =>
  columns.reduce((sum, column) => sum + leastOf(column) + gap, 2 * padding - gap);

export function fitColumns<T extends Track>(columns: readonly T[], room: number): Fitted<T> {
  const spares = columns
    .filter(({ spare }) => spare !== undefined)
    .sort((a, b) => (a.spare ?? 0) - (b.spare ?? 0));
  for (let gone = 0; gone <= spares.length; gone++) {
    const left = spares.slice(0, gone);
    const shown = columns.filter((column) => !left.includes(column));
    if (needOf(shown) <= room)
      return { shown, tracks: shown.map(({ width }) => width).join(' '), isNarrow: false };
  }
  const shown = columns.filter(({ narrow }) => narrow !== undefined);
  return { shown, tracks: shown.map(({ narrow }) => narrow).join(' '), isNarrow: true };
}
