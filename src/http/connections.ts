/**
 * The open connections of a router and the requests in each.
 *
 * Guarantees: there are at most `max` connections, and at most `maxPerAddress` from one address that have not carried an
 * authenticated request. Over a limit it closes a stranger's connection, the oldest idle one first, so that a known caller
 * can connect; without strangers, an idle one of a known caller. It closes a connection whose peer reads nothing of a
 * written response for `unreadMs`, and one with more than 16 requests in progress, also rejected ones. That bounds buffered
 * responses: Node reads no more requests while responses wait to be sent.
 *
 * For a shutdown it distinguishes requests that this router still handles from those that wait for their peer.
 *
 * Weakness: behind a proxy all connections have the proxy's address. With TRUST_PROXY set, the requests of an address are
 * counted instead (`countFor`).
 */
import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import type { Clock } from '../clock.js';
import { networkOf } from './auth.js';
import type { GatedResponse } from './gate.js';

/** `overall`, `address`: over a limit. `pipelined`: too many requests at once. `unread`: the peer does not read. */
export type CloseReason = 'overall' | 'address' | 'pipelined' | 'unread';

export interface Connection {
  readonly socket: Socket;
  readonly address: string;
  readonly exchanges: Set<GatedResponse>;
  /** Bytes received when the last exchange ended; undefined before that, and if its request was incomplete. */
  bytesReadAtEnd: number | undefined;
  /** It has carried a request with a valid key or signature. */
  isKnown: boolean;
  /** Responses before it was known. */
  responses: number;
  /** Bytes handed to the system, and the number of checks since that number last grew. */
  sentBytes: number;
  stalledChecks: number;
}

export interface ConnectionLimits {
  max: number;
  maxPerAddress: number;
  /** Whether `maxPerAddress` counts requests by forwarded address instead of connections. */
  isBehindProxy: boolean;
  unreadMs: number;
}

/** Counts checks instead of time: a paused process would otherwise close connections that it has not checked. */
const checksUntilUnread = 18;

/** Our clients do not pipeline more requests into one connection. */
const maxInConnection = 16;

/** The console loads fewer files before its sign-in. */
const strangerRequests = 50;

/** Files and sockets of the router itself: stores, logs, the records process, metrics. */
export const reservedFiles = 150;

/**
 * How many files and sockets the system lets this process open; Infinity where Linux does not say. Without descriptors libuv
 * closes the newest connection, so idle connections of strangers would lock out known callers.
 */
export function maxOpenFiles(): number {
  try {
    const soft = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return soft === undefined ? Infinity : Math.max(2 * reservedFiles, Number(soft));
  } catch {
    return Infinity;
  }
}

export class Connections {
  readonly #clock: Clock;
  readonly #limits: ConnectionLimits;
  readonly #onClosed: (reason: CloseReason) => void;
  readonly #open = new Map<Socket, Connection>();
  /** Oldest first. */
  readonly #strangers = new Set<Connection>();
  readonly #strangersByAddress = new Map<string, Set<Connection>>();
  readonly #requestsByAddress = new Map<string, Set<GatedResponse>>();
  #isChecking = false;

  constructor(clock: Clock, limits: ConnectionLimits, onClosed: (reason: CloseReason) => void) {
    this.#clock = clock;
    this.#limits = limits;
    this.#onClosed = onClosed;
  }

  get size(): number {
    return this.#open.size;
  }

  opened(socket: Socket): void {
    const connection: Connection = {
      socket,
      address: networkOf(socket.remoteAddress ?? ''),
      exchanges: new Set(),
      bytesReadAtEnd: undefined,
      isKnown: false,
      responses: 0,
      sentBytes: 0,
      stalledChecks: 0,
    };
    // One listener for each request that waits for a pod.
    socket.setMaxListeners(0);
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
    if (!this.#isChecking) this.#check();
  }

  /** A stranger's connection; else the oldest idle one of a known caller; else the new one. */
  #leastNeeded(newcomer: Connection): Connection {
    const stranger = leastNeeded(this.#strangers, newcomer);
    if (stranger !== newcomer) return stranger;
    for (const connection of this.#open.values()) if (connection.exchanges.size === 0) return connection;
    return newcomer;
  }

  #close(connection: Connection, reason: CloseReason): void {
    // Not only at the event `close`: many connections may open before that.
    this.#forget(connection);
    connection.socket.destroy();
    this.#onClosed(reason);
  }

  #forget(connection: Connection): void {
    if (!this.#open.delete(connection.socket)) return;
    this.#forgetStranger(connection);
    // A response that is queued behind another one gets no `close` event.
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

  /** Marks the connection of a known caller: it is not closed to make room. */
  known({ connectionState: connection }: GatedResponse): void {
    if (connection === undefined || connection.isKnown) return;
    connection.isKnown = true;
    this.#forgetStranger(connection);
  }

  /**
   * Counts a stranger's request for its forwarded address until its response is sent. Over the limit it cuts the oldest
   * one with an incomplete body; returns false if there is none, and the new request must be rejected.
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

  /**
   * Whether the connection ends with this response: a stranger's after a rejection, or after `strangerRequests`. Busy
   * connections of strangers would otherwise keep the event loop from accepting others: libuv accepts one per turn.
   */
  isOver({ connectionState: connection, statusCode }: GatedResponse): boolean {
    if (connection === undefined || connection.isKnown) return false;
    connection.responses += 1;
    return statusCode >= 400 || connection.responses >= strangerRequests;
  }

  /**
   * Tracks a request until the system has taken its response, or the caller disconnects. False if the connection is closed:
   * one packet can hold thousands of requests, and Node parses all of them.
   */
  begin(response: GatedResponse): boolean {
    const { socket } = response.req;
    const connection = this.#open.get(socket);
    if (connection === undefined) return false;
    if (connection.exchanges.size >= maxInConnection) {
      this.#close(connection, 'pipelined');
      return false;
    }
    response.connectionState = connection;
    connection.exchanges.add(response);
    response.once('close', () => {
      if (!connection.exchanges.delete(response)) return;
      // After an early response the rest of the request still arrives: closing now would destroy the response.
      connection.bytesReadAtEnd = response.req.complete ? socket.bytesRead : undefined;
      this.#end(response);
    });
    return true;
  }

  /** Whether a complete request waits for its response. */
  get hasWork(): boolean {
    for (const connection of this.#open.values()) if (isHandling(connection)) return true;
    return false;
  }

  /** Closes connections that were used and have received nothing since. */
  closeIdle(): void {
    for (const [socket, { exchanges, bytesReadAtEnd }] of this.#open)
      if (exchanges.size === 0 && bytesReadAtEnd === socket.bytesRead) socket.destroy();
  }

  /** Closes all connections and returns their number. */
  cut(): number {
    const sockets = [...this.#open.keys()];
    for (const socket of sockets) socket.destroy();
    return sockets.length;
  }

  /**
   * Closes connections whose peer does not read. Node's socket timeout takes twice as long: it starts again when the first
   * part of a write went out. This counts whole writes, so a peer that reads a byte a minute is cut, too.
   */
  #check(): void {
    this.#isChecking = true;
    this.#clock.after(
      this.#limits.unreadMs / checksUntilUnread,
      () => {
        for (const connection of this.#open.values()) {
          const { socket } = connection;
          const sentBytes = socket.bytesWritten - socket.writableLength;
          const isStalled = socket.writableLength > 0 && sentBytes === connection.sentBytes;
          connection.sentBytes = sentBytes;
          connection.stalledChecks = isStalled ? connection.stalledChecks + 1 : 0;
          if (connection.stalledChecks >= checksUntilUnread) this.#close(connection, 'unread');
        }
        this.#isChecking = this.#open.size > 0;
        if (this.#isChecking) this.#check();
      },
      { unref: true },
    );
  }
}

function firstUnfinished(responses: ReadonlySet<GatedResponse>): GatedResponse | undefined {
  for (const response of responses) if (!response.req.complete) return response;
  return undefined;
}

/** Bounds the cost of each new connection in a flood. */
const maxVisited = 100;

/**
 * The oldest connection of a stranger without a request in progress, else the oldest: a slot for a known caller is worth
 * more than its response. The newcomer, which is the last of them, only if it is alone.
 */
function leastNeeded(strangers: ReadonlySet<Connection>, newcomer: Connection): Connection {
  let oldest = newcomer;
  let visited = 0;
  for (const connection of strangers) {
    if (connection === newcomer || visited === maxVisited) break;
    if (!isHandling(connection)) return connection;
    if (visited === 0) oldest = connection;
    visited += 1;
  }
  return oldest;
}

/** A complete request waits for its response. */
function isHandling({ exchanges }: Connection): boolean {
  for (const response of exchanges) if (response.req.complete && !response.writableEnded) return true;
  return false;
}
