/**
 * Random operations on the real store and on a model of it, which must agree after every step: answers, truth,
 * derived keys, invariants. A failure prints seed and path; `fc.assert(..., { seed, path })` replays it.
 * `PROPERTY_RUNS` sets the number of scenarios per engine.
 */
import fc from 'fast-check';
import { it } from 'vitest';
import { describeEngines } from '../../support/engines.js';
import { anyScenario, propertyRuns, runScenario } from '../../support/model.js';

const runs = propertyRuns(120);

describeEngines('store against its model', (engine) => {
  it(`agrees with the model over ${runs} random scenarios`, { timeout: 60_000 + runs * 1000 }, async () => {
    await fc.assert(
      fc.asyncProperty(anyScenario, (scenario) => runScenario(engine, scenario)),
      { numRuns: runs },
    );
  });
});
