/**
 * A TCP proxy that breaks the way to a server as networks do: nothing listens any more, a connection is reset,
 * bytes get stuck, replies vanish, everything is slow. Nothing is imitated: the server behind it is a real one.
 */
import { createServer, type Server, type Socket, connect as tcpConnect } from 'node:net';
import { onTestFinished } from 'vitest';
import { onOwnPort } from './ports.js';

export interface TcpProxy {
  readonly port: number;
  /** Connections that are open now. */
  readonly connections: number;
  /** Everything passes again, delayed data first: TCP delivers late rather than never. */
  pass(): void;
  /** Stalls both directions, on present and future connections, without closing them. */
  blackHole(): void;
  /** Stalls both directions of clients that connect from this address, as a partition of the network does. */
  cutFrom(address: string): void;
  /** Stalls present connections permanently, as after a host died; new ones work. */
  strand(): void;
  /** Requests arrive and are done, their replies are thrown away. End it with `reset()`. */
  loseReplies(): void;
  /** Every chunk arrives this much later, in order. */
  delay(ms: number): void;
  /** Present connections are reset; new ones work. */
  reset(): void;
  /** Connections are reset and nothing listens any more: ECONNREFUSED. */
  down(): Promise<void>;
  up(): Promise<void>;
}

type Mode = 'pass' | 'stuck' | 'lose replies';

interface Link {
  client: Socket;
  /** Of the client: the socket no longer has it after a close. */
  address: string | undefined;
  server: Socket;
  stranded: boolean;
  held: [to: Socket, chunk: Buffer][];
  /** Delayed chunks, oldest first; later chunks wait behind them. */
  late: Map<Socket, Buffer[]>;
}

/** Ends with the test that starts it. */
export async function tcpProxy(targetPort: number): Promise<TcpProxy> {
  const proxy = await openTcpProxy(targetPort);
  onTestFinished(() => proxy.close());
  return proxy;
}

/** For programs outside tests: the caller closes it. */
export async function openTcpProxy(targetPort: number): Promise<TcpProxy & { close(): void }> {
  const links = new Set<Link>();
  let mode: Mode = 'pass';
  let delayMs = 0;
  let cutAddress: string | undefined;

  const send = (link: Link, to: Socket, chunk: Buffer) => {
    const late = link.late.get(to) ?? [];
    link.late.set(to, late);
    const write = (next: Buffer) => {
      if (!to.destroyed) to.write(next);
    };
    if (delayMs === 0 && late.length === 0) return write(chunk);
    late.push(chunk);
    // Each timer sends the oldest chunk, so that bytes stay in order.
    setTimeout(() => write(late.shift() as Buffer), delayMs);
  };

  const forward = (link: Link, to: Socket, chunk: Buffer) => {
    const isCut = cutAddress !== undefined && link.address === cutAddress;
    if (link.stranded || isCut || mode === 'stuck') link.held.push([to, chunk]);
    else if (mode === 'lose replies' && to === link.client) return;
    else send(link, to, chunk);
  };

  const accept = (client: Socket) => {
    const server = tcpConnect({ port: targetPort, host: '127.0.0.1' });
    const address = client.remoteAddress;
    const link: Link = { client, address, server, stranded: false, held: [], late: new Map() };
    links.add(link);
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      from.setNoDelay(true);
      from.on('data', (chunk: Buffer) => forward(link, to, chunk));
      from.on('error', () => {});
      from.on('close', () => {
        // A stalled connection does not see the close of its other end either.
        if (!link.stranded) to.destroy();
        if (client.destroyed && server.destroyed) links.delete(link);
      });
    }
  };

  const resetAll = () => {
    for (const { client, server } of links) {
      client.resetAndDestroy();
      server.resetAndDestroy();
    }
    links.clear();
  };

  let listener = await onOwnPort((port) => listen(accept, port));
  const address = listener.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return {
    port,
    close() {
      resetAll();
      listener.close();
    },
    get connections() {
      return links.size;
    },
    pass() {
      mode = 'pass';
      delayMs = 0;
      cutAddress = undefined;
      for (const link of links)
        if (!link.stranded) for (const [to, chunk] of link.held.splice(0)) send(link, to, chunk);
    },
    blackHole() {
      mode = 'stuck';
    },
    cutFrom(address) {
      cutAddress = address;
    },
    strand() {
      for (const link of links) link.stranded = true;
    },
    loseReplies() {
      mode = 'lose replies';
    },
    delay(ms) {
      delayMs = ms;
    },
    reset() {
      resetAll();
      mode = 'pass';
    },
    async down() {
      const closed = new Promise((resolve) => listener.close(resolve));
      resetAll();
      await closed;
    },
    async up() {
      listener = await listen(accept, port);
    },
  };
}

function listen(accept: (socket: Socket) => void, port: number): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer(accept);
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => resolve(server));
  });
}
