// `npm run docs`: writes the parts of docs/cli.md that follow from the commands. A test compares them.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { withReference } from './cli-reference.mjs';

const built = new URL('../dist/cli/', import.meta.url);
if (!existsSync(built)) {
  console.error('smart-router: dist/ is missing: run `npm run build` first.');
  process.exit(1);
}
const [{ createProgram }, { commandTree }, { exitCodeMeanings }] = await Promise.all(
  ['program.js', 'command-tree.js', 'exit-codes.js'].map((file) => import(new URL(file, built).href)),
);
const page = new URL('../docs/cli.md', import.meta.url);
// The commands are only looked at, never run: they need nothing of what they are made with.
const program = createProgram({}, { out: () => undefined, err: () => undefined });
writeFileSync(
  page,
  `${withReference(readFileSync(page, 'utf8'), commandTree(program), exitCodeMeanings).trimEnd()}\n`,
);
