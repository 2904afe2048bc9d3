import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { filesOf, testSet } from './test/support/sets.js';

export default defineConfig({
  test: {
    environment: 'node',
    include: filesOf(testSet),
    globalSetup: ['test/support/global-setup.ts'],
    // A process per test file: engines belong to one file, and a file that hangs can be ended.
    pool: 'forks',
    // Unit tests share their modules: loading them again for each file would take most of the time.
    isolate: testSet !== 'unit',
    // A quick file waits more than it computes. A deep one may keep a core busy with a thousand callers or a browser.
    maxWorkers: testSet === 'deep' ? availableParallelism() : Math.min(4, availableParallelism() + 2),
    // Above the patience of `until`, so that a test that waits says what for.
    testTimeout: 60_000,
    hookTimeout: 90_000,
    reporters: ['default', './test/support/skips-reporter.ts'],
  },
});
