import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { type CommandFacts, commandTree } from '../../src/cli/command-tree.js';
import { completionScript, type Shell, shells } from '../../src/cli/commands/completion.js';
import { run } from '../../src/cli/index.js';
import { Output } from '../../src/cli/output.js';
import { createProgram } from '../../src/cli/program.js';
import { systemClock } from '../../src/clock.js';
import { findOnPath } from '../support/engines.js';
import { capture } from './capture.js';

const program = createProgram({
  env: {},
  clock: systemClock,
  output: new Output(capture().streams, {}),
  exitCode: 0,
  resident: false,
});
const tree = commandTree(program);
const folder = mkdtempSync(join(tmpdir(), 'smart-router-completion-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function scriptFile(shell: Shell): string {
  const path = join(folder, `completion.${shell}`);
  writeFileSync(path, completionScript(shell, tree));
  return path;
}

function inShell(shell: Shell, title: string, suite: () => void): void {
  if (findOnPath(shell) !== undefined) describe(title, suite);
  else describe.skip(`${title} [${shell} is not there]`, suite);
}

const names = (path: string) => tree.find((command) => command.path === path) as CommandFacts;
const lines = (text: string) =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .sort();

inShell('bash', 'completion in bash', () => {
  /** What bash offers for the last of the words. */
  function offered(...words: string[]): string[] {
    const code = `source "$1"; shift; COMP_WORDS=(smart-router "$@"); COMP_CWORD=$#; _smart_router; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const args = [
      '--norc',
      '--noprofile',
      '-euo',
      'pipefail',
      '-c',
      code,
      'bash',
      scriptFile('bash'),
      ...words,
    ];
    return lines(execFileSync('bash', args, { encoding: 'utf8', cwd: folder }));
  }

  it('offers every command, and those that begin as the word does', () => {
    expect(offered('')).toEqual(
      names('')
        .commands.map(({ name }) => name)
        .sort(),
    );
    expect(offered('un')).toEqual(['undrain']);
    expect(offered('records', 're')).toEqual(['report', 'reset', 'retry']);
    expect(offered('completion', '')).toEqual([...shells].sort());
  });

  it.each(tree.filter(({ path }) => path !== '').map((command) => [command.path, command] as const))(
    'offers every option of %s',
    (path, { options }) => {
      const all = options.flatMap((option) => option.names);
      expect(offered(...path.split(' '), '-')).toEqual(all.sort());
    },
  );

  it('completes option values, and does not read a value as a command', () => {
    expect(offered('pods', '--state', '')).toEqual(['blocked', 'busy', 'draining', 'free']);
    expect(offered('pods', '--url', '')).toEqual([]);
    expect(offered('pods', '--pool', 'status', '--l')).toEqual(['--limit']);
  });

  it('offers files for file arguments', () => {
    writeFileSync(join(folder, 'tiers.json'), '{}');
    expect(offered('tiers', 'set', 'tie')).toEqual(['tiers.json']);
  });

  it('is registered for the command', () => {
    const code = 'source "$1"; complete -p smart-router';
    const out = execFileSync('bash', ['--norc', '-c', code, 'bash', scriptFile('bash')], {
      encoding: 'utf8',
    });
    expect(out).toContain('-F _smart_router smart-router');
  });
});

inShell('zsh', 'completion in zsh', () => {
  const asker = fileURLToPath(new URL('zsh-offers.zsh', import.meta.url));
  const load = 'autoload -Uz compinit; compinit -u -D';

  /** What a real zsh offers after Tab at the end of each line, and what the line is then. */
  function asked(setup: string, ...given: string[]): { offered: string[]; line: string }[] {
    const [setupFile, found] = [join(folder, 'setup.zsh'), join(folder, 'found')];
    writeFileSync(setupFile, setup);
    const typed = given.map((line) => `smart-router ${line}`);
    execFileSync('zsh', ['-f', asker, setupFile, found, ...typed], { cwd: folder, timeout: 50_000 });
    return readFileSync(found, 'utf8')
      .split(/(?<=^line: .*\n)/m)
      .map((answer) => answer.split('\n').filter((line) => line !== ''))
      .map((answer) => ({ offered: answer.slice(0, -1).sort(), line: answer.at(-1) ?? '' }));
  }
  const sourced = () => `${load}; source ${scriptFile('zsh')}`;
  const offered = (...given: string[]) => asked(sourced(), ...given).map((answer) => answer.offered);

  it('offers every command, those that begin as the word does, and values', () => {
    expect(
      offered('', 'records re', 'completion ', 'pods --state ', 'pods --url ', 'pods --pool status --l'),
    ).toEqual([
      names('')
        .commands.map(({ name }) => name)
        .sort(),
      ['report', 'reset', 'retry'],
      [...shells].sort(),
      ['blocked', 'busy', 'draining', 'free'],
      [],
      ['--limit'],
    ]);
  });

  it('completes a unique word, and files for file arguments', () => {
    writeFileSync(join(folder, 'tiers.json'), '{}');
    expect(asked(sourced(), 'un', 'tiers set tie').map(({ line }) => line)).toEqual([
      'line: smart-router undrain ',
      'line: smart-router tiers set tiers.json ',
    ]);
  });

  it('offers every option of every command', () => {
    const commands = tree.filter(({ path }) => path !== '');
    expect(offered(...commands.map(({ path }) => `${path} -`))).toEqual(
      commands.map(({ options }) => options.flatMap((option) => option.names).sort()),
    );
  });

  it('works as a file in a folder of $fpath too', () => {
    const functions = join(folder, 'functions');
    mkdirSync(functions, { recursive: true });
    writeFileSync(join(functions, '_smart-router'), completionScript('zsh', tree));
    const answers = asked(`fpath=(${functions} $fpath); ${load}`, 'un', 'records re');
    expect(answers.map((answer) => answer.offered)).toEqual([['undrain'], ['report', 'reset', 'retry']]);
  });
});

inShell('fish', 'completion in fish', () => {
  /** What a real fish offers at the end of each line. */
  function offered(...given: string[]): (string | undefined)[][] {
    const asking = given.map((line) => `complete -C ${JSON.stringify(`smart-router ${line}`)}; echo END`);
    const code = [`source ${scriptFile('fish')}`, ...asking].join('; ');
    const out = execFileSync('fish', ['--no-config', '-c', code], { encoding: 'utf8', cwd: folder });
    return out
      .split('END\n')
      .slice(0, -1)
      .map((answer) => lines(answer).map((line) => line.split('\t')[0]));
  }

  it('offers every command, those that begin as the word does, and values', () => {
    writeFileSync(join(folder, 'tiers.json'), '{}');
    expect(
      offered(
        '',
        'un',
        'records re',
        'pods --state ',
        'pods --url ',
        'pods --pool status --l',
        'tiers set tie',
      ),
    ).toEqual([
      names('')
        .commands.map(({ name }) => name)
        .sort(),
      ['undrain'],
      ['report', 'reset', 'retry'],
      ['blocked', 'busy', 'draining', 'free'],
      [],
      ['--limit'],
      ['tiers.json'],
    ]);
  });

  it('offers every option of every command', () => {
    const commands = tree.filter(({ path }) => path !== '');
    const all = commands.flatMap(({ path, options }) => {
      const given = options.flatMap((option) => option.names).sort();
      return [given, given.filter((name) => name.startsWith('--'))].map((expected, i) => ({
        line: `${path} ${'-'.repeat(i + 1)}`,
        expected,
      }));
    });
    expect(offered(...all.map(({ line }) => line))).toEqual(all.map(({ expected }) => expected));
  });
});

describe('completion', () => {
  it.each(shells)('for %s names every command and every option', (shell) => {
    const script = completionScript(shell, tree);
    for (const { path, options } of tree) {
      expect(script).toContain(`'${path}'`);
      for (const { names: given } of options)
        for (const name of given)
          expect(script).toContain(shell === 'fish' ? name.replace(/^--?/, '') : name);
    }
  });

  it('is printed by the command, alone or in a document; another shell is refused', async () => {
    const [text, json, wrong] = [capture(), capture(), capture()];
    expect(await run(['completion', 'bash'], {}, { streams: text.streams })).toBe(0);
    expect(text.out()).toBe(completionScript('bash', tree));
    expect(await run(['completion', 'fish', '--json'], {}, { streams: json.streams })).toBe(0);
    expect(JSON.parse(json.out())).toEqual({
      success: true,
      shell: 'fish',
      script: completionScript('fish', tree),
    });
    expect(await run(['completion', 'tcsh'], {}, { streams: wrong.streams })).toBe(2);
    expect(wrong.err()).toContain('Allowed choices are bash, zsh, fish');
  });
});
