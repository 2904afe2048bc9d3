/**
 * Sign-ins to the console: a cookie that says until when, sealed with a key that only holders of the admin key can make.
 *
 * Promises: nothing is kept, so every replica accepts what another has sealed; another admin key ends every session; a
 * cookie that was touched, has run out, comes twice or claims to last longer than sessions do counts as none. Nothing
 * that opens anything is in a log: a session is named there by a digest of its nonce.
 *
 * Weakness: a sign-out tells the browser to forget. A cookie that was copied before is good until it runs out; a new
 * admin key ends it at once.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';

export const sessionCookie = 'smart_router_session';

export interface Session {
  /** For logs and events. */
  id: string;
  expiresAtMs: number;
}

const sealed = /^v1\.(\d{12,15})\.([\w-]{22})\.([\w-]{43})$/;
/** How far the clocks of two replicas may be apart. */
const skewMs = 60_000;

/** The value of a cookie for a session that begins now. */
export function sealSession(adminKey: string, expiresAtMs: number): { value: string; session: Session } {
  const nonce = randomBytes(16).toString('base64url');
  const text = `v1.${expiresAtMs}.${nonce}`;
  return {
    value: `${text}.${sealOf(adminKey, text).toString('base64url')}`,
    session: { id: idOf(nonce), expiresAtMs },
  };
}

/** The session of a request's Cookie header; undefined when there is none that counts. */
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
  // The last of 43 characters has bits to spare: only the way that we write it counts.
  const isWhole = given.length === expected.length && given.toString('base64url') === seal;
  if (!isWhole || !timingSafeEqual(given, expected)) return undefined;
  const expiresAtMs = Number(expiry);
  if (expiresAtMs <= nowMs || expiresAtMs > nowMs + ttlMs + skewMs) return undefined;
  return { id: idOf(nonce), expiresAtMs };
}

export function cookieHeader(value: string, maxAgeMs: number, isSecure: boolean): string {
  const parts = [`${sessionCookie}=${value}`, 'HttpOnly', 'SameSite=Strict', 'Path=/'];
  parts.push(`Max-Age=${Math.floor(maxAgeMs / 1000)}`);
  if (isSecure) parts.push('Secure');
  return parts.join('; ');
}

/** A name that comes twice was put there by somebody else too, and nobody can say which is ours. */
function cookieIn(header: string | undefined): string | undefined {
  const found: string[] = [];
  for (const pair of (header ?? '').split(';')) {
    const at = pair.indexOf('=');
    if (at > 0 && pair.slice(0, at).trim() === sessionCookie) found.push(pair.slice(at + 1).trim());
  }
  return found.length === 1 ? found[0] : undefined;
}

/** One key for one purpose: what is sealed here proves nothing anywhere else. */
function sealOf(adminKey: string, text: string): Buffer {
  const key = createHmac('sha256', adminKey).update('smart-router console session v1').digest();
  return createHmac('sha256', key).update(text).digest();
}

function idOf(nonce: string): string {
  return createHash('sha256').update(nonce).digest('hex').slice(0, 8);
}
