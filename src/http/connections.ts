/**
 * The open connections of a router and the requests in each.
 *
 * Guarantees: there are at most `max` connections, and at most `maxPerAddress` from one address that have not carried an
 * authenticated request. Over a limit a stranger's connection is closed, the oldest idle one first, so that a known caller
 * that opens a new one gets in; where there is none, an idle one of a known caller. A connection whose peer takes nothing of a written answer for
 * `unreadMs` is closed. What it keeps of answers is bounded: gate.ts lets 16 requests into one connection, and Node reads
 * no more of them while answers wait to be sent.
 *
 * It also knows what is still to be done here and what only waits for the other side: a stop needs the difference.
 *
 * Weakness: behind a proxy all connections have the proxy's address. With TRUST_PROXY set, the requests of an address are
 * counted instead (`countFor`).
 */
import type { Socket } from 'node:net';
import type { Clock } from '../clock.js';
import { networkOf } from './auth.js';
import type { GatedResponse } from './response.js';

/** `overall`, `address`: over a limit. `unread`: its peer does not read. */
export type CloseReason = 'overall' | 'address' | 'unread';

export interface Connection {
  readonly socket: Socket;
  readonly address: string;
  readonly exchanges: Set<GatedResponse>;
  /** How much had come when its last exchange ended; undefined before that, and if not all of it had. */
  bytesReadAtEnd: number | undefined;
  /** It has carried a request with a valid key or signature. */
  isKnown: boolean;
  /** How much of what was written has been taken by the system, and for how many looks it has been that much. */
  takenBytes: number;
  stillLooks: number;
}

export interface ConnectionLimits {
  max: number;
  maxPerAddress: number;
  /** Whether `maxPerAddress` counts requests by forwarded address instead of connections. */
  isBehindProxy: boolean;
  unreadMs: number;
}

/** Looks are counted, not time: a process that stood still would otherwise cut what it has not looked at meanwhile. */
const looksUntilUnread = 18;

export class Connections {
  readonly #clock: Clock;
  readonly #limits: ConnectionLimits;
  readonly #onClosed: (reason: CloseReason) => void;
  readonly #open = new Map<Socket, Connection>();
  /** Oldest first. */
  readonly #strangers = new Set<Connection>();
  readonly #strangersByAddress = new Map<string, Set<Connection>>();
  readonly #requestsByAddress = new Map<string, Set<GatedResponse>>();
  #isLooking = false;

  constructor(clock: Clock, limits: ConnectionLimits, onClosed: (reason: CloseReason) => void) {
    this.#clock = clock;
    this.#limits = limits;
    this.#onClosed = onClosed;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Also one that never sends anything. */
  opened(socket: Socket): void {
    const connection: Connection = {
      socket,
      address: networkOf(socket.remoteAddress ?? ''),
      exchanges: new Set(),
      bytesReadAtEnd: undefined,
      isKnown: false,
      takenBytes: 0,
      stillLooks: 0,
    };
    this.#open.set(socket, connection);
    this.#strangers.add(connection);
    const { max, maxPerAddress, isBehindProxy } = this.#limits;
    let ofAddress = this.#strangersByAddress.get(connection.address);
    if (ofAddress === undefined) {
      ofAddress = new Set();
      this.#strangersByAddress.set(connection.address, ofAddress);
    }
    ofAddress.add(connection);
    socket.once('close', () => this.#forget(connection));
    if (!isBehindProxy && ofAddress.size > maxPerAddress)
      this.#close(leastNeeded(ofAddress, connection), 'address');
    else if (this.#open.size > max) this.#close(this.#leastNeeded(connection), 'overall');
    if (!this.#isLooking) this.#look();
  }

  /** A stranger's; else the oldest of a known caller that is idle; else the new one. */
  #leastNeeded(newcomer: Connection): Connection {
    const stranger = leastNeeded(this.#strangers, newcomer);
    if (stranger !== newcomer) return stranger;
    for (const connection of this.#open.values()) if (connection.exchanges.size === 0) return connection;
    return newcomer;
  }

  #close(connection: Connection, reason: CloseReason): void {
    // At once, and not with the event `close`: many may open before that comes.
    this.#forget(connection);
    connection.socket.destroy();
    this.#onClosed(reason);
  }

  #forget(connection: Connection): void {
    if (!this.#open.delete(connection.socket)) return;
    this.#forgetStranger(connection);
    // A response that was still behind another one never hears of the end of its connection itself.
    for (const response of connection.exchanges) this.#end(response);
    connection.exchanges.clear();
  }

  #forgetStranger(connection: Connection): void {
    if (!this.#strangers.delete(connection)) return;
    const { address } = connection;
    const ofAddress = this.#strangersByAddress.get(address);
    ofAddress?.delete(connection);
    if (ofAddress?.size === 0) this.#strangersByAddress.delete(address);
  }

  #end(response: GatedResponse): void {
    response.leave();
    const { address } = response;
    if (address === undefined) return;
    response.address = undefined;
    const ofAddress = this.#requestsByAddress.get(address);
    ofAddress?.delete(response);
    if (ofAddress?.size === 0) this.#requestsByAddress.delete(address);
  }

  /** Its connection carries a request of a known caller: it is not closed to make room. */
  known({ connectionState: connection }: GatedResponse): void {
    if (connection === undefined || connection.isKnown) return;
    connection.isKnown = true;
    this.#forgetStranger(connection);
  }

  /**
   * Counts a stranger's request for its forwarded address until its answer is taken. Over the limit the oldest one whose
   * body has not arrived is cut off; false: there is none, and this one is too many.
   */
  countFor(response: GatedResponse, address: string): boolean {
    const { isBehindProxy, maxPerAddress } = this.#limits;
    if (!isBehindProxy || response.connectionState === undefined) return true;
    const network = networkOf(address);
    const ofAddress = this.#requestsByAddress.get(network) ?? new Set();
    if (ofAddress.size >= maxPerAddress) {
      const unfinished = firstUnfinished(ofAddress);
      if (unfinished?.connectionState === undefined) return false;
      this.#close(unfinished.connectionState, 'address');
    }
    this.#requestsByAddress.set(network, ofAddress.add(response));
    response.address = network;
    return true;
  }

  /** How many requests of this connection have not ended. */
  countIn(socket: Socket): number {
    return this.#open.get(socket)?.exchanges.size ?? 0;
  }

  /** It ends when its answer has been taken over by the system, or the caller hangs up. */
  begin(response: GatedResponse): void {
    const { socket } = response.req;
    const connection = this.#open.get(socket);
    if (connection === undefined) return;
    response.connectionState = connection;
    connection.exchanges.add(response);
    response.once('close', () => {
      if (!connection.exchanges.delete(response)) return;
      // The rest of a request that was answered early is still to come: closed now, it would tear its answer away.
      connection.bytesReadAtEnd = response.req.complete ? socket.bytesRead : undefined;
      this.#end(response);
    });
  }

  /** A request that has arrived completely has no complete answer yet: what is missing is missing here. */
  get hasWork(): boolean {
    for (const connection of this.#open.values()) if (isHandling(connection)) return true;
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

  /**
   * Node's own timeout of a socket takes twice as long: it compares what is queued with the size of the write, finds that
   * the first part went out, and starts again. Ours counts whole writes, so a peer that reads a byte a minute is cut, too.
   */
  #look(): void {
    this.#isLooking = true;
    this.#clock.after(
      this.#limits.unreadMs / looksUntilUnread,
      () => {
        for (const connection of this.#open.values()) {
          const { socket } = connection;
          const takenBytes = socket.bytesWritten - socket.writableLength;
          const isStill = socket.writableLength > 0 && takenBytes === connection.takenBytes;
          connection.takenBytes = takenBytes;
          connection.stillLooks = isStill ? connection.stillLooks + 1 : 0;
          if (connection.stillLooks >= looksUntilUnread) this.#close(connection, 'unread');
        }
        this.#isLooking = this.#open.size > 0;
        if (this.#isLooking) this.#look();
      },
      { unref: true },
    );
  }
}

function firstUnfinished(responses: ReadonlySet<GatedResponse>): GatedResponse | undefined {
  for (const response of responses) if (!response.req.complete) return response;
  return undefined;
}

/** So many are looked at: a flood of new connections must not cost more than that each. */
const mostLookedAt = 100;

/**
 * The oldest connection of a stranger in which nothing is being handled, else the oldest: what it waits for is less than
 * a place for a known caller. The newcomer, which is the last of them, only if it is alone.
 */
function leastNeeded(strangers: ReadonlySet<Connection>, newcomer: Connection): Connection {
  let oldest = newcomer;
  let looked = 0;
  for (const connection of strangers) {
    if (connection === newcomer || looked === mostLookedAt) break;
    if (!isHandling(connection)) return connection;
    if (looked === 0) oldest = connection;
    looked += 1;
  }
  return oldest;
}

/** A request has arrived completely, and its answer has not been written. */
function isHandling({ exchanges }: Connection): boolean {
  for (const response of exchanges) if (response.req.complete && !response.writableEnded) return true;
  return false;
}
