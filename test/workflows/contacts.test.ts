import { describe, expect, it } from 'vitest';
import { findContacts } from '../../src/workflows/contacts.js';
import { readPage } from '../../src/workflows/page-reader.js';
import { work } from './web.js';

const inText = (text: string) => findContacts({ text, links: [] }, work());
const inLinks = (...links: string[]) => findContacts({ text: '', links }, work());

describe('e-mail addresses', () => {
  it.each([
    ['Write to Info@Example.com.', ['info@example.com']],
    ['a.b+c@sub.example.co.uk, x_y@example.museum', ['a.b+c@sub.example.co.uk', 'x_y@example.museum']],
    ['<info@example.com>', ['info@example.com']],
    ["'info@example.com'", ['info@example.com']],
    ['info@müller.de', ['info@müller.de']],
    ['info@xn--mller-kva.de', ['info@xn--mller-kva.de']],
    ['info@example.xn--p1ai', ['info@example.xn--p1ai']],
    ['info [at] example [dot] com', ['info@example.com']],
    ['info(at)example.com', ['info@example.com']],
    ['info {AT} sub {dot} example.com', ['info@sub.example.com']],
    ['info@example.com info@EXAMPLE.com', ['info@example.com']],
    ['@twitter, 5@6, a@b, me@localhost, a@b@c.com', []],
    ['logo@2x.png icon@3x.webp', []],
    ['a..b@example.com', []],
    ['meet us (at) noon', []],
    [`${'x'.repeat(65)}@example.com`, []],
    [`x@${'y'.repeat(64)}.com`, []],
  ])('%j gives %j', async (text, emails) => {
    expect((await inText(text)).emails).toEqual(emails);
  });

  it('links yield theirs, decoded, without subject, one or several', async () => {
    const links = [
      'mailto:a%40example.com?subject=b@example.com',
      'MAILTO:c@example.com, d@example.com',
      'mailto:%',
    ];
    expect((await inLinks(...links)).emails).toEqual(['a@example.com', 'c@example.com', 'd@example.com']);
  });

  it('inline elements do not split an address', async () => {
    const html = '<p>info<span>@</span><b>example</b>.com</p><p>second@example.com</p>third@example.com';
    const page = await readPage([html], work());
    expect((await findContacts(page, work())).emails).toEqual([
      'info@example.com',
      'second@example.com',
      'third@example.com',
    ]);
  });
});

describe('phone numbers', () => {
  it.each([
    ['+1 (415) 555-0132', ['+14155550132']],
    ['+49 (0)30 / 123 45-67', ['+49301234567']],
    ['Tel.: +44 20 7946 0958, Fax +44 20 7946 0959', ['+442079460958', '+442079460959']],
    ['+33.1.23.45.67.89', ['+33123456789']],
    ['+4915112345678', ['+4915112345678']],
    ['+49 30 1234567\n+49 30 7654321', ['+49301234567', '+49307654321']],
    ['call (+41) 44 668 18 00', ['+41446681800']],
    ['2024-01-01 12:00, 1,200.00, 030 1234567, 5 + 12345678', []],
    ['+49 30', []],
    ['+0 30 1234567', []],
    ['+1234567890123456', []],
    ['a+4915112345678', []],
  ])('%j gives %j', async (text, phones) => {
    expect((await inText(text)).phones).toEqual(phones);
  });

  it('links are accepted, international or not', async () => {
    const links = [
      'tel:+49-30-1234567',
      'tel:0049%2030%207654321',
      'TEL:030/11223344;ext=5',
      'tel:1-800-FLOWERS',
      'tel:110',
    ];
    expect((await inLinks(...links)).phones).toEqual(['+49301234567', '+49307654321', '03011223344']);
  });
});

describe('social profiles', () => {
  it.each([
    [
      'https://www.linkedin.com/company/acme-gmbh/about/?trk=x',
      'linkedin',
      'https://linkedin.com/company/acme-gmbh',
    ],
    ['https://de.linkedin.com/in/j%C3%BCrgen', 'linkedin', 'https://linkedin.com/in/j%C3%BCrgen'],
    ['http://facebook.com/acme', 'facebook', 'https://facebook.com/acme'],
    ['https://de-de.facebook.com/acme/', 'facebook', 'https://facebook.com/acme'],
    [
      'https://www.facebook.com/pages/Acme/123456789',
      'facebook',
      'https://facebook.com/pages/Acme/123456789',
    ],
    ['//instagram.com/acme', 'instagram', 'https://instagram.com/acme'],
    ['https://twitter.com/acme', 'x', 'https://x.com/acme'],
    ['https://x.com/acme/status/1', 'x', 'https://x.com/acme'],
    ['https://www.youtube.com/@acme', 'youtube', 'https://youtube.com/@acme'],
    ['https://youtube.com/channel/UC123', 'youtube', 'https://youtube.com/channel/UC123'],
    ['https://www.tiktok.com/@acme', 'tiktok', 'https://tiktok.com/@acme'],
    ['https://github.com/acme/router', 'github', 'https://github.com/acme'],
    ['https://t.me/acme', 'telegram', 'https://t.me/acme'],
    ['https://wa.me/4915112345678?text=hi', 'whatsapp', 'https://wa.me/4915112345678'],
    ['https://www.xing.com/companies/acme', 'xing', 'https://xing.com/companies/acme'],
    ['https://bsky.app/profile/acme.test', 'bluesky', 'https://bsky.app/profile/acme.test'],
  ])('%s is a profile', async (link, network, url) => {
    expect((await inLinks(link)).social).toEqual([{ network, url }]);
  });

  it.each([
    'https://www.facebook.com/sharer/sharer.php?u=x',
    'https://www.facebook.com/sharer.php?u=x',
    'https://twitter.com/intent/tweet?text=x',
    'https://x.com/share?url=x',
    'https://www.linkedin.com/shareArticle?url=x',
    'https://www.instagram.com/p/abc/',
    'https://www.youtube.com/watch?v=x',
    'https://github.com/',
    'https://facebook.com.evil.test/acme',
    'https://notfacebook.com/acme',
    'https://evil.test/?https://facebook.com/acme',
    'javascript:location="https://x.com/acme"',
    '/facebook.com/acme',
  ])('%s is not a profile', async (link) => {
    expect((await inLinks(link)).social).toEqual([]);
  });

  it('one profile is returned once for every spelling', async () => {
    const links = ['https://x.com/Acme', 'https://twitter.com/acme', 'https://www.x.com/acme?s=20'];
    expect((await inLinks(...links)).social).toHaveLength(1);
  });
});

it('returns at most fifty of each kind', async () => {
  const numbers = Array.from({ length: 80 }, (_, n) => n + 10);
  const text = numbers.map((n) => `a${n}@example.com +49301234${n}0`).join('\n');
  const links = numbers.map((n) => `https://x.com/acme${n}`);
  const { emails, phones, social } = await findContacts({ text, links }, work());
  expect([emails, phones, social].map(({ length }) => length)).toEqual([50, 50, 50]);
});
