/**
 * Chooses the columns that fit a table, from its measured width: a panel beside it takes room too. Spare columns are
 * dropped first, in order; then all columns that are not essential, whose content moves to a second line of each row.
 */
export interface Track {
  /** A CSS grid track; its first number of pixels is the minimum width. */
  width: string;
  /** The track of an essential column in a narrow table; columns without one are not essential. */
  narrow?: string | undefined;
  /** The order in which spare columns are dropped: 1 is the first. */
  spare?: number | undefined;
}

export interface Fitted<T extends Track> {
  shown: readonly T[];
  /** For `grid-template-columns`. */
  tracks: string;
  /** Only essential columns are shown. */
  isNarrow: boolean;
}

/** The same as in the style sheet. */
const gap = 16;
const padding = 18;

const minWidthOf = ({ width }: Track) => Number(/(\d+)px/.exec(width)?.[1] ?? 0);
const needOf = (columns: readonly Track[]) =>
  columns.reduce((sum, column) => sum + minWidthOf(column) + gap, 2 * padding - gap);

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
