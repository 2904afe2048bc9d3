/**
 * The door in front of all routes. Whoever is refused is answered here, on Node's own objects: to route, validate, log
 * and count a request costs nearly as much as to allocate, and a router with too much to do has nothing left for that.
 * So refusals are counted, and told in the log once a second.
 */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { AppError } from '../errors.js';
import { type Kind, kindOf } from './admission.js';
import type { Connections } from './connections.js';
import type { HttpContext } from './context.js';
import { errorBody } from './errors.js';
import { PROVIDERS } from './providers/status.js';

type Handler = (request: IncomingMessage, response: ServerResponse) => void;
type GateContext = Pick<HttpContext, 'admission' | 'metrics' | 'log' | 'clock' | 'stopping'>;

interface GateOptions {
  requestTimeout: number;
  keepAliveTimeout: number;
  connections: Connections;
}

const tellEveryMs = 1000;
/** Whoever sends so many requests into one connection without waiting for an answer is no client of ours. */
const mostInConnection = 16;
/** A connection in which nothing moves: an answer that nobody reads would keep its place. Longer than any handler takes. */
const stillMs = 90_000;
/** How often Node looks for requests that take too long to arrive; 30 s would double the time that they may take. */
const checkEveryMs = 5000;

export function overloaded(): AppError {
  return new AppError(
    'overloaded',
    'this router has more to do than it can: nothing was changed, ask again',
    {
      retryAfterSeconds: 1,
    },
  );
}

const refusal = JSON.stringify(errorBody(overloaded()));
const headers = {
  'content-type': 'application/json; charset=utf-8',
  'content-length': Buffer.byteLength(refusal),
  'retry-after': '1',
};

/** Node's server with the times of ours; `handler` gets whoever is let in. */
export function gatedServer(
  context: GateContext,
  { requestTimeout, keepAliveTimeout, connections }: GateOptions,
  handler: Handler,
): Server {
  const { admission } = context;
  const tell = teller(context);
  const options = { requestTimeout, keepAliveTimeout, connectionsCheckingInterval: checkEveryMs };
  const server = createServer(options, (request, response) => {
    const kind = kindOf(request.method ?? '', request.url ?? '');
    const { socket } = request;
    if (connections.countIn(socket) >= mostInConnection) {
      socket.destroy();
      return;
    }
    if (!admission.enter(kind)) {
      tell(request, kind);
      refuse(context, request, response);
      return;
    }
    // It is silent for as long as it lasts.
    if (kind === 'lasting') silentOnes.add(socket);
    connections.begin(request, response, () => admission.leave(kind));
    handler(request, response);
  });
  server.on('connection', (socket) => connections.opened(socket));
  // Called when the server closes. Node's own takes an answer that is still being read for one that is done, and cuts it.
  server.closeIdleConnections = () => connections.closeIdle();
  server.timeout = stillMs;
  server.on('timeout', (socket) => {
    if (!silentOnes.has(socket)) socket.destroy();
  });
  return server;
}

const silentOnes = new WeakSet<Socket>();

function refuse({ stopping }: GateContext, { headers: given }: IncomingMessage, response: ServerResponse) {
  const id = given['x-request-id'];
  response.writeHead(503, {
    ...headers,
    'x-request-id': requestId(id),
    ...(stopping.aborted ? { connection: 'close' } : {}),
  });
  response.end(refusal);
}

/** The caller's id if it is a sane one, so that one id follows a call through several systems. */
export function requestId(given: unknown): string {
  return typeof given === 'string' && /^[\w.:-]{1,128}$/.test(given) ? given : randomUUID();
}

/** Where a provider rings. Plivo may hang up there too; refused unread, it counts as the call that it nearly always is. */
const ringing = new RegExp(`^/api/v1/(?:${PROVIDERS.join('|')})/allocate/?(?:\\?|$)`);

function teller({
  admission,
  metrics,
  log,
  clock,
}: GateContext): (request: IncomingMessage, kind: Kind) => void {
  let refused = 0;
  const tell = () => {
    const { inFlight: in_flight, callLimit: limit } = admission;
    log.warn({ refused, in_flight, limit }, 'more requests than this router can serve: refused with 503');
    refused = 0;
  };
  return ({ method = '', url = '' }, kind) => {
    const isCall = kind === 'call';
    metrics.requestsShed.inc({ kind: isCall || ringing.test(url) ? 'call' : 'other' });
    metrics.httpRequests.inc({ method, endpoint: isCall ? '/api/v1/allocate' : 'unmatched', status: '503' });
    refused += 1;
    if (refused === 1) clock.after(tellEveryMs, tell);
  };
}
