/**
 * One address in front of several servers, like a Kubernetes Service: each new connection goes, byte for byte, to the
 * next server that accepts it. When a server dies its connections break and clients reconnect; without any server
 * connections are refused.
 */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { ConfigError } from '../errors.js';

export interface Endpoint {
  host: string;
  port: number;
}

export class Service {
  readonly #endpoints: () => readonly Endpoint[] | Promise<readonly Endpoint[]>;
  readonly #server: Server;
  readonly #open = new Set<Socket>();
  #turn = 0;

  /** `endpoints` returns the servers that accept new connections; a connection waits for its promise. */
  constructor(endpoints: () => readonly Endpoint[] | Promise<readonly Endpoint[]>) {
    this.#endpoints = endpoints;
    this.#server = createServer((client) => void this.#serve(client));
  }

  /** Resolves to the port. */
  listen(port: number, host: string): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, () => {
        this.#server.off('error', reject);
        const address = this.#server.address();
        resolve(typeof address === 'object' && address ? address.port : port);
      });
    });
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#open) socket.destroy();
    await closed;
  }

  async #serve(client: Socket): Promise<void> {
    this.#track(client);
    const endpoints = await this.#endpoints();
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

const portAttempts = 20;

/** Finds the first free port from `wanted` on. */
export async function freePort(wanted: number, host: string): Promise<number> {
  if (wanted === 0) return 0;
  for (let port = wanted; port < wanted + portAttempts && port <= 65_535; port++) {
    if (await isFree(port, host)) return port;
  }
  throw new ConfigError([
    `ports ${wanted} to ${wanted + portAttempts - 1} on ${host} are in use; set another HTTP_PORT`,
  ]);
}

/** True after any other error too: the router reports that one better. */
function isFree(port: number, host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', (error: NodeJS.ErrnoException) => resolve(error.code !== 'EADDRINUSE'));
    probe.listen(port, host, () => probe.close(() => resolve(true)));
  });
}
