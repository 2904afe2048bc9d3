// Turns every src/**/migrations/*.sql and src/**/queries/*.sql into one TypeScript module beside its folder, so that
// nothing is read from disk at run time. Migrations keep every character and the order of their numbers.
// Queries have names and lose their comment lines, which would be sent with every call. The files of deploy/postgres become a
// module too: the command line prints them.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** @type {Record<string, (folder: string, names: string[]) => string>} */
const kinds = { migrations: embedMigrations, queries: embedQueries };

/** @param {string} root */
export function embedSql(root) {
  for (const folder of sqlFolders(join(root, 'src'))) {
    const names = readdirSync(folder)
      .filter((name) => name.endsWith('.sql'))
      .sort();
    const kind = basename(folder);
    const text = kinds[kind]?.(folder, names) ?? '';
    const target = join(dirname(folder), `${kind}.generated.ts`);
    write(target, text);
  }
  const deploy = join(root, 'deploy', 'postgres');
  if (existsSync(deploy)) write(join(root, 'src', 'cli', 'deploy-postgres.generated.ts'), embedFiles(deploy));
}

/**
 * Writes only a changed text, so that watchers do not restart.
 * @param {string} target
 * @param {string} text
 */
function write(target, text) {
  if (!existsSync(target) || readFileSync(target, 'utf8') !== text) writeFileSync(target, text);
}

/** @param {string} folder */
function embedFiles(folder) {
  const entries = readdirSync(folder)
    .sort()
    .map((name) => `  ${quote(name)}: ${quote(readFileSync(join(folder, name), 'utf8'))},`);
  return `export const files = {\n${entries.join('\n')}\n} as const;\n`;
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
    return `  { name: ${quote(basename(name, '.sql'))}, sql: ${quote(sql)} },`;
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
    const key = basename(name, '.sql').replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
    return `  ${key}: ${quote(sql)},`;
  });
  return `export const queries = {\n${entries.join('\n')}\n} as const;\n`;
}

/** @param {string} text */
function quote(text) {
  return JSON.stringify(text);
}
