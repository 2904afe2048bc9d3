/**
 * The demo's Redis: a Valkey of its own that all routers reach over TCP, or the one that `REDIS_URL` names. In a
 * Redis that belongs to somebody else the demo loses nothing but its own keys, and never makes it hold still.
 */
import { StoreConnection } from '../calls/store/connection.js';
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import { startEmbeddedValkey } from '../embedded/valkey.js';

export interface Engine {
  url: string;
  connection: StoreConnection;
  /** Everything that the routers have written is gone. */
  lose(): Promise<void>;
  /** No answer until `resume`, connections stay open; undefined where the engine is not ours. */
  pause: (() => Promise<void>) | undefined;
  resume(): void;
  stop(): Promise<void>;
}

export async function openEngine(config: Config, clock: Clock): Promise<Engine> {
  const own = config.redisUrl === 'embedded' ? await startEmbeddedValkey() : undefined;
  const url = own?.url ?? config.redisUrl;
  const { redisKeyPrefix: keyPrefix, redisCommandTimeoutMs: commandTimeoutMs } = config;
  const connection = new StoreConnection({ url, keyPrefix, commandTimeoutMs, clock });
  const lose = () => (own ? flush(connection) : deleteOwn(connection));
  // What an earlier demo left there.
  if (!own) await lose();
  return {
    url,
    connection,
    lose,
    pause: own && (() => own.pause()),
    resume: () => own?.resume(),
    async stop() {
      own?.resume();
      if (!own) await lose().catch(() => {});
      connection.close();
      await own?.stop();
    },
  };
}

async function flush(connection: StoreConnection): Promise<void> {
  await connection.command('flushall', (client) => client.flushall());
}

async function deleteOwn(connection: StoreConnection): Promise<void> {
  let cursor = '0';
  do {
    const [next, keys] = await connection.scan(cursor, `${connection.keyPrefix}*`, 1000);
    if (keys.length > 0) await connection.command('unlink', (client) => client.unlink(...keys));
    cursor = next;
  } while (cursor !== '0');
}
