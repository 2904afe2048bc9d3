/**
 * A PostgreSQL server as a child of this process: made by `initdb`, started, ended.
 *
 * It never survives us. It is started through nothing, so that its end is seen at once; it is alone in its session, so
 * that Ctrl-C reaches us and not the server, which is needed until we have finished. Beside it a small shell waits at a
 * pipe that breaks with us, however we die, even by SIGKILL: it then ends the server and removes what was temporary.
 * Where there is no shell (Windows, some images), the exit handler alone does that, and a SIGKILL leaves the server
 * behind; see postgres-leftover.ts.
 *
 * Its environment is empty: the secrets in ours are not for another user's process.
 */
import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chownSync, existsSync } from 'node:fs';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Clock } from '../clock.js';
import type { ServerUser } from './postgres-user.js';

/** In the data folder, for whoever starts the server there again. */
export const passwordFile = 'smart-router.password';

/** Enough of the log to say why a start failed, and no more. */
const linesKept = 20;

function options(user: ServerUser | undefined): SpawnOptions {
  return {
    // PostgreSQL insists on a working folder that its user can enter.
    cwd: process.platform === 'win32' ? undefined : '/',
    env: { LC_ALL: 'C', PATH: '/usr/bin:/bin' },
    ...(user === undefined ? {} : { uid: user.uid, gid: user.gid }),
  };
}

// ---- making ----

export interface NewCluster {
  readonly bin: string;
  /** Where `data` is made; must exist. */
  readonly folder: string;
  readonly user: ServerUser | undefined;
  /** Arguments of `initdb` beyond the usual. */
  readonly initdb?: readonly string[];
}

/** Makes `data` with a random password; complete before it gets that name, so a start that is cut off leaves none. */
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
      { ...options(user), stdio: ['ignore', 'pipe', 'pipe'] },
    );
    const log = new Log(child);
    const end = await ended(child);
    if (end !== 'code 0') throw new Error(`initdb ended with ${end}: ${log.text()}`);
    await rename(password, join(data, passwordFile));
    await rename(data, join(folder, 'data'));
  } catch (error) {
    // Another process was faster: its data will do, and the server's own lock decides between the two.
    if (!existsSync(join(folder, 'data'))) throw error;
  } finally {
    await removeDraft(draft);
  }
}

/** Another start may be writing or removing there at this moment: what is left then, the next start removes. */
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
  /** Settings of postgresql.conf that win over those in the file. */
  readonly settings?: Readonly<Record<string, string | number>>;
  readonly log?: ((line: string) => void) | undefined;
  /** Told of the server's process as soon as there is one. */
  readonly guard?: Guard | undefined;
}

export interface Server {
  readonly pid: number;
  /** How it ended, with the last lines of its log. */
  readonly ended: Promise<string>;
  /** Ends it in order: running statements are aborted, what was committed is written. May be called again. */
  stop(): Promise<void>;
  /** Ends it as a crash would. */
  crash(): Promise<void>;
}

const startLimitMs = 60_000;
const stopLimitMs = 10_000;

/** Rejects with the server's last lines if it does not come up. */
export async function startServer(given: ServerOptions): Promise<Server> {
  const { bin, data, port, user, clock, guard } = given;
  const settings = {
    listen_addresses: '127.0.0.1',
    port,
    unix_socket_directories: '',
    // Whose it is, for people who look at the processes and for postgres-leftover.ts.
    cluster_name: `smart-router-${process.pid}`,
    timezone: 'UTC',
    // Neither statements nor rows belong in a log.
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
  const log = new Log(child, given.log);
  const end = ended(child).then((how) => {
    running.delete(child);
    guard?.forget();
    return `${how}: ${log.text()}`;
  });
  const stop = () => endServer(child, end, ['SIGINT', 'SIGQUIT', 'SIGKILL'], clock);
  const isReady = log.says('database system is ready to accept connections').then(() => 'ready' as const);
  const waiting = new AbortController();
  const late = clock.sleep(startLimitMs, waiting.signal).then(() => 'late' as const);
  const outcome = await Promise.race([isReady, end, late]);
  waiting.abort();
  if (outcome !== 'ready') {
    await stop();
    if (outcome === 'late') throw new Error(`not ready after ${startLimitMs / 1000} s: ${log.text()}`);
    throw new Error(`ended with ${outcome}`);
  }
  // It serves the process; it is no reason to stay alive.
  child.unref();
  log.unref();
  return {
    pid: child.pid ?? 0,
    ended: end,
    stop,
    crash: () => endServer(child, end, ['SIGQUIT', 'SIGKILL'], clock),
  };
}

/** Each signal gets its time before the next, harder one. */
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
    const waiting = new AbortController();
    await Promise.race([end, clock.sleep(stopLimitMs, waiting.signal)]);
    waiting.abort();
  }
  await end;
}

const running = new Set<ChildProcess>();

process.on('exit', () => {
  for (const child of running) child.kill('SIGINT');
});

// ---- guarding ----

export interface Guard {
  /** The server's process, and a file that the server removes when it ends. */
  watch(pid: number, lockFile: string): void;
  /** There is no server any more. */
  forget(): void;
  /** Resolves when it is gone and has removed what it was to remove. */
  end(): Promise<void>;
}

/**
 * The last line it hears names the process to end when the pipe breaks; one that does not end in time is ended the hard
 * way. A process counts as ended with its lock file too: nobody may be there to collect its remains.
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

/** `temporary` is removed when the guard ends, after the server has. */
export function startGuard(user: ServerUser | undefined, temporary: string | undefined): Guard {
  if (process.platform === 'win32') return unguarded(temporary);
  const child = spawn('/bin/sh', ['-c', guardScript, 'smart-router-guard', temporary ?? ''], {
    ...options(user),
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  });
  const gone = ended(child);
  const { stdin } = child;
  // It may be killed like any other process; the exit handler is still there.
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
      // Windows frees files a moment after the process that had them open.
      if (temporary !== undefined) await rm(temporary, { recursive: true, force: true, maxRetries: 10 });
    },
  };
}

// ---- children ----

/** How it ended: `code 1`, `SIGKILL`, or why it could not be started. All its output has been read by then. */
function ended(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.on('error', (error) => {
      // Also told of a signal that could not be sent, which is no end.
      if (child.pid === undefined) resolve(error.message);
    });
    child.once('close', (code, signal) => resolve(signal ?? `code ${code}`));
  });
}

/** The lines a child writes: handed on, the last ones kept. */
class Log {
  private readonly last: string[] = [];
  private readonly listeners = new Set<(line: string) => void>();

  constructor(
    private readonly child: ChildProcess,
    handOn?: (line: string) => void,
  ) {
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on('line', (line) => {
        this.last.push(line);
        if (this.last.length > linesKept) this.last.shift();
        for (const listener of this.listeners) listener(line);
        handOn?.(line);
      });
    }
  }

  says(text: string): Promise<void> {
    return new Promise((resolve) => {
      const listener = (line: string) => {
        if (!line.includes(text)) return;
        this.listeners.delete(listener);
        resolve();
      };
      this.listeners.add(listener);
    });
  }

  text(): string {
    return this.last.join('\n');
  }

  unref(): void {
    for (const stream of [this.child.stdout, this.child.stderr])
      (stream as { unref?: () => void } | null)?.unref?.();
  }
}
