/**
 * Who may do what. Two bearer keys: the API key opens what voice agents need, the admin key opens everything.
 * With no key set the router is open; the configuration refuses that beyond loopback unless told otherwise.
 * Webhooks have their provider's signature instead, checked where the body is known (routes/webhooks.ts).
 */
import type { FastifyRequest } from 'fastify';
import { AppError } from '../errors.js';
import type { Access, HttpContext } from './context.js';
import { bearerMatches } from './providers/signatures.js';

type Keys = Pick<HttpContext['config'], 'apiKey' | 'adminKey'>;

/** Throws 401 or 403; otherwise names who it is. */
export function authorize({ apiKey, adminKey }: Keys, access: Access, request: FastifyRequest): string {
  if (access === 'public' || access === 'webhook') return access;
  if (apiKey === undefined && adminKey === undefined) return 'anonymous';
  const { authorization } = request.headers;
  if (adminKey !== undefined && bearerMatches(authorization, adminKey)) return 'admin';
  const isApiKey = apiKey !== undefined && bearerMatches(authorization, apiKey);
  if (access === 'api') {
    if (isApiKey) return 'api';
    throw unauthorized();
  }
  if (adminKey === undefined) {
    throw new AppError(
      'forbidden',
      'this needs the admin key, and SMART_ROUTER_ADMIN_KEY is not set on the router',
    );
  }
  if (isApiKey) throw new AppError('forbidden', 'this needs the admin key: the API key does not open it');
  throw unauthorized();
}

function unauthorized(): AppError {
  return new AppError('unauthorized', 'send a valid key as `Authorization: Bearer <key>`');
}
