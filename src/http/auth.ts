/**
 * Who may do what. Two bearer keys: the API key opens what voice agents need, the admin key opens everything, and so
 * does a session of the console, which was begun with the admin key (sessions.ts). With no key set the router is open;
 * the configuration refuses that beyond loopback unless told otherwise. Webhooks have their provider's signature
 * instead, checked where the body is known (routes/webhooks.ts).
 *
 * A browser sends a cookie with each request that a foreign page makes it send. SameSite prevents most of that; in
 * addition, what changes something must carry a header that a foreign page cannot set. Where no key is needed, a request
 * that the browser marks as coming from another site is refused. A router without any key also refuses changes that come
 * to another host than loopback or PUBLIC_URL's, unless AUTH_DISABLED says that any caller may change everything.
 */
import type { IncomingMessage } from 'node:http';
import { isIP, isIPv6 } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { isLoopback } from '../config/fields.js';
import { showValue } from '../config/tiers.js';
import { AppError } from '../errors.js';
import type { Access, HttpContext } from './context.js';
import { bearerMatches } from './providers/signatures.js';
import { PROVIDERS } from './providers/status.js';
import { openSession, type Session } from './sessions.js';

type Keys = Pick<HttpContext['config'], 'apiKey' | 'adminKey' | 'consoleSessionTtlMs'>;
type AccessConfig = Keys & Pick<HttpContext['config'], 'authDisabled' | 'publicUrl'>;

/** No key is set: every caller is known. */
export function isOpen({ apiKey, adminKey }: Keys): boolean {
  return apiKey === undefined && adminKey === undefined;
}

const webhookPath = new RegExp(`^/api/v1/(?:${PROVIDERS.join('|')})/`);

/**
 * Whether a request may turn out to be of a known caller: it has a key or a session, or it goes to a webhook, whose
 * signature can be checked only with its body.
 */
export function mayBeKnown(keys: Keys, { headers, url = '' }: IncomingMessage, nowMs: number): boolean {
  if (isOpen(keys) || webhookPath.test(url)) return true;
  const { authorization, cookie } = headers;
  if (authorization === undefined) return sessionIn(keys, cookie, nowMs) !== undefined;
  const { apiKey, adminKey } = keys;
  return (
    (apiKey !== undefined && bearerMatches(authorization, apiKey)) ||
    (adminKey !== undefined && bearerMatches(authorization, adminKey))
  );
}

const safeMethods = new Set(['GET', 'HEAD', 'OPTIONS']);
export const consoleHeader = 'x-console';
/** Of IPv6 with an IPv4 tail; a zone behind it may have any length. */
const longestAddress = 64;

/** Throws 401 or 403; otherwise names who it is. */
export function authorize(
  keys: AccessConfig,
  access: Access,
  request: FastifyRequest,
  nowMs: number,
): string {
  const { apiKey, adminKey } = keys;
  if (access === 'webhook') return access;
  if (access === 'public' || isOpen(keys)) {
    if (!safeMethods.has(request.method)) assertLocalCaller(keys, request);
    return access === 'public' ? access : 'anonymous';
  }
  const { authorization } = request.headers;
  if (adminKey !== undefined && bearerMatches(authorization, adminKey)) return 'admin';
  const isApiKey = apiKey !== undefined && bearerMatches(authorization, apiKey);
  // Whoever sends a key is judged by it: a wrong one is not mended by a cookie that happens to be there.
  const session = authorization === undefined ? sessionOf(keys, request, nowMs) : undefined;
  if (session) {
    if (!safeMethods.has(request.method)) assertNoForeignPage(request);
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
  return sessionIn(keys, request.headers.cookie, nowMs);
}

function sessionIn(keys: Keys, cookie: string | undefined, nowMs: number): Session | undefined {
  const { adminKey, consoleSessionTtlMs } = keys;
  if (adminKey === undefined) return undefined;
  return openSession(adminKey, cookie, nowMs, consoleSessionTtlMs);
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

/** One machine may use all addresses of an IPv6 network of 64 bits. */
export function networkOf(address: string): string {
  if (!isIPv6(address) || address.includes('.')) return address;
  const [left = '', right] = address.split('%')[0]?.split('::') ?? [];
  const head = left === '' ? [] : left.split(':');
  const tail = right === undefined || right === '' ? [] : right.split(':');
  const zeros =
    right === undefined ? [] : Array<string>(Math.max(0, 8 - head.length - tail.length)).fill('0');
  return [...head, ...zeros, ...tail]
    .slice(0, 4)
    .map((group) => group.toLowerCase().replace(/^0+(?=.)/, ''))
    .join(':');
}

export function noAdminKey(): AppError {
  return new AppError(
    'forbidden',
    'this needs the admin key, and SMART_ROUTER_ADMIN_KEY is not set on the router',
  );
}

/** For what changes something and needs no key. */
export function assertLocalCaller(config: AccessConfig, request: FastifyRequest): void {
  assertNoForeignPage(request);
  if (isOpen(config) && !config.authDisabled) assertOwnHost(config.publicUrl, request.headers.host);
}

/** Programs do not send the header, old browsers neither; `none` is an address that was typed. */
function assertNoForeignPage({ headers }: FastifyRequest): void {
  const site = headers['sec-fetch-site'];
  if (site !== 'cross-site' && site !== 'same-site') return;
  throw new AppError('forbidden', 'a page of another site may not change anything here');
}

/**
 * A foreign page can point a name of its own at 127.0.0.1 after it was loaded (DNS rebinding): for the browser it is then
 * a page of this router. The name stays in the Host header. Forwarded headers do not count: such a page can set them.
 */
function assertOwnHost(publicUrl: string | undefined, host: string | undefined): void {
  if (host === undefined) return;
  const name = host
    .replace(/:\d*$/, '')
    .replace(/^\[(.*)\]$/, '$1')
    .toLowerCase();
  if (isLoopback(name) || name.endsWith('.localhost')) return;
  if (publicUrl !== undefined && new URL(publicUrl).host.replace(/:\d*$/, '') === name) return;
  throw new AppError(
    'forbidden',
    `this router has no key: only requests to localhost, a loopback address or the host of PUBLIC_URL may change something, got Host ${showValue(host)}; set PUBLIC_URL or a key`,
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
