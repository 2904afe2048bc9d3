/** The routers' real code and the real Valkey on virtual time, under faults from a seed. `npm run simulate` runs more. */
import { describe, expect, it } from 'vitest';
import { brokenScripts } from '../support/broken-scripts.js';
import { isDeep } from '../support/sets.js';
import { brokenRouters, twoLeaders } from './broken-routers.js';
import { type Fault, varieties } from './faults.js';
import { type Outcome, type SimulationOptions, simulate } from './simulate.js';

const seeds = Array.from({ length: isDeep ? 50 : 3 }, (_, i) => i + 1);
const outcomes = new Map<number, Promise<Outcome>>();
const outcomeOf = (seed: number) => {
  const outcome = outcomes.get(seed) ?? simulate(seed);
  outcomes.set(seed, outcome);
  return outcome;
};
/** What a failure prints: how to see it again. */
const replay = ({ seed }: Outcome) =>
  `seed ${seed}: npm run simulate -- --seed ${seed}, and with --shrink what it takes`;

// One takes 2 s of CPU.
describe('the simulation', { timeout: 300_000 }, () => {
  it('has at least sixty faults, kinds times places', () => {
    expect(varieties).toBeGreaterThanOrEqual(60);
  });

  it.each(seeds)('seed %i: no guarantee is broken, and everything recovers', async (seed) => {
    const outcome = await outcomeOf(seed);
    expect(outcome.violations, replay(outcome)).toEqual([]);
    expect(outcome.calls).toBeGreaterThan(20);
    expect(outcome.faults).toBeGreaterThan(10);
    // The leader's own audit ran as well, and found nothing.
    expect(outcome.audits).toBeGreaterThan(5);
  });

  it('the same seed gives the same history, another seed another one', async () => {
    const [first, again, other] = [await outcomeOf(3), await simulate(3), await outcomeOf(2)];
    expect(again.trace).toEqual(first.trace);
    expect(again.digest).toBe(first.digest);
    expect(other.digest).not.toBe(first.digest);
    expect(first.waited).toBeGreaterThan(5);
  });

  it('two leaders at once break no guarantee', async () => {
    const outcome = await simulate(1, { faults: twoLeaders });
    expect(outcome.violations).toEqual([]);
    expect(outcome.faults).toBe(twoLeaders.length);
  });

  it('a list older than the watch reverts nothing', async () => {
    const faults: Fault[] = [
      { kind: 'requests to the store are lost', place: 0, atMs: 11_209, forMs: 17_194 },
      { kind: 'lists of the cluster are stale', place: -1, atMs: 38_382, forMs: 38_225 },
      { kind: 'every connection to the store breaks', place: -1, atMs: 42_173, forMs: 13_492 },
    ];
    expect((await simulate(211, { faults })).violations).toEqual([]);
  });
});

/**
 * The first violation. The same code always needs the same seeds; most defects are noticed with the first. A change to the
 * code may shift that: the rarest is noticed by one seed in nine, so 200 seeds miss it less than once in a billion times.
 */
async function firstNoticed(options: SimulationOptions): Promise<string> {
  for (let seed = 1; seed <= 200; seed++) {
    const [first] = (await simulate(seed, options)).violations;
    if (first !== undefined) return first;
  }
  return 'not noticed';
}

const found = brokenScripts.filter(({ isSeenInSimulation }) => isSeenInSimulation);
const olderLeaders = brokenScripts.filter(({ broken }) => /^(sweep|register|remove) obeys/.test(broken));
const [orphans] = brokenScripts.filter(({ broken }) => broken === 'a released call leaves its record');

describe.runIf(isDeep)('finds a broken router [deep set only]', { timeout: 600_000 }, () => {
  it.each(found)('$broken', async (control) => {
    const sabotage: SimulationOptions['sabotage'] = ({ store }) => store.breakScript(control);
    expect(await firstNoticed({ sabotage })).not.toBe('not noticed');
  });

  it.each(olderLeaders)('$broken', async (control) => {
    const sabotage: SimulationOptions['sabotage'] = ({ store }) => store.breakScript(control);
    expect(await firstNoticed({ sabotage, faults: twoLeaders })).toMatch(/of an older leader was accepted/);
  });

  it.each(brokenRouters)('$broken', async ({ faults, rewire }) => {
    // The same faults break no unmodified router.
    if (faults) expect((await simulate(1, { faults })).violations).toEqual([]);
    expect(await firstNoticed({ rewire, ...(faults ? { faults } : {}) })).not.toBe('not noticed');
  });

  it("by the leader's own audit, without the checks of the simulation", async () => {
    if (!orphans) throw new Error('there is no such control');
    const sabotage: SimulationOptions['sabotage'] = (world) => {
      world.isLookedAt = false;
      world.store.breakScript(orphans);
    };
    expect(await firstNoticed({ sabotage })).toMatch(
      /the audit of router-.* found: .*which does not have the call/,
    );
  });
});
