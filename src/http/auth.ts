/**
 * Who may do what. Two bearer keys: the API key opens what voice agents need, the admin key opens everything, and so
 * does a session of the console, which was begun with the admin key (sessions.ts). With no key set the router is open;
 * the configuration refuses that beyond loopback unless told otherwise. Webhooks have their provider's signature
 * instead, checked where the body is known (routes/webhooks.ts).
 *
 * A browser sends a cookie along with whatever a foreign page makes it send. SameSite keeps most of that away; beside
 * it, what changes something must carry a header that a foreign page cannot set. An open router has no cookie to miss:
 * there, and wherever no key is needed, the browser's own word that another site asks is enough to be refused.
 */
import { isIP } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { AppError } from '../errors.js';
import type { Access, HttpContext } from './context.js';
import { bearerMatches } from './providers/signatures.js';
import { openSession, type Session } from './sessions.js';

type Keys = Pick<HttpContext['config'], 'apiKey' | 'adminKey' | 'consoleSessionTtlMs'>;

const safeMethods = new Set(['GET', 'HEAD', 'OPTIONS']);
export const consoleHeader = 'x-console';
/** Of IPv6 with an IPv4 tail; a zone behind it may have any length. */
const longestAddress = 64;

/** Throws 401 or 403; otherwise names who it is. */
export function authorize(keys: Keys, access: Access, request: FastifyRequest, nowMs: number): string {
  const { apiKey, adminKey } = keys;
  if (access === 'webhook') return access;
  const isOpen = apiKey === undefined && adminKey === undefined;
  if (access === 'public' || isOpen) {
    assertNoForeignPage(request);
    return access === 'public' ? access : 'anonymous';
  }
  const { authorization } = request.headers;
  if (adminKey !== undefined && bearerMatches(authorization, adminKey)) return 'admin';
  const isApiKey = apiKey !== undefined && bearerMatches(authorization, apiKey);
  // Whoever sends a key is judged by it: a wrong one is not mended by a cookie that happens to be there.
  const session = authorization === undefined ? sessionOf(keys, request, nowMs) : undefined;
  if (session) {
    assertNoForeignPage(request);
    assertOwnPage(request);
    return nameOf(session);
  }
  if (access === 'api') {
    if (isApiKey) return 'api';
    throw unauthorized();
  }
  if (adminKey === undefined) throw noAdminKey();
  if (isApiKey) throw new AppError('forbidden', 'this needs the admin key: the API key does not open it');
  throw unauthorized();
}

export function sessionOf(keys: Keys, request: FastifyRequest, nowMs: number): Session | undefined {
  const { adminKey, consoleSessionTtlMs } = keys;
  if (adminKey === undefined) return undefined;
  return openSession(adminKey, request.headers.cookie, nowMs, consoleSessionTtlMs);
}

export function nameOf({ id }: Session): string {
  return `console:${id}`;
}

/**
 * Where a request came from. A proxy that is trusted may still hand on what its caller wrote: what is no address is not
 * repeated in logs and events, and all of it is one address for whoever counts. Some proxies add the port.
 */
export function addressOf({ ip }: Pick<FastifyRequest, 'ip'>): string {
  const text = ip ?? '';
  const withPort = /^(?:\[([\da-f:.]{2,45})\]|([\d.]{7,15}))(?::\d{1,5})?$/i.exec(text);
  const address = withPort?.[1] ?? withPort?.[2] ?? text;
  return isIP(address) === 0 || address.length > longestAddress ? 'unknown' : address;
}

export function noAdminKey(): AppError {
  return new AppError(
    'forbidden',
    'this needs the admin key, and SMART_ROUTER_ADMIN_KEY is not set on the router',
  );
}

/** Programs do not send the header, old browsers neither; `none` is an address that was typed. */
function assertNoForeignPage({ method, headers }: FastifyRequest): void {
  const site = headers['sec-fetch-site'];
  if (safeMethods.has(method) || (site !== 'cross-site' && site !== 'same-site')) return;
  throw new AppError('forbidden', 'a page of another site may not change anything here');
}

function assertOwnPage(request: FastifyRequest): void {
  if (safeMethods.has(request.method) || request.headers[consoleHeader] === '1') return;
  throw new AppError(
    'forbidden',
    'with the cookie of the console, what changes something needs the header `X-Console: 1`',
  );
}

function unauthorized(): AppError {
  return new AppError('unauthorized', 'send a valid key as `Authorization: Bearer <key>`');
}
