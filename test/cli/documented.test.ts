import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { exitCodeMeanings } from '../../src/cli/failure.js';
import { Output } from '../../src/cli/output.js';
import { createProgram } from '../../src/cli/program.js';
import { systemClock } from '../../src/clock.js';
import { capture } from './capture.js';

const page = readFileSync(new URL('../../docs/cli.md', import.meta.url), 'utf8');
const sections = new Map(page.split(/^## /m).map((part) => [part.split('\n', 1)[0] ?? '', part]));

const output = new Output(capture().streams, {});
const program = createProgram({ env: {}, clock: systemClock, output, exitCode: 0, resident: false });
const leaves = (command: Command, path: string[] = []): [string, Command][] =>
  command.commands.flatMap((sub) =>
    sub.commands.length > 0
      ? leaves(sub, [...path, sub.name()])
      : [[[...path, sub.name()].join(' '), sub] as [string, Command]],
  );
const commands = leaves(program);

describe('docs/cli.md', () => {
  it.each(commands)('has a section for %s with an example, its output and every option', (path, command) => {
    const section = sections.get(`\`${path}\``);
    expect(section, `no section "## \`${path}\`"`).toBeDefined();
    expect(section).toMatch(new RegExp(`\`\`\`\\n\\$ .*smart-router ${path}\\b[^]*?\\n[^$\`]`));
    for (const { long } of command.options) {
      if (['--json', '--url', '--timeout'].includes(long ?? '')) continue;
      expect(section, `${path} ${long}`).toContain(`\`${long}`);
    }
  });

  it('has no section for a command that does not exist', () => {
    const known = new Set(commands.map(([path]) => `\`${path}\``));
    const named = [...sections.keys()].filter((title) => title.startsWith('`'));
    expect(named.filter((title) => !known.has(title))).toEqual([]);
  });

  it.each(Object.entries(exitCodeMeanings))('says that exit code %s means: %s', (code, meaning) => {
    expect(page).toContain(`| ${code} | ${meaning} |`);
  });
});

/** As printed, with what stands after the options. */
function helpOf(command: Command): string {
  let text = '';
  command.configureOutput({
    writeOut: (part) => {
      text += part;
    },
  });
  command.outputHelp();
  return text;
}

describe('--help', () => {
  it.each(commands)('of %s has examples, exit codes and --json', (_, command) => {
    const text = helpOf(command);
    expect(text).toContain('\nExamples:\n  $ smart-router ');
    expect(text).toContain('\nExit codes:\n  0    done\n');
    expect(text).toContain('--json');
    if (command.options.some(({ long }) => long === '--url'))
      expect(text).toContain('It is never an argument');
  });

  it.each(commands)('of %s has paragraphs without line breaks', (_, command) => {
    const paragraphs = command.description().split('\n\n');
    expect(paragraphs.filter((paragraph) => paragraph.includes('\n'))).toEqual([]);
    const access = helpOf(command).split('\nAccess:\n')[1] ?? '';
    expect(access.split('\n').filter((line) => line.length > 80)).toEqual([]);
  });

  it('lists exit code 6 for commands that call a router, except doctor', () => {
    const talking = commands.filter(([, { options }]) => options.some(({ long }) => long === '--url'));
    const without6 = talking.filter(([, command]) => !/^ {2}6 {4}/m.test(helpOf(command)));
    expect(without6.map(([path]) => path)).toEqual(['doctor']);
  });
});
