/** Figures with their targets: a table for people, JSON for programs. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

export interface Figure {
  /** Stable name: `pairs.64.ratio`. */
  id: string;
  label: string;
  value: number;
  unit: string;
  target?: { atLeast: number } | { below: number };
  /** Details: rates of both sides, spread of the rounds. */
  note?: string;
}

export function meets({ value, target }: Figure): boolean {
  if (target === undefined) return true;
  return 'atLeast' in target ? value >= target.atLeast : value < target.below;
}

export function number(value: number): string {
  if (!Number.isFinite(value)) return 'none';
  if (Number.isInteger(value) || value >= 1000) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

export function table(figures: readonly Figure[]): string {
  const rows = figures.map((figure) => {
    const { target } = figure;
    const wanted =
      target === undefined ? '' : 'atLeast' in target ? `>= ${target.atLeast}` : `< ${target.below}`;
    const verdict = target === undefined ? '' : meets(figure) ? 'ok' : 'MISSED';
    return [figure.label, `${number(figure.value)} ${figure.unit}`, wanted, verdict, figure.note ?? ''];
  });
  const all = [['what', 'figure', 'target', '', 'details'], ...rows];
  const widths = [0, 1, 2, 3].map((column) => Math.max(...all.map((row) => (row[column] ?? '').length)));
  return all
    .map((row) =>
      row
        .map((cell, column) => (column < 4 ? cell.padEnd(widths[column] ?? 0) : cell))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

export function writeResults(file: string, about: Record<string, unknown>, figures: readonly Figure[]): void {
  mkdirSync(dirname(file), { recursive: true });
  const rows = figures.map((figure) => ({ ...figure, ok: meets(figure) }));
  writeFileSync(file, `${JSON.stringify({ ...about, figures: rows }, null, 2)}\n`);
}
