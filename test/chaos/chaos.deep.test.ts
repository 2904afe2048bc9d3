/** A short run of chaos: its faults from a fixed seed, everything else real. `npm run chaos` runs it for longer. */
import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { nativeAvailable } from '../support/engines.js';
import { postgresKinds } from '../support/postgres.js';
import { chaos } from './chaos.js';

/** Any will do. */
function postgresAvailable(): true | string {
  const found = postgresKinds.map((kind) => kind.available());
  return found.includes(true) || found.join(', ');
}

const missing = [nativeAvailable(), postgresAvailable()].filter((one) => one !== true);

describe.skipIf(missing.length > 0)(
  `chaos with real processes${missing.map((why) => ` [${why}]`).join('')}`,
  () => {
    it('breaks no guarantee, and the fleet recovers', { timeout: 480_000 }, async () => {
      const outcome = await chaos({ seed: 20, minutes: 0.4 });
      expect(outcome.violations, `logs and histories: ${outcome.kept}`).toEqual([]);
      expect(outcome.kept === undefined || !existsSync(outcome.kept)).toBe(true);
      expect(outcome.healedInSeconds).toBeDefined();
      // It was a run: calls were given, records done, several things broken.
      expect(outcome.allocated).toBeGreaterThan(100);
      expect(outcome.waited).toBeGreaterThan(10);
      expect(outcome.recordsDone).toBeGreaterThan(100);
      expect(Object.keys(outcome.faults).length).toBeGreaterThan(3);
      expect(outcome.eventsReplayed).toBeGreaterThan(outcome.allocated);
      expect(outcome.looks).toBeGreaterThan(10);
      expect(outcome.audits).toBeGreaterThan(5);
    });
  },
);
