/** A real web server on loopback: each path has a handler, and everything it opened is closed with it. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { type Clock, systemClock } from '../../src/clock.js';
import { WorkSlices } from '../../src/workflows/work-slices.js';

/** Slices without a limit. */
export const work = (clock: Clock = systemClock, signal = new AbortController().signal) =>
  new WorkSlices(clock, signal);

export type Handler = (response: ServerResponse, request: IncomingMessage) => void;

export interface Web {
  readonly port: number;
  /** `http://127.0.0.1:port` */
  readonly origin: string;
  /** Paths in the order of the requests. */
  readonly asked: string[];
  readonly requests: IncomingMessage[];
  /** Connections open now. */
  readonly open: ReadonlySet<Socket>;
  on(path: string, handler: Handler | string | Buffer, headers?: Record<string, string>): string;
  close(): Promise<void>;
}

export async function startWeb(): Promise<Web> {
  const handlers = new Map<string, Handler>();
  const asked: string[] = [];
  const requests: IncomingMessage[] = [];
  const open = new Set<Socket>();
  const server = createServer((request, response) => {
    const path = request.url ?? '';
    asked.push(path);
    requests.push(request);
    const handler = handlers.get(path);
    if (handler) handler(response, request);
    else response.writeHead(404).end('nothing here');
  });
  server.on('connection', (socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
    // A client that has had enough resets the connection.
    socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const origin = `http://127.0.0.1:${port}`;
  return {
    port,
    origin,
    asked,
    requests,
    open,
    on(path, handler, headers = {}) {
      handlers.set(
        path,
        typeof handler === 'function' ? handler : (response) => response.writeHead(200, headers).end(handler),
      );
      return origin + path;
    },
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}
