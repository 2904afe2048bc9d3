/** How a lease is shown, in every list: past its deadline a call lives until a sweep or an allocate ends it. */

import type { Cell } from '../terminal/table.js';
import type { Colour } from '../terminal/text.js';
import { countdown } from './ages.js';

const soonMs = 60_000;

export function leaseColour(expiresAt: string | undefined, nowMs: number): Colour | undefined {
  const leftMs = Date.parse(expiresAt ?? '') - nowMs;
  return leftMs < 0 ? 'red' : leftMs < soonMs ? 'yellow' : undefined;
}

export function leaseCell(expiresAt: string | undefined, nowMs: number): Cell {
  const text = countdown(expiresAt, nowMs);
  return text === '-' ? text : { text, colour: leaseColour(expiresAt, nowMs) };
}
