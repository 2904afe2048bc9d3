/**
 * One address in front of several servers, like a Kubernetes Service: each new connection goes, byte for byte, to the
 * next server that accepts it. When a server dies its connections break and clients reconnect; without any server
 * connections are refused.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { ConfigError } from '../errors.js';

export interface Endpoint {
  host: string;
  port: number;
}

const portAttempts = 20;

export class Service {
  readonly #server = createServer((client) => void this.#serve(client));
  readonly #open = new Set<Socket>();
  #turn = 0;

  /** `endpoints` returns the servers that accept new connections; a connection waits for its promise. */
  constructor(private readonly endpoints: () => readonly Endpoint[] | Promise<readonly Endpoint[]>) {}

  /** Listens on the first free port from `wanted` on, with 0 on any; resolves to the port. */
  async listen(wanted: number, host: string): Promise<number> {
    for (let port = wanted; port < wanted + portAttempts && port <= 65_535; port++) {
      try {
        await once(this.#server.listen(port, host), 'listening');
        return (this.#server.address() as AddressInfo).port;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
      }
    }
    throw new ConfigError([
      `ports ${wanted} to ${wanted + portAttempts - 1} on ${host} are in use; set another HTTP_PORT`,
    ]);
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#open) socket.destroy();
    await closed;
  }

  async #serve(client: Socket): Promise<void> {
    this.#track(client);
    const endpoints = await this.endpoints();
    this.#turn += 1;
    const candidates = endpoints.map((_, i) => endpoints[(this.#turn + i) % endpoints.length] as Endpoint);
    const next = () => {
      const endpoint = candidates.shift();
      if (!endpoint || client.destroyed) return void client.destroy();
      const server = connect(endpoint);
      this.#track(server);
      const refused = () => next();
      server.once('error', refused);
      server.once('connect', () => {
        server.off('error', refused);
        client.pipe(server);
        server.pipe(client);
        client.once('close', () => server.destroy());
        // `destroySoon` still delivers the last bytes of the server.
        server.once('close', () => client.destroySoon());
      });
    };
    next();
  }

  #track(socket: Socket): void {
    this.#open.add(socket);
    socket.setNoDelay(true);
    // An error closes the socket, and `close` ends the other side.
    socket.on('error', () => {});
    socket.once('close', () => this.#open.delete(socket));
  }
}
