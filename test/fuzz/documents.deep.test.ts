/** Sitemaps and pages as strangers serve them: packed or not, broken, endless. Read within bounds, or refused. */
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { findContacts } from '../../src/workflows/contacts.js';
import { type Chunks, decoded, decodedText } from '../../src/workflows/fetch/body.js';
import { FetchError, readUrl } from '../../src/workflows/fetch/urls.js';
import { readPage } from '../../src/workflows/page-reader.js';
import { readSitemap } from '../../src/workflows/sitemap-import.js';
import { SitemapError } from '../../src/workflows/sitemap-parser.js';
import { socialProfile } from '../../src/workflows/social-profiles.js';
import { work } from '../workflows/web.js';
import { fuzzing } from './runs.js';
import { damaged, oddText } from './values.js';

const { signal } = new AbortController();
const limit = { maxBytes: 256 * 1024, what: 'sitemap' };
const location = fc.oneof(fc.webUrl(), oddText, fc.constant('https://a.test/?a=1&amp;b=2'));
const entry = location.map((url) => `<url><loc>${url}</loc></url>`);
const sitemap = fc
  .tuple(fc.constantFrom('urlset', 'sitemapindex', 'sm:urlset', 'html'), fc.array(entry, { maxLength: 6 }))
  .map(([root, entries]) => `<?xml version="1.0" encoding="UTF-8"?><${root}>${entries.join('')}</${root}>`);
const html = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        '<p>',
        '</p>',
        '<a href="mailto:a@b.test">',
        '<title>',
        '</title>',
        '<!--',
        '-->',
        '<![CDATA[',
      ),
      fc.constantFrom(
        '<script>',
        '</script>',
        '<meta name=description content="',
        '">',
        '<a href=',
        '&#x0;',
        '&#xd800;',
      ),
      fc.integer({ min: 1, max: 2000 }).map((depth) => '<div>'.repeat(depth)),
      location.map((url) => `<a href="${url}">call +49 30 123456</a>`),
      oddText,
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join(''));
const text = fc.oneof(
  sitemap,
  damaged(sitemap),
  html,
  oddText,
  fc.array(location).map((all) => all.join('\n')),
);

type Packing = 'plain' | 'gzip' | 'twice' | 'bomb' | 'cut' | 'bytes';
function packed(content: string, packing: Packing, place: number): Buffer {
  const plain = Buffer.from(content);
  switch (packing) {
    case 'gzip':
      return gzipSync(plain);
    case 'twice':
      return Buffer.concat([gzipSync(plain), gzipSync(plain)]);
    case 'bomb':
      return gzipSync(Buffer.alloc(limit.maxBytes * 8, content || ' '));
    case 'cut': {
      const whole = gzipSync(plain);
      return whole.subarray(0, place % whole.length);
    }
    case 'bytes': {
      const whole = gzipSync(plain);
      const at = place % whole.length;
      whole[at] = (whole[at] ?? 0) ^ (1 << (place % 8));
      return whole;
    }
    default:
      return plain;
  }
}

/** In pieces of any size, as a connection gives them. */
async function* pieces(bytes: Buffer, length: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

const packing = fc.constantFrom<Packing>('plain', 'gzip', 'twice', 'bomb', 'cut', 'bytes');
const contentType = fc.oneof(
  fc.constantFrom(
    undefined,
    'application/xml',
    'text/plain; charset=utf-16le',
    'text/xml; charset=nonsense',
    'application/gzip',
  ),
  oddText,
);
const expectTold = (error: unknown) => {
  expect(error instanceof SitemapError || error instanceof FetchError, String(error)).toBe(true);
  expect((error as Error).message.length).toBeLessThan(500);
};

describe('a document of a stranger', () => {
  it('is a sitemap with URLs that can be fetched, or a clear error', async () => {
    await fc.assert(
      fc.asyncProperty(text, packing, contentType, fc.nat(), async (content, how, type, number) => {
        const body = pieces(packed(content, how, number), 1 + (number % 4096));
        try {
          const { urls, kind } = await readSitemap({ body, contentType: type, signal }, limit, systemClock);
          expect(['pages', 'sitemaps']).toContain(kind);
          expect(new Set(urls).size).toBe(urls.length);
          for (const url of urls) {
            const read = readUrl(url);
            expect('url' in read && read.url.href).toBe(url);
          }
        } catch (error) {
          expectTold(error);
        }
      }),
      fuzzing(100),
    );
  });

  it('unpacks to no more than its limit, for any headers', async () => {
    const packers = [gzipSync, deflateSync, deflateRawSync, brotliCompressSync, (bytes: Buffer) => bytes];
    const names = fc.array(
      fc.constantFrom('gzip', 'x-gzip', 'br', 'deflate', 'identity', '', 'GZIP', 'zstd'),
      { maxLength: 3 },
    );
    const encoding = fc.oneof(
      names.map((all) => all.join(', ')),
      oddText,
    );
    const layers = fc.array(fc.constantFrom(...packers), { maxLength: 2 });
    await fc.assert(
      fc.asyncProperty(
        text,
        fc.boolean(),
        layers,
        encoding,
        fc.nat(),
        async (content, isHuge, layers, name, number) => {
          const plain = isHuge ? Buffer.alloc(limit.maxBytes * 4, content || ' ') : Buffer.from(content);
          const bytes = layers.reduce<Buffer>((body, pack) => pack(body), plain);
          let size = 0;
          try {
            const body: Chunks = decoded(pieces(bytes, 1 + (number % 4096)), name, limit);
            for await (const chunk of body) size += chunk.length;
          } catch (error) {
            expectTold(error);
          }
          expect(size).toBeLessThanOrEqual(limit.maxBytes);
        },
      ),
      fuzzing(40),
    );
  });

  it('is text in any encoding', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), contentType, async (bytes, type) => {
        let all = '';
        for await (const one of decodedText(pieces(Buffer.from(bytes), 7), type)) all += one;
        expect(all.length).toBeLessThanOrEqual(bytes.length + 1);
      }),
      fuzzing(300),
    );
  });

  it('is a page with a title, contacts and links of bounded size', async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(html, damaged(html), text), async (content) => {
        const page = await readPage([content], work());
        expect(page.title?.length ?? 0).toBeLessThanOrEqual(512);
        expect(page.title ?? '').not.toMatch(/[\p{Cc}\p{Cs}]/u);
        expect(page.description?.length ?? 0).toBeLessThanOrEqual(2048);
        const contacts = await findContacts(page, work());
        // What PostgreSQL would refuse to store.
        expect(JSON.stringify([page.title, page.description, contacts])).not.toMatch(/\\u0000|\\ud[89a-f]/);
        for (const link of page.links.slice(0, 20)) {
          const read = readUrl(link);
          if ('url' in read) socialProfile(read.url);
        }
      }),
      fuzzing(300),
    );
  });
});
