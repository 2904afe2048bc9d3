import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  MAX_PARAMS,
  type Pair,
  parseForm,
  parseMultipart,
  recordFromJson,
  toRecord,
} from '../../../src/http/providers/form.js';

const text = fc.string({ unit: 'grapheme' });
const pairs = fc.array(fc.tuple(text, text));

describe('parseForm', () => {
  it.each<[string, string, Pair[]]>([
    [
      'fields in order, duplicates kept',
      'b=1&a=2&b=3',
      [
        ['b', '1'],
        ['a', '2'],
        ['b', '3'],
      ],
    ],
    [
      'plus and percent',
      'a=x+y&b=%2B91',
      [
        ['a', 'x y'],
        ['b', '+91'],
      ],
    ],
    [
      'a name without a value',
      'a&b=',
      [
        ['a', ''],
        ['b', ''],
      ],
    ],
    ['empty pieces', '&&a=1&', [['a', '1']]],
    ['a name that begins with a question mark', '?a=1', [['?a', '1']]],
    ['broken percent signs', 'a=%zz%', [['a', '%zz%']]],
    ['nothing', '', []],
  ])('reads %s', (_name, body, expected) => {
    expect(parseForm(body)).toEqual(expected);
    expect(parseForm(Buffer.from(body))).toEqual(expected);
  });

  it('reads back what a form writes', () => {
    fc.assert(
      fc.property(pairs, (given) => {
        expect(parseForm(new URLSearchParams(given).toString())).toEqual(given);
      }),
    );
  });

  it('rejects more parameters than the limit and does not truncate them', () => {
    expect(parseForm('a&'.repeat(MAX_PARAMS - 1))).toHaveLength(MAX_PARAMS - 1);
    expect(parseForm('a&'.repeat(MAX_PARAMS))).toBeUndefined();
    expect(parseForm('&'.repeat(60_000))).toBeUndefined();
  });
});

describe('toRecord', () => {
  it('keeps the first value, even an empty one, and takes any name', () => {
    const record = toRecord([
      ['a', ''],
      ['a', '2'],
      ['__proto__', 'x'],
      ['constructor', 'y'],
    ]);
    expect({ ...record }).toEqual({ a: '', ['__proto__']: 'x', constructor: 'y' });
    expect(toRecord([]).toString).toBeUndefined();
  });

  it('takes only strings from JSON', () => {
    expect({
      ...recordFromJson({ CallSid: 'e1', Status: 'completed', Legs: [], ConversationDuration: 3, x: null }),
    }).toEqual({
      CallSid: 'e1',
      Status: 'completed',
    });
    for (const body of [null, undefined, 'x', 1, ['CallSid']])
      expect({ ...recordFromJson(body) }).toEqual({});
  });
});

describe('parseMultipart', () => {
  const type = 'multipart/form-data; boundary=----------------------------8a1f';
  const line = '------------------------------8a1f';

  function write(fields: readonly Pair[], delimiter = line): Buffer {
    const parts = fields.map(
      ([name, value]) => `${delimiter}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
    );
    return Buffer.from(`${parts.join('')}${delimiter}--\r\n`);
  }

  const status: Pair[] = [
    ['CallSid', '80bfbec2d78bbbf10fb851f4fa165211'],
    ['Status', 'no-answer'],
    ['RecordingUrl', ''],
  ];

  it('reads the fields of Exotel’s status callback', () => {
    expect(parseMultipart(write(status), type)).toEqual(status);
  });

  it('reads what the platform’s own FormData writes', async () => {
    const form = new FormData();
    for (const [name, value] of status) form.append(name, value);
    const request = new Response(form);
    const body = new Uint8Array(await request.arrayBuffer());
    expect(parseMultipart(body, request.headers.get('content-type') ?? '')).toEqual(status);
  });

  it('reads back any values', () => {
    fc.assert(
      fc.property(fc.array(text), (values) => {
        const given = values.map((value, index): Pair => [`f${index}`, value]);
        expect(parseMultipart(write(given), type)).toEqual(given);
      }),
    );
  });

  const part = `${line}\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n`;
  const end = `${line}--\r\n`;
  it.each([
    [
      'a quoted boundary',
      part + end,
      'multipart/form-data; charset=utf-8; boundary="----------------------------8a1f"',
    ],
    ['a part with a type', part.replace('\r\n\r\n', '\r\nContent-Type: text/plain\r\n\r\n') + end, type],
    ['a name without quotes', part.replace('"a"', 'a') + end, type],
    ['an empty line first', `\r\n${part}${end}`, type],
    ['text after the end', `${part}${end}epilogue`, type],
  ])('reads a body with %s', (_name, body, contentType) => {
    expect(parseMultipart(Buffer.from(body), contentType)).toEqual([['a', '1']]);
  });

  it.each([
    ['no boundary', part + end, 'multipart/form-data'],
    ['a boundary that is too long', part + end, `multipart/form-data; boundary=${'x'.repeat(71)}`],
    ['another type', part + end, type.replace('form-data', 'mixed')],
    ['no end', part, type],
    ['a cut-off end', part + line, type],
    ['text before it', `x${part}${end}`, type],
    ['a file', part.replace('"a"', '"a"; filename="x"') + end, type],
    ['no name', part.replace('; name="a"', '') + end, type],
    ['no headers', part.replace(/Content.*\r\n/, '') + end, type],
    [
      'two names',
      part.replace('\r\n\r\n', '\r\nContent-Disposition: form-data; name="b"\r\n\r\n') + end,
      type,
    ],
    ['an encoding', part.replace('\r\n\r\n', '\r\nContent-Transfer-Encoding: base64\r\n\r\n') + end, type],
    ['headers over the limit', part.replace('\r\n\r\n', `\r\nX: ${'x'.repeat(1024)}\r\n\r\n`) + end, type],
    ['nothing', '', type],
  ])('refuses a body with %s', (_name, body, contentType) => {
    expect(parseMultipart(Buffer.from(body), contentType)).toBeUndefined();
  });

  it('rejects more fields than the limit', () => {
    const fields = (count: number) => Array.from({ length: count }, (): Pair => ['a', '1']);
    expect(parseMultipart(write(fields(MAX_PARAMS)), type)).toHaveLength(MAX_PARAMS);
    expect(parseMultipart(write(fields(MAX_PARAMS + 1)), type)).toBeUndefined();
  });

  it('never throws on any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), fc.string(), (bytes, contentType) => {
        parseMultipart(bytes, type);
        parseMultipart(Buffer.concat([Buffer.from(`${line}\r\n`), bytes, Buffer.from(`\r\n${end}`)]), type);
        parseMultipart(bytes, `multipart/form-data; boundary=${contentType}`);
      }),
    );
  });
});
