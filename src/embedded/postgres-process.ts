/**
 * Runs a PostgreSQL server as a child of this process: `initdb`, start, stop.
 *
 * The server never outlives this process. It is a direct child, so that its end is noticed at once, and alone in its
 * session, so that Ctrl-C reaches only this process, which needs the server until it has finished. A small shell (the
 * guard) reads a pipe that breaks when this process dies, even by SIGKILL: it then stops the server and removes temporary
 * data. Without a shell (Windows, some images) only the exit handler does that, and a SIGKILL leaves the server running;
 * see `clearLeftover`.
 *
 * Its environment is empty: another user's process must not see our secrets.
 */
import { type ChildProcess, execFile, type SpawnOptions, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chownSync, existsSync } from 'node:fs';
import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { type Clock, within } from '../clock.js';
import { ConfigError } from '../errors.js';
import type { ServerUser } from './postgres-user.js';

/** In the data folder, for the next start. */
export const passwordFile = 'smart-router.password';

/** Enough of the log to explain a failed start. */
const linesKept = 20;

function options(user: ServerUser | undefined): SpawnOptions {
  return {
    // PostgreSQL requires a working folder that its user can enter.
    cwd: process.platform === 'win32' ? undefined : '/',
    env: { LC_ALL: 'C', PATH: '/usr/bin:/bin' },
    ...(user === undefined ? {} : { uid: user.uid, gid: user.gid }),
  };
}

// ---- creating ----

export interface NewCluster {
  readonly bin: string;
  /** The parent of `data`; must exist. */
  readonly folder: string;
  readonly user: ServerUser | undefined;
  /** Additional arguments of `initdb`. */
  readonly initdb?: readonly string[];
}

/** Creates `data` with a random password. Renamed when complete, so that an interrupted start leaves no partial folder. */
export async function createCluster({ bin, folder, user, initdb = [] }: NewCluster): Promise<void> {
  const draft = await mkdtemp(join(folder, 'new-'));
  const [data, password] = [join(draft, 'data'), join(draft, 'password')];
  try {
    await writeFile(password, randomBytes(24).toString('hex'), { mode: 0o600 });
    if (user !== undefined) for (const path of [draft, password]) chownSync(path, user.uid, user.gid);
    const child = spawn(
      join(bin, 'initdb'),
      [
        ...['--pgdata', data, '--username', 'postgres', '--pwfile', password, '--auth', 'scram-sha-256'],
        ...['--encoding', 'UTF8', '--locale', 'C', '--no-instructions', ...initdb],
      ],
      // In a process group of its own, so that Ctrl-C does not reach it: the router finishes its start, then stops.
      { ...options(user), stdio: ['ignore', 'pipe', 'pipe'], detached: true },
    );
    running.add(child);
    const lines = linesOf(child);
    const end = await ended(child).finally(() => running.delete(child));
    if (end !== 'code 0') throw new Error(`initdb ended with ${end}: ${lines.join('\n')}`);
    await rename(password, join(data, passwordFile));
    await rename(data, join(folder, 'data'));
  } catch (error) {
    // Another process was faster: use its data; the server's own lock decides between the two.
    if (!existsSync(join(folder, 'data'))) throw error;
  } finally {
    await removeDraft(draft);
  }
}

/** Best effort: another start may be writing or removing there; the next start removes the rest. */
export async function removeDraft(draft: string): Promise<void> {
  await rm(draft, { recursive: true, force: true, maxRetries: 5 }).catch(() => undefined);
}

// ---- running ----

export interface ServerOptions {
  readonly bin: string;
  readonly data: string;
  readonly port: number;
  readonly user: ServerUser | undefined;
  readonly clock: Clock;
  /** Override postgresql.conf. */
  readonly settings?: Readonly<Record<string, string | number>>;
  readonly log?: ((line: string) => void) | undefined;
  /** Gets the server's process as soon as it exists. */
  readonly guard?: Guard | undefined;
}

export type Server = Awaited<ReturnType<typeof startServer>>;

const startLimitMs = 60_000;
const stopLimitMs = 10_000;

/** Rejects with the last lines of the server's log if it does not start. */
export async function startServer(given: ServerOptions) {
  const { bin, data, port, user, clock, guard } = given;
  const settings = {
    listen_addresses: '127.0.0.1',
    port,
    unix_socket_directories: '',
    // Names the router, for operators and for `clearLeftover`.
    cluster_name: `smart-router-${process.pid}`,
    timezone: 'UTC',
    // Keeps statements and rows out of the log.
    log_min_error_statement: 'panic',
    log_error_verbosity: 'terse',
    log_line_prefix: '',
    logging_collector: 'off',
    ...given.settings,
  };
  const child = spawn(
    join(bin, 'postgres'),
    ['-D', data, ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])],
    { ...options(user), stdio: ['ignore', 'ignore', 'pipe'], detached: true },
  );
  running.add(child);
  if (child.pid !== undefined) guard?.watch(child.pid, join(data, 'postmaster.pid'));
  let onReady = () => {};
  const ready = new Promise<undefined>((resolve) => {
    onReady = () => resolve(undefined);
  });
  const lines = linesOf(child, (line) => {
    if (line.includes('database system is ready to accept connections')) onReady();
    given.log?.(line);
  });
  const end = ended(child).then((how) => {
    running.delete(child);
    guard?.forget();
    return `${how}: ${lines.join('\n')}`;
  });
  const stop = () => endServer(child, end, ['SIGINT', 'SIGQUIT', 'SIGKILL'], clock);
  const started = Promise.race([ready, end.then((how) => `ended with ${how}`)]);
  const late = () => `not ready after ${startLimitMs / 1000} s: ${lines.join('\n')}`;
  const failure = await within(clock, startLimitMs, started, late);
  if (failure !== undefined) {
    await stop();
    throw new Error(failure);
  }
  // The server must not keep this process alive.
  child.unref();
  (child.stderr as { unref?: () => void } | null)?.unref?.();
  return {
    pid: child.pid ?? 0,
    /** How it ended, with the last lines of its log. */
    ended: end,
    /** Fast shutdown: aborts running statements and writes committed data. May be called again. */
    stop,
    /** Ends it like a crash. */
    crash: () => endServer(child, end, ['SIGQUIT', 'SIGKILL'], clock),
  };
}

/** Sends each signal if the previous one had no effect in time. */
async function endServer(
  child: ChildProcess,
  end: Promise<unknown>,
  signals: readonly NodeJS.Signals[],
  clock: Clock,
): Promise<void> {
  child.ref();
  for (const signal of signals) {
    if (!running.has(child)) return;
    child.kill(signal);
    await within(clock, stopLimitMs, end, () => {});
  }
  await end;
}

const running = new Set<ChildProcess>();

process.on('exit', () => {
  for (const child of running) child.kill('SIGINT');
});

// ---- the guard ----

export interface Guard {
  /** Watches the server's process. The server removes `lockFile` when it ends. */
  watch(pid: number, lockFile: string): void;
  /** The server has ended. */
  forget(): void;
  /** Resolves when the guard has ended and has removed temporary data. */
  end(): Promise<void>;
}

/**
 * The last line on the pipe names the process to stop when the pipe breaks; harder signals follow after a timeout. A
 * process without its lock file counts as ended, too: it may be a zombie that is never reaped.
 */
const guardScript = `
pid=
while read -r first rest; do pid=$first lock=$rest; done
if [ -n "$pid" ] && kill -INT "$pid"; then
  tries=0
  while kill -0 "$pid" && [ -e "$lock" ]; do
    tries=$((tries + 1))
    [ $tries = ${stopLimitMs / 100} ] && kill -QUIT "$pid"
    [ $tries = ${(2 * stopLimitMs) / 100} ] && kill -KILL "$pid" && break
    sleep 0.1
  done
fi
[ -z "$1" ] || rm -rf -- "$1"
`;

/** The guard removes `temporary` when it ends, after the server. */
export function startGuard(user: ServerUser | undefined, temporary: string | undefined): Guard {
  if (process.platform === 'win32') return unguarded(temporary);
  const child = spawn('/bin/sh', ['-c', guardScript, 'smart-router-guard', temporary ?? ''], {
    ...options(user),
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  });
  const gone = ended(child);
  const { stdin } = child;
  // The guard itself may be killed; the exit handler remains.
  stdin?.on('error', () => {});
  child.unref();
  (stdin as { unref?: () => void } | null)?.unref?.();
  return {
    watch: (pid, lockFile) => stdin?.write(`${pid} ${lockFile}\n`),
    forget: () => stdin?.write('\n'),
    async end() {
      child.ref();
      stdin?.end();
      await gone;
      await unguarded(temporary).end();
    },
  };
}

function unguarded(temporary: string | undefined): Guard {
  return {
    watch: () => {},
    forget: () => {},
    end: async () => {
      // Windows frees files some time after the end of the process that had them open.
      if (temporary !== undefined) await rm(temporary, { recursive: true, force: true, maxRetries: 10 });
    },
  };
}

// ---- children ----

/** Resolves with `code 1`, `SIGKILL`, or why the start failed, when all output has been read. */
function ended(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.on('error', (error) => {
      // Also emitted for a signal that could not be sent, which does not mean that the process has ended.
      if (child.pid === undefined) resolve(error.message);
    });
    child.once('close', (code, signal) => resolve(signal ?? `code ${code}`));
  });
}

/** Passes the lines of a child on. Returns a list that always has the last ones. */
function linesOf(child: ChildProcess, onLine: (line: string) => void = () => {}): readonly string[] {
  const last: string[] = [];
  for (const input of [child.stdout, child.stderr]) {
    if (input === null) continue;
    createInterface({ input }).on('line', (line) => {
      last.push(line);
      if (last.length > linesKept) last.shift();
      onLine(line);
    });
  }
  return last;
}

// ---- leftovers ----

const endLimitMs = 15_000;

/**
 * Clears a kept data folder before a start. It may hold the server of a live router, the server of a killed router (whose
 * guard was killed, too), or the lock file of a server that has ended.
 *
 * A server belongs to the router that is its parent, and carries that router's process id in its arguments. While both
 * agree the router lives, and the folder is rejected; when the router has died, the system has given the server another
 * parent. Process ids are reused, quickly after the restart of a container: so only a process whose arguments name this
 * folder is ended.
 */
export async function clearLeftover(data: string, log: (line: string) => void, clock: Clock): Promise<void> {
  const lockFile = join(data, 'postmaster.pid');
  const pid = Number((await readFile(lockFile, 'utf8').catch(() => '')).split('\n')[0]);
  if (!(pid > 0)) return;
  const found = await lookAt(pid);
  // Ended, or hidden from this user: PostgreSQL's own check of its lock decides.
  if (found === undefined) return;
  if (!found.command.includes(data)) {
    log(`removing the stale lock of a PostgreSQL server from ${data}: process ${pid} is another program now`);
    await rm(lockFile, { force: true });
    return;
  }
  if (found.command.includes(`cluster_name=smart-router-${found.parent}`)) {
    throw new ConfigError([
      `The embedded PostgreSQL cannot use ${data}: process ${found.parent} uses it. Stop that process, or choose another folder.`,
    ]);
  }
  log(`stopping an orphaned PostgreSQL server (process ${pid}) in ${data} before the start`);
  await end(pid, clock);
}

async function end(pid: number, clock: Clock): Promise<void> {
  process.kill(pid, 'SIGINT');
  const deadline = clock.monotonic() + endLimitMs;
  while ((await lookAt(pid)) !== undefined) {
    if (clock.monotonic() > deadline) {
      throw new ConfigError([`An orphaned PostgreSQL server (process ${pid}) does not stop: kill it.`]);
    }
    await clock.sleep(20);
  }
}

interface Found {
  parent: number;
  /** The arguments, each between two NULs. */
  command: string[];
}

/** Undefined: no such process, a zombie, or hidden from this user. */
async function lookAt(pid: number): Promise<Found | undefined> {
  try {
    if (existsSync('/proc/self/stat')) {
      const [command, stat] = await Promise.all(
        ['cmdline', 'stat'].map((file) => readFile(`/proc/${pid}/${file}`, 'utf8')),
      );
      // The process name before it may hold spaces and brackets.
      const parent = Number((stat ?? '').replace(/^.*\) . /s, '').split(' ')[0]);
      return command ? { parent, command: command.split('\0') } : undefined;
    }
    const { stdout } = await promisify(execFile)('ps', ['-o', 'ppid=,args=', '-ww', '-p', String(pid)]);
    const [, parent, args = ''] = /^\s*(\d+)\s+(.*)$/.exec(stdout) ?? [];
    return parent === undefined ? undefined : { parent: Number(parent), command: args.split(' ') };
  } catch {
    return undefined;
  }
}
