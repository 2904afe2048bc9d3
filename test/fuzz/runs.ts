/**
 * How long fuzzing lasts and where it begins. `PROPERTY_RUNS` replaces the number of runs of every property. A failure
 * prints its seed and path; `FUZZ_SEED` and `FUZZ_PATH` with the name of that test (`-t`) run exactly it again.
 */
import type { Parameters } from 'fast-check';
import { propertyRuns } from '../support/property-runs.js';

/** A run that takes longer hangs: what made it so is then printed, which the timeout of a test would not do. */
const hangsAfterMs = 20_000;

export function fuzzing<T>(runs: number): Parameters<T> {
  const { FUZZ_SEED, FUZZ_PATH } = process.env;
  return {
    numRuns: propertyRuns(runs),
    timeout: hangsAfterMs,
    ...(FUZZ_SEED ? { seed: Number(FUZZ_SEED) } : {}),
    ...(FUZZ_PATH ? { path: FUZZ_PATH } : {}),
  };
}

/** The same for properties that wait for nothing, where a run cannot be told to end. */
export function fuzzingAtOnce<T>(runs: number): Parameters<T> {
  const { timeout: _, ...rest } = fuzzing<T>(runs);
  return rest;
}
