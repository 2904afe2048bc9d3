/** Tables as aligned columns without borders: readable, and usable with awk and sort. */
import { type Colour, clean, paint, widthOf } from './text.js';

export type Cell = string | number | { readonly text: string; readonly colour: Colour | undefined };

/** A call SID has up to 256 characters; one long cell must not widen its column for every row. */
const maxColumnWidth = 64;

const textOf = (cell: Cell) =>
  clean(typeof cell === 'object' ? cell.text : typeof cell === 'number' ? String(cell) : cell);

/** Missing values are dim unless the cell has a colour. */
const colourOf = (cell: Cell): Colour | undefined =>
  typeof cell === 'object' ? cell.colour : cell === '-' ? 'dim' : undefined;

/** Heads that begin with `>` align their column to the right. */
const headText = (head: string) => head.replace(/^>/, '');

export function columnWidths(heads: readonly string[], rows: readonly (readonly Cell[])[]): number[] {
  const widths = heads.map((head) => widthOf(headText(head)));
  // Not Math.max(...rows): 100,000 arguments overflow the stack.
  for (const row of rows) {
    for (const [i, width] of widths.entries()) widths[i] = Math.max(width, widthOf(textOf(row[i] ?? '')));
  }
  return widths.map((width) => Math.min(maxColumnWidth, width));
}

/** One line of a table, without a line break; `colour` applies to cells without their own. */
export function tableLine(
  heads: readonly string[],
  widths: readonly number[],
  cells: readonly Cell[],
  colour?: Colour,
): string {
  return heads
    .map((head, i) => {
      const cell = cells[i] ?? '';
      const text = textOf(cell);
      const space = ' '.repeat(Math.max(0, (widths[i] ?? 0) - widthOf(text)));
      const painted = paint(colourOf(cell) ?? colour, text);
      if (head.startsWith('>')) return space + painted;
      return i === heads.length - 1 ? painted : painted + space;
    })
    .join('  ')
    .trimEnd();
}

export function headLine(heads: readonly string[], widths: readonly number[]): string {
  return tableLine(heads, widths, heads.map(headText), 'bold');
}

export function table(heads: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const widths = columnWidths(heads, rows);
  const lines = [headLine(heads, widths), ...rows.map((row) => tableLine(heads, widths, row))];
  return lines.map((line) => `${line}\n`).join('');
}

export type Column<T> = readonly [head: string, cellOf: (item: T) => Cell, isShown?: boolean];

/** A table with a line for each item. */
export function tableOf<T>(items: readonly T[], columns: readonly Column<T>[]): string {
  const shown = columns.filter(([, , isShown = true]) => isShown);
  const rows = items.map((item) => shown.map(([, cellOf]) => cellOf(item)));
  return table(
    shown.map(([head]) => head),
    rows,
  );
}

export type Fact = readonly [name: string, value: Cell | undefined | false];

/** `name  value` lines that describe one object; entries without a value are left out. */
export function facts(entries: readonly Fact[]): string {
  const shown = entries.flatMap(([name, cell]) =>
    cell === undefined || cell === false ? [] : [[name, cell] as const],
  );
  const width = Math.max(...shown.map(([name]) => name.length));
  const lines = shown.map(([name, cell]) => `${name.padEnd(width)}  ${paint(colourOf(cell), textOf(cell))}`);
  return lines.map((line) => `${line.trimEnd()}\n`).join('');
}

const barCells = 10;

/** `####------`: empty only without use, full only at capacity. */
export function usageBar(used: number, capacity: number): string {
  if (capacity <= 0) return used > 0 ? '#'.repeat(barCells) : '-'.repeat(barCells);
  const share = Math.min(1, used / capacity);
  const rounded = Math.round(share * barCells);
  const marks = share > 0 && share < 1 ? Math.min(barCells - 1, Math.max(1, rounded)) : rounded;
  return '#'.repeat(marks) + '-'.repeat(barCells - marks);
}
