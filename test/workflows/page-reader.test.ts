import fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type Clock, systemClock } from '../../src/clock.js';
import { findContacts } from '../../src/workflows/contacts.js';
import { readPage } from '../../src/workflows/page-reader.js';
import { propertyRuns } from '../support/property-runs.js';
import { work } from './web.js';

const page = (head: string, body = '') =>
  readPage([`<!doctype html><html><head>${head}</head><body>${body}</body></html>`], work());

describe('title', () => {
  it('is decoded, with white space collapsed', async () => {
    expect((await page('<title>\n  Fish &amp; Chips&nbsp;&mdash;\t London \n</title>')).title).toBe(
      'Fish & Chips — London',
    );
  });

  it('is the first one, never that of an SVG', async () => {
    const html = '<svg><title>logo</title></svg><title>Shop</title><title>Other</title>';
    expect((await readPage([html], work())).title).toBe('Shop');
  });

  it('is text without markup', async () => {
    expect((await page('<title>a <b>bold</b> shop</title>')).title).toBe('a <b>bold</b> shop');
  });

  it('falls back to og:title, else is undefined', async () => {
    expect((await page('<title> </title><meta property="og:title" content="Shop">')).title).toBe('Shop');
    expect((await page('')).title).toBeUndefined();
  });

  it('is truncated at 512 characters, never inside one, without characters that PostgreSQL refuses', async () => {
    expect((await page(`<title>${'x'.repeat(2000)}</title>`)).title).toBe('x'.repeat(512));
    expect((await page(`<title>${'x'.repeat(511)}😀😀</title>`)).title).toBe('x'.repeat(511));
    expect((await page('<title>a\0b\u0007c&#0;d\ud800e</title>')).title).toBe('a b c\ufffdd e');
  });
});

describe('description', () => {
  it.each([
    ['<meta name="description" content="One"><meta property="og:description" content="Two">', 'One'],
    ['<meta property="og:description" content="Two"><meta name="description" content="One">', 'One'],
    ['<META NAME=" Description " CONTENT="Fish &amp;\n Chips">', 'Fish & Chips'],
    ['<meta name="description" content=" "><meta property="og:description" content="Two">', 'Two'],
    ['<meta name="twitter:description" content="Three">', 'Three'],
    ['<meta name="keywords" content="One">', undefined],
    ['<meta name="description">', undefined],
  ])('%s', async (head, description) => {
    expect((await page(head)).description).toBe(description);
  });
});

describe('text and links', () => {
  it('invisible content is not read', async () => {
    const { text } = await page(
      '<style>a</style><script>b</script>',
      '<noscript>c</noscript><template>d</template>seen<!-- e -->',
    );
    expect(text.trim()).toBe('seen');
  });

  it('blocks end a word, inline elements do not', async () => {
    const { text } = await page('', '<p>one<b>two</b></p><td>three</td>four<br>five');
    expect(text.split(/\n+/).filter(Boolean)).toEqual(['onetwo', 'three', 'four', 'five']);
  });

  it('links are returned unchanged', async () => {
    expect((await page('', '<a href=" /a ">x</a><a name=b>y</a><area href="c&amp;d">')).links).toEqual([
      '/a',
      'c&d',
    ]);
  });

  it('a page nested deeper than browsers show is read up to that depth', async () => {
    const { title, text } = await page('<title>Deep</title>', `begin${'<div>'.repeat(600)}end`);
    expect(title).toBe('Deep');
    expect(text).toContain('begin');
    expect(text).not.toContain('end');
  });
});

describe('any HTML', () => {
  const pieces = fc.constantFrom(
    ...[
      '<title>',
      '</title>',
      '<meta name="description" content="',
      '<a href="mailto:',
      '<a href="tel:',
      '">',
      '</a>',
    ],
    ...[
      '<script>',
      '</script>',
      '<svg>',
      '</svg>',
      '<p>',
      '</p>',
      '<br>',
      '</br>',
      '<table><tr><td>',
      '<!--',
      '-->',
    ],
    ...[
      '&amp;',
      '&#x110000;',
      '&#0;',
      '&',
      '<',
      '>',
      '"',
      '=',
      '@',
      '+49 30',
      ' (at) ',
      '.',
      '\0',
      '\ud83d',
      '%',
      'x.com',
    ],
    ...[
      'https://x.com/',
      'info@example.com',
      '<![CDATA[',
      ']]>',
      '<?php ',
      '<noscript>',
      '<textarea>',
      '<select><option>',
    ],
  );
  const html = fc.array(fc.oneof(pieces, fc.string({ unit: 'binary' }))).map((parts) => parts.join(''));

  it('yields texts within their limits, without characters that PostgreSQL refuses', async () => {
    await fc.assert(
      fc.asyncProperty(html, async (value) => {
        const found = await readPage([value], work());
        const contacts = await findContacts(found, work());
        expect(found.title?.length ?? 1).toBeGreaterThan(0);
        expect(found.title?.length ?? 0).toBeLessThanOrEqual(512);
        expect(found.description?.length ?? 0).toBeLessThanOrEqual(2048);
        const stored = JSON.stringify([found.title, found.description, contacts]);
        expect(stored).not.toMatch(/\\u0000|\\ud[89a-f]/);
        for (const email of contacts.emails) expect(email).toMatch(/^[^\s@]+@[^\s@]+\.[^\s@]+$/);
        for (const phone of contacts.phones) expect(phone).toMatch(/^\+?\d{6,15}$/);
        for (const { url } of contacts.social) expect(new URL(url).protocol).toBe('https:');
      }),
      { numRuns: propertyRuns(1000) },
    );
  });

  describe('of a million characters', () => {
    const link = (target: string) => `<a href="${target}"></a>`;
    const million = (piece: string) => piece.repeat(1_000_000 / piece.length);
    const spent = async (html: string) => {
      let rests = 0;
      const clock: Clock = {
        ...systemClock,
        sleep: async () => {
          rests += 1;
        },
      };
      const counted = work(clock);
      await findContacts(await readPage([html], counted), counted);
      return { perCharacter: counted.total / html.length, perSlice: counted.total / (rests + 1) };
    };

    it.each(
      [
        ...['</x>', '<', '&', '&amp;', '<svg>', '<p>', 'a@', "a'", "a'a.@", '( ', '+1 ', '+1-', 'a.', '[at]'],
        ...[
          '@',
          'a@b.',
          'a@b.c1 ',
          '<a x ',
          '<a href="',
          '<!--',
          '<title>',
          '<title>a</title>',
          '\n',
          'a\u0301',
        ],
        ...['<meta name="a" content="b">', '<a href="//x.com/ab"></a>'],
        ...[
          ['a@', 1000],
          ['a,', 1000],
          ['@', 2000],
        ].map(([a, n]) => link(`mailto:${String(a).repeat(Number(n))}`)),
        ...[
          link(`//x.com/${'ä'.repeat(2000)}`),
          link(`tel:${'1-'.repeat(1000)}`),
          `<meta ${'a '.repeat(2000)}>`,
        ],
        `${"a'".repeat(31)}a@${'b.'.repeat(8)}1 `,
      ].map((piece) => [piece.slice(0, 30), piece] as const),
    )('takes a few looks at each, in slices: %s', async (_, piece) => {
      const { perCharacter, perSlice } = await spent(million(piece));
      expect(perCharacter).toBeLessThan(5);
      expect(perSlice).toBeLessThan(500_000);
    });

    it('512 open elements are scanned at every end tag, in slices', async () => {
      const { perCharacter, perSlice } = await spent('<b>'.repeat(511) + million('</x>'));
      expect(perCharacter).toBeLessThan(130);
      expect(perSlice).toBeLessThan(2_500_000);
    });

    it('lists of addresses are searched once per link', async () => {
      const html = `<a href="mailto:${'a,'.repeat(1000)}">`.repeat(100);
      const replacing = vi.spyOn(String.prototype, 'replace');
      onTestFinished(() => replacing.mockRestore());
      await findContacts(await readPage([html], work()), work());
      expect(replacing.mock.calls.length).toBeLessThan(1000);
    });

    it('stops at its deadline', async () => {
      const late = AbortSignal.abort(new Error('GET http://x/ took longer than 30s'));
      await expect(readPage([million('a ')], work(systemClock, late))).rejects.toThrow(
        'took longer than 30s',
      );
    });
  });

  it('stops where the parser would collect SVGs without end', async () => {
    const { text } = await page('', `begin${'<div><svg></div>'.repeat(600)}end`);
    expect(text).toContain('begin');
    expect(text).not.toContain('end');
    const icons = await page('', `${'<svg><title>x</title><path/></svg>'.repeat(600)}end`);
    expect(icons.text).toContain('end');
  });
});
