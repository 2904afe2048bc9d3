/** Times, counts and leases as text. `nowMs` is the router's clock if known, so that a wrong local clock does no harm. */
import { type Cell, type Column, tableOf } from '../terminal/table.js';
import type { Colour } from '../terminal/text.js';
import type { Outcome } from './cli.js';

/** `0s`, `42s`, `3m 5s`, `2h 14m`, `3d 4h`: at most two units. */
export function span(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ${seconds % 60}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)}h ${minutes % 60}m`;
  const hours = Math.floor(minutes / 60);
  return `${Math.floor(hours / 24)}d ${hours % 24}h`;
}

/** The time since `time`, or `-`. */
export function age(time: string | null | undefined, nowMs: number): string {
  const at = time ? Date.parse(time) : Number.NaN;
  return Number.isNaN(at) ? '-' : span(nowMs - at);
}

/** The time until `time`: `14m 50s left`, `expired 3s ago`, or `-`. */
export function countdown(time: string | null | undefined, nowMs: number): string {
  const at = time ? Date.parse(time) : Number.NaN;
  if (Number.isNaN(at)) return '-';
  return at >= nowMs ? `${span(at - nowMs)} left` : `expired ${span(nowMs - at)} ago`;
}

export function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

/** `20 of 300 pods shown`: the last line of a list. */
export function shownOf(shown: number, total: number, noun: string): string {
  return shown === total ? count(total, noun) : `${shown} of ${count(total, noun)} shown`;
}

interface List<T> {
  noun: string;
  /** Printed without entries. */
  empty: string;
  columns: readonly Column<T>[];
}

/** The first `limit` entries as a table with their number, and as the document's field `name`. */
export function listOutcome<T>(
  name: string,
  all: readonly T[],
  limit: number | undefined,
  { noun, empty, columns }: List<T>,
): Outcome {
  const shown = all.slice(0, limit);
  const total = shownOf(shown.length, all.length, noun);
  return {
    document: { [name]: shown, total: all.length },
    text: shown.length === 0 ? `${empty}\n` : `${tableOf(shown, columns)}\n${total}\n`,
  };
}

export const byText = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

const soonMs = 60_000;

export function leaseColour(expiresAt: string | undefined, nowMs: number): Colour | undefined {
  const leftMs = Date.parse(expiresAt ?? '') - nowMs;
  return leftMs < 0 ? 'red' : leftMs < soonMs ? 'yellow' : undefined;
}

/** A call with an expired lease is live until a sweep or an allocate ends it. */
export function leaseCell(expiresAt: string | undefined, nowMs: number): Cell {
  const text = countdown(expiresAt, nowMs);
  return text === '-' ? text : { text, colour: leaseColour(expiresAt, nowMs) };
}

/** `60s, at most 500 calls`. */
export function holdText({ max_wait, max_waiting }: { max_wait: string; max_waiting: number }): string {
  return `${max_wait}, at most ${count(max_waiting, 'call')}`;
}
