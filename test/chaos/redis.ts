/**
 * The store of the fleet, as processes that can be killed: one server with an append-only file, or a master and a replica
 * with a Sentinel.
 *
 * `appendfsync always`: with `everysec` Redis may put off its write while an fsync runs, and still replies; a kill
 * would then lose acknowledged writes, and nothing could be guaranteed. The failovers of the Sentinel do lose writes: the
 * replication is asynchronous.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { findOnPath } from '../support/engines.js';
import { freePorts } from '../support/ports.js';
import { until } from '../support/until.js';
import { Child } from './child.js';

export interface Folders {
  logs: string;
  /** In memory where there is room: every write is flushed. */
  data: string;
}

export class RedisServer {
  #child: Child | undefined;

  constructor(
    readonly name: string,
    readonly port: number,
    private readonly folders: Folders,
    private readonly args: readonly string[],
  ) {
    mkdirSync(join(folders.data, name));
  }

  get isRunning(): boolean {
    return this.#child?.isRunning === true;
  }

  /** Resolves when it answers, its data loaded. */
  async start(more: readonly string[] = []): Promise<void> {
    const program = findOnPath('redis-server', 'valkey-server');
    if (program === undefined) throw new Error('redis-server is not on PATH');
    this.#child = new Child({
      command: [
        ...[program, '--port', String(this.port), '--bind', '127.0.0.1', '--save', ''],
        ...['--dir', join(this.folders.data, this.name), ...this.args, ...more],
      ],
      logFile: join(this.folders.logs, `${this.name}.log`),
    });
    const client = quiet(new Redis(this.port, '127.0.0.1', { maxRetriesPerRequest: null }));
    try {
      await until(async () => (await client.ping()) === 'PONG', `${this.name} answers`, 30_000);
    } finally {
      client.disconnect();
    }
  }

  async kill(): Promise<void> {
    await this.#child?.end();
  }

  pause(): void {
    this.#child?.pause();
  }

  resume(): void {
    this.#child?.resume();
  }
}

export interface Store {
  /** Where routers find it, given the port of the proxy in front of it. */
  urlFor(proxyPort: number | undefined): string;
  /** The server that proxies lead to; undefined where a Sentinel names the address. */
  readonly port: number | undefined;
  /** For looking into it: a connection of our own, past every proxy. */
  readonly redis: Redis;
  readonly servers: readonly RedisServer[];
  /** Kills the master and resolves when there is another one. Only with a Sentinel. */
  failOver?(onKilled: () => void): Promise<RedisServer>;
  /** Restarts a killed server; with a Sentinel as a replica of the current master. */
  rejoin(server: RedisServer): Promise<void>;
  stop(): Promise<void>;
}

export async function openSingle(folders: Folders): Promise<Store> {
  const [port = 0] = await freePorts(1);
  const server = new RedisServer('redis', port, folders, ['--appendonly', 'yes', '--appendfsync', 'always']);
  await server.start();
  const redis = quiet(new Redis(port, '127.0.0.1', { maxRetriesPerRequest: null }));
  return {
    port,
    redis,
    servers: [server],
    urlFor: (proxyPort) => `redis://127.0.0.1:${proxyPort ?? port}`,
    rejoin: (one) => one.start(),
    async stop() {
      redis.disconnect();
      server.resume();
      await server.kill();
    },
  };
}

const group = 'mymaster';

export async function openSentinel(folders: Folders): Promise<Store> {
  const [first = 0, second = 0, watcher = 0] = await freePorts(3);
  const args = ['--appendonly', 'no', '--repl-diskless-sync', 'yes', '--repl-diskless-sync-delay', '0'];
  const servers = [
    new RedisServer('redis-a', first, folders, args),
    new RedisServer('redis-b', second, folders, args),
  ];
  await servers[0]?.start();
  await servers[1]?.start(['--replicaof', '127.0.0.1', String(first)]);
  const file = join(folders.data, 'sentinel.conf');
  writeFileSync(
    file,
    [
      ...[`port ${watcher}`, 'bind 127.0.0.1', `dir ${folders.data}`],
      `sentinel monitor ${group} 127.0.0.1 ${first} 1`,
      `sentinel down-after-milliseconds ${group} 1000`,
      `sentinel failover-timeout ${group} 3000`,
      '',
    ].join('\n'),
  );
  const program = findOnPath('redis-server', 'valkey-server') ?? 'redis-server';
  const sentinel = new Child({
    command: [program, file, '--sentinel'],
    logFile: join(folders.logs, 'sentinel.log'),
  });
  const asked = quiet(new Redis(watcher, '127.0.0.1', { maxRetriesPerRequest: null }));
  const redis = quiet(
    new Redis({
      sentinels: [{ host: '127.0.0.1', port: watcher }],
      name: group,
      maxRetriesPerRequest: null,
      sentinelRetryStrategy: () => 100,
    }),
  );
  const masterPort = async () =>
    Number(((await asked.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', group)) as string[])[1]);
  const untilReplicated = () =>
    until(
      async () => {
        const replicas = (await asked.call('SENTINEL', 'REPLICAS', group)) as string[][];
        const of = (fields: string[], name: string) => fields[fields.indexOf(name) + 1];
        return replicas.some(
          (fields) =>
            of(fields, 'master-link-status') === 'ok' &&
            of(fields, 'flags') === 'slave' &&
            Number(of(fields, 'port')) !== 0,
        );
      },
      'the replica has caught up',
      30_000,
    );
  await untilReplicated();
  return {
    port: undefined,
    redis,
    servers,
    urlFor: () => `redis+sentinel://127.0.0.1:${watcher}/${group}`,
    async failOver(onKilled) {
      const port = await masterPort();
      const master = servers.find((server) => server.port === port);
      if (!master) throw new Error(`none of our servers is the master at ${port}`);
      await master.kill();
      onKilled();
      await until(
        async () => {
          const now = await masterPort();
          if (now === port) return false;
          const client = quiet(new Redis(now, '127.0.0.1'));
          const role = await client.role().finally(() => client.disconnect());
          return role[0] === 'master';
        },
        'another master is there',
        30_000,
      );
      return master;
    },
    async rejoin(server) {
      await server.start(['--replicaof', '127.0.0.1', String(await masterPort())]);
      await untilReplicated();
    },
    async stop() {
      redis.disconnect();
      asked.disconnect();
      await sentinel.end();
      await Promise.all(servers.map((server) => server.kill()));
    },
  };
}

/** ioredis prints errors without a listener, and here every server is killed now and then. */
export function quiet(client: Redis): Redis {
  client.on('error', () => {});
  return client;
}
