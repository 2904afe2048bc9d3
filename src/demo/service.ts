/**
 * One address in front of the routers, as a Kubernetes Service is: each new connection goes to the next replica that
 * takes some, byte for byte. A connection to a replica that dies breaks, and its client comes again; with no replica
 * at all connections are refused. What comes before `opened` waits for it.
 */
import { connect, createServer, type Server, type Socket } from 'node:net';

export interface Endpoint {
  host: string;
  port: number;
}

export class Service {
  readonly #endpoints: () => readonly Endpoint[];
  readonly #opened: Promise<unknown>;
  readonly #server: Server;
  readonly #open = new Set<Socket>();
  #turn = 0;

  /** `endpoints` names, at each moment, the replicas that take new connections. */
  constructor(endpoints: () => readonly Endpoint[], opened: Promise<unknown> = Promise.resolve()) {
    this.#endpoints = endpoints;
    this.#opened = opened;
    this.#server = createServer((client) => void this.#serve(client));
  }

  /** Resolves to the port that was taken. */
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
    this.#keep(client);
    await this.#opened;
    const endpoints = this.#endpoints();
    this.#turn += 1;
    const tried = endpoints.map((_, i) => endpoints[(this.#turn + i) % endpoints.length] as Endpoint);
    const next = () => {
      const endpoint = tried.shift();
      if (!endpoint || client.destroyed) return void client.destroy();
      const replica = connect(endpoint);
      this.#keep(replica);
      const refused = () => next();
      replica.once('error', refused);
      replica.once('connect', () => {
        replica.off('error', refused);
        client.pipe(replica);
        replica.pipe(client);
        client.once('close', () => replica.destroy());
        // What the replica said last still arrives.
        replica.once('close', () => client.destroySoon());
      });
    };
    next();
  }

  #keep(socket: Socket): void {
    this.#open.add(socket);
    socket.setNoDelay(true);
    // What breaks on one side is closed on the other; there is nothing more to do about it.
    socket.on('error', () => {});
    socket.once('close', () => this.#open.delete(socket));
  }
}
