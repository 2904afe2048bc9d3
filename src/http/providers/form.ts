/**
 * Parses bodies of provider webhooks into ordered pairs: signatures are computed over all of them, with duplicates.
 *
 * Twilio and Plivo post `application/x-www-form-urlencoded`. Exotel posts its status callback as
 * `multipart/form-data` unless the call was made with `StatusCallbackContentType=application/json`
 * (support.exotel.com, article 48278), hence the small multipart parser: text fields only.
 *
 * Every parser returns `undefined` for a body that it does not accept. None truncates a form: its signature would fail
 * without a visible reason.
 */
import { isUtf8 } from 'node:buffer';
import { isBrokenForm } from '../unicode.js';

export type Pair = [name: string, value: string];

/**
 * Twilio sends about 30 parameters; the maximum seen is under 100. The check of a signature sorts them, before the sender
 * is authenticated: 2 ms for 1,000.
 */
export const MAX_PARAMS = 200;
/** Bodies have 1 to 4 KB. A stranger's is kept until its signature can be checked. */
export const MAX_BODY_BYTES = 16 * 1024;
const MAX_PART_HEADER_BYTES = 1024;

export function parseForm(body: string | Uint8Array): Pair[] | undefined {
  const bytes = Buffer.from(body as Uint8Array);
  const text = bytes.toString('utf8');
  if (hasMoreFields(text)) return undefined;
  // The parser skips the leading "&", which keeps it from dropping a "?" at the start of a name.
  const pairs = [...new URLSearchParams(`&${text}`)];
  return isBrokenForm(bytes, pairs) ? undefined : pairs;
}

/** Whether a form or query has more than MAX_PARAMS fields, without parsing it. */
export function hasMoreFields(text: string): boolean {
  let fields = 1;
  for (let at = text.indexOf('&'); at !== -1; at = text.indexOf('&', at + 1)) {
    fields += 1;
    if (fields > MAX_PARAMS) return true;
  }
  return false;
}

/** The first value wins, as in `URLSearchParams.get`. Without a prototype: a field may be called `__proto__`. */
export function toRecord(pairs: Iterable<Readonly<Pair>>): Record<string, string | undefined> {
  const record: Record<string, string | undefined> = Object.create(null);
  for (const [name, value] of pairs) record[name] ??= value;
  return record;
}

/** The top-level strings of a JSON object; numbers, lists and objects are left out, not converted. */
export function recordFromJson(body: unknown): Record<string, string | undefined> {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return toRecord([]);
  return toRecord(Object.entries(body).filter((entry): entry is Pair => typeof entry[1] === 'string'));
}

/** Strict RFC 7578 for text fields: rejects a body with a file, an unknown transfer encoding or a missing end. */
export function parseMultipart(body: Uint8Array, contentType: string): Pair[] | undefined {
  const boundary = boundaryOf(contentType);
  if (boundary === undefined || !isUtf8(body)) return undefined;
  // latin1 maps bytes to characters one to one, so searching is exact; names and values are decoded at the end.
  const text = `\r\n${Buffer.from(body).toString('latin1')}`;
  const delimiter = `\r\n--${boundary}`;
  // A body may begin with the delimiter or with an empty line before it.
  let at = text.startsWith(delimiter) ? 0 : text.startsWith(`\r\n${delimiter}`) ? 2 : -1;
  if (at === -1) return undefined;

  const pairs: Pair[] = [];
  for (;;) {
    at += delimiter.length;
    if (text.startsWith('--', at)) return pairs;
    const next = text.indexOf(delimiter, at);
    if (!text.startsWith('\r\n', at) || next === -1 || pairs.length >= MAX_PARAMS) return undefined;
    const pair = parsePart(text.slice(at + 2, next));
    if (pair === undefined) return undefined;
    pairs.push(pair);
    at = next;
  }
}

function boundaryOf(contentType: string): string | undefined {
  const [mediaType = ''] = contentType.split(';', 1);
  if (mediaType.trim().toLowerCase() !== 'multipart/form-data') return undefined;
  const match = /;[ \t]*boundary=(?:"([^"]{1,70})"|([^";,\s]{1,70}))[ \t]*(?:;|$)/i.exec(contentType);
  const boundary = match?.[1] ?? match?.[2];
  // RFC 2046, section 5.1.1: these characters, and no space at the end.
  return boundary !== undefined && /^[\w'()+,\-./:=? ]*[\w'()+,\-./:=?]$/.test(boundary)
    ? boundary
    : undefined;
}

function parsePart(part: string): Pair | undefined {
  const end = part.indexOf('\r\n\r\n');
  if (end === -1 || end > MAX_PART_HEADER_BYTES) return undefined;
  let name: string | undefined;
  for (const line of part.slice(0, end).split('\r\n')) {
    const colon = line.indexOf(':');
    const header = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    if (header === 'content-disposition') {
      // Nothing may follow the name: `filename` makes the field a file.
      const match = /^form-data;[ \t]*name=(?:"([^"]*)"|([^\s";]+))$/i.exec(value);
      if (match === null || name !== undefined) return undefined;
      name = match[1] ?? match[2];
    } else if (header === 'content-transfer-encoding' && !/^(7bit|8bit|binary)$/i.test(value)) {
      return undefined;
    }
  }
  return name === undefined ? undefined : [utf8(name), utf8(part.slice(end + 4))];
}

function utf8(latin1: string): string {
  return Buffer.from(latin1, 'latin1').toString('utf8');
}
