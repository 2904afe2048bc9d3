/** Checks a store before it is used: its version, and that REDIS_URL and REDIS_KEY_PREFIX fit a Cluster. */
import type { Config } from '../../config/config.js';
import { hasHashTag } from '../../config/fields.js';
import { ConfigError } from '../../errors.js';
import type { StoreConnection } from './connection.js';

export interface StoreFacts {
  engine: 'redis' | 'valkey';
  version: string;
  clusterEnabled: boolean;
  evictionPolicy: string;
  usedMemoryBytes: number;
  /** 0 = no limit. */
  maxMemoryBytes: number;
  persistence: string;
  connectedReplicas: number;
}

export async function storeFacts(connection: StoreConnection): Promise<StoreFacts> {
  const info = await connection.command('info', (client) => client.info());
  const field = (name: string) => new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? '';
  const valkey = field('valkey_version');
  const aof = field('aof_enabled') === '1';
  const rdb = Number(field('rdb_saves') || 0) > 0;
  return {
    engine: valkey === '' ? 'redis' : 'valkey',
    version: valkey === '' ? field('redis_version') : valkey,
    clusterEnabled: field('cluster_enabled') === '1',
    evictionPolicy: field('maxmemory_policy'),
    usedMemoryBytes: Number(field('used_memory')),
    maxMemoryBytes: Number(field('maxmemory')),
    persistence: aof ? 'append-only file' : rdb ? 'snapshots' : 'none',
    connectedReplicas: Number(field('connected_slaves')),
  };
}

export async function checkStore(
  connection: StoreConnection,
  config: Pick<Config, 'redisUrl' | 'redisKeyPrefix'>,
): Promise<void> {
  const { engine, version, clusterEnabled } = await storeFacts(connection);
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [needMajor, needMinor] = engine === 'valkey' ? [7, 2] : [6, 2];
  if (major < needMajor || (major === needMajor && minor < needMinor)) {
    throw new ConfigError([
      `the store is ${engine} ${version}: ${engine} ${needMajor}.${needMinor} or newer is required`,
    ]);
  }
  if (clusterEnabled && !hasHashTag(config.redisKeyPrefix)) {
    throw new ConfigError([
      `the store is a Cluster: REDIS_KEY_PREFIX needs a hash tag like {voice}: to keep all keys in one slot, got ${config.redisKeyPrefix}`,
    ]);
  }
  if (clusterEnabled && !config.redisUrl.startsWith('redis+cluster://')) {
    throw new ConfigError(['the store is a Cluster: write REDIS_URL as redis+cluster://host:port,host:port']);
  }
}
