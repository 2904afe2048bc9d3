// Turns src/calls/store/lua/*.lua into one TypeScript module, so that nothing is read from disk at run time.
// - `--#include a b` is replaced by lua/lib/a.lua and lua/lib/b.lua, each once per script. What an indented include
//   defines exists only in its block, so it may be included again elsewhere. Where lib has no such file, the script of that
//   name is included: explain.lua runs allocate.lua.
// - `Key.pod_calls(pod)` is replaced by the key of that name in key-table.mjs: `P .. 'pod:calls:' .. pod`. A function or a
//   table lookup instead of the concatenation would cost time in every script.
// - Comments are dropped.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { keyTable } from '../src/calls/store/key-table.mjs';

/** @param {string} name */
const camelCase = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());

/**
 * @param {string} folder
 * @param {string} file
 * @param {Set<string>} included
 * @returns {string}
 */
function includeParts(folder, file, included) {
  return readFileSync(join(folder, file), 'utf8')
    .split('\n')
    .map((line) => {
      const [, indent, names] = /^(\s*)--#include ([\w ]+)$/.exec(line) ?? [];
      if (names === undefined) return line;
      const known = indent === '' ? included : new Set(included);
      const include = (/** @type {string} */ name) => {
        if (known.has(name)) return '';
        known.add(name);
        const part = join('lib', `${name}.lua`);
        return includeParts(folder, existsSync(join(folder, part)) ? part : `${name}.lua`, known);
      };
      return names.split(' ').map(include).join('\n');
    })
    .join('\n');
}

/** A name, a field, an element, a call, or an expression in parentheses: what `..` binds as a whole. */
const operand = /^(?:[\w.]+(?:\[[^\]]+\])*|[\w.]*\([^()]*\))$/;

/**
 * @param {string} text
 * @param {string} file
 */
export function expandKeys(text, file) {
  return text.replace(/\bKey\.(\w+)(?:\(((?:[^()]|\([^()]*\))*)\))?/g, (reference, name, value) => {
    const key = /** @type {Record<string, { pattern: string } | undefined>} */ (keyTable)[camelCase(name)];
    const [before, parameter, after] = key?.pattern.split(/[{}]/) ?? [];
    if (before === undefined || (parameter === undefined) !== (value === undefined))
      throw new Error(`${file}: ${reference} does not match a key of key-table.mjs`);
    if (value !== undefined && !operand.test(value))
      throw new Error(`${file}: the value in ${reference} needs parentheses or a name`);
    return ['P', before && `'${before}'`, value, after && `'${after}'`].filter(Boolean).join(' .. ');
  });
}

/** @param {string} root */
export function embedLua(root) {
  const folder = join(root, 'src', 'calls', 'store', 'lua');
  const names = readdirSync(folder)
    .filter((name) => name.endsWith('.lua'))
    .sort();
  const entries = names.map((name) => {
    const code = includeParts(folder, name, new Set())
      .split('\n')
      .map((line) => line.replace(/^\s*--.*$/, '').trimEnd())
      .filter((line) => line !== '')
      .join('\n');
    return `  ${camelCase(basename(name, '.lua'))}: ${JSON.stringify(expandKeys(code, name))},`;
  });
  const target = join(root, 'src', 'calls', 'store', 'scripts.generated.ts');
  const text = `export const scripts = {\n${entries.join('\n')}\n} as const;\n`;
  if (!existsSync(target) || readFileSync(target, 'utf8') !== text) writeFileSync(target, text);
}
