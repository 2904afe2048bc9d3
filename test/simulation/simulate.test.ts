/** The routers' real code and the real Valkey on virtual time, under faults from a seed. `npm run simulate` runs more. */
import { describe, expect, it } from 'vitest';
import type { ScriptName } from '../../src/calls/store/connection.js';
import { varieties } from './faults.js';
import { simulate } from './simulate.js';

const seeds = Array.from({ length: 10 }, (_, i) => i + 1);
describe('the simulation', () => {
  it('knows sixty faults and more, kinds times places', () => {
    expect(varieties).toBeGreaterThanOrEqual(60);
  });

  it.each(seeds)('seed %i: nothing is broken, and everything heals', async (seed) => {
    const { violations, calls, faults } = await simulate(seed);
    expect(violations).toEqual([]);
    expect(calls).toBeGreaterThan(50);
    expect(faults).toBeGreaterThan(10);
  });

  it('the same seed gives the same history, another one another', async () => {
    const [first, again, other] = [await simulate(3), await simulate(3), await simulate(4)];
    expect(again.trace).toEqual(first.trace);
    expect(again.digest).toBe(first.digest);
    expect(other.digest).not.toBe(first.digest);
  });
});

describe('a broken router is found out', () => {
  it.each<[what: string, script: ScriptName, line: string, becomes: string]>([
    ['a call that is there gets another pod', 'allocate', 'if owner then', 'if false then'],
    [
      'fences stand still',
      'allocate',
      "local fence, score = string.format('%.0f', now_us),",
      "local fence, score = '1',",
    ],
    ['a sweep ends live calls', 'sweep', 'tonumber(entries[i + 1]) <= now', 'true'],
  ])('%s', async (_, script, line, becomes) => {
    const found: number[] = [];
    for (const seed of seeds) {
      const { violations } = await simulate(seed, {
        sabotage: (world) => world.store.breakScript(script, line, becomes),
      });
      if (violations.length > 0) found.push(seed);
      if (found.length > 0) break;
    }
    expect(found).not.toEqual([]);
  });
});
