/** How often a property runs: `PROPERTY_RUNS` replaces the number given here. */
export function propertyRuns(fallback: number): number {
  const wanted = Number(process.env.PROPERTY_RUNS ?? '');
  return wanted > 0 ? wanted : fallback;
}
