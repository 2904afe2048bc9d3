// Runs benchmarks: all with `npm run bench`, one area with `npm run bench -- calls`. Compiles bench/*.ts and the sources it
// imports into .cache/bench, so that the current tree is measured. `npm test` checks the types.
import { execFileSync, spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { cpus, loadavg } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { benchTable, withTable } from './bench-table.mjs';
import { embedLua, embedSql } from './embed.mjs';
import { benchPrograms, setupDebian } from './setup-debian.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const compiled = join(root, '.cache', 'bench');
/** An area that hangs must not stop the others. */
const maxAreaMs = 60 * 60_000;
const maxPauseMs = 3 * 60_000;

/** An area is a file bench/NAME.ts; the first line of its opening comment is its summary. */
const areas = readdirSync(join(root, 'bench'))
  .filter((name) => name.endsWith('.ts'))
  .map((name) => name.slice(0, -'.ts'.length));

/** @param {string} area */
function summary(area) {
  const text = readFileSync(join(root, 'bench', `${area}.ts`), 'utf8');
  return /^\/\*\*\s*(?:\*\s*)?(.+?)(?:\s*\*\/)?$/m.exec(text)?.[1] ?? '';
}

const usage = `Usage: npm run bench [-- AREA] [options]

Without an area all areas run in sequence, and their figures become the table of docs/benchmarks.md.

Areas:
${areas.map((area) => `  ${area.padEnd(12)} ${summary(area)}`).join('\n')}

Options:
  --quick      short rounds: less time, more noise
  --check      exit with 1 when a figure misses its target (otherwise only errors do that)
  --only PART  with an area: only these parts, separated by commas; an unknown name lists them
  --json FILE  with an area: write the results there instead of bench/results/AREA.json
  --table      run nothing, write the table of docs/benchmarks.md from bench/results
  --help       this text
`;

/** @param {boolean} withDist also builds dist/, for areas that start the program */
function build(withDist) {
  if (withDist) execFileSync(process.execPath, [join(root, 'scripts', 'build.mjs')], { stdio: 'inherit' });
  embedLua(root);
  embedSql(root);
  rmSync(compiled, { recursive: true, force: true });
  mkdirSync(compiled, { recursive: true });
  // src/version.ts reads it.
  copyFileSync(join(root, 'package.json'), join(compiled, 'package.json'));
  const typescript = dirname(createRequire(import.meta.url).resolve('typescript/package.json'));
  execFileSync(
    process.execPath,
    [join(typescript, 'bin', 'tsc'), '-p', join(root, 'bench', 'tsconfig.json')],
    {
      stdio: 'inherit',
      cwd: root,
    },
  );
}

/** @param {string} area */
const resultsOf = (area) => join(root, 'bench', 'results', `${area}.json`);

/**
 * @param {string} area
 * @param {string[]} options
 */
function runArea(area, options) {
  const script = join(compiled, 'bench', `${area}.js`);
  const { status } = spawnSync(process.execPath, [script, ...options], {
    stdio: 'inherit',
    cwd: root,
    timeout: maxAreaMs,
  });
  return status ?? 1;
}

function writeTable() {
  const results = areas
    .filter((area) => existsSync(resultsOf(area)))
    .map((area) => JSON.parse(readFileSync(resultsOf(area), 'utf8')));
  if (results.length === 0) {
    process.stderr.write(
      'bench: no results in bench/results; docs/benchmarks.md not changed. Run `npm run bench` first.\n',
    );
    process.exitCode = 1;
    return;
  }
  const table = benchTable(areas, results);
  const page = join(root, 'docs', 'benchmarks.md');
  writeFileSync(page, withTable(readFileSync(page, 'utf8'), table));
  process.stdout.write(`\n${table}\n\nWritten to docs/benchmarks.md.\n`);
}

/** Waits until the load of the previous area has fallen. @param {boolean} quick */
async function untilQuiet(quick) {
  const enough = 0.5 * cpus().length;
  const lastMs = Date.now() + (quick ? 0 : maxPauseMs);
  while ((loadavg()[0] ?? 0) > enough && Date.now() < lastMs) {
    process.stderr.write(`\rwaiting for a load average below ${enough}: ${loadavg()[0]?.toFixed(1)} `);
    await sleep(2000);
  }
}

/** @param {string[]} options */
async function runAll(options) {
  build(true);
  const failed = [];
  for (const [i, area] of areas.entries()) {
    await untilQuiet(options.includes('--quick'));
    process.stderr.write(`\n${area} (${i + 1} of ${areas.length}) ...\n`);
    // Results of an earlier run must not count.
    rmSync(resultsOf(area), { force: true });
    if (runArea(area, options) !== 0) failed.push(area);
  }
  writeTable();
  if (failed.length > 0)
    process.stderr.write(`bench: failed areas or missed targets: ${failed.join(', ')}.\n`);
  process.exitCode = failed.length > 0 ? 1 : 0;
}

const [first, ...rest] = process.argv.slice(2);
const isOfAll = first === undefined || first.startsWith('-');
const options = isOfAll ? process.argv.slice(2) : rest;
const unknown = isOfAll
  ? options.find((option) => !['--quick', '--check', '--table'].includes(option))
  : undefined;
if (first === '-h' || options.includes('--help')) {
  process.stdout.write(usage);
} else if (unknown !== undefined || (!isOfAll && !areas.includes(first))) {
  const what =
    unknown === undefined
      ? `unknown area ${JSON.stringify(first)}`
      : `unknown option ${unknown} without an area`;
  process.stderr.write(`bench: ${what}.\n\n${usage}`);
  process.exitCode = 2;
} else if (options.includes('--table')) {
  writeTable();
} else if (isOfAll) {
  await setupDebian(console.log, benchPrograms);
  await runAll(options);
} else {
  await setupDebian(console.log, benchPrograms);
  build(first === 'console' || first === 'load');
  process.exitCode = runArea(first, options);
}
