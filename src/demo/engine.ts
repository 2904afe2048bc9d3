/**
 * The demo's Redis: its own Valkey, which all routers reach over TCP, or the one that `REDIS_URL` names. In a Redis of
 * the user the demo deletes only its own keys and never pauses the server.
 */
import { StoreConnection } from '../calls/store/connection.js';
import type { Clock } from '../clock.js';
import { type Config, hidePassword } from '../config/config.js';
import { startEmbeddedValkey } from '../embedded/valkey.js';
import { AppError, messageOf } from '../errors.js';

export type Engine = Awaited<ReturnType<typeof openEngine>>;

export async function openEngine(config: Config, clock: Clock) {
  const own = config.redisUrl === 'embedded' ? await startEmbeddedValkey() : undefined;
  const url = own?.url ?? config.redisUrl;
  const { redisKeyPrefix: keyPrefix, redisCommandTimeoutMs: commandTimeoutMs } = config;
  const connection = new StoreConnection({ url, keyPrefix, commandTimeoutMs, clock });
  /** Deletes everything that the routers have written. */
  const flush = async (): Promise<void> => {
    if (own) return void (await connection.command('flushall', (client) => client.flushall()));
    let cursor = '0';
    do {
      const [next, keys] = await connection.scan(cursor, `${keyPrefix}*`, 1000);
      if (keys.length > 0) await connection.command('unlink', (client) => client.unlink(...keys));
      cursor = next;
    } while (cursor !== '0');
  };
  // Keys of an earlier demo.
  if (!own)
    await flush().catch((error: unknown) => {
      connection.close();
      const reason = `cannot use Redis at ${hidePassword(url)}: ${messageOf(error)}`;
      throw new AppError(
        'store_unavailable',
        `${reason}; check REDIS_URL, or unset it for an embedded store`,
      );
    });
  return {
    url,
    connection,
    flush,
    /** Stops answering until `resume`; connections stay open. Undefined in a Redis of the user. */
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
