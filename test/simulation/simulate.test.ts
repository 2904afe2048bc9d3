import { describe, expect, it } from 'vitest';
import { varieties } from './faults.js';
import { simulate } from './simulate.js';

describe('the simulation', () => {
  it('has sixty faults and more, kinds times places', () => {
    expect(varieties).toBeGreaterThanOrEqual(60);
  });

  it.each(
    Array.from({ length: Number(process.env.TO ?? 5) }, (_, i) => i + 1).filter(
      (n) => n >= Number(process.env.FROM ?? 1),
    ),
  )('seed %i: nothing is broken, and everything heals', async (seed) => {
    const started = performance.now();
    const { violations, trace, ...rest } = await simulate(seed);
    const factor = Math.round(rest.virtualMs / (performance.now() - started));
    if (violations.length > 0)
      console.log(JSON.stringify({ ...rest, factor, violations: violations.length }));
    if (violations.length > 0) console.log(trace.slice(-200).join('\n'));
    expect(violations).toEqual([]);
  });
});
