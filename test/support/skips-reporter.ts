import type { SerializedError } from 'vitest';
import type { Reporter, TestCase, TestModule, TestSuite } from 'vitest/node';

/**
 * Nothing is skipped silently: at the end, every test that did not run is named with the reason, or counted
 * where several of a file share one; and one closing line counts them all.
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
    const lines = skipLines(
      skipped.map((test) => ({
        file: test.module.relativeModuleId,
        name: test.fullName,
        note: note(test),
      })),
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

export interface Skip {
  file: string;
  name: string;
  /** `context.skip(reason)` leaves one; `describe.skip` and `it.skip` carry the reason in a name. */
  note: string | undefined;
}

/** Without redis-server hundreds are skipped: one line for all tests of a file that share a reason. */
export function skipLines(skips: readonly Skip[]): string[] {
  const groups = new Map<string, Skip[]>();
  for (const skip of skips) {
    const key = JSON.stringify([skip.file, reason(skip) ?? skip.name]);
    groups.set(key, [...(groups.get(key) ?? []), skip]);
  }
  return [...groups.values()].flatMap((group) => {
    const [first] = group;
    const shared = first && reason(first);
    if (group.length > 1 && shared) return `  ${first.file}: ${group.length} tests: ${shared}`;
    return group.map(({ file, name, note }) => `  ${file} > ${name}${note ? ` (${note})` : ''}`);
  });
}

/** In a name it is `[promtool is not on PATH]`, or `[native: redis-server ...]`; `[embedded]` is none. */
function reason({ name, note }: Skip): string | undefined {
  return note ?? /\[(?:\w+: )?([^\]]* [^\]]*)\]/.exec(name)?.[1];
}

function note(test: TestCase): string | undefined {
  const result = test.result();
  if (result.state === 'pending') return 'not run';
  if (test.options.mode === 'todo') return 'to do';
  return result.state === 'skipped' && result.note ? result.note : undefined;
}
