// Turns Lua and SQL files into TypeScript modules, so that nothing is read from disk at run time.
//
// src/calls/store/lua/*.lua:
// - `--#include a b` is replaced by lua/lib/a.lua and lua/lib/b.lua, each once per script. What an indented include
//   defines exists only in its block, so it may be included again elsewhere. Where lib has no such file, the script of that
//   name is included: explain.lua runs allocate.lua.
// - `Key.pod_calls(pod)` is replaced by the key of that name in key-table.mjs: `P .. 'pod:calls:' .. pod`. A function or a
//   table lookup instead of the concatenation would cost time in every script.
// - Comments are dropped.
//
// src/**/migrations/*.sql and src/**/queries/*.sql, each folder a module beside it. Migrations keep every character and the
// order of their numbers. Queries have names and lose their comment lines, which would be sent with every call. The files of
// deploy/postgres become a module too: the command line prints them.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { keyTable } from '../src/calls/store/key-table.mjs';

/** @param {string} name */
const camelCase = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());

/**
 * The files of a folder, by name.
 * @param {string} folder
 * @param {string} [ending]
 */
const filesOf = (folder, ending = '') =>
  readdirSync(folder)
    .filter((name) => name.endsWith(ending))
    .sort();

/**
 * Writes only a changed text, so that watchers do not restart.
 * @param {string} target
 * @param {string} text
 */
function write(target, text) {
  if (!existsSync(target) || readFileSync(target, 'utf8') !== text) writeFileSync(target, text);
}

/**
 * Returns a module with an object of texts.
 * @param {string} name
 * @param {(readonly [key: string, text: string])[]} texts
 */
const moduleOf = (name, texts) =>
  `export const ${name} = {\n${texts.map(([key, text]) => `  ${key}: ${JSON.stringify(text)},\n`).join('')}} as const;\n`;

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
  const scripts = filesOf(folder, '.lua').map((name) => {
    const code = includeParts(folder, name, new Set())
      .split('\n')
      .map((line) => line.replace(/^\s*--.*$/, '').trimEnd())
      .filter((line) => line !== '')
      .join('\n');
    return /** @type {const} */ ([camelCase(basename(name, '.lua')), expandKeys(code, name)]);
  });
  write(join(root, 'src', 'calls', 'store', 'scripts.generated.ts'), moduleOf('scripts', scripts));
}

/** @type {Record<string, (folder: string, names: string[]) => string>} */
const kinds = { migrations: embedMigrations, queries: embedQueries };

/** @param {string} root */
export function embedSql(root) {
  for (const folder of sqlFolders(join(root, 'src'))) {
    const kind = basename(folder);
    const text = kinds[kind]?.(folder, filesOf(folder, '.sql')) ?? '';
    write(join(dirname(folder), `${kind}.generated.ts`), text);
  }
  const deploy = join(root, 'deploy', 'postgres');
  if (!existsSync(deploy)) return;
  const files = filesOf(deploy).map((name) => {
    const text = readFileSync(join(deploy, name), 'utf8');
    return /** @type {const} */ ([JSON.stringify(name), text]);
  });
  write(join(root, 'src', 'cli', 'deploy-postgres.generated.ts'), moduleOf('files', files));
}

/**
 * @param {string} folder
 * @returns {string[]}
 */
function sqlFolders(folder) {
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .flatMap(({ name }) => (name in kinds ? [join(folder, name)] : sqlFolders(join(folder, name))));
}

/**
 * @param {string} folder
 * @param {string[]} names
 */
function embedMigrations(folder, names) {
  const entries = names.map((name, index) => {
    // A duplicate number or a gap could change the order on another machine.
    const number = String(index + 1).padStart(3, '0');
    if (!name.startsWith(`${number}_`)) {
      throw new Error(`${join(folder, name)}: the name must start with ${number}_, the next number`);
    }
    const sql = readFileSync(join(folder, name), 'utf8');
    return `  { name: ${JSON.stringify(basename(name, '.sql'))}, sql: ${JSON.stringify(sql)} },`;
  });
  return `export const migrations: readonly { name: string; sql: string }[] = [\n${entries.join('\n')}\n];\n`;
}

/**
 * @param {string} folder
 * @param {string[]} names
 */
function embedQueries(folder, names) {
  const entries = names.map((name) => {
    const sql = readFileSync(join(folder, name), 'utf8')
      .split('\n')
      .filter((line) => !/^\s*(--.*)?$/.test(line))
      .join('\n');
    return /** @type {const} */ ([camelCase(basename(name, '.sql')), sql]);
  });
  return moduleOf('queries', entries);
}
