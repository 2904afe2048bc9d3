/**
 * The open connections of a router, and the requests in each: what is still to be done here, and what only waits for the
 * other side. A stop needs to know the difference.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

interface Exchange {
  request: IncomingMessage;
  response: ServerResponse;
  /** Called once, with its end. */
  onEnd: () => void;
}

interface Connection {
  readonly exchanges: Set<Exchange>;
  /** How much had come when its last exchange ended; undefined before that, and if not all of it had. */
  bytesReadAtEnd: number | undefined;
}

export class Connections {
  readonly #open = new Map<Socket, Connection>();

  /** Also one that never sends anything. */
  opened(socket: Socket): void {
    const connection: Connection = { exchanges: new Set(), bytesReadAtEnd: undefined };
    this.#open.set(socket, connection);
    socket.once('close', () => {
      this.#open.delete(socket);
      // A response that was still behind another one never hears of the end of its connection itself.
      for (const { onEnd } of connection.exchanges) onEnd();
      connection.exchanges.clear();
    });
  }

  /** How many requests of this connection have not ended. */
  countIn(socket: Socket): number {
    return this.#open.get(socket)?.exchanges.size ?? 0;
  }

  /** It ends when its answer has been taken over by the system, or the caller hangs up. */
  begin(request: IncomingMessage, response: ServerResponse, onEnd: () => void): void {
    const { socket } = request;
    const connection = this.#open.get(socket);
    if (connection === undefined) {
      onEnd();
      return;
    }
    const exchange = { request, response, onEnd };
    connection.exchanges.add(exchange);
    response.once('close', () => {
      if (!connection.exchanges.delete(exchange)) return;
      // The rest of a request that was answered early is still to come: closed now, it would tear its answer away.
      connection.bytesReadAtEnd = request.complete ? socket.bytesRead : undefined;
      onEnd();
    });
  }

  /** A request that has arrived completely has no complete answer yet: whatever is missing is missing here. */
  get hasWork(): boolean {
    for (const { exchanges } of this.#open.values())
      for (const { request, response } of exchanges)
        if (request.complete && !response.writableEnded) return true;
    return false;
  }

  /** Those that were used, and in which nothing has come since. */
  closeIdle(): void {
    for (const [socket, { exchanges, bytesReadAtEnd }] of this.#open)
      if (exchanges.size === 0 && bytesReadAtEnd === socket.bytesRead) socket.destroy();
  }

  /** All of them; returns how many there were. */
  cut(): number {
    const sockets = [...this.#open.keys()];
    for (const socket of sockets) socket.destroy();
    return sockets.length;
  }
}
