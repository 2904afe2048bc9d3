/**
 * Rejects text that is not valid Unicode. Invalid UTF-8 and lone surrogates become U+FFFD on their way to the store, so
 * that two different call ids would share one key.
 */
import { isUtf8 } from 'node:buffer';
import { AppError } from '../errors.js';

const surrogateEscape = /\\u[dD][89a-fA-F]/;
const surrogate = /\p{Surrogate}/u;
const replacement = '\ufffd';

/** Undefined if the body is not valid UTF-8. */
export function textOf(body: Buffer): string | undefined {
  return isUtf8(body) ? body.toString('utf8') : undefined;
}

export function notUtf8(): AppError {
  return new AppError('invalid_request', 'the body is not valid UTF-8');
}

/** `value` was parsed from `text`, which is valid UTF-8: only an escape can have produced a lone surrogate. */
export function surrogateProblem(text: string, value: unknown): AppError | null {
  if (!surrogateEscape.test(text)) return null;
  const rest = [value];
  while (rest.length > 0) {
    const next = rest.pop();
    if (typeof next === 'object' && next !== null) rest.push(...Object.keys(next), ...Object.values(next));
    else if (typeof next === 'string' && surrogate.test(next))
      return new AppError('invalid_request', 'the body has a \\u escape of a lone surrogate');
  }
  return null;
}

/** Path and query. Bytes beyond ASCII must be percent-encoded, and be UTF-8. */
export function assertUnicodeUrl(url: string): void {
  if (/^[\x21-\x24\x26-\x7e]*$/.test(url)) return;
  if (/^[\x21-\x7e]*$/.test(url) && isUtf8(bytesOf(url))) return;
  throw new AppError('invalid_request', 'the URL is not valid percent-encoded UTF-8');
}

/** Whether a form that was decoded to `pairs` had invalid UTF-8. */
export function isBrokenForm(body: Buffer, pairs: readonly (readonly string[])[]): boolean {
  const isSuspect = pairs.some((pair) => pair.some((text) => text.includes(replacement)));
  return isSuspect && !isUtf8(bytesOf(body.toString('latin1')));
}

/** Percent-decoded; each character of `text` is a byte. */
function bytesOf(text: string): Buffer {
  const decoded = text.replace(/%([\da-f]{2})/gi, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
  return Buffer.from(decoded, 'latin1');
}
