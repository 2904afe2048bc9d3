/**
 * A table of any length: only the rows in view and a few around them are in the page. All rows have the same height, so
 * the position of a row is a multiplication.
 */
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { collator } from '../labels';
import { fitColumns, type Track } from './columns';

export interface Column<Row> extends Track {
  /** Never empty: screen readers announce it with every cell. */
  head: string;
  /** Shown instead of `head`. */
  headCell?: ComponentChildren;
  numeric?: boolean;
  cell: (row: Row) => ComponentChildren;
  /** Makes the column sortable. */
  sort?: (row: Row) => string | number;
}

interface TableProps<Row> {
  label: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  selected?: string | undefined;
  /** The index of the column; for descending order -1 - index. Without it the rows are not sorted. */
  sortedBy?: number;
  /** The second line of a row when only the essential columns fit. */
  below?: (row: Row) => ComponentChildren;
  empty: ComponentChildren;
}

const around = 6;
/** In pixels. */
const lineHeight = 44;
const twoLinesHeight = 64;

export function Table<Row>(props: TableProps<Row>) {
  const { label, columns, rows, keyOf, selected, sortedBy, below, empty } = props;
  const [order, setOrder] = useState(sortedBy);
  const [view, setView] = useState({ top: 0, height: 800, width: Number.POSITIVE_INFINITY });
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = () =>
      setView({ top: element.scrollTop, height: element.clientHeight, width: element.clientWidth });
    // Before the first paint: the observer runs after it.
    look();
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener('scroll', look, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', look);
    };
  }, []);
  // Columns are new objects in every rendering.
  const sorted = useMemo(() => sort(rows, columns, order), [rows, order]);
  const { shown, tracks, isNarrow } = fitColumns(columns, view.width);
  const secondLine = isNarrow && shown.length < columns.length ? below : undefined;
  const rowHeight = secondLine ? twoLinesHeight : lineHeight;
  const first = Math.max(0, Math.floor(view.top / rowHeight) - around);
  const last = Math.min(sorted.length, Math.ceil((view.top + view.height) / rowHeight) + around);
  const classOf = ({ numeric }: Column<Row>, base: string) => `${base}${numeric ? ' num' : ''}`;
  return (
    <div
      class="table"
      ref={box}
      tabIndex={0}
      role="region"
      aria-label={label}
      data-narrow={isNarrow ? '' : undefined}
      style={{ '--row': `${rowHeight}px`, '--columns': tracks }}
    >
      <div role="table" aria-label={label} aria-rowcount={sorted.length + 1}>
        <div role="row" class="tr head" aria-rowindex={1}>
          {shown.map((column) => {
            const index = columns.indexOf(column);
            return (
              <div
                role="columnheader"
                class={classOf(column, 'th')}
                key={column.head}
                aria-sort={column.sort ? directionOf(order, index) : undefined}
              >
                {column.sort ? (
                  <button type="button" onClick={() => setOrder(order === index ? -index - 1 : index)}>
                    {column.head}
                  </button>
                ) : (
                  (column.headCell ?? column.head)
                )}
              </div>
            );
          })}
          {secondLine && (
            <div role="columnheader" class="hidden-visually">
              More
            </div>
          )}
        </div>
        <div class="rows" role="rowgroup" style={{ height: `${sorted.length * rowHeight}px` }}>
          {sorted.slice(first, last).map((row, index) => (
            <div
              role="row"
              class="tr"
              key={keyOf(row)}
              aria-rowindex={first + index + 2}
              data-selected={keyOf(row) === selected ? '' : undefined}
              style={{ top: `${(first + index) * rowHeight}px` }}
            >
              {shown.map((column) => (
                <div role="cell" class={classOf(column, 'td')} key={column.head}>
                  {column.cell(row)}
                </div>
              ))}
              {secondLine && (
                <div role="cell" class="td below">
                  {secondLine(row)}
                </div>
              )}
            </div>
          ))}
        </div>
      </div>
      {sorted.length === 0 && empty}
    </div>
  );
}

function directionOf(order: number | undefined, index: number) {
  if (order === index) return 'ascending' as const;
  return order === -index - 1 ? ('descending' as const) : ('none' as const);
}

function sort<Row>(rows: readonly Row[], columns: readonly Column<Row>[], order: number | undefined) {
  if (order === undefined) return rows;
  const by = columns[order < 0 ? -order - 1 : order]?.sort;
  if (!by) return rows;
  const direction = order < 0 ? -1 : 1;
  const compare = (a: string | number, b: string | number) =>
    typeof a === 'number' && typeof b === 'number' ? a - b : collator.compare(String(a), String(b));
  return rows
    .map((row) => [by(row), row] as const)
    .sort((a, b) => direction * compare(a[0], b[0]))
    .map(([, row]) => row);
}
