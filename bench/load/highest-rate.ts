/**
 * Finds the highest rate of calls at which p99 of allocate stays under 50 ms and at most one call in a thousand gets no pod:
 * doubles the rate until it fails, then bisects. A rate that fails is tried once more, because one pause of the machine
 * can fail it.
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
    process.stderr.write(
      `  ${what}, ${number(ratePerSecond)} calls/s: p99 ${number(result.p99Ms)} ms, ${missedOf(result)} of ${number(result.offered)} without a pod\n`,
    );
    return result.p99Ms < p99LimitMs && missedOf(result) <= result.offered / 1000;
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

/** When the first second begins in which every window holds; undefined if there is none. */
export function recoveryMs(windows: readonly Window[]): number | undefined {
  const perSecond = 1000 / windowMs;
  const holds = ({ p99Ms, missed }: Window) => p99Ms < p99LimitMs && missed === 0;
  for (let i = 0; i + perSecond <= windows.length; i++)
    if (windows.slice(i, i + perSecond).every(holds)) return i * windowMs;
  return undefined;
}
