import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Clock, systemClock } from '../../src/clock.js';
import { readSitemap } from '../../src/workflows/sitemap-import.js';
import { type Sitemap, SitemapError, SitemapParser } from '../../src/workflows/sitemap-parser.js';
import { propertyRuns } from '../support/property-runs.js';

function parse(text: string, pieceLength = text.length || 1): Sitemap {
  const parser = new SitemapParser();
  for (let at = 0; at < text.length; at += pieceLength) parser.write(text.slice(at, at + pieceLength));
  return parser.end();
}

/** The message of the SitemapError that it must end with. */
function failure(text: string, pieceLength?: number): string {
  try {
    parse(text, pieceLength);
  } catch (error) {
    expect(error).toBeInstanceOf(SitemapError);
    return (error as SitemapError).message;
  }
  throw new Error('it was parsed');
}

const urlset = (inside: string) =>
  `<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n${inside}</urlset>\n`;
const url = (loc: string) => `<url><loc>${loc}</loc><lastmod>2024-01-01</lastmod></url>\n`;

describe('XML', () => {
  it('pages are found in the order of the file', () => {
    expect(parse(urlset(url('https://a.test/2') + url('https://a.test/1')))).toEqual({
      kind: 'pages',
      urls: ['https://a.test/2', 'https://a.test/1'],
      invalid: 0,
      duplicates: 0,
    });
  });

  it('sitemaps of an index are found', () => {
    const index = `<sitemapindex><sitemap><loc>https://a.test/1.xml.gz</loc></sitemap></sitemapindex>`;
    expect(parse(index)).toMatchObject({ kind: 'sitemaps', urls: ['https://a.test/1.xml.gz'] });
  });

  it('entities, CDATA, white space, comments and bare ampersands are accepted', () => {
    const inside = [
      url('\n  https://a.test/?a=1&amp;b=2  \n'),
      url('<![CDATA[https://a.test/?c=1&d=2]]>'),
      url('https://a.test/?e=1&f=2'),
      url('https://a.test/<!-- no -->g'),
      url('https://a.test/&#x68;'),
    ];
    expect(parse(urlset(inside.join(''))).urls).toEqual([
      'https://a.test/?a=1&b=2',
      'https://a.test/?c=1&d=2',
      'https://a.test/?e=1&f=2',
      'https://a.test/g',
      'https://a.test/h',
    ]);
  });

  it('prefixes are accepted, and locations of images and videos are skipped', () => {
    const text = `<sm:urlset xmlns:sm="x" xmlns:image="y"><sm:url><sm:loc>https://a.test/</sm:loc>
      <image:image><image:loc>https://a.test/a.png</image:loc></image:image><xhtml:link href="https://a.test/b"/>
      </sm:url></sm:urlset>`;
    expect(parse(text).urls).toEqual(['https://a.test/']);
  });

  it('locations of the other kind of file are skipped', () => {
    expect(
      parse('<urlset><sitemap><loc>https://a.test/</loc></sitemap><loc>https://b.test/</loc></urlset>').urls,
    ).toEqual([]);
  });

  it('an empty set is accepted', () => {
    expect(parse('<urlset/>')).toMatchObject({ kind: 'pages', urls: [] });
    expect(parse(urlset('<url/>'))).toMatchObject({ urls: [], invalid: 0 });
  });

  it('invalid and repeated entries are skipped and counted', () => {
    const inside = [
      'https://a.test/',
      'https://A.test',
      'https://a.test/#part',
      '/relative',
      'ftp://a.test/',
      'https://me:secret@a.test/',
      '',
      `https://a.test/${'x'.repeat(2048)}`,
      `https://a.test/${'x'.repeat(2048 - 'https://a.test/'.length)}`,
      'https://a.test/\ufffd',
    ];
    const { urls, invalid, duplicates } = parse(urlset(inside.map(url).join('')));
    expect(urls).toHaveLength(2);
    expect(urls[1]).toHaveLength(2048);
    expect({ invalid, duplicates }).toEqual({ invalid: 6, duplicates: 2 });
  });

  it('entities of a document type are not expanded', () => {
    const bomb = `<!DOCTYPE x [<!ENTITY a "https://a.test/"><!ENTITY b SYSTEM "file:///etc/passwd">]>\n`;
    expect(parse(`${bomb}${urlset(url('&a;') + url('&b;'))}`)).toMatchObject({ urls: [], invalid: 2 });
  });
});

describe('plain text', () => {
  it('has one URL per line, with any line ending', () => {
    const text =
      '\n\nhttps://a.test/1\r\nhttps://a.test/2\n\n  https://a.test/1  \nnonsense\nhttps://a.test/3';
    expect(parse(text)).toEqual({
      kind: 'pages',
      urls: ['https://a.test/1', 'https://a.test/2', 'https://a.test/3'],
      invalid: 1,
      duplicates: 1,
    });
  });

  it('without a URL is not a sitemap', () => {
    expect(failure('{"error":\n"not found"}')).toBe('line 2, column 13: neither XML nor a list of URLs');
  });
});

describe('broken files', () => {
  it.each([
    ['', 'the sitemap is empty'],
    [' \n ', 'the sitemap is empty'],
    ['<!-- nothing -->', 'line 1, column 17: neither <urlset> nor <sitemapindex> found'],
    [
      '\n\n<!doctype html>\n<html><body>Not found',
      'line 4, column 1: expected <urlset> or <sitemapindex>, found <html>',
    ],
    ['<rss></rss>', 'line 1, column 1: expected <urlset> or <sitemapindex>, found <rss>'],
    ['<constructor/>', 'line 1, column 1: expected <urlset> or <sitemapindex>, found <constructor>'],
    ['<urlset>\n<url>\n<loc>https://a.test/</loc>\n</urlset>', 'line 4, column 1: <url> is not closed'],
    ['<urlset>\n  <url><loc>https://a.test/</loc></url>\n', 'line 3, column 1: <urlset> is not closed'],
    ['<urlset>\n<url><loc>https://a.te', 'line 2, column 23: <loc> is not closed'],
    ['<urlset></url></urlset>', 'line 1, column 9: an end tag that closes nothing'],
    ['<urlset></urlset>\n<urlset></urlset>', 'line 2, column 1: <urlset> after the end of the sitemap'],
    [`<urlset>${'<a>'.repeat(20)}`, 'line 1, column 54: elements are nested deeper than 16'],
  ])('%j is an error with its position, for any split into chunks', (text, message) => {
    expect(failure(text)).toBe(message);
    const [place] = /^line \d+/.exec(message) ?? [''];
    for (const length of [1, 2, 3, 7]) {
      expect(failure(text, length)).toContain(place);
      expect(failure(text, length).replace(/^line.*?: /, '')).toBe(message.replace(/^line.*?: /, ''));
    }
  });

  it('50,000 URLs are read, one more is refused', () => {
    const many = (count: number) =>
      Array.from({ length: count }, (_, n) => url(`https://a.test/${n}`)).join('');
    expect(parse(urlset(many(50_000)), 16_384).urls).toHaveLength(50_000);
    const message = failure(urlset(many(50_001)), 16_384);
    expect(message).toMatch(/^line 50003, column \d+: more than 50,000 URLs/);
    expect(failure('https://a.test/\n'.repeat(50_001))).toMatch(
      /^line 50001, column 1: more than 50,000 URLs/,
    );
  });
});

describe('any text', () => {
  const pieces = fc.constantFrom(
    ...[
      '<urlset>',
      '</urlset>',
      '<sitemapindex>',
      '</sitemapindex>',
      '<url>',
      '</url>',
      '<loc>',
      '</loc>',
      '<url/>',
    ],
    ...[
      '<!--',
      '-->',
      '<![CDATA[',
      ']]>',
      '<?xml ',
      '?>',
      '<!DOCTYPE ',
      '&amp;',
      '&#0;',
      '&',
      '<',
      '>',
      '/',
      '"',
      "'",
    ],
    ...['https://a.test/', '\n', ' ', '\0', '\ud800', '=', '<a b="'],
  );
  const text = fc.array(fc.oneof(pieces, fc.string({ unit: 'binary' }))).map((parts) => parts.join(''));
  const outcome = (value: string, length?: number) => {
    try {
      return parse(value, length);
    } catch (error) {
      if (!(error instanceof SitemapError)) throw error;
      return error.message.replace(/^line.*?: /, '');
    }
  };

  it('yields valid URLs or a SitemapError', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          text,
          text.map(urlset),
          text.map((one) => urlset(url(one))),
        ),
        (value) => {
          const found = outcome(value);
          if (typeof found === 'string') return;
          for (const one of found.urls) {
            expect(new URL(one).href).toBe(one);
            expect(one).toMatch(/^https?:\/\/[^#]{1,2041}$/);
          }
        },
      ),
      { numRuns: propertyRuns(1000) },
    );
  });

  it('yields the same for any split into chunks', () => {
    fc.assert(
      fc.property(
        text.map((one) => urlset(url(one))),
        fc.integer({ min: 1, max: 9 }),
        (value, length) => {
          expect(outcome(value, length)).toEqual(outcome(value));
        },
      ),
      { numRuns: propertyRuns(500) },
    );
  });

  it.each(['<a>', '<urlset>', '</x>', '<', '&', '<![CDATA[', '<!--', '<a b="', 'x', '\n', ' '])(
    'five million characters of %j take no more than seconds',
    (piece) => {
      const value = `<urlset><url><loc>${piece.repeat(5_000_000 / piece.length)}`;
      const begin = performance.now();
      expect(typeof outcome(value, 16_384)).toBe('string');
      expect(performance.now() - begin).toBeLessThan(10_000);
    },
  );
});

describe('a hostile sitemap', () => {
  async function* chunks(text: string): AsyncGenerator<Buffer> {
    for (let at = 0; at < text.length; at += 65_536) yield Buffer.from(text.slice(at, at + 65_536));
  }
  const limit = { maxBytes: 50 * 1024 * 1024, what: 'sitemap' };
  const read = (text: string, signal: AbortSignal, clock: Clock) =>
    readSitemap({ body: chunks(text), contentType: 'text/xml', signal }, limit, clock).catch(() => undefined);

  it.each(['\n', ' ', '&amp;', '<!--', '<urlset a="'])(
    'of a million characters %j is read in slices',
    async (piece) => {
      let rests = 0;
      const sleep = async () => {
        rests += 1;
      };
      const start = piece.startsWith('&') ? '<urlset>' : '';
      const { signal } = new AbortController();
      await read(start + piece.repeat(1_000_000 / piece.length), signal, { ...systemClock, sleep });
      expect(rests).toBeGreaterThanOrEqual(5);
    },
  );

  it('stops at its deadline', async () => {
    const signal = AbortSignal.abort(new Error('took too long'));
    const body = chunks(`<urlset>${' '.repeat(1_000_000)}</urlset>`);
    const reading = readSitemap({ body, contentType: 'text/xml', signal }, limit, systemClock);
    await expect(reading).rejects.toThrow('took too long');
  });
});
