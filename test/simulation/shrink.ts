/** Removes faults while the run still fails in the same way, down to the faults that are needed. */
import type { Fault } from './faults.js';
import { faultsOf, type SimulationOptions, simulate } from './simulate.js';

/** The kind of a violation, without names and times: two runs break the same guarantee with other pods at other times. */
export function sortOf(violation: string): string {
  return violation
    .replace(/^at \d+ ms: /, '')
    .replace(/[\w-]*\d[\w.-]*/g, '#')
    .replace(/#(?:(?:, | and )#)+/g, '#');
}

export async function shrink(
  seed: number,
  options: Pick<SimulationOptions, 'sabotage' | 'rewire'> = {},
  onTry: (left: number) => void = () => {},
): Promise<Fault[]> {
  const firstOf = async (faults: readonly Fault[]) =>
    (await simulate(seed, { ...options, faults })).violations[0];
  const all = faultsOf(seed);
  // Faults after the failure are not needed.
  const failedMs = Number(/^at (\d+) ms/.exec((await firstOf(all)) ?? '')?.[1] ?? Number.POSITIVE_INFINITY);
  return fewest(
    all.filter(({ atMs }) => atMs <= failedMs),
    firstOf,
    onTry,
  );
}

/** Removes halves first, then smaller parts, down to single faults; only the same violation counts. */
export async function fewest(
  all: readonly Fault[],
  firstViolation: (faults: readonly Fault[]) => Promise<string | undefined>,
  onTry: (left: number) => void = () => {},
): Promise<Fault[]> {
  let faults = [...all];
  const original = await firstViolation(faults);
  if (original === undefined) throw new Error('it does not fail: there is nothing to leave out');
  const isSame = async (fewer: readonly Fault[]) => {
    const violation = await firstViolation(fewer);
    return violation !== undefined && sortOf(violation) === sortOf(original);
  };
  for (let size = Math.ceil(faults.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = 0; at < faults.length; ) {
      const fewer = [...faults.slice(0, at), ...faults.slice(at + size)];
      onTry(faults.length);
      if (await isSame(fewer)) faults = fewer;
      else at += size;
    }
  }
  return faults;
}
