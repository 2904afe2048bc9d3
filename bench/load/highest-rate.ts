/**
 * Finds the highest rate of calls that a server holds: doubles the rate until it fails, then bisects.
 *
 * A rate holds if nine of ten windows of 50 ms do: p99 of allocate under 50 ms, and no call without a pod. One pause of the
 * machine breaks a few windows and decides nothing. A rate that is too high grows a backlog and breaks nearly all. A rate
 * that fails is tried once more.
 */
import { number } from '../support/report.js';
import type { Generator } from './generator.js';
import { type Phase, type PhaseResult, type Window, windowMs } from './messages.js';

export const p99LimitMs = 50;
const firstRate = 1000;
const minRate = 30;

export interface Search {
  phase: Omit<Phase, 'ratePerSecond'>;
  /** The search ends when the lowest failing rate is at most this many times the highest passing rate. */
  precision: number;
}

export async function highestRate(
  generator: Generator,
  url: string,
  what: string,
  { phase, precision }: Search,
): Promise<number> {
  const once = async (ratePerSecond: number) => {
    const [result] = await generator.run(url, [{ ...phase, ratePerSecond }]);
    if (result === undefined) throw new Error('the generator sent no result');
    const { windows, p99Ms, offered } = result;
    process.stderr.write(
      `  ${what}, ${number(ratePerSecond)} calls/s: ${windows.filter(isGood).length} of ${windows.length} windows, p99 ${number(p99Ms)} ms, ${missedOf(result)} of ${number(offered)} without a pod\n`,
    );
    return holds(windows);
  };
  const tried = async (rate: number) => (await once(rate)) || once(rate);
  let [low, high] = [firstRate, 2 * firstRate];
  while (!(await tried(low))) {
    [low, high] = [low / 2, low];
    if (low < minRate) throw new Error(`${what} does not even keep ${high} calls/s under ${p99LimitMs} ms`);
  }
  while (high > firstRate && (await tried(high))) [low, high] = [high, 2 * high];
  while (high / low > precision) {
    const middle = Math.sqrt(low * high);
    if (await tried(middle)) low = middle;
    else high = middle;
  }
  return low;
}

export function missedOf({ shed, failed, unanswered }: PhaseResult): number {
  return shed + failed + unanswered;
}

/** When the first second begins that holds, with a good window; undefined if there is none. */
export function recoveryMs(windows: readonly Window[]): number | undefined {
  const perSecond = 1000 / windowMs;
  const first = windows.findIndex((window, i) => {
    const second = windows.slice(i, i + perSecond);
    return isGood(window) && second.length === perSecond && holds(second);
  });
  return first < 0 ? undefined : first * windowMs;
}

function holds(windows: readonly Window[]): boolean {
  return windows.filter(isGood).length >= 0.9 * windows.length;
}

function isGood({ p99Ms, missed }: Window): boolean {
  return p99Ms < p99LimitMs && missed === 0;
}
