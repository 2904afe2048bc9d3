/** Leaves out faults as long as the run still fails: what is left is what it takes. */
import type { Fault } from './faults.js';
import { faultsOf, type SimulationOptions, simulate } from './simulate.js';

export async function shrink(
  seed: number,
  options: Pick<SimulationOptions, 'sabotage'> = {},
  onTry: (left: number) => void = () => {},
): Promise<Fault[]> {
  const fails = async (faults: readonly Fault[]) =>
    (await simulate(seed, { ...options, faults })).violations.length > 0;
  let faults = faultsOf(seed);
  for (let size = Math.ceil(faults.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let at = 0; at < faults.length; ) {
      const fewer = [...faults.slice(0, at), ...faults.slice(at + size)];
      onTry(faults.length);
      if (await fails(fewer)) faults = fewer;
      else at += size;
    }
  }
  return faults;
}
