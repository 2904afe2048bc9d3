/**
 * A body as it comes, unpacked, and never more than its limit. Every layer is counted, the compressed bytes and what
 * each unpacking gives: a few kilobytes can unpack to gigabytes, and gigabytes of empty blocks to nothing at all. What
 * is too large is noticed within one chunk (16 KB) of the limit, and nothing is unpacked ahead of who reads.
 */
import type { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createBrotliDecompress, createGunzip, createInflate, createInflateRaw } from 'node:zlib';
import { FetchError } from './fetch-error.js';

export type Chunks = AsyncIterable<Buffer>;

export interface SizeLimit {
  readonly maxBytes: number;
  /** What is too large, for the message: `page`, `sitemap`. */
  readonly what: string;
}

/** No server packs three times; one that says so wants something else. */
const mostLayers = 2;

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

/** Undoes `Content-Encoding`, whose last entry was applied last. */
export function decoded(chunks: Chunks, contentEncoding: string | undefined, limit: SizeLimit): Chunks {
  const layers = (contentEncoding ?? '')
    .toLowerCase()
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '' && name !== 'identity');
  if (layers.length > mostLayers || layers.some((name) => !/^(x-)?gzip$|^br$|^deflate$/.test(name))) {
    throw new FetchError(`the content encoding ${contentEncoding?.slice(0, 100)} is not understood`);
  }
  return layers.reduceRight((body, name) => limited(unpacked(body, name), limit), limited(chunks, limit));
}

/** For files that are gzip themselves (`sitemap.xml.gz`), whatever their headers and their name say. */
export async function gunzipped(chunks: Chunks, limit: SizeLimit): Promise<Chunks> {
  const { head, all } = await peek(chunks, 2);
  const isGzip = head[0] === 0x1f && head[1] === 0x8b;
  return isGzip ? limited(unpacked(all, 'gzip'), limit) : all;
}

/** At least the first `bytes` bytes, if there are so many; `all` gives these again, and then the others. */
export async function peek(chunks: Chunks, bytes: number): Promise<{ head: Buffer; all: Chunks }> {
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
  // A HEAD-like answer: nothing to unpack, though the header says how.
  if (head.length === 0) return;
  const unpacker = unpackerFor(name, head);
  // Its failure is the iteration's as well, and told there.
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
  // `deflate` means zlib's format, whose first byte ends in 8; some servers send the bare stream.
  return ((head[0] ?? 0) & 0x0f) === 8 ? createInflate() : createInflateRaw();
}
