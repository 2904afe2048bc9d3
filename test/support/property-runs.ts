import { isDeep } from './sets.js';

/** How often a property runs: a quarter in the quick set. `PROPERTY_RUNS` replaces the number given here. */
export function propertyRuns(fallback: number): number {
  const runs = isDeep ? fallback : Math.ceil(fallback / 4);
  return numberFrom('PROPERTY_RUNS', /^[1-9]\d{0,8}$/, 'a whole number above 0') ?? runs;
}

/** A variable that only tests know. A wrong value is refused: a run that ignored it would look like the one asked for. */
export function numberFrom(name: string, pattern: RegExp, meant: string): number | undefined {
  const text = process.env[name];
  if (text === undefined || text === '') return undefined;
  if (!pattern.test(text)) throw new Error(`${name} must be ${meant}, not ${JSON.stringify(text)}`);
  return Number(text);
}
