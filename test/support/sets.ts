/**
 * The sets of tests, chosen by SMART_ROUTER_TESTS:
 *
 * - `unit`: starts no engine and no process.
 * - `quick`: every folder and every promise once, on one engine. `npm test`.
 * - `deep`: the files named `*.deep.test.ts`, the suites of `describeEngines` and `describePostgres` on the other engine,
 *   more seeds and runs.
 * - `all` (the default, for a path given by hand): everything.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export type TestSet = 'unit' | 'quick' | 'deep' | 'all';

const root = fileURLToPath(new URL('../..', import.meta.url));

export const testSet = (process.env.SMART_ROUTER_TESTS ?? 'all') as TestSet;

/** Long versions of a test: more attempts, more seeds. */
export const isDeep = testSet === 'deep' || testSet === 'all';

/** The test files of a set, relative to the root. */
export function filesOf(set: TestSet): string[] {
  const files = readdirSync(join(root, 'test'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.test.ts'))
    .map((file) => `test/${file}`)
    .sort();
  const isDeepOnly = (file: string) => file.endsWith('.deep.test.ts');
  if (set === 'quick') return files.filter((file) => !isDeepOnly(file));
  if (set === 'deep') return files.filter((file) => isDeepOnly(file) || hasDeepPart(file));
  if (set === 'unit') return files.filter((file) => !isDeepOnly(file) && !startsSomething(file));
  return files;
}

function hasDeepPart(file: string): boolean {
  return /\b(describeEngines\(|describePostgres\(|isDeep\b|propertyRuns\()/.test(
    readFileSync(join(root, file), 'utf8'),
  );
}

/** True for a test that imports, directly or through other files of test/, what starts engines, routers or processes. */
function startsSomething(file: string, seen = new Set<string>()): boolean {
  if (seen.has(file)) return false;
  seen.add(file);
  const text = readFileSync(join(root, file), 'utf8');
  if (/from 'node:(child_process|worker_threads)'|\/src\/(main|embedded|demo)\//.test(text)) return true;
  const imports = [...text.matchAll(/from '(\.[^']+)\.js'/g)].map(([, target]) =>
    join(dirname(file), `${target}.ts`),
  );
  return imports.some(
    (target) => target.startsWith('test/') && existsSync(join(root, target)) && startsSomething(target, seen),
  );
}
