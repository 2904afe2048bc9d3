/** The server takes its port, and gives it back. */
import type { Clock } from '../clock.js';
import type { Config } from '../config.js';
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

export async function closeServer(app: App, clock: Clock, timeoutMs: number, log: Logger): Promise<void> {
  const cancel = clock.after(timeoutMs, () => {
    log.warn('some requests did not finish in time and are cut off');
    app.server.closeAllConnections();
  });
  await app.close();
  cancel();
}
