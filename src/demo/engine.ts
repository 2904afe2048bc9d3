/**
 * The demo's Redis: its own Valkey, which all routers reach over TCP, or the one that `REDIS_URL` names. In a Redis of
 * the user the demo deletes only its own keys and never pauses the server.
 */
import { StoreConnection } from '../calls/store/connection.js';
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import { startEmbeddedValkey } from '../embedded/valkey.js';

export interface Engine {
  url: string;
  connection: StoreConnection;
  /** Deletes everything that the routers have written. */
  flush(): Promise<void>;
  /** Stops answering until `resume`; connections stay open. Undefined in a Redis of the user. */
  pause: (() => Promise<void>) | undefined;
  resume(): void;
  stop(): Promise<void>;
}

export async function openEngine(config: Config, clock: Clock): Promise<Engine> {
  const own = config.redisUrl === 'embedded' ? await startEmbeddedValkey() : undefined;
  const url = own?.url ?? config.redisUrl;
  const { redisKeyPrefix: keyPrefix, redisCommandTimeoutMs: commandTimeoutMs } = config;
  const connection = new StoreConnection({ url, keyPrefix, commandTimeoutMs, clock });
  const flush = async () => {
    if (own) await connection.command('flushall', (client) => client.flushall());
    else await deleteOwnKeys(connection);
  };
  // Keys of an earlier demo.
  if (!own) await flush();
  return {
    url,
    connection,
    flush,
    pause: own && (() => own.pause()),
    resume: () => own?.resume(),
    async stop() {
      own?.resume();
      if (!own) await flush().catch(() => {});
      connection.close();
      await own?.stop();
    },
  };
}

async function deleteOwnKeys(connection: StoreConnection): Promise<void> {
  let cursor = '0';
  do {
    const [next, keys] = await connection.scan(cursor, `${connection.keyPrefix}*`, 1000);
    if (keys.length > 0) await connection.command('unlink', (client) => client.unlink(...keys));
    cursor = next;
  } while (cursor !== '0');
}
