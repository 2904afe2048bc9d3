// Runs a benchmark: `npm run bench -- calls`. bench/*.ts is compiled into .cache/bench together with the sources
// it imports, so that what is measured is the tree as it is now. Types are not checked here: `npm test` does.
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { embedLua } from './embed-lua.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const compiled = join(root, '.cache', 'bench');

/** An area is a file bench/NAME.ts; the first line of its opening comment says what it measures. */
const areas = readdirSync(join(root, 'bench'))
  .filter((name) => name.endsWith('.ts'))
  .map((name) => name.slice(0, -'.ts'.length));

/** @param {string} area */
function summary(area) {
  const text = readFileSync(join(root, 'bench', `${area}.ts`), 'utf8');
  return /^\/\*\*\s*(?:\*\s*)?(.+?)(?:\s*\*\/)?$/m.exec(text)?.[1] ?? '';
}

const usage = `Usage: npm run bench -- AREA [options]

Areas:
${areas.map((area) => `  ${area.padEnd(12)} ${summary(area)}`).join('\n')}

Options:
  --quick      short rounds: less time, more noise
  --check      exit with 1 when a figure misses its target (otherwise only errors do that)
  --only PART  these parts only, separated by commas; a wrong name lists them
  --json FILE  write the results there instead of bench/results/AREA.json
  --help       this text
`;

function build() {
  embedLua(root);
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

const [area, ...rest] = process.argv.slice(2);
if (area === '--help' || area === '-h' || rest.includes('--help')) {
  process.stdout.write(usage);
} else if (area === undefined || !areas.includes(area)) {
  if (area !== undefined) process.stderr.write(`bench: there is no area ${JSON.stringify(area)}.\n\n`);
  process.stderr.write(usage);
  process.exitCode = 2;
} else {
  build();
  const script = join(compiled, 'bench', `${area}.js`);
  process.exitCode =
    spawnSync(process.execPath, [script, ...rest], { stdio: 'inherit', cwd: root }).status ?? 1;
}
