/** Creates the client of a store: a single server, Sentinel or Cluster, with our limits on time and our retries. */
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import type { Clock } from '../../clock.js';

export type Client = Redis | Cluster;

interface Address {
  host: string;
  port: number;
}

/** Parses `user:password@host:port,host:port`, the form of Sentinel and Cluster addresses. */
function parseAddresses(
  rest: string,
  defaultPort: number,
): { auth: { username?: string; password?: string }; nodes: Address[] } {
  const at = rest.lastIndexOf('@');
  const nodes = rest
    .slice(at + 1)
    .split(',')
    .map((node) => {
      const url = new URL(`redis://${node}`);
      return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port || defaultPort) };
    });
  if (at < 0) return { auth: {}, nodes };
  const url = new URL(`redis://${rest.slice(0, at)}@x`);
  return {
    auth: {
      ...(url.username ? { username: decodeURIComponent(url.username) } : {}),
      password: decodeURIComponent(url.password),
    },
    nodes,
  };
}

/** `commandTimeout` undefined: for blocking reads. */
export function createClient(url: string, clock: Clock, commandTimeout: number | undefined): Client {
  const retryDelay = (attempt: number) =>
    Math.min(2000, 50 * 2 ** Math.min(attempt, 6)) * (0.5 + clock.random() / 2);
  const common = {
    lazyConnect: true,
    connectTimeout: 5000,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    retryStrategy: retryDelay,
    // A demoted master replies READONLY: reconnect to find the new one.
    reconnectOnError: (error: Error) => error.message.includes('READONLY'),
    connectionName: 'smart-router',
    // A host that died sends nothing: a connection without a reply for this long is replaced. Without the limit
    // the kernel keeps sending for about 15 minutes. A blocking read gets a reply every 5 s.
    socketTimeout: commandTimeout === undefined ? 15_000 : 2 * commandTimeout,
    ...(commandTimeout === undefined ? {} : { commandTimeout }),
  } satisfies RedisOptions;
  const special = /^redis\+(sentinel|cluster):\/\/([^/?]+)(?:\/([^?]*))?(?:\?(.*))?$/.exec(url);
  if (!special) {
    // NODE_EXTRA_CA_CERTS adds a private certificate authority, as for any Node program.
    return new Redis(url, common);
  }
  const [, kind, hosts = '', path = '', query = ''] = special;
  const params = new URLSearchParams(query);
  const tls = params.get('tls') === 'true' ? { tls: {} } : {};
  if (kind === 'sentinel') {
    const { auth, nodes } = parseAddresses(hosts, 26379);
    const sentinelPassword = params.get('sentinel_password');
    return new Redis({
      ...common,
      ...auth,
      ...tls,
      sentinels: nodes,
      name: path,
      sentinelRetryStrategy: retryDelay,
      failoverDetector: true,
      ...(params.get('tls') === 'true' ? { enableTLSForSentinelMode: true, sentinelTLS: {} } : {}),
      ...(sentinelPassword ? { sentinelPassword } : {}),
    });
  }
  const { auth, nodes } = parseAddresses(hosts, 6379);
  return new Cluster(nodes, {
    lazyConnect: true,
    enableOfflineQueue: false,
    clusterRetryStrategy: retryDelay,
    redisOptions: { ...common, ...auth, ...tls },
    maxRedirections: 8,
  });
}
