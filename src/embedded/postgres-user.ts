/**
 * Whom PostgreSQL runs as. It refuses to run as root, so under root it gets another user: the one its data already
 * belongs to, else `postgres`, else `nobody`. No user is ever created; anybody but root runs it as himself.
 *
 * A process of another user must be able to reach its files: `reachable` tells by owner and mode of every folder on
 * the way. It knows nothing of access lists; who relies on those is told by the server's own error.
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

/** Undefined: as ourselves. `data` is the data folder, which may not exist yet. */
export async function serverUser(data?: string): Promise<ServerUser | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const owner = data === undefined ? undefined : statSync(data, { throwIfNoEntry: false });
  if (owner !== undefined && owner.uid !== 0) {
    return { name: `user ${owner.uid}`, uid: owner.uid, gid: owner.gid };
  }
  const found = (await userNamed('postgres')) ?? (await userNamed('nobody'));
  if (found === undefined) {
    throw new ConfigError([
      'The embedded PostgreSQL cannot run as root, and there is neither a user postgres nor nobody: start Smart Router as another user, or set DATABASE_URL to a PostgreSQL server.',
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

/** Whether that user may enter every folder on the way to this file or folder. */
export function reachable(path: string, user: ServerUser | undefined): boolean {
  if (user === undefined) return true;
  for (let at = path; ; at = dirname(at)) {
    const { uid, gid, mode } = statSync(at);
    const shift = uid === user.uid ? 6 : gid === user.gid ? 3 : 0;
    if (((mode >> shift) & 1) === 0) return false;
    if (at === dirname(at)) return true;
  }
}

/** The system's folder for what is temporary, or the usual one if that user cannot reach it. */
export function temporaryRoot(user: ServerUser | undefined): string {
  const usual = process.platform === 'win32' ? [] : ['/tmp', '/var/tmp'];
  const found = [tmpdir(), ...usual].find(
    (folder) => statSync(folder, { throwIfNoEntry: false }) !== undefined && reachable(folder, user),
  );
  if (found === undefined) {
    throw new ConfigError([
      `The embedded PostgreSQL runs as ${user?.name}, who can reach no folder for temporary files: start Smart Router as another user than root.`,
    ]);
  }
  return found;
}
