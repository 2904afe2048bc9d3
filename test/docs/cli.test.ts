/** What docs/cli.md says about commands and options is what the commands say: `npm run docs` writes it. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { commandsTable, optionsTable, withReference } from '../../scripts/cli-reference.mjs';
import { commandTree } from '../../src/cli/command-tree.js';
import { exitCodeMeanings } from '../../src/cli/failure.js';
import { Output } from '../../src/cli/output.js';
import { createProgram } from '../../src/cli/program.js';
import { systemClock } from '../../src/clock.js';
import { capture } from '../cli/capture.js';

const page = readFileSync(new URL('../../docs/cli.md', import.meta.url), 'utf8');
const tree = commandTree(
  createProgram({
    env: {},
    clock: systemClock,
    output: new Output(capture().streams, {}),
    exitCode: 0,
    resident: false,
  }),
);

it('docs/cli.md has the commands, options and exit codes of this version (`npm run docs` writes them)', () => {
  expect(`${withReference(page, tree, exitCodeMeanings).trimEnd()}\n`).toBe(page);
});

it('every command is in the list of commands, and no group', () => {
  const table = commandsTable(tree);
  expect(table).toContain('| [`removals list`](#removals-list) |');
  expect(table).toContain('| [`top`](#top) |');
  expect(table).not.toContain('[`records`]');
});

it('a changed option changes the page, and hand-written text stays', () => {
  const small = '# Title\n\n## `pods`\n\nBy hand.\n\n## Other\n\nAlso by hand.\n';
  const before = withReference(small, tree, exitCodeMeanings);
  expect(before).toContain('| `--pool <pool>` |');
  const changed = tree.map((command) =>
    command.path === 'pods'
      ? { ...command, options: [{ names: ['--new'], flags: '--new <x>', description: 'a|b' }] }
      : command,
  );
  const after = withReference(before, changed, exitCodeMeanings);
  expect(after).toContain('| `--new <x>` | a\\|b |');
  expect(after).not.toContain('--pool');
  for (const text of ['By hand.', '## Other\n\nAlso by hand.']) expect(after).toContain(text);
  expect(withReference(after, tree, exitCodeMeanings)).toBe(before);
  const serve = tree.find(({ path }) => path === 'serve') as (typeof tree)[number];
  expect(optionsTable(serve)).not.toContain('--url');
});
