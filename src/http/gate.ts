/**
 * The door in front of all routes. Whoever is refused is answered here, on Node's own objects: to route, validate, log
 * and count a request costs nearly as much as to allocate, and a router with too much to do has nothing left for that.
 * So refusals are counted, and told in the log once a second.
 */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { AppError } from '../errors.js';
import { type Kind, kindOf } from './admission.js';
import type { HttpContext } from './context.js';
import { errorBody } from './errors.js';

type Handler = (request: IncomingMessage, response: ServerResponse) => void;
type GateContext = Pick<HttpContext, 'admission' | 'metrics' | 'log' | 'clock' | 'stopping'>;

const tellEveryMs = 1000;

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
  { requestTimeout, keepAliveTimeout }: { requestTimeout: number; keepAliveTimeout: number },
  handler: Handler,
): Server {
  const { admission } = context;
  const tell = teller(context);
  return createServer({ requestTimeout, keepAliveTimeout }, (request, response) => {
    const kind = kindOf(request.url ?? '');
    if (!admission.enter(kind)) {
      tell(request.method ?? '', kind);
      refuse(context, request, response);
      return;
    }
    // Comes once, after the answer or when the caller hangs up.
    if (kind !== 'probe') response.once('close', () => admission.leave(kind));
    handler(request, response);
  });
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

function teller({ admission, metrics, log, clock }: GateContext): (method: string, kind: Kind) => void {
  let refused = 0;
  let toldMs = Number.NEGATIVE_INFINITY;
  return (method, kind) => {
    const isCall = kind === 'call';
    metrics.requestsShed.inc({ kind: isCall ? 'call' : 'other' });
    metrics.httpRequests.inc({ method, endpoint: isCall ? '/api/v1/allocate' : 'unmatched', status: '503' });
    refused += 1;
    const nowMs = clock.monotonic();
    if (nowMs - toldMs < tellEveryMs) return;
    const { inFlight: in_flight, callLimit: limit } = admission;
    log.warn({ refused, in_flight, limit }, 'more requests than this router can serve: new calls get 503');
    refused = 0;
    toldMs = nowMs;
  };
}
