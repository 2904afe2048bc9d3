/**
 * Finds the highest rate of calls at which p99 of allocate stays under 50 ms and no call is rejected: doubles the rate
 * until it fails, then bisects. A rate passes in two tries of three: other load on the machine can fail one, and luck
 * can pass one.
 */
import { number } from '../support/report.js';
import type { Generator } from './generator.js';
import type { Phase, PhaseResult } from './messages.js';

export const p99LimitMs = 50;
const firstRate = 500;
const minRate = 30;

export interface Search {
  phase: Omit<Phase, 'ratePerSecond'>;
  /** The search ends when the lowest failing rate is at most this many times the highest passing rate. */
  precision: number;
}

export const searchOf = (quick: boolean): Search =>
  quick
    ? { phase: { ms: 1500, warmUpMs: 500 }, precision: 1.2 }
    : { phase: { ms: 6000, warmUpMs: 1000 }, precision: 1.08 };

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
    return holds(result);
  };
  const tried = async (rate: number) => {
    const [first, second] = [await once(rate), await once(rate)];
    return first === second ? first : once(rate);
  };
  // Warm-up: compiled code, grown sockets.
  await once(firstRate);
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

/** One in a thousand may fail, because of other load on the machine. */
function holds(result: PhaseResult): boolean {
  return result.p99Ms < p99LimitMs && missedOf(result) <= result.offered / 1000;
}
