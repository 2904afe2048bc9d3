import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { type CommandFacts, commandTree } from '../../src/cli/command-tree.js';
import { completionScript, type Shell, shells } from '../../src/cli/completion-scripts.js';
import { run } from '../../src/cli/index.js';
import { createProgram } from '../../src/cli/program.js';
import { Screen } from '../../src/cli/screen.js';
import { systemClock } from '../../src/clock.js';
import { findOnPath } from '../support/engines.js';
import { capture } from './capture.js';

const program = createProgram(
  { env: {}, clock: systemClock, screen: new Screen(capture().streams, {}), exitCode: 0, resident: false },
  { out: () => undefined, err: () => undefined },
);
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

  it('knows values of options, and that a value is no command', () => {
    expect(offered('pods', '--state', '')).toEqual(['blocked', 'busy', 'draining', 'free']);
    expect(offered('pods', '--url', '')).toEqual([]);
    expect(offered('pods', '--pool', 'status', '--l')).toEqual(['--limit']);
  });

  it('offers files where a file is asked for', () => {
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
  it('is a script that zsh reads and registers', () => {
    const code = 'autoload -Uz compinit; compinit -u -D; source "$1"; print -r -- "$_comps[smart-router]"';
    const out = execFileSync('zsh', ['-f', '-c', code, 'zsh', scriptFile('zsh')], {
      encoding: 'utf8',
      cwd: folder,
    });
    expect(out.trim()).toBe('_smart_router');
  });
});

inShell('fish', 'completion in fish', () => {
  const offered = (line: string) => {
    const code = `source ${scriptFile('fish')}; complete -C ${JSON.stringify(`smart-router ${line}`)}`;
    const out = execFileSync('fish', ['--no-config', '-c', code], { encoding: 'utf8', cwd: folder });
    return lines(out).map((one) => one.split('\t')[0]);
  };

  it('offers commands, options and values', () => {
    expect(offered('un')).toEqual(['undrain']);
    expect(offered('records re')).toEqual(['report', 'reset', 'retry']);
    expect(offered('pods --state ')).toEqual(['blocked', 'busy', 'draining', 'free']);
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
