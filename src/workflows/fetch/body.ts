/**
 * A response body: unpacked, decoded to text, and never larger than its limit. Every layer is counted, the compressed
 * bytes and the output of each decompression: a few kilobytes can unpack to gigabytes, and gigabytes of empty blocks to
 * nothing. A body that is too large is detected within one chunk (16 KB) of the limit, and nothing is unpacked ahead of
 * its reader.
 *
 * The character set: byte order mark, then the header, then the document's own declaration, then UTF-8 if the bytes are
 * valid, else windows-1252, as browsers do. Never throws; invalid bytes become U+FFFD.
 */
import type { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createBrotliDecompress, createGunzip, createInflate, createInflateRaw } from 'node:zlib';
import { FetchError } from './urls.js';

export type Chunks = AsyncIterable<Buffer>;

export interface SizeLimit {
  readonly maxBytes: number;
  /** For the message: `page`, `sitemap`. */
  readonly what: string;
}

/** No honest server compresses three times. */
const maxLayers = 2;

export async function* limited(chunks: Chunks, limit: SizeLimit): AsyncGenerator<Buffer> {
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > limit.maxBytes) throw tooLarge(limit);
    yield chunk;
  }
}

export function tooLarge({ maxBytes, what }: SizeLimit): FetchError {
  const megabyte = 1024 * 1024;
  const size =
    maxBytes % megabyte === 0 ? `${maxBytes / megabyte} MB` : `${maxBytes.toLocaleString('en')} bytes`;
  return new FetchError(`the ${what} is larger than ${size}`);
}

/** Reverses `Content-Encoding`; its last entry was applied last. */
export function decoded(chunks: Chunks, contentEncoding: string | undefined, limit: SizeLimit): Chunks {
  const layers = (contentEncoding ?? '')
    .toLowerCase()
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '' && name !== 'identity');
  if (layers.length > maxLayers || layers.some((name) => !/^(x-)?gzip$|^br$|^deflate$/.test(name))) {
    throw new FetchError(`the content encoding ${contentEncoding?.slice(0, 100)} is not supported`);
  }
  return layers.reduceRight((body, name) => limited(unpacked(body, name), limit), limited(chunks, limit));
}

/** Unpacks files that are gzip themselves (`sitemap.xml.gz`), regardless of headers and name. */
export async function gunzipped(chunks: Chunks, limit: SizeLimit): Promise<Chunks> {
  const { head, all } = await peek(chunks, 2);
  const isGzip = head[0] === 0x1f && head[1] === 0x8b;
  return isGzip ? limited(unpacked(all, 'gzip'), limit) : all;
}

/** Reads at least the first `bytes` bytes, if there are as many; `all` yields them again, then the rest. */
async function peek(chunks: Chunks, bytes: number): Promise<{ head: Buffer; all: Chunks }> {
  const rest = chunks[Symbol.asyncIterator]();
  let head: Buffer = Buffer.alloc(0);
  while (head.length < bytes) {
    const { value, done } = await rest.next();
    if (done) break;
    head = Buffer.concat([head, value]);
  }
  async function* all(): AsyncGenerator<Buffer> {
    yield head;
    yield* { [Symbol.asyncIterator]: () => rest };
  }
  return { head, all: all() };
}

async function* unpacked(chunks: Chunks, name: string): AsyncGenerator<Buffer> {
  const { head, all } = await peek(chunks, 1);
  // An empty body may have the header too.
  if (head.length === 0) return;
  const unpacker = unpackerFor(name, head);
  // The iteration throws the same error.
  pipeline(all, unpacker).catch(() => {});
  try {
    yield* unpacker;
  } catch (error) {
    if (error instanceof FetchError) throw error;
    const message = error instanceof Error ? error.message : String(error);
    throw new FetchError(`the ${name} data is broken (${message})`);
  } finally {
    unpacker.destroy();
  }
}

function unpackerFor(name: string, head: Buffer): Transform {
  if (name === 'br') return createBrotliDecompress();
  if (name !== 'deflate') return createGunzip();
  // `deflate` means zlib's format, whose first byte ends in 8; some servers send the raw stream.
  return ((head[0] ?? 0) & 0x0f) === 8 ? createInflate() : createInflateRaw();
}

/** HTML requires the declaration in the first 1,024 bytes; some pages have a long script before it. */
const headBytes = 4_096;
const fallback = 'windows-1252';

export async function* decodedText(chunks: Chunks, contentType: string | undefined): AsyncGenerator<string> {
  const { head, all } = await peek(chunks, headBytes);
  const decoder = new TextDecoder(charsetOf(head, contentType));
  for await (const chunk of all) {
    const text = decoder.decode(chunk, { stream: true });
    if (text !== '') yield text;
  }
  const rest = decoder.decode();
  if (rest !== '') yield rest;
}

export function charsetOf(head: Buffer, contentType: string | undefined): string {
  if (head[0] === 0xef && head[1] === 0xbb && head[2] === 0xbf) return 'utf-8';
  if (head[0] === 0xff && head[1] === 0xfe) return 'utf-16le';
  if (head[0] === 0xfe && head[1] === 0xff) return 'utf-16be';
  const [, fromHeader] = /;\s*charset\s*=\s*["']?([^\s;"']+)/i.exec(contentType ?? '') ?? [];
  const start = head.subarray(0, headBytes).toString('latin1');
  const [, fromXml] = /^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([^\s"'>]+)/i.exec(start) ?? [];
  const [, fromMeta] = /<meta\b[^>]{0,400}?charset\s*=\s*["']?([^\s;"'/>]+)/i.exec(start) ?? [];
  const declared = [fromXml, fromMeta].map(known).find((label) => label !== undefined);
  // It was just read as ASCII, so it cannot be UTF-16.
  return known(fromHeader) ?? (declared?.startsWith('utf-16') ? 'utf-8' : declared) ?? guess(head);
}

function known(label: string | undefined): string | undefined {
  if (label === undefined) return undefined;
  try {
    return new TextDecoder(label).encoding;
  } catch {
    return undefined;
  }
}

/** `stream`: `head` may end inside a character. */
function guess(head: Buffer): string {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(head, { stream: true });
    return 'utf-8';
  } catch {
    return fallback;
  }
}
