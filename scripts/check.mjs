// Runs the checks in steps and stops at the first failure.
//   npm test              set-up, build, types, lint, then the quick tests: every folder and every promise once
//   npm test -- PATH ...  only the tests of these paths, all of them
//   npm run test:deep     everything else: second engine, long models, fuzzing, chaos
//   npm run test:unit     the tests that start no engine and no process
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setupDebian } from './setup-debian.mjs';
import { setupHelm } from './setup-helm.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const resolve = createRequire(import.meta.url).resolve;

/**
 * Returns the script of a package's command, to be run with this Node: no shell, no .bin link.
 * @param {string} packageName
 * @param {string} script
 */
function tool(packageName, script) {
  return join(dirname(resolve(`${packageName}/package.json`)), script);
}

/** @type {NodeJS.ProcessEnv} */
const env = { ...process.env };
// Some tools write colours into a log file too.
const colours = process.stdout.isTTY === true || env.FORCE_COLOR !== undefined;
if (!colours) env.NO_COLOR = '1';

/**
 * @param {string} script
 * @param {string[]} args
 * @returns {Promise<boolean>}
 */
function node(script, ...args) {
  return new Promise((done) => {
    const child = spawn(process.execPath, [script, ...args], { cwd: root, env, stdio: 'inherit' });
    child.once('error', (error) => {
      console.error(error.message);
      done(false);
    });
    child.once('exit', (code) => done(code === 0));
  });
}

const [first = '', ...rest] = process.argv.slice(2);
const set = first === '--deep' || first === '--unit' ? first.slice(2) : first === '' ? 'quick' : 'all';
const vitestArgs = set === 'all' ? [first, ...rest] : rest;

/** @type {Record<string, string[]>} */
const stepsOf = {
  quick: ['set-up', 'build', 'types', 'lint and format', 'tests'],
  deep: ['set-up', 'build', 'tests'],
  unit: ['tests'],
  all: ['tests'],
};

/** @type {[string, () => Promise<boolean>][]} */
const steps = [
  [
    'set-up',
    async () => {
      const results = [await setupDebian(), await setupHelm()];
      env.SMART_ROUTER_MISSING = JSON.stringify(results.flatMap(({ missing }) => missing));
      return true;
    },
  ],
  ['build', () => node(join(root, 'scripts', 'build.mjs'))],
  [
    'types',
    async () => {
      const check = (/** @type {string} */ project) =>
        node(tool('typescript', 'bin/tsc'), '--noEmit', '-p', join(root, project));
      // The console has a configuration of its own: globals of a browser, none of Node.
      return (await check('tsconfig.json')) && check('console/tsconfig.json');
    },
  ],
  [
    'lint and format',
    () => node(tool('@biomejs/biome', 'bin/biome'), 'ci', ...(colours ? [] : ['--colors=off']), '.'),
  ],
  [
    'tests',
    () => {
      env.SMART_ROUTER_TESTS = set;
      return node(tool('vitest', 'vitest.mjs'), 'run', ...vitestArgs);
    },
  ],
];

// Ctrl-C reaches the child too; the run ends with its step.
let interrupted = false;
process.on('SIGINT', () => {
  interrupted = true;
});

for (const [name, step] of steps) {
  if (!stepsOf[set]?.includes(name)) continue;
  console.log(`\n== ${name} ==`);
  const started = performance.now();
  const passed = await step();
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`== ${name}: ${passed ? 'passed' : 'FAILED'} in ${seconds} s ==`);
  if (interrupted) process.exit(130);
  if (!passed) process.exit(1);
}
