/**
 * A real PgBouncer in transaction mode in front of a test's database: a connection keeps its server only for one
 * transaction, so session state (LISTEN, SET, session locks, prepared statements) is lost.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { chownSync, existsSync, mkdtempSync, realpathSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startGuard } from '../../src/embedded/postgres-process.js';
import { type ServerUser, serverUser, temporaryRoot } from '../../src/embedded/postgres-user.js';
import { findOnPath, setupReason } from './engines.js';
import { onOwnPort } from './ports.js';
import type { SuitePostgres } from './postgres.js';

/** Debian's folder is not on every PATH. */
const program = () => findOnPath('pgbouncer') ?? ['/usr/sbin/pgbouncer'].find(existsSync);

export function pgBouncerAvailable(): true | string {
  if (process.platform === 'win32') return 'PgBouncer is not started on Windows';
  return program() !== undefined || `pgbouncer is not installed${setupReason('pgbouncer')}`;
}

export interface PgBouncer {
  /** The test's database, through PgBouncer. */
  readonly url: string;
  /** It ends with the test anyway. */
  stop(): Promise<void>;
}

export interface PgBouncerOptions {
  /** Connections to the server that its clients share. */
  poolSize?: number;
}

/** Only inside a test; ended after it, before the server's own pools. */
export async function pgBouncer(postgres: SuitePostgres, options: PgBouncerOptions = {}): Promise<PgBouncer> {
  const user = await serverUser();
  const folder = mkdtempSync(join(realpathSync(temporaryRoot(user)), 'smart-router-test-'));
  if (user !== undefined) chownSync(folder, user.uid, user.gid);
  const guard = startGuard(user, folder);
  const url = new URL(postgres.url);
  const running = await onOwnPort((port) => {
    url.port = String(port);
    return start(writeSettings(folder, new URL(postgres.url), url.port, options.poolSize ?? 10), user);
  });
  if (running.pid !== undefined) guard.watch(running.pid, pidFile(folder));
  const stop = async () => {
    if (running.exitCode === null && running.signalCode === null) {
      const ended = new Promise((resolve) => running.once('exit', resolve));
      running.kill('SIGTERM');
      await ended;
    }
    guard.forget();
    await guard.end();
  };
  postgres.onEnd(stop);
  return { url: url.href, stop };
}

const pidFile = (folder: string) => join(folder, 'pid');

function writeSettings(folder: string, server: URL, port: string, poolSize: number): string {
  const users = join(folder, 'users.txt');
  const settings = join(folder, 'pgbouncer.ini');
  writeFileSync(users, `"${server.username}" "${server.password}"\n`);
  writeFileSync(
    settings,
    [
      '[databases]',
      `* = host=127.0.0.1 port=${server.port}`,
      '[pgbouncer]',
      'listen_addr = 127.0.0.1',
      `listen_port = ${port}`,
      'unix_socket_dir =',
      `pidfile = ${pidFile(folder)}`,
      'pool_mode = transaction',
      `default_pool_size = ${poolSize}`,
      'max_client_conn = 500',
      'auth_type = scram-sha-256',
      `auth_file = ${users}`,
      // Seconds until it retries an unreachable server.
      'server_login_retry = 1',
      '',
    ].join('\n'),
  );
  return settings;
}

function start(settings: string, user: ServerUser | undefined): Promise<ChildProcess> {
  const child = spawn(program() ?? 'pgbouncer', [settings], {
    cwd: '/',
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
    ...(user === undefined ? {} : { uid: user.uid, gid: user.gid }),
  });
  return new Promise((resolve, reject) => {
    let output = '';
    child.stderr.on('data', (chunk: Buffer) => {
      // Only the beginning of the log matters.
      if (output.length < 100_000) output += chunk.toString();
      if (/process up/.test(output)) resolve(child);
    });
    child.once('error', reject);
    child.once('exit', (code, signal) =>
      reject(new Error(`pgbouncer ended with ${code ?? signal} before it was ready:\n${output}`)),
    );
  });
}
