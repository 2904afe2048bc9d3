import { describe, expect, it } from 'vitest';
import { charsetOf, decodedText } from '../../src/workflows/fetch/body.js';

async function decode(bytes: Buffer, contentType?: string, pieceLength = bytes.length || 1): Promise<string> {
  async function* pieces() {
    for (let at = 0; at < bytes.length; at += pieceLength) yield bytes.subarray(at, at + pieceLength);
  }
  let text = '';
  for await (const part of decodedText(pieces(), contentType)) text += part;
  return text;
}

const utf8 = (text: string) => Buffer.from(text);
const latin1 = (text: string) => Buffer.from(text, 'latin1');
const utf16 = (text: string) => Buffer.from(`\ufeff${text}`, 'utf16le');

describe('characters', () => {
  it.each([
    ['UTF-8 without a declaration', utf8('grüße'), undefined],
    ['a header', latin1('grüße'), 'text/html; charset=ISO-8859-1'],
    ['a header in quotes', latin1('grüße'), 'text/html;charset="windows-1252"'],
    ['no word and no UTF-8', latin1('grüße'), 'text/html'],
    ['an unknown name', utf8('grüße'), 'text/html; charset=klingon'],
    ['a byte order mark against the header', utf8('\ufeffgrüße'), 'text/html; charset=ISO-8859-1'],
    ['UTF-16, little end first', utf16('grüße'), undefined],
    ['UTF-16, big end first', utf16('grüße').swap16(), undefined],
  ])('%s', async (_, bytes, contentType) => {
    expect(await decode(bytes, contentType)).toBe('grüße');
    expect(await decode(bytes, contentType, 1)).toBe('grüße');
  });

  it('a character split between two chunks stays one', async () => {
    const long = 'xßü😀'.repeat(2000);
    expect(await decode(utf8(long), undefined, 4097)).toBe(long);
  });

  it.each([
    ['<meta charset="shift_jis">', 'shift_jis'],
    ['<META content="text/html; CHARSET=koi8-r" http-equiv=content-type>', 'koi8-r'],
    ['<?xml version="1.0" encoding="windows-1251"?><urlset>', 'windows-1251'],
    ['<meta charset=utf-16>', 'utf-8'],
    ['<meta charset=nonsense>', 'utf-8'],
    ['<title>charset=koi8-r</title>', 'utf-8'],
  ])('%s declares its character set', (text, charset) => {
    expect(charsetOf(utf8(text), undefined)).toBe(charset);
  });

  it('the header wins over the declaration of the page', () => {
    expect(charsetOf(utf8('<meta charset="koi8-r">'), 'text/html; charset=utf-8')).toBe('utf-8');
  });

  it('a truncated character at the end still counts as UTF-8', () => {
    expect(charsetOf(utf8('grüße ß').subarray(0, -1), undefined)).toBe('utf-8');
  });

  it('invalid bytes are replaced, never an error', async () => {
    expect(await decode(Buffer.from([0x61, 0xff, 0x62]), 'text/html; charset=utf-8')).toBe('a\ufffdb');
  });
});
