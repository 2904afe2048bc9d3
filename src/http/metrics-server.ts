/**
 * The second port: /metrics and nothing else, so that a network policy can open it to Prometheus alone. It shares the
 * rendering and the limits on connections with the first. A connection is good for one request: requests behind it would
 * pile up while it waits for its rendering.
 */
import { createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { ConfigError } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { App } from './context.js';

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
      response.writeHead(404, { 'content-type': 'text/plain' }).end('only GET /metrics is here\n');
      return;
    }
    probes.metrics().then(
      (text) =>
        response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' }).end(text),
      (error: unknown) => {
        log.error({ err: error }, 'metrics could not be rendered');
        response.writeHead(500, { 'content-type': 'text/plain' }).end('metrics could not be rendered\n');
      },
    );
  });
  server.on('connection', (socket) => connections.opened(socket));
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const hint = 'stop what uses it, or set another METRICS_PORT (off turns it off)';
      reject(
        error.code === 'EADDRINUSE'
          ? new ConfigError([`METRICS_PORT ${port} on ${host} is taken: ${hint}`])
          : error,
      );
    });
    server.listen(port, host, resolve);
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
