/**
 * Chooses the user of the PostgreSQL server. PostgreSQL does not run as root, so under root it gets another user: the owner
 * of its data, else `postgres`, else `nobody`. No user is created. Any other user runs the server under its own name.
 *
 * The server's user must be able to reach its files: `reachable` checks owner and mode of every folder on the path. It
 * ignores access lists; with those, the server's own error appears.
 */
import { execFile } from 'node:child_process';
import { statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import { ConfigError } from '../errors.js';

export interface ServerUser {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

/** Undefined: the user of this process. `data` is the data folder, which may not exist yet. */
export async function serverUser(data?: string): Promise<ServerUser | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const owner = data === undefined ? undefined : statSync(data, { throwIfNoEntry: false });
  if (owner !== undefined && owner.uid !== 0) {
    return { name: `user ${owner.uid}`, uid: owner.uid, gid: owner.gid };
  }
  const found = (await userNamed('postgres')) ?? (await userNamed('nobody'));
  if (found === undefined) {
    throw new ConfigError([
      'The embedded PostgreSQL cannot run as root, and neither the user postgres nor nobody exists. Start Smart Router as another user, or set DATABASE_URL to a PostgreSQL server.',
    ]);
  }
  return found;
}

async function userNamed(name: string): Promise<ServerUser | undefined> {
  const id = async (flag: string) => Number((await promisify(execFile)('id', [flag, name])).stdout);
  try {
    const [uid, gid] = await Promise.all([id('-u'), id('-g')]);
    return { name, uid, gid };
  } catch {
    return undefined;
  }
}

/** Whether the user may enter every folder on the path. */
export function reachable(path: string, user: ServerUser | undefined): boolean {
  if (user === undefined) return true;
  for (let at = path; ; at = dirname(at)) {
    const { uid, gid, mode } = statSync(at);
    const shift = uid === user.uid ? 6 : gid === user.gid ? 3 : 0;
    if (((mode >> shift) & 1) === 0) return false;
    if (at === dirname(at)) return true;
  }
}

/** The system's temporary folder, or a standard one if the user cannot reach it. */
export function temporaryRoot(user: ServerUser | undefined): string {
  const standard = process.platform === 'win32' ? [] : ['/tmp', '/var/tmp'];
  const found = [tmpdir(), ...standard].find(
    (folder) => statSync(folder, { throwIfNoEntry: false }) !== undefined && reachable(folder, user),
  );
  if (found === undefined) {
    throw new ConfigError([
      `The embedded PostgreSQL runs as ${user?.name}, which cannot reach any folder for temporary files. Do not start Smart Router as root.`,
    ]);
  }
  return found;
}
