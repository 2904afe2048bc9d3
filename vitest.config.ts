import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { filesOf, testSet } from './test/support/sets.js';

export default defineConfig({
  test: {
    environment: 'node',
    include: filesOf(testSet),
    globalSetup: ['test/support/global-setup.ts'],
    // Processes: one that hangs can be ended.
    pool: 'forks',
    // Files of the quick set share processes and modules; engines still belong to one file. A process for each of 250 files
    // took 0.6 s of CPU to start and load, and compiled the routers' code anew. Deep files load the machine: one process each.
    isolate: testSet === 'deep' || testSet === 'all',
    // A quick file waits more than it computes. A deep one may keep a core busy with a thousand callers or a browser.
    maxWorkers: testSet === 'deep' ? availableParallelism() : Math.min(5, availableParallelism() + 3),
    // Above the patience of `until`, so that a test that waits says what for.
    testTimeout: 60_000,
    hookTimeout: 90_000,
    reporters: ['default', './test/support/skips-reporter.ts'],
  },
});
