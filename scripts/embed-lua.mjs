// Turns src/calls/store/lua/*.lua into one TypeScript module, so that nothing is read from disk at run time.
// A line `--#include name` is replaced by lua/lib/name.lua, once per script; an indented one is local to its block.
// Comments are dropped.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/**
 * @param {string} folder
 * @param {string} file
 * @param {Set<string>} included
 * @returns {string}
 */
function expand(folder, file, included) {
  return readFileSync(file, 'utf8')
    .split('\n')
    .map((line) => {
      const [, indent, name] = /^(\s*)--#include (\w+)$/.exec(line) ?? [];
      if (name === undefined) return line;
      if (included.has(name)) return '';
      const known = indent === '' ? included : new Set(included);
      known.add(name);
      return expand(folder, join(folder, 'lib', `${name}.lua`), known);
    })
    .join('\n');
}

/** @param {string} root */
export function embedLua(root) {
  const folder = join(root, 'src', 'calls', 'store', 'lua');
  const names = readdirSync(folder)
    .filter((name) => name.endsWith('.lua'))
    .sort();
  const entries = names.map((name) => {
    const source = expand(folder, join(folder, name), new Set())
      .split('\n')
      .map((line) => line.replace(/^\s*--.*$/, '').trimEnd())
      .filter((line) => line !== '')
      .join('\n');
    const key = basename(name, '.lua').replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
    return `  ${key}: ${JSON.stringify(source)},`;
  });
  const target = join(root, 'src', 'calls', 'store', 'scripts.generated.ts');
  const text = `export const scripts = {\n${entries.join('\n')}\n} as const;\n`;
  mkdirSync(dirname(target), { recursive: true });
  if (!existsSync(target) || readFileSync(target, 'utf8') !== text) writeFileSync(target, text);
}
