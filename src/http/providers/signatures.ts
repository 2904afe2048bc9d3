/**
 * Verifies the sender of a webhook by its provider's scheme.
 *
 * Guarantees: a wrong, missing or repeated credential is `false`, never an exception; an empty configured token matches
 * nothing; comparisons take constant time, independent of the secret and its length.
 * Weakness: no scheme signs a time, so a recorded request can be replayed. The damage is small: allocate and release are
 * idempotent per call id. Plivo's V2 signs neither query nor body, see below.
 */
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import { parse, stringify } from 'node:querystring';
import type { Pair } from './form.js';

/** An account has two active tokens during a change. A header of 16 KB has room for 7,000 signatures: 90 ms. */
const maxSignatures = 8;

/**
 * Plivo sends digits. Its signatures join URL, fields and nonce without quoting, and the caller chooses the nonce: one
 * with `?`, `.` or `/` could imitate the end of a URL or of the fields, and pass a V3 signature as V2.
 */
const plivoNonce = /^[A-Za-z0-9-]{1,64}$/;

/** A header or query value of Node and Fastify; a list means that it was sent more than once. */
export type Received = string | readonly string[] | undefined;

/** Constant time: compares digests, which all have the same length. */
export function secretsEqual(received: string, expected: string): boolean {
  return timingSafeEqual(sha256(received), sha256(expected));
}

/** Of the configured keys, so that no request hashes them again: 1.8 us with two keys. */
const keyDigests = new Map<string, Buffer>();

/** Nothing matches a key that is not set. */
export function bearerMatches(header: Received, key: string | undefined): boolean {
  const credentials = credentialsOf(header, 'bearer');
  if (credentials === undefined || !key) return false;
  const expected = keyDigests.get(key) ?? sha256(key);
  keyDigests.set(key, expected);
  return timingSafeEqual(sha256(credentials), expected);
}

/**
 * Twilio: HMAC-SHA1 with the auth token, in base64, over the URL and every POST parameter sorted by name, name and value
 * without separators. A repeated name counts once per distinct value, sorted.
 */
export function twilioSignature(token: string, url: string, params: readonly Readonly<Pair>[]): string {
  return twilioSign(token, url, twilioFields(params));
}

function twilioSign(token: string, url: string, fields: string): string {
  return createHmac('sha1', token)
    .update(url + fields)
    .digest('base64');
}

/** Length of an HMAC-SHA1 in base64. */
const twilioSignatureLength = 28;

function twilioFields(params: readonly Readonly<Pair>[]): string {
  let fields = '';
  let previous: Readonly<Pair> | undefined;
  for (const pair of [...params].sort(byNameThenValue)) {
    if (previous?.[0] !== pair[0] || previous[1] !== pair[1]) fields += pair[0] + pair[1];
    previous = pair;
  }
  return fields;
}

export function verifyTwilio(request: SignedRequest & { readonly signature: Received }): boolean {
  const { token, signature, url, params } = request;
  if (token === '' || typeof signature !== 'string' || signature.length !== twilioSignatureLength)
    return false;
  // Sorted and joined once for all variants of the URL.
  const fields = twilioFields(params);
  // Computes all variants, so that the time does not leak which of them matched.
  return twilioUrls(url)
    .map((each) => secretsEqual(signature, twilioSign(token, each, fields)))
    .includes(true);
}

/**
 * The URLs that Twilio may have signed. It is not consistent about the port, and re-encodes some queries before signing;
 * its own Node library (webhooks.ts, "signature generation on the back end is inconsistent") tries all of these, too.
 * At most eight: as received or normalized, with or without a port, with either query.
 */
function twilioUrls(url: string): string[] {
  const urls = [url];
  if (URL.canParse(url)) urls.push(new URL(url).toString());
  const withPorts = new Set(urls.flatMap((each) => [each, withoutPort(each), withStandardPort(each)]));
  const { query } = splitUrl(url);
  if (query === '') return [...withPorts];
  // Normalizing changes the encoding of a query, not its decoded value: one query for all.
  const encodedAgain = stringify(parse(query));
  return [...new Set([...withPorts].flatMap((each) => [each, `${splitUrl(each).base}?${encodedAgain}`]))];
}

const AUTHORITY = /^([a-z][a-z0-9+.-]*):\/\/([^/?#]*)/i;
const PORT = /:\d*$/;

function withoutPort(url: string): string {
  return url.replace(
    AUTHORITY,
    (_all, scheme: string, host: string) => `${scheme}://${host.replace(PORT, '')}`,
  );
}

function withStandardPort(url: string): string {
  return url.replace(AUTHORITY, (all, scheme: string, host: string) => {
    if (PORT.test(host)) return all;
    return `${all}:${scheme.toLowerCase() === 'https' ? 443 : 80}`;
  });
}

/** The parts of a webhook that a provider signs. `params`: the form's fields; a GET has its parameters in the URL. */
interface SignedRequest {
  readonly token: string;
  /** See `requestUrl`. */
  readonly url: string;
  readonly params: readonly Readonly<Pair>[];
}

export interface PlivoRequest extends SignedRequest {
  /** From Node: names in lower case. */
  readonly headers: Readonly<Record<string, Received>>;
  readonly method: string;
}

export function hasPlivoSignature(headers: PlivoRequest['headers']): boolean {
  return ['v3', 'ma-v3', 'v2', 'ma-v2'].some((kind) => headers[`x-plivo-signature-${kind}`] !== undefined);
}

/**
 * Verifies Plivo V3, or V2 if the request carries no V3 signature. Accepts the token of the number's own (sub)account or,
 * in the `Ma` header, of the main account. A header holds a comma-separated list while an account has several tokens.
 *
 * V2 signs the URL without its query, and the nonce: a caller who has seen one V2 signature can send another body to the
 * same path. Plivo sends V3 with every voice request; V2 serves old accounts only.
 */
export function verifyPlivo({ token, headers, method, url, params }: PlivoRequest): boolean {
  if (token === '') return false;
  const v3 = [headers['x-plivo-signature-v3'], headers['x-plivo-signature-ma-v3']];
  const isV3 = v3.some((header) => header !== undefined);
  const signatures = isV3 ? v3 : [headers['x-plivo-signature-v2'], headers['x-plivo-signature-ma-v2']];
  const nonce = headers[isV3 ? 'x-plivo-signature-v3-nonce' : 'x-plivo-signature-v2-nonce'];
  if (typeof nonce !== 'string' || !plivoNonce.test(nonce)) return false;
  const message = isV3 ? plivoV3Message(method, url, params, nonce) : splitUrl(url).base + nonce;
  if (message === undefined) return false;
  const expected = createHmac('sha256', token).update(message).digest('base64');
  return signatures
    .flatMap((header) => (typeof header === 'string' ? header.split(',', maxSignatures) : []))
    .map((signature) => secretsEqual(signature.trim(), expected))
    .includes(true);
}

/**
 * Built as in Plivo's Node and Python libraries. Their Go library joins a POST's parameters with "." if the URL has no
 * query; according to Plivo, Node and Python are right.
 *   GET   {url}?{k=v&k=v, decoded and sorted}.{nonce}
 *   POST  {url}?{k=v&k=v, decoded and sorted}.{kvkv, sorted}.{nonce}
 * With POST parameters the "?" is there even before an empty query; the "." follows only a query that is not empty.
 */
function plivoV3Message(
  method: string,
  url: string,
  params: readonly Readonly<Pair>[],
  nonce: string,
): string | undefined {
  const verb = method.toUpperCase();
  if (verb !== 'GET' && verb !== 'POST') return undefined;
  const { base, query } = splitUrl(url);
  const inQuery = [...new URLSearchParams(`&${query}`)].sort(byNameThenValue);
  const sortedQuery = inQuery.map(([name, value]) => `${name}=${value}`).join('&');
  const posted = verb === 'GET' ? [] : [...params].sort(byNameThenValue);
  if (posted.length === 0) return `${sortedQuery ? `${base}?${sortedQuery}` : base}.${nonce}`;
  const fields = posted.map(([name, value]) => name + value).join('');
  return `${base}?${sortedQuery}${sortedQuery ? '.' : ''}${fields}.${nonce}`;
}

/**
 * Exotel signs nothing; the URL carries a shared secret. Either the query's `token` equals ours, or basic auth
 * (`https://user:password@host/...`) does: its password equals our token, with any user name; if our token contains a
 * colon, it is `user:password` and both must match.
 */
export function verifyExotel(request: {
  token: string;
  queryToken: Received;
  authorization: Received;
}): boolean {
  const { token, queryToken, authorization } = request;
  if (token === '') return false;
  const byQuery = typeof queryToken === 'string' && secretsEqual(queryToken, token);
  const credentials = credentialsOf(authorization, 'basic');
  if (credentials === undefined) return byQuery;
  const pair = Buffer.from(credentials, 'base64').toString('utf8');
  const colon = pair.indexOf(':');
  const presented = token.includes(':') ? pair : pair.slice(colon + 1);
  const byBasic = secretsEqual(presented, token) && colon !== -1;
  return byQuery || byBasic;
}

/** The credentials in an Authorization header; the scheme's case does not matter (RFC 9110, 11.1). */
function credentialsOf(header: Received, scheme: 'bearer' | 'basic'): string | undefined {
  if (typeof header !== 'string') return undefined;
  const space = header.indexOf(' ');
  if (space === -1 || header.slice(0, space).toLowerCase() !== scheme) return undefined;
  return header.slice(space).trimStart();
}

/** A "#" belongs to the signed URL: Fastify reads a query behind it. */
function splitUrl(url: string): { base: string; query: string } {
  const at = url.indexOf('?');
  return at === -1 ? { base: url, query: '' } : { base: url.slice(0, at), query: url.slice(at + 1) };
}

function byNameThenValue(a: Readonly<Pair>, b: Readonly<Pair>): number {
  return compare(a[0], b[0]) || compare(a[1], b[1]);
}

/** Sorts by code unit, like the providers: localeCompare would put "a" before "B". */
function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function sha256(value: string): Buffer {
  return createHash('sha256').update(value).digest();
}

/**
 * The URL over which a provider computed its signature: the one typed into its console. The path and query of the request
 * stay byte for byte: decoding and encoding would turn `+` into `%20` and break every signature. A path in `PUBLIC_URL` is
 * the prefix that a proxy strips (our routes would not match otherwise), so it is put back in front.
 */
export function requestUrl(request: {
  /** `PUBLIC_URL`; its query and fragment are ignored. */
  readonly publicUrl?: string | undefined;
  /** After `TRUST_PROXY` was applied. With or without the colon. */
  readonly protocol: string;
  /** Host with its port, as in the Host header. */
  readonly host: string;
  /** The request target as received, with its query. */
  readonly originalUrl: string;
}): string {
  const { publicUrl, protocol, host, originalUrl } = request;
  const base = publicUrl ? publicUrl.replace(/[?#].*$/s, '') : `${protocol.replace(/:$/, '')}://${host}`;
  return base.replace(/\/+$/, '') + pathOf(originalUrl);
}

/** A client may send the whole URL as the request target (RFC 9112, absolute-form): only its path counts. */
function pathOf(target: string): string {
  const path = target.startsWith('/') ? target : target.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, '');
  return path.startsWith('/') ? path : `/${path}`;
}
