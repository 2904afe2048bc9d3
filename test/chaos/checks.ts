/** Checks of recorded data. They do not depend on processes, so that tests can pass wrong data. */
import { overtakings, replay, type StreamEvent } from '../processes/history.js';

export interface RecordsBook {
  statuses: Record<string, number>;
  /** Every change of status that happened, and how often to one row at most. */
  changes: { was: string; became: string; most: number }[];
  /** Rows with more effects than claims that could have written one. */
  effectsTooMany: number;
  claimsLeft: number;
  highestResets: number;
  maxResets: number;
  /** Failed, and not because their budget of resets was used up. */
  failures: { error: string | null; n: number }[];
}

/**
 * The one reason for which a handler here may throw, and a throw is Failed by contract: `ctx.tx` had no session, or lost
 * it. A team retries such a record.
 */
const databaseAway =
  /session|connect|connection|terminating|timeout|shutting down|starting up|recovery mode|ECONN|not (be )?reached/i;

const allowed = ['Queued Processing', 'Processing Queued', 'Processing Completed', 'Processing Failed'];

export function recordProblems(book: RecordsBook): string[] {
  const found: string[] = [];
  for (const { was, became, most } of book.changes) {
    if (!allowed.includes(`${was} ${became}`)) found.push(`10: a record went from ${was} to ${became}`);
    if (['Completed', 'Failed'].includes(became) && most > 1)
      found.push(`10: a record was finished ${most} times (${was} to ${became})`);
  }
  for (const status of ['Queued', 'Processing']) {
    const left = book.statuses[status] ?? 0;
    if (left > 0) found.push(`10: ${left} records are still ${status}`);
  }
  if (book.effectsTooMany > 0)
    found.push(`10: ${book.effectsTooMany} records have more effects than claims could have written`);
  if (book.claimsLeft > 0) found.push(`10: ${book.claimsLeft} claims are left with nothing to do`);
  if (book.highestResets > book.maxResets)
    found.push(`10: a record was reset ${book.highestResets} times, its budget is ${book.maxResets}`);
  for (const { error, n } of book.failures)
    if (!databaseAway.test(error ?? '')) found.push(`10: ${n} records failed with ${JSON.stringify(error)}`);
  return found;
}

/** What the store itself wrote down, in the same steps in which it changed the calls; nothing may live at the end. */
export function streamProblems(
  events: readonly StreamEvent[],
  limits: Readonly<Record<string, number>>,
): string[] {
  const { violations, live } = replay(events, limits);
  return [
    ...violations.map((text) => `events: ${text}`),
    ...overtakings(events).map((text) => `events: 13: ${text}`),
    ...(live > 0 ? [`events: ${live} calls have begun and not ended`] : []),
  ];
}

/** Numbers of the store that only grow, while it loses nothing (invariant 9: an older leader has the lower one). */
export class OnlyGrows {
  readonly #highest = new Map<string, number>();

  /** A problem, or undefined. */
  look(name: string, value: number): string | undefined {
    const before = this.#highest.get(name) ?? 0;
    if (value < before) return `9: ${name} decreased from ${before} to ${value}`;
    this.#highest.set(name, value);
    return undefined;
  }

  forget(): void {
    this.#highest.clear();
  }
}
