/** Opens and closes the two ports: the API, and /metrics alone, which a network policy can open to Prometheus only. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import { ConfigError } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { App } from './context.js';

export async function listen(app: App, { httpHost: host, httpPort: port }: Config): Promise<string> {
  try {
    // As long as the system allows: a burst of new connections waits there instead of being dropped.
    const address = await app.listen({ host, port, backlog: 4096 });
    return address.replace(/\/$/, '');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE')
      throw new ConfigError([
        `HTTP_PORT ${port} on ${host} is in use: stop the process that uses it or set another HTTP_PORT`,
      ]);
    if (code === 'EACCES' || code === 'EADDRNOTAVAIL')
      throw new ConfigError([
        `cannot listen on ${host}:${port} (${code}): set another HTTP_HOST or HTTP_PORT`,
      ]);
    throw error;
  }
}

/** Without work left, callers have 3 s to read: TCP repeats a packet that is lost twice after 1 s and 2 s. */
const checkEveryMs = 100;
const idleChecks = 30;

/**
 * Stops accepting and answers every complete request, for at most `timeoutMs`. Callers that have not sent a whole request
 * or do not read their response delay this by 3 s at most. Counts checks instead of time: a paused process would
 * otherwise cut requests that arrived during the pause.
 */
export async function closeServer(app: App, clock: Clock, timeoutMs: number, log: Logger): Promise<void> {
  const { connections } = app;
  const cancel = clock.after(timeoutMs, () => {
    log.warn('shutdown timeout: closing connections of unfinished requests');
    connections.cut();
  });
  const closed = new AbortController();
  const closing = app.close().finally(() => closed.abort());
  for (let idle = 0; !closed.signal.aborted; idle = connections.hasWork ? 0 : idle + 1) {
    connections.closeIdle();
    if (idle === idleChecks) {
      log.info(
        { connections: connections.cut() },
        'closed connections with an unfinished request or unread response',
      );
    }
    await clock.sleep(checkEveryMs, closed.signal);
  }
  await closing.finally(cancel);
}

/**
 * Serves /metrics on its own port. It shares the rendering and the connection limits with the API. Each connection serves
 * one request: others would queue behind it while it waits for its rendering.
 */
export async function startMetricsServer(
  { probes, connections }: Pick<App, 'probes' | 'connections'>,
  log: Logger,
  host: string,
  port: number,
): Promise<{ url: string; stop(): Promise<void> }> {
  const used = new WeakSet<Socket>();
  const server = createServer({ requestTimeout: 10_000 }, (request, response) => {
    if (used.has(request.socket)) {
      request.socket.destroy();
      return;
    }
    used.add(request.socket);
    response.setHeader('connection', 'close');
    if (request.method !== 'GET' || request.url?.split('?')[0] !== '/metrics') {
      response.writeHead(404, { 'content-type': 'text/plain' }).end('this port serves only GET /metrics\n');
      return;
    }
    probes.metrics().then(
      (text) =>
        response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' }).end(text),
      (error: unknown) => {
        log.error({ err: error }, 'rendering metrics failed');
        response.writeHead(500, { 'content-type': 'text/plain' }).end('rendering metrics failed\n');
      },
    );
  });
  server.on('connection', (socket) => connections.opened(socket));
  server.listen(port, host);
  await once(server, 'listening').catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EADDRINUSE') throw error;
    const hint = 'stop the process that uses it, or set another METRICS_PORT (off disables it)';
    throw new ConfigError([`METRICS_PORT ${port} on ${host} is in use: ${hint}`]);
  });
  const address = server.address() as AddressInfo;
  const shownHost = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return {
    url: `http://${shownHost}:${address.port}/metrics`,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
