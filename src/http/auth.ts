/**
 * Authentication and authorization. Two bearer keys: the API key allows the operations of voice agents, the admin key
 * allows everything, and so does a session of the console, which starts with the admin key (sessions.ts). Without any key
 * the router is open; the configuration rejects that beyond loopback unless AUTH_DISABLED is set. Webhooks carry their
 * provider's signature instead, checked when the body is complete (routes/webhooks.ts).
 *
 * A browser also sends the cookie with requests that a foreign page causes. SameSite prevents most of that; in addition,
 * mutating requests require a header that a foreign page cannot set. Where no key is needed, a request that the browser
 * marks as cross-site is rejected. A router without any key also rejects mutating requests whose Host is neither loopback
 * nor the host of PUBLIC_URL, unless AUTH_DISABLED is set.
 */
import type { IncomingMessage } from 'node:http';
import { isIP, isIPv6 } from 'node:net';
import type { FastifyRequest } from 'fastify';
import type { Config } from '../config/config.js';
import { isLoopback } from '../config/fields.js';
import { showValue } from '../config/tiers.js';
import { AppError } from '../errors.js';
import type { Access } from './context.js';
import { bearerMatches } from './providers/signatures.js';
import { PROVIDERS } from './providers/status.js';
import { openSession, type Session } from './sessions.js';

type Keys = Pick<Config, 'apiKey' | 'adminKey' | 'consoleSessionTtlMs'>;
type AccessConfig = Keys & Pick<Config, 'authDisabled' | 'publicUrl'>;

/** Without any key every caller counts as known. */
export function isOpen({ apiKey, adminKey }: Keys): boolean {
  return apiKey === undefined && adminKey === undefined;
}

const webhookPath = new RegExp(`^/api/v1/(?:${PROVIDERS.join('|')})/`);

/**
 * Whether the caller may be known: it has a key or a session, or the request goes to a webhook, whose signature can be
 * checked only with its body.
 */
export function mayBeKnown(keys: Keys, request: IncomingMessage, nowMs: number): boolean {
  if (isOpen(keys) || webhookPath.test(request.url ?? '')) return true;
  const { authorization } = request.headers;
  if (authorization === undefined) return sessionOf(keys, request, nowMs) !== undefined;
  return bearerMatches(authorization, keys.apiKey) || bearerMatches(authorization, keys.adminKey);
}

const safeMethods = new Set(['GET', 'HEAD', 'OPTIONS']);
/** IPv6 with an IPv4 tail fits; a zone behind it may have any length. */
const maxAddressLength = 64;

/** Returns the name of the caller, or throws 401 or 403. */
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
  if (bearerMatches(authorization, adminKey)) return 'admin';
  const isApiKey = bearerMatches(authorization, apiKey);
  // With a key in the request only the key counts: a cookie does not make up for a wrong key.
  const session = authorization === undefined ? sessionOf(keys, request, nowMs) : undefined;
  if (session) {
    if (!safeMethods.has(request.method)) {
      assertNoForeignPage(request);
      assertOwnPage(request);
    }
    return session.name;
  }
  if (access === 'api') {
    if (isApiKey) return 'api';
    throw unauthorized();
  }
  if (adminKey === undefined) throw noAdminKey();
  if (isApiKey) throw new AppError('forbidden', 'this requires the admin key; the API key is not sufficient');
  throw unauthorized();
}

export function sessionOf(
  { adminKey, consoleSessionTtlMs }: Keys,
  { headers }: Pick<IncomingMessage, 'headers'>,
  nowMs: number,
): Session | undefined {
  return adminKey === undefined
    ? undefined
    : openSession(adminKey, headers.cookie, nowMs, consoleSessionTtlMs);
}

/**
 * The address of the caller, without the port that some proxies add. A trusted proxy may forward any text of its caller:
 * text that is not an address becomes `unknown`, in logs, events and limits.
 */
export function addressOf({ ip }: Pick<FastifyRequest, 'ip'>): string {
  const text = ip ?? '';
  const withPort = /^(?:\[([\da-f:.]{2,45})\]|([\d.]{7,15}))(?::\d{1,5})?$/i.exec(text);
  const address = withPort?.[1] ?? withPort?.[2] ?? text;
  return isIP(address) === 0 || address.length > maxAddressLength ? 'unknown' : address;
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
    'this requires the admin key, but SMART_ROUTER_ADMIN_KEY is not set on the router',
  );
}

/** For mutating requests that need no key. */
export function assertLocalCaller(config: AccessConfig, request: FastifyRequest): void {
  assertNoForeignPage(request);
  if (isOpen(config) && !config.authDisabled) assertOwnHost(config.publicUrl, request.headers.host);
}

/** Programs and old browsers do not send the header; `none` is a typed address. */
function assertNoForeignPage({ headers }: FastifyRequest): void {
  const site = headers['sec-fetch-site'];
  if (site !== 'cross-site' && site !== 'same-site') return;
  throw new AppError('forbidden', 'cross-site requests may not change anything');
}

/**
 * Stops DNS rebinding: a foreign page points its own name at 127.0.0.1 after it was loaded, and the browser then treats it
 * as a page of this router. The name stays in the Host header. Forwarded headers do not count: such a page can set them.
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
    `this router has no key: mutating requests must go to localhost, a loopback address or the host of PUBLIC_URL, got Host ${showValue(host)}; set PUBLIC_URL or a key`,
  );
}

function assertOwnPage(request: FastifyRequest): void {
  if (request.headers['x-console'] === '1') return;
  throw new AppError(
    'forbidden',
    'mutating requests with the console cookie require the header `X-Console: 1`',
  );
}

function unauthorized(): AppError {
  return new AppError('unauthorized', 'send a valid key as `Authorization: Bearer <key>`');
}
