/**
 * The server in front of all routes. A request for which there is clearly no room is refused here, on Node's own objects:
 * to route, validate, log and count a request costs nearly as much as to allocate, and an overloaded router has nothing
 * left for that. Refusals are counted, and logged once a second. A request that passes takes its place later, when its body
 * is complete and its caller is known (`admit`).
 */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import type { Clock } from '../clock.js';
import { AppError } from '../errors.js';
import { type Kind, kindOf } from './admission.js';
import type { Connections } from './connections.js';
import type { HttpContext } from './context.js';
import { errorBody } from './errors.js';
import { PROVIDERS } from './providers/status.js';
import { GatedResponse } from './response.js';

type Handler = (request: IncomingMessage, response: ServerResponse) => void;
type GateContext = Pick<HttpContext, 'admission' | 'metrics' | 'log' | 'clock' | 'stopping'>;

interface GateOptions {
  requestTimeout: number;
  keepAliveTimeout: number;
  connections: Connections;
  /** By its first line and headers alone: false if no route would take it for a known caller. */
  mayBeKnown: (request: IncomingMessage) => boolean;
}

const tellEveryMs = 1000;
/** A client that sends so many requests into one connection without waiting for an answer is none of ours. */
const mostInConnection = 16;
/** How often Node looks for requests that take too long to arrive; 30 s would double the time that they may take. */
const checkEveryMs = 5000;

export function overloaded(): AppError {
  return new AppError('overloaded', 'router overloaded: request rejected, nothing was changed; retry', {
    retryAfterSeconds: 1,
  });
}

const refusal = JSON.stringify(errorBody(overloaded()));
const headers = {
  'content-type': 'application/json; charset=utf-8',
  'content-length': Buffer.byteLength(refusal),
  'retry-after': '1',
};

/** Node's server with our timeouts; `handler` gets the requests that are not refused. */
export function gatedServer(
  context: GateContext,
  { requestTimeout, keepAliveTimeout, connections, mayBeKnown }: GateOptions,
  handler: Handler,
): Server {
  const { admission } = context;
  const tell = teller(context);
  const server = createServer(
    {
      requestTimeout,
      keepAliveTimeout,
      connectionsCheckingInterval: checkEveryMs,
      ServerResponse: GatedResponse,
    },
    (request, response) => {
      if (connections.countIn(request.socket) >= mostInConnection) {
        request.socket.destroy();
        return;
      }
      const kind = kindOf(request.method ?? '', request.url ?? '');
      if (!admission.hasRoom(kind) || (admission.isLate && kind !== 'probe' && !mayBeKnown(request))) {
        tell(request, kind);
        refuse(context, request, response);
        return;
      }
      connections.begin(response);
      handler(request, response);
    },
  );
  server.on('connection', (socket) => connections.opened(socket));
  // Called when the server closes. Node's own takes an answer that is still being read for one that is done, and cuts it.
  server.closeIdleConnections = () => connections.closeIdle();
  return server as unknown as Server;
}

/**
 * Takes the place of a request whose body is complete and whose caller is known, or is known to be a stranger.
 * Throws `overloaded` if there is none. It is given back when the answer is handed to the socket.
 */
export function admit({ admission, metrics }: HttpContext, reply: FastifyReply, isStranger: boolean): void {
  const response = reply.raw as GatedResponse;
  // Of the route, not of the request line: the same path can be written in many ways (`/%64rain`).
  const { kind = 'other' } = reply.routeOptions.config;
  if (kind === 'probe' || response.enter(admission, isStranger ? 'stranger' : kind)) return;
  metrics.requestsShed.inc({ kind: isStranger ? 'stranger' : kind === 'call' ? 'call' : 'other' });
  throw overloaded();
}

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
  const tell = onceASecond(clock, (refused) => {
    const { inFlight: in_flight, callLimit: limit } = admission;
    log.warn({ refused, in_flight, limit }, 'router overloaded: requests rejected with 503');
  });
  return ({ method = '', url = '' }, kind) => {
    const isCall = kind === 'call';
    metrics.requestsShed.inc({ kind: isCall || ringing.test(url) ? 'call' : 'other' });
    metrics.httpRequests.inc({ method, endpoint: isCall ? '/api/v1/allocate' : 'unmatched', status: '503' });
    tell();
  };
}

/** Counts, and reports the count a second after the first. */
export function onceASecond(clock: Clock, report: (count: number) => void): () => void {
  let count = 0;
  const flush = () => {
    report(count);
    count = 0;
  };
  return () => {
    count += 1;
    if (count === 1) clock.after(tellEveryMs, flush, { unref: true });
  };
}
