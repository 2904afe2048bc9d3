/** Compares actual and expected values: empty if they agree, else one line with the difference. */

/** Lists are compared as sets: no operation promises an order. */
export function same(actual: unknown, expected: unknown, what = 'answer'): string[] {
  const a = JSON.stringify(canonical(actual));
  const b = JSON.stringify(canonical(expected));
  return a === b ? [] : [`${what}: expected ${b}, got ${a}`];
}

function canonical(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(canonical).sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
  }
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(
      Object.entries(value)
        .map(([key, inner]) => [key, canonical(inner)] as const)
        .sort(([a], [b]) => (a < b ? -1 : 1)),
    );
  }
  return value;
}
