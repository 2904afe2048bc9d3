import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { escapeXml, UNAVAILABLE_MESSAGE, voices } from '../../../src/http/providers/xml.js';

const NAMES: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

/** Reads like an XML parser: bare white space in an attribute becomes a space, then references are resolved. */
function unescapeXml(escaped: string): string {
  return escaped
    .replace(/[\t\n\r]/g, ' ')
    .replace(/&(?:#(\d+)|(\w+));/g, (_all, code, name) =>
      code ? String.fromCodePoint(Number(code)) : (NAMES[name] ?? '?'),
    );
}

/** Char of XML 1.0, section 2.2. */
function isXmlChar(char: string): boolean {
  const code = char.codePointAt(0) ?? 0;
  if (code < 0x20) return code === 9 || code === 10 || code === 13;
  return code < 0xd800 || (code > 0xdfff && code !== 0xfffe && code !== 0xffff);
}

const anyText = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string({ unit: fc.constantFrom(...'<>&"\'\t\n\r\0\ud800a;#') }),
);

const read = {
  twiml: /^<Response><Connect><Stream url="([^"<]*)"\/><\/Connect><\/Response>$/,
  plivo:
    /^<Response><Stream bidirectional="true" keepCallAlive="true" contentType="audio\/x-mulaw;rate=8000">([^<]*)<\/Stream><\/Response>$/,
};

describe('answers with a stream', () => {
  it('are exactly what the contract says', () => {
    const url = 'wss://agents.example/ws/pod/a?x=1&y=2';
    expect(voices.twilio.stream(url)).toBe(
      '<Response><Connect><Stream url="wss://agents.example/ws/pod/a?x=1&amp;y=2"/></Connect></Response>',
    );
    expect(voices.plivo.stream(url)).toBe(
      '<Response><Stream bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000">wss://agents.example/ws/pod/a?x=1&amp;y=2</Stream></Response>',
    );
  });

  it('parse back to the same address, for any string, without characters that XML forbids', () => {
    fc.assert(
      fc.property(anyText, (text) => {
        const carried = [...text].filter(isXmlChar).join('');
        expect(unescapeXml(read.twiml.exec(voices.twilio.stream(text))?.[1] ?? 'unreadable')).toBe(carried);
        expect(unescapeXml(read.plivo.exec(voices.plivo.stream(text))?.[1] ?? 'unreadable')).toBe(carried);
      }),
      { numRuns: 500 },
    );
  });
});

describe('answers without a free pod', () => {
  it('say one sentence and hang up', () => {
    expect(voices.twilio.unavailable).toBe(`<Response><Say>${UNAVAILABLE_MESSAGE}</Say><Hangup/></Response>`);
    expect(voices.plivo.unavailable).toBe(
      `<Response><Speak>${UNAVAILABLE_MESSAGE}</Speak><Hangup/></Response>`,
    );
  });
});

it.each([
  ['control characters', 'a\u0000\u0008\u001fb', 'ab'],
  ['lone surrogates', 'a\ud800b\udc00', 'ab'],
  ['noncharacters', 'a\ufffe\uffffb', 'ab'],
  ['nothing of an emoji', '📞', '📞'],
])('escapeXml drops %s', (_name, text, expected) => {
  expect(escapeXml(text)).toBe(expected);
});
