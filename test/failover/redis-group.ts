/**
 * A master and two replicas with three Sentinels. Every server is reached through a proxy of its own, also by the others:
 * it announces the proxy's port. Servers and Sentinels connect from `peerAddress` and routers from 127.0.0.1, so that a
 * proxy can cut a server from its peers and not from the routers.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { Child } from '../chaos/child.js';
import { type Folders, quiet, RedisServer } from '../chaos/redis.js';
import { findOnPath } from '../support/engines.js';
import { freePorts } from '../support/ports.js';
import { openTcpProxy, type TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

const group = 'mymaster';
const peerAddress = '127.0.0.2';
const patienceMs = 60_000;

export class RedisNode {
  constructor(
    readonly server: RedisServer,
    readonly proxy: TcpProxy & { close(): void },
    /** Past the proxy. */
    readonly client: Redis,
  ) {}

  get name(): string {
    return this.server.name;
  }

  replicaOf(master: RedisNode): Promise<void> {
    return this.server.start(['--replicaof', '127.0.0.1', String(master.proxy.port)]);
  }

  cut(): void {
    this.proxy.cutFrom(peerAddress);
  }

  async isMaster(): Promise<boolean> {
    return (await this.client.role())[0] === 'master';
  }
}

export class RedisGroup {
  private constructor(
    readonly nodes: readonly RedisNode[],
    private readonly sentinels: readonly { child: Child; client: Redis; port: number }[],
  ) {}

  static async open(folders: Folders): Promise<RedisGroup> {
    const ports = await freePorts(6);
    const nodes = await Promise.all(
      ports.slice(0, 3).map((port, i) => openNode(`redis-${i}`, port, folders)),
    );
    const [first, ...replicas] = nodes as [RedisNode, ...RedisNode[]];
    await first.server.start();
    for (const replica of replicas) await replica.replicaOf(first);
    const sentinels = ports.slice(3).map((port, i) => openSentinel(i, port, first.proxy.port, folders));
    const opened = new RedisGroup(nodes, sentinels);
    await Promise.all(sentinels.map(({ client }) => opened.#hurry(client)));
    await opened.untilComplete();
    return opened;
  }

  get url(): string {
    return `redis+sentinel://${this.sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')}/${group}`;
  }

  /** The server that the Sentinels name, and that agrees. */
  async master(): Promise<RedisNode | undefined> {
    const named = await Promise.all(this.sentinels.map((sentinel) => this.#named(sentinel.client)));
    const [first] = named;
    if (first === undefined || named.some((node) => node !== first)) return undefined;
    return (await first.isMaster()) ? first : undefined;
  }

  untilMaster(other?: RedisNode): Promise<RedisNode> {
    return until(
      async () => {
        const master = await this.master();
        return master !== other && master;
      },
      `the Sentinels agree on a master${other ? ` other than ${other.name}` : ''}`,
      patienceMs,
    );
  }

  /** A failover that an operator asks for. */
  async failOver(): Promise<void> {
    const ask = () => this.sentinels[0]?.client.call('SENTINEL', 'FAILOVER', group);
    await until(async () => (await ask()) === 'OK', 'the Sentinel begins a failover', patienceMs);
  }

  /** Both replicas follow the master, and every Sentinel sees all servers and the other two Sentinels. */
  async untilComplete(): Promise<void> {
    await until(
      async () => {
        const master = await this.master();
        if (master === undefined) return false;
        const info = await master.client.info('replication');
        const online = info.match(/^slave\d+:.*state=online/gm)?.length;
        const offset = Number(/^master_repl_offset:(\d+)/m.exec(info)?.[1]);
        const behind = [...info.matchAll(/,offset=(\d+)/g)].filter(([, n]) => offset - Number(n) > 100_000);
        if (online !== 2 || behind.length > 0) return false;
        const views = await Promise.all(this.sentinels.map(({ client }) => isWholeFor(client)));
        return views.every(Boolean);
      },
      'both replicas follow the master and all Sentinels see it',
      patienceMs,
    );
  }

  async stop(): Promise<void> {
    for (const { client } of this.sentinels) client.disconnect();
    await Promise.all(this.sentinels.map(({ child }) => child.end()));
    for (const { client, proxy, server } of this.nodes) {
      client.disconnect();
      proxy.close();
      await server.kill();
    }
  }

  async #named(sentinel: Redis): Promise<RedisNode | undefined> {
    const [, port] = (await sentinel.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', group)) as string[];
    return this.nodes.find((node) => node.proxy.port === Number(port));
  }

  /**
   * A Sentinel demotes a former master that it reaches again after four publish periods, 8 s. Shorter, rounds are shorter;
   * how it detects and replaces a master does not change. Servers that do not know the command are only slower.
   */
  async #hurry(sentinel: Redis): Promise<void> {
    await until(async () => (await sentinel.ping()) === 'PONG', 'a Sentinel answers', patienceMs);
    await sentinel.call('SENTINEL', 'DEBUG', 'publish-period', '500', 'info-period', '1000').catch(() => {});
  }
}

async function openNode(name: string, port: number, folders: Folders): Promise<RedisNode> {
  const proxy = await openTcpProxy(port);
  const server = new RedisServer(name, port, folders, [
    ...['--bind-source-addr', peerAddress, '--replica-announce-ip', '127.0.0.1'],
    ...['--replica-announce-port', String(proxy.port), '--repl-diskless-sync-delay', '0'],
    ...['--repl-ping-replica-period', '1', '--repl-backlog-size', '32mb'],
  ]);
  return new RedisNode(server, proxy, quickClient(port));
}

function openSentinel(i: number, port: number, masterPort: number, folders: Folders) {
  const file = join(folders.data, `sentinel-${i}.conf`);
  const lines = [
    ...[`port ${port}`, 'bind 127.0.0.1', `bind-source-addr ${peerAddress}`, `dir ${folders.data}`],
    ...['sentinel announce-ip 127.0.0.1', `sentinel announce-port ${port}`],
    `sentinel monitor ${group} 127.0.0.1 ${masterPort} 2`,
    // A Sentinel connects at most once a second: with 1000 it may replace a new master that it has not reached yet.
    `sentinel down-after-milliseconds ${group} 2000`,
    `sentinel failover-timeout ${group} 3000`,
  ];
  writeFileSync(file, `${lines.join('\n')}\n`);
  const program = findOnPath('redis-server', 'valkey-server') ?? 'redis-server';
  const child = new Child({
    command: [program, file, '--sentinel'],
    logFile: join(folders.logs, `sentinel-${i}.log`),
  });
  return { child, port, client: quickClient(port) };
}

/** Fails soon; its users ask again. */
function quickClient(port: number): Redis {
  return quiet(
    new Redis(port, '127.0.0.1', {
      ...{ commandTimeout: 1000, maxRetriesPerRequest: 1, connectTimeout: 1000 },
      retryStrategy: () => 100,
    }),
  );
}

async function isWholeFor(sentinel: Redis): Promise<boolean> {
  const fieldsOf = (flat: string[]) =>
    Object.fromEntries(flat.flatMap((name, i) => (i % 2 ? [] : [[name, flat[i + 1]]])));
  const master = fieldsOf((await sentinel.call('SENTINEL', 'MASTER', group)) as string[]);
  const replicas = ((await sentinel.call('SENTINEL', 'REPLICAS', group)) as string[][]).map(fieldsOf);
  const others = ((await sentinel.call('SENTINEL', 'SENTINELS', group)) as string[][]).map(fieldsOf);
  return (
    master.flags === 'master' &&
    replicas.length === 2 &&
    replicas.every((one) => one.flags === 'slave' && one['master-link-status'] === 'ok') &&
    replicas.every((one) => one['master-port'] === master.port) &&
    others.length === 2 &&
    others.every(({ flags }) => flags === 'sentinel')
  );
}
