/** The server takes its port, and gives it back. */
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import { ConfigError } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { App } from './context.js';

export async function listen(app: App, config: Config): Promise<string> {
  try {
    const address = await app.listen({ host: config.httpHost, port: config.httpPort });
    return address.replace(/\/$/, '');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE') {
      throw new ConfigError([
        `HTTP_PORT ${config.httpPort} on ${config.httpHost} is taken: stop what uses it or set another HTTP_PORT`,
      ]);
    }
    if (code === 'EACCES' || code === 'EADDRNOTAVAIL') {
      throw new ConfigError([
        `cannot listen on ${config.httpHost}:${config.httpPort} (${code}): set another HTTP_HOST or HTTP_PORT`,
      ]);
    }
    throw error;
  }
}

/** With nothing left to be done here, the other sides have 3 s: a packet that is lost twice comes again after 1 s and 2 s. */
const lookEveryMs = 100;
const quietLooks = 30;

/**
 * Whoever has sent a request gets its answer, for at most `timeoutMs`. Those who have not sent all of it, or do not read
 * what they got, cannot hold us for that long. Looks are counted, not time: a process that stood still would otherwise cut
 * off what has arrived meanwhile.
 */
export async function closeServer(app: App, clock: Clock, timeoutMs: number, log: Logger): Promise<void> {
  const { connections } = app;
  const cancel = clock.after(timeoutMs, () => {
    log.warn('some requests did not finish in time and are cut off');
    connections.cut();
  });
  const closed = new AbortController();
  const closing = app.close().finally(() => closed.abort());
  for (let quiet = 0; !closed.signal.aborted; quiet = connections.hasWork ? 0 : quiet + 1) {
    connections.closeIdle();
    if (quiet === quietLooks) {
      log.info(
        { connections: connections.cut() },
        'connections were closed that had neither sent a whole request nor taken their answer',
      );
    }
    await clock.sleep(lookEveryMs, closed.signal);
  }
  await closing.finally(cancel);
}
