/**
 * The server in front of all routes. It rejects a request for which there is no room before Fastify sees it: routing, validating and
 * logging it first would cost nearly as much as an allocate. Other requests take their slot when the body is complete and the caller
 * is authenticated (`admit`). Rejections there, and of webhooks that start a call (allocation.ts), are ordinary errors with a
 * line in the log.
 */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import type { Clock } from '../clock.js';
import { AppError } from '../errors.js';
import { type Admission, kindOf, type Slot } from './admission.js';
import type { Connection, Connections } from './connections.js';
import type { HttpContext } from './context.js';
import { errorBody } from './errors.js';
import { PROVIDERS } from './providers/status.js';

type Handler = (request: IncomingMessage, response: ServerResponse) => void;
type GateContext = Pick<HttpContext, 'admission' | 'metrics' | 'stopping'>;

export type CountRejection = ReturnType<typeof rejectionCounter>;

interface GateOptions {
  connections: Connections;
  countRejection: CountRejection;
  /** By request line and headers: whether any route could accept the caller as known. */
  mayBeKnown: (request: IncomingMessage) => boolean;
}

const logEveryMs = 1000;
/** Slow senders are cut off; responses may take as long as a drain waits. */
const requestTimeoutMs = 30_000;
const keepAliveTimeoutMs = 75_000;
/** How often Node looks for requests that arrive too slowly; its default of 30 s would double their time limit. */
const checkEveryMs = 5000;

/**
 * Node's response with the connection of its request and the slot that it holds in admission. `end` frees the slot,
 * no matter when the peer reads.
 */
export class GatedResponse extends ServerResponse<IncomingMessage> {
  connectionState: Connection | undefined = undefined;
  /** Set while the request counts for an address behind a proxy (see Connections.countFor). */
  address: string | undefined = undefined;
  #admission: Admission | undefined = undefined;
  #slot: Slot | undefined = undefined;

  /** Takes a slot; false if none is free. True without a slot if the connection is already closed. */
  enter(admission: Admission, slot: Slot): boolean {
    if (this.req.socket.destroyed) return true;
    if (!admission.enter(slot)) return false;
    this.#admission = admission;
    this.#slot = slot;
    return true;
  }

  /** Frees the slot. Also called when the connection breaks: Node then never ends a response queued behind another one. */
  leave(): void {
    if (this.#slot === undefined) return;
    this.#admission?.leave(this.#slot);
    this.#slot = undefined;
  }

  /**
   * Writes a text together with its headers. Node's `end` adds an empty write for its callback, and gathering the two took
   * 3 of 67 us of a request.
   */
  override end(...given: unknown[]): this {
    this.leave();
    const [text, ...options] = given;
    const { socket } = this;
    // Without a socket it waits behind the response of an earlier request.
    if (typeof text !== 'string' || options.some(Boolean) || socket === null || !this.headersSent)
      return super.end(...(given as Parameters<ServerResponse['end']>));
    // `write` would otherwise cork the socket until the end of the turn.
    socket.cork();
    this.write(text);
    socket.uncork();
    return super.end();
  }
}

export function overloaded(): AppError {
  return new AppError('overloaded', 'router overloaded: request rejected, nothing was changed; retry', {
    retryAfterSeconds: 1,
  });
}

const rejectionBody = JSON.stringify(errorBody(overloaded()));
/** A flat list instead of an object: 22.5 instead of 25 us in a server that only rejects. */
const rejectionHeaders = [
  ...['content-type', 'application/json; charset=utf-8'],
  ...['content-length', String(Buffer.byteLength(rejectionBody))],
  ...['retry-after', '1'],
];

/** Node's server with our timeouts; `handler` gets the requests that are not rejected. */
export function gatedServer(
  context: GateContext,
  { connections, countRejection, mayBeKnown }: GateOptions,
  handler: Handler,
): Server {
  const { admission, metrics } = context;
  const server = createServer(
    {
      requestTimeout: requestTimeoutMs,
      keepAliveTimeout: keepAliveTimeoutMs,
      connectionsCheckingInterval: checkEveryMs,
      ServerResponse: GatedResponse,
    },
    (request, response) => {
      if (!connections.begin(response)) return;
      const { method = '', url = '' } = request;
      const kind = kindOf(method, url);
      admission.arrived();
      const hasRoom = admission.hasRoom(kind);
      const isStranger = (!hasRoom || admission.isLowered) && kind !== 'probe' && !mayBeKnown(request);
      if (!hasRoom || (isStranger && !admission.admitStranger())) {
        const isCall = kind === 'call';
        countRejection(isStranger ? 'stranger' : isCall || newCallWebhook.test(url) ? 'call' : 'other');
        metrics.httpRequests.inc({
          method,
          endpoint: isCall ? '/api/v1/allocate' : 'unmatched',
          status: '503',
        });
        reject(context, request, response, isStranger);
        return;
      }
      handler(request, response);
    },
  );
  server.on('connection', (socket) => connections.opened(socket));
  // Called when the server closes. Node's own also cuts responses that are still being read.
  server.closeIdleConnections = () => connections.closeIdle();
  return server as unknown as Server;
}

/**
 * Takes the slot of a request whose body is complete and whose caller is authenticated, or is a stranger. Throws
 * `overloaded` if none is free. The slot is freed when the response is handed to the socket.
 */
export function admit({ admission }: HttpContext, reply: FastifyReply, isStranger: boolean): void {
  const response = reply.raw as GatedResponse;
  // The kind of the route, not of the request line: a path can be written in many ways (`/%64rain`).
  const { kind = 'other' } = reply.routeOptions.config;
  if (kind === 'probe' || response.enter(admission, isStranger ? 'stranger' : kind)) return;
  reply.server.countRejection(isStranger ? 'stranger' : kind === 'call' ? 'call' : 'other');
  throw overloaded();
}

function reject(
  { stopping }: GateContext,
  { headers }: IncomingMessage,
  response: ServerResponse,
  isStranger: boolean,
): void {
  const all = [...rejectionHeaders, 'x-request-id', requestId(headers['x-request-id'])];
  if (stopping.aborted || isStranger) all.push('connection', 'close');
  response.writeHead(503, all);
  response.end(rejectionBody);
}

/** The caller's id if it is well-formed, so that one id follows a call through several systems. */
export function requestId(given: unknown): string {
  return typeof given === 'string' && /^[\w.:-]{1,128}$/.test(given) ? given : randomUUID();
}

/** The webhook of a new call. Plivo may send a hangup there too; rejected unread, it counts as a call. */
const newCallWebhook = new RegExp(`^/api/v1/(?:${PROVIDERS.join('|')})/allocate/?(?:\\?|$)`);

/** Returns a function that counts a rejected request; their number is logged once a second. */
export function rejectionCounter({
  admission,
  metrics,
  log,
  clock,
}: Pick<HttpContext, 'admission' | 'metrics' | 'log' | 'clock'>) {
  const logSoon = onceASecond(clock, (rejected) => {
    log.warn(
      { rejected, in_flight: admission.inFlight, limit: admission.callLimit },
      'router overloaded; requests rejected',
    );
  });
  return (kind: 'call' | 'other' | 'stranger') => {
    metrics.requestsShed.inc({ kind });
    logSoon();
  };
}

/** Counts, and reports the count one second after the first. */
export function onceASecond(clock: Clock, report: (count: number) => void): () => void {
  let count = 0;
  const flush = () => {
    report(count);
    count = 0;
  };
  return () => {
    count += 1;
    if (count === 1) clock.after(logEveryMs, flush, { unref: true });
  };
}
