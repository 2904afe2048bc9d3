/**
 * Sessions of the console: a cookie with its expiry, sealed with a key that is derived from the admin key.
 *
 * Guarantees: routers keep no state, so every replica accepts a session of another. A new admin key ends every session.
 * A cookie that was changed, has expired, occurs twice or lasts longer than sessions do is ignored. Logs name a session
 * by a digest of its nonce, never by the cookie.
 *
 * Weakness: a sign-out only deletes the cookie in the browser. A copy of it is valid until it expires or the admin key
 * changes.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Clock } from '../clock.js';
import { networkOf } from './auth.js';

const sessionCookie = 'smart_router_session';
/** By https: a browser accepts the prefix only from this host, so that no other host of the domain can set the cookie. */
const secureCookie = `__Host-${sessionCookie}`;

export interface Session {
  /** For logs and events: the digest of its nonce. */
  name: string;
  expiresAtMs: number;
}

const sealed = /^v1\.(\d{12,15})\.([\w-]{22})\.([\w-]{43})$/;
/** Allowed difference between the clocks of two replicas. */
const skewMs = 60_000;

export function sealSession(adminKey: string, expiresAtMs: number): { value: string; session: Session } {
  const nonce = randomBytes(16).toString('base64url');
  const text = `v1.${expiresAtMs}.${nonce}`;
  return {
    value: `${text}.${sealOf(adminKey, text).toString('base64url')}`,
    session: { name: nameOf(nonce), expiresAtMs },
  };
}

/** The valid session of a Cookie header, or undefined. */
export function openSession(
  adminKey: string,
  header: string | undefined,
  nowMs: number,
  ttlMs: number,
): Session | undefined {
  const value = cookieIn(header);
  const parts = value === undefined ? null : sealed.exec(value);
  if (!parts) return undefined;
  const [, expiry = '', nonce = '', seal = ''] = parts;
  const expected = sealOf(adminKey, `v1.${expiry}.${nonce}`);
  const given = Buffer.from(seal, 'base64url');
  // The last of 43 characters has spare bits: accept only the encoding that we write.
  const isWhole = given.length === expected.length && given.toString('base64url') === seal;
  if (!isWhole || !timingSafeEqual(given, expected)) return undefined;
  const expiresAtMs = Number(expiry);
  if (expiresAtMs <= nowMs || expiresAtMs > nowMs + ttlMs + skewMs) return undefined;
  return { name: nameOf(nonce), expiresAtMs };
}

export function cookieHeader(value: string, maxAgeMs: number, isSecure: boolean): string {
  const name = isSecure ? secureCookie : sessionCookie;
  const maxAge = Math.floor(maxAgeMs / 1000);
  return `${name}=${value}; HttpOnly; SameSite=Strict; Path=/; Max-Age=${maxAge}${isSecure ? '; Secure' : ''}`;
}

/** A cookie that occurs twice is ignored: another site has set one of them, and we cannot tell which. */
function cookieIn(header: string | undefined): string | undefined {
  const pairs = (header ?? '').split(';').map((pair) => pair.split(/=(.*)/s).map((part) => part.trim()));
  const valuesOf = (cookie: string) => pairs.filter(([name]) => name === cookie).map(([, value]) => value);
  const secure = valuesOf(secureCookie);
  const found = secure.length > 0 ? secure : valuesOf(sessionCookie);
  return found.length === 1 ? found[0] : undefined;
}

/** Derives a key for this purpose only: a seal is worthless anywhere else. */
function sealOf(adminKey: string, text: string): Buffer {
  const key = createHmac('sha256', adminKey).update('smart-router console session v1').digest();
  return createHmac('sha256', key).update(text).digest();
}

function nameOf(nonce: string): string {
  return `console:${createHash('sha256').update(nonce).digest('hex').slice(0, 8)}`;
}

export const maxFailures = 10;
const windowMs = 60_000;
const maxAddresses = 10_000;

/**
 * Slows down guessing the admin key at the sign-in: after ten wrong keys of an address within a minute it ignores keys
 * until the oldest of them is a minute old. Bearer keys are not limited: agents behind one proxy share an address, and
 * one agent with an old key must not cost the others their calls. In memory, per replica, with a bounded number of
 * addresses: the one that failed longest ago is dropped first.
 */
export class SignInLimit {
  readonly #failures = new Map<string, number[]>();

  constructor(readonly clock: Clock) {}

  /** Seconds until the next attempt is checked; 0: now. */
  waitSeconds(address: string): number {
    const times = this.#recent(networkOf(address));
    const oldest = times.length >= maxFailures ? times[times.length - maxFailures] : undefined;
    if (oldest === undefined) return 0;
    return Math.max(1, Math.ceil((oldest + windowMs - this.clock.monotonic()) / 1000));
  }

  failed(address: string): void {
    const network = networkOf(address);
    const times = [...this.#recent(network), this.clock.monotonic()].slice(-maxFailures);
    this.#failures.delete(network);
    this.#failures.set(network, times);
    for (const first of this.#failures.keys()) {
      if (this.#failures.size <= maxAddresses) break;
      this.#failures.delete(first);
    }
  }

  succeeded(address: string): void {
    this.#failures.delete(networkOf(address));
  }

  get addresses(): number {
    return this.#failures.size;
  }

  #recent(network: string): number[] {
    const sinceMs = this.clock.monotonic() - windowMs;
    return (this.#failures.get(network) ?? []).filter((atMs) => atMs > sinceMs);
  }
}
