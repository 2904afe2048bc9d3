/** Tables as aligned columns without borders: readable, and usable with awk and sort. */
import { type Colour, clean, type Paint, widthOf } from './text.js';

export type Cell = string | number | { readonly text: string; readonly colour: Colour | undefined };

export interface Column {
  readonly head: string;
  readonly align?: 'right';
}

/** A call SID has up to 256 characters; one long cell must not widen its column for every row. */
const maxColumnWidth = 64;

const textOf = (cell: Cell) =>
  clean(typeof cell === 'object' ? cell.text : typeof cell === 'number' ? String(cell) : cell);

/** Missing values are dim unless the cell has a colour. */
const colourOf = (cell: Cell): Colour | undefined =>
  typeof cell === 'object' ? cell.colour : cell === '-' ? 'dim' : undefined;

export function columnWidths(columns: readonly Column[], rows: readonly (readonly Cell[])[]): number[] {
  const widths = columns.map(({ head }) => widthOf(head));
  // Not Math.max(...rows): 100,000 arguments overflow the stack.
  for (const row of rows) {
    for (const [i, width] of widths.entries()) widths[i] = Math.max(width, widthOf(textOf(row[i] ?? '')));
  }
  return widths.map((width) => Math.min(maxColumnWidth, width));
}

/** One line of a table, without a line break; `colour` applies to cells without their own. */
export function tableLine(
  columns: readonly Column[],
  widths: readonly number[],
  cells: readonly Cell[],
  paint: Paint,
  colour?: Colour,
): string {
  return columns
    .map(({ align }, i) => {
      const cell = cells[i] ?? '';
      const text = textOf(cell);
      const space = ' '.repeat(Math.max(0, (widths[i] ?? 0) - widthOf(text)));
      const painted = paint(colourOf(cell) ?? colour, text);
      if (align === 'right') return space + painted;
      return i === columns.length - 1 ? painted : painted + space;
    })
    .join('  ')
    .trimEnd();
}

export function headLine(columns: readonly Column[], widths: readonly number[], paint: Paint): string {
  const heads = columns.map(({ head }) => head);
  return tableLine(columns, widths, heads, paint, 'bold');
}

/** A column may be given by its head; a leading `>` aligns it to the right. */
export function table(
  heads: readonly (Column | string)[],
  rows: readonly (readonly Cell[])[],
  paint: Paint,
): string {
  const columns = heads.map((head): Column => {
    if (typeof head !== 'string') return head;
    return head.startsWith('>') ? { head: head.slice(1), align: 'right' } : { head };
  });
  const widths = columnWidths(columns, rows);
  const lines = [
    headLine(columns, widths, paint),
    ...rows.map((row) => tableLine(columns, widths, row, paint)),
  ];
  return lines.map((line) => `${line}\n`).join('');
}

/** `name  value` lines that describe one object. */
export function facts(entries: readonly (readonly [string, Cell])[], paint: Paint): string {
  const width = Math.max(...entries.map(([name]) => name.length));
  return entries
    .map(([name, cell]) => {
      const value = paint(colourOf(cell), textOf(cell));
      return `${`${name.padEnd(width)}  ${value}`.trimEnd()}\n`;
    })
    .join('');
}

const barCells = 10;

/** `####------`: empty only without use, full only at capacity. */
export function usageBar(used: number, capacity: number): string {
  if (capacity <= 0) return used > 0 ? '#'.repeat(barCells) : '-'.repeat(barCells);
  const share = Math.min(1, used / capacity);
  const marks =
    share === 0
      ? 0
      : share === 1
        ? barCells
        : Math.min(barCells - 1, Math.max(1, Math.round(share * barCells)));
  return '#'.repeat(marks) + '-'.repeat(barCells - marks);
}
