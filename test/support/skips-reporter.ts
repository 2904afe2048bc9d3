import type { SerializedError } from 'vitest';
import type { Reporter, TestCase, TestModule, TestSuite } from 'vitest/node';

/**
 * Nothing is skipped silently: at the end, every test that did not run is named with the reason, and one
 * closing line counts them all.
 */
export default class SkipsReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly SerializedError[]): void {
    let passed = 0;
    // What broke outside a test (an import, a hook, a stray rejection) counts as a failure too.
    let failed = unhandledErrors.length;
    const skipped: TestCase[] = [];
    for (const module of modules) {
      failed += brokenSuites(module);
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === 'passed') passed++;
        else if (state === 'failed') failed++;
        else skipped.push(test);
      }
    }
    const lines = skipped.map(
      (test) => `  ${test.module.relativeModuleId} > ${test.fullName}${reason(test)}`,
    );
    if (lines.length > 0) process.stdout.write(`\nSkipped:\n${lines.join('\n')}\n`);
    process.stdout.write(`\n${passed} passed, ${failed} failed, ${skipped.length} skipped\n`);
  }
}

function brokenSuites(suite: TestModule | TestSuite): number {
  let count = suite.errors().length;
  for (const child of suite.children.suites()) count += brokenSuites(child);
  return count;
}

/** `context.skip(reason)` leaves a note; `describe.skip` and `it.skip` carry the reason in a name. */
function reason(test: TestCase): string {
  const result = test.result();
  if (result.state === 'pending') return ' (not run)';
  if (test.options.mode === 'todo') return ' (to do)';
  return result.state === 'skipped' && result.note ? ` (${result.note})` : '';
}
