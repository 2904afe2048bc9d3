/** The routers' real code and the real Valkey on virtual time, under faults from a seed. `npm run simulate` runs more. */
import { describe, expect, it } from 'vitest';
import { brokenScripts } from '../support/broken-scripts.js';
import { varieties } from './faults.js';
import { simulate } from './simulate.js';

const seeds = Array.from({ length: 50 }, (_, i) => i + 1);
describe('the simulation', () => {
  it('knows sixty faults and more, kinds times places', () => {
    expect(varieties).toBeGreaterThanOrEqual(60);
  });

  it.each(seeds)('seed %i: nothing is broken, and everything heals', async (seed) => {
    const { violations, calls, faults } = await simulate(seed);
    expect(violations).toEqual([]);
    expect(calls).toBeGreaterThan(20);
    expect(faults).toBeGreaterThan(10);
  });

  it('the same seed gives the same history, another one another', async () => {
    const [first, again, other] = [await simulate(3), await simulate(3), await simulate(4)];
    expect(again.trace).toEqual(first.trace);
    expect(again.digest).toBe(first.digest);
    expect(other.digest).not.toBe(first.digest);
  });
});

const found = brokenScripts.filter(({ isSeenInSimulation }) => isSeenInSimulation);

describe('a broken router is found out', () => {
  it.each(found)('$broken', async (control) => {
    for (const seed of seeds.slice(0, 10)) {
      const { violations } = await simulate(seed, { sabotage: (world) => world.store.breakScript(control) });
      if (violations.length > 0) return;
    }
    expect.fail('nobody noticed');
  });
});
