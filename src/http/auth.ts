/**
 * Who may do what. Two bearer keys: the API key opens what voice agents need, the admin key opens everything, and so
 * does a session of the console, which was begun with the admin key (sessions.ts). With no key set the router is open;
 * the configuration refuses that beyond loopback unless told otherwise. Webhooks have their provider's signature
 * instead, checked where the body is known (routes/webhooks.ts).
 *
 * A browser sends a cookie along with whatever a foreign page makes it send. SameSite keeps most of that away; beside
 * it, what changes something must carry a header that a foreign page cannot set.
 */
import type { FastifyRequest } from 'fastify';
import { AppError } from '../errors.js';
import type { Access, HttpContext } from './context.js';
import { bearerMatches } from './providers/signatures.js';
import { openSession, type Session } from './sessions.js';

type Keys = Pick<HttpContext['config'], 'apiKey' | 'adminKey' | 'consoleSessionTtlMs'>;

const safeMethods = new Set(['GET', 'HEAD', 'OPTIONS']);
export const consoleHeader = 'x-console';

/** Throws 401 or 403; otherwise names who it is. */
export function authorize(keys: Keys, access: Access, request: FastifyRequest, nowMs: number): string {
  const { apiKey, adminKey } = keys;
  if (access === 'public' || access === 'webhook') return access;
  if (apiKey === undefined && adminKey === undefined) return 'anonymous';
  const { authorization } = request.headers;
  if (adminKey !== undefined && bearerMatches(authorization, adminKey)) return 'admin';
  const isApiKey = apiKey !== undefined && bearerMatches(authorization, apiKey);
  // Whoever sends a key is judged by it: a wrong one is not mended by a cookie that happens to be there.
  const session = authorization === undefined ? sessionOf(keys, request, nowMs) : undefined;
  if (session) {
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

export function noAdminKey(): AppError {
  return new AppError(
    'forbidden',
    'this needs the admin key, and SMART_ROUTER_ADMIN_KEY is not set on the router',
  );
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
