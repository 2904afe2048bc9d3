/**
 * How long fuzzing lasts and where it begins. `PROPERTY_RUNS` replaces the number of runs of every property. A failure
 * prints its seed and path; `FUZZ_SEED` and `FUZZ_PATH` with the name of that test (`-t`) run exactly it again.
 */
import type { Parameters } from 'fast-check';
import { numberFrom, propertyRuns } from '../support/property-runs.js';

/** A run that takes longer hangs: what made it so is then printed, which the timeout of a test would not do. */
const hangsAfterMs = 20_000;

export function fuzzing<T>(runs: number): Parameters<T> {
  const seed = numberFrom('FUZZ_SEED', /^-?\d{1,10}$/, 'the seed that a failure printed, a whole number');
  const path = process.env.FUZZ_PATH;
  if (path && !/^\d+(:\d+)*$/.test(path))
    throw new Error(
      `FUZZ_PATH must be the path that a failure printed, like 2:3, not ${JSON.stringify(path)}`,
    );
  return {
    numRuns: propertyRuns(runs),
    timeout: hangsAfterMs,
    ...(seed === undefined ? {} : { seed }),
    ...(path ? { path } : {}),
  };
}

/** The same for synchronous properties, whose run cannot be interrupted. */
export function fuzzingAtOnce<T>(runs: number): Parameters<T> {
  const { timeout: _, ...rest } = fuzzing<T>(runs);
  return rest;
}
