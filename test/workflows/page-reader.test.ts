import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findContacts } from '../../src/workflows/contacts.js';
import { readPage } from '../../src/workflows/page-reader.js';
import { propertyRuns } from '../support/property-runs.js';

const page = (head: string, body = '') =>
  readPage(`<!doctype html><html><head>${head}</head><body>${body}</body></html>`);

describe('title', () => {
  it('is decoded, and its white space is one space', () => {
    expect(page('<title>\n  Fish &amp; Chips&nbsp;&mdash;\t London \n</title>').title).toBe(
      'Fish & Chips — London',
    );
  });

  it('is the first one, and never that of a picture', () => {
    expect(readPage('<svg><title>logo</title></svg><title>Shop</title><title>Other</title>').title).toBe(
      'Shop',
    );
  });

  it('holds no markup, only text', () => {
    expect(page('<title>a <b>bold</b> shop</title>').title).toBe('a <b>bold</b> shop');
  });

  it('falls back to what is given for sharing, and else is missing', () => {
    expect(page('<title> </title><meta property="og:title" content="Shop">').title).toBe('Shop');
    expect(page('').title).toBeUndefined();
  });

  it('is cut at 512 characters, never inside one, and holds nothing that a database refuses', () => {
    expect(page(`<title>${'x'.repeat(2000)}</title>`).title).toBe('x'.repeat(512));
    expect(page(`<title>${'x'.repeat(511)}😀😀</title>`).title).toBe('x'.repeat(511));
    expect(page('<title>a\0b\u0007c&#0;d\ud800e</title>').title).toBe('a b c\ufffdd e');
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
  ])('%s', (head, description) => {
    expect(page(head).description).toBe(description);
  });
});

describe('text and links', () => {
  it('what is not shown is not read', () => {
    const { text } = page(
      '<style>a</style><script>b</script>',
      '<noscript>c</noscript><template>d</template>seen<!-- e -->',
    );
    expect(text.trim()).toBe('seen');
  });

  it('blocks end a word, inline elements do not', () => {
    const { text } = page('', '<p>one<b>two</b></p><td>three</td>four<br>five');
    expect(text.split(/\n+/).filter(Boolean)).toEqual(['onetwo', 'three', 'four', 'five']);
  });

  it('links are read as they are written', () => {
    expect(page('', '<a href=" /a ">x</a><a name=b>y</a><area href="c&amp;d">').links).toEqual(['/a', 'c&d']);
  });

  it('a page nested deeper than browsers show is read up to there', () => {
    const { title, text } = page('<title>Deep</title>', `begin${'<div>'.repeat(600)}end`);
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

  it('gives texts within their bounds and nothing that a database refuses', () => {
    fc.assert(
      fc.property(html, (value) => {
        const found = readPage(value);
        const contacts = findContacts(found);
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

  it.each([
    '<div>',
    '</x>',
    '<',
    '&',
    '<svg>',
    '<p>',
    'a@',
    "a'",
    '( ',
    '+1 ',
    'a.',
    '[at]',
    '<a href="//x.com/ab">',
  ])('five million characters of %j take no more than seconds', (piece) => {
    const begin = performance.now();
    findContacts(readPage(piece.repeat(5_000_000 / piece.length)));
    expect(performance.now() - begin).toBeLessThan(10_000);
  });
});
