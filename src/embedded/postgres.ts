/**
 * The embedded database: a real PostgreSQL as a child process, reached over TCP on loopback with a random password.
 *
 * Without a folder it is temporary: its data lies below the system's temporary folder, is not flushed to disk, and is
 * removed at the end. With a folder the data is kept in its subfolder `data`, with PostgreSQL's usual durability; the next
 * start uses the same password and a new port. A second router on the same folder is rejected.
 *
 * The server ends with this process, even after SIGKILL; leftovers in a folder are cleared first (postgres-process.ts).
 * Under root it runs as another user (postgres-user.ts). If the server dies, every connection
 * breaks and `onCrash` is called once; nothing restarts it here.
 */
import { once } from 'node:events';
import { chownSync, existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, realpath } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Clock, systemClock } from '../clock.js';
import { ConfigError, messageOf } from '../errors.js';
import { embeddedBinaries } from './postgres-binaries.js';
import {
  clearLeftover,
  createCluster,
  type Guard,
  passwordFile,
  removeDraft,
  type Server,
  startGuard,
  startServer,
} from './postgres-process.js';
import { reachable, serverUser, temporaryRoot } from './postgres-user.js';

export interface EmbeddedPostgresOptions {
  /** Keeps the data there; created if missing. Without it the data is temporary. */
  folder?: string;
  /** Called with every line of the server's log and with leftovers in the folder. Never gets the password. */
  log?: (line: string) => void;
  /** Called once if the server ends without `stop()`. */
  onCrash?: (error: Error) => void;
  clock?: Clock;
}

export interface EmbeddedPostgres {
  /** With the password: not for logs. */
  url: string;
  port: number;
  /** The server's process. */
  pid: number;
  /** Resolves when the server has ended and, if temporary, its data is removed. May be called again. */
  stop(): Promise<void>;
}

/**
 * For temporary data. With these only a crash of the whole machine loses data, not one of the server. Shared memory lies
 * beside the data, so that a killed server leaves none behind.
 */
export const temporarySettings = {
  fsync: 'off',
  full_page_writes: 'off',
  ...(process.platform === 'win32' ? {} : { dynamic_shared_memory_type: 'mmap' }),
};

/** Classifies the letters of all languages and sorts by code point; independent of the machine's locales. */
export const builtinLocale = ['--locale-provider', 'builtin', '--builtin-locale', 'C.UTF-8'] as const;

export async function startEmbeddedPostgres(
  options: EmbeddedPostgresOptions = {},
): Promise<EmbeddedPostgres> {
  const { log = () => {}, onCrash, clock = systemClock } = options;
  const place = await prepare(options.folder).catch((error: unknown) => {
    throw startError(error, options.folder ?? tmpdir());
  });
  const { data, user, binaries, temporary } = place;
  const guard = startGuard(user, temporary);
  try {
    if (temporary === undefined) await clearLeftover(data, log, clock);
    if (!existsSync(data)) await create(place);
    const settings = temporary === undefined ? {} : temporarySettings;
    const server = await onFreePort((port) =>
      startServer({ bin: binaries.bin, data, port, user, clock, settings, log, guard }),
    );
    if (temporary === undefined) await removeDrafts(place.folder);
    const password = await readFile(join(data, passwordFile), 'utf8');
    const url = `postgres://postgres:${password}@127.0.0.1:${server.port}/postgres`;
    return { url, port: server.port, pid: server.pid, stop: watched(server, guard, data, onCrash) };
  } catch (error) {
    await guard.end();
    throw startError(error, data);
  }
}

// ---- the folder ----

type Place = Awaited<ReturnType<typeof prepare>>;

/** `temporary`: the folder, if it is removed at the end. */
async function prepare(given: string | undefined) {
  if (given === undefined) {
    const user = await serverUser();
    const binaries = await embeddedBinaries(user);
    const folder = await mkdtemp(join(await realpath(temporaryRoot(user)), 'smart-router-postgres-data-'));
    if (user !== undefined) chownSync(folder, user.uid, user.gid);
    return { folder, data: join(folder, 'data'), user, binaries, temporary: folder };
  }
  const folder = await mkdir(given, { recursive: true })
    .then(() => realpath(given))
    .catch((error: Error) => {
      throw new ConfigError([`The embedded PostgreSQL cannot use ${given}: ${error.message}.`]);
    });
  const data = join(folder, 'data');
  const user = await serverUser(data);
  if (!reachable(folder, user)) {
    throw new ConfigError([
      `The embedded PostgreSQL runs as ${user?.name}, because it cannot run as root, and ${user?.name} cannot reach ${folder}. Choose a folder that other users may enter, or start Smart Router as another user.`,
    ]);
  }
  const binaries = await embeddedBinaries(user);
  if (existsSync(data)) await checkData(data, binaries.major);
  return { folder, data, user, binaries, temporary: undefined };
}

async function checkData(data: string, major: string): Promise<void> {
  const refuse = (reason: string) =>
    new ConfigError([`The embedded PostgreSQL cannot use ${data}: ${reason}. Choose another folder.`]);
  if (!existsSync(join(data, passwordFile))) throw refuse('it holds other data');
  const version = (await readFile(join(data, 'PG_VERSION'), 'utf8').catch(() => 'unknown')).trim();
  if (version !== major) throw refuse(`it was written by PostgreSQL ${version}, this is PostgreSQL ${major}`);
}

async function create({ folder, user, binaries, temporary }: Place): Promise<void> {
  const initdb = temporary === undefined ? builtinLocale : [...builtinLocale, '--no-sync'];
  await createCluster({ bin: binaries.bin, folder, user, initdb });
}

/** Removes drafts of killed starts; the server's lock ensures that no other start is running. */
async function removeDrafts(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (name.startsWith('new-')) await removeDraft(join(folder, name));
  }
}

// ---- the port ----

/** PostgreSQL does not accept port 0, and another process may take the port between our check and its start. */
async function onFreePort(start: (port: number) => Promise<Server>): Promise<Server & { port: number }> {
  for (let attempt = 1; ; attempt++) {
    const port = await freePort();
    try {
      return { ...(await start(port)), port };
    } catch (error) {
      if (attempt === 5 || !/Address already in use/i.test(String(error))) throw error;
    }
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await once(server.close(), 'close');
  return port;
}

// ---- the end ----

function watched(server: Server, guard: Guard, data: string, onCrash: ((error: Error) => void) | undefined) {
  let stopped: Promise<void> | undefined;
  server.ended.then((how) => {
    if (stopped !== undefined) return;
    stopped = guard.end();
    onCrash?.(
      noSpace.test(how)
        ? fullDisk(data)
        : new Error(`embedded PostgreSQL stopped: its process ended with ${how}`),
    );
  });
  return () => {
    stopped ??= server.stop().then(() => guard.end());
    return stopped;
  };
}

const noSpace = /No space left on device|ENOSPC|Disk quota exceeded|EDQUOT/i;

function fullDisk(path: string): ConfigError {
  return new ConfigError([
    `The embedded PostgreSQL cannot write to ${path}: no space left on that disk. A new database needs about 60 MB. Free some space, or use another disk (DATABASE_FOLDER for data to keep, TMPDIR for temporary data).`,
  ]);
}

function startError(error: unknown, data: string): Error {
  if (error instanceof ConfigError) return error;
  const message = messageOf(error);
  if (noSpace.test(message)) {
    const { dest, path = data } = error as NodeJS.ErrnoException & { dest?: string };
    return fullDisk(dest ?? path);
  }
  // Two concurrent starts (the lock exists, or is still empty), or a server of another user.
  if (message.includes('lock file "postmaster.pid"')) {
    return new ConfigError([
      `The embedded PostgreSQL cannot use ${data}: another process uses it. Stop that process, or choose another folder.`,
    ]);
  }
  return new Error(`The embedded PostgreSQL did not start: ${message}`);
}
