/** Values that parsers have stumbled over: of every type, of every size, and texts of every kind of character. */
import fc from 'fast-check';

const oddTexts = [
  '',
  ' ',
  '\0',
  'a\0b',
  '\ud800',
  'x\udfff',
  '\u202egnp.exe',
  '\ufeff',
  '\u2028',
  'é'.normalize('NFD'),
  '👩‍👩‍👧',
  '\u{10ffff}',
  'a\nb',
  'a\r\nx-injected: 1',
  '\t',
  '\u007f\u009f',
  '\u001b[2J\u001b]0;x\u0007',
  '%',
  '%zz',
  '%00',
  '%ff',
  '%2e%2e',
  '..',
  '.',
  '../../etc/passwd',
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
  'metadata',
  'null',
  'NaN',
  'Infinity',
  '-0',
  '1e400',
  '9007199254740993',
  '0x10',
  "'; DROP TABLE jobs; --",
  '<script>alert(1)</script>',
  '{pod}',
  '$&',
  '*',
  '[a-z]',
  '\\',
  '"',
  'pool:gold',
  'merchant:',
  'a'.repeat(65),
  'a'.repeat(257),
  '😀'.repeat(300),
  'x'.repeat(5000),
] as const;

export const oddText: fc.Arbitrary<string> = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...oddTexts) },
  { weight: 2, arbitrary: fc.string({ unit: 'binary', maxLength: 40 }) },
  { weight: 1, arbitrary: fc.string({ unit: 'grapheme', maxLength: 40 }) },
  {
    weight: 1,
    arbitrary: fc.tuple(fc.constantFrom(...oddTexts), fc.string()).map((parts) => parts.join('')),
  },
);

export const oddNumber: fc.Arbitrary<number> = fc.oneof(
  fc.constantFrom(0, -0, -1, 1.5, 1e308, -1e308, 2 ** 31, 2 ** 53, 2 ** 53 + 2, 2 ** 63, 5e-324),
  fc.integer(),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
);

const maxDepth = 3000;

/** `{"a":{"a": ...}}` or `[[...]]`, deep enough to overflow a recursion. */
const nested = fc
  .tuple(fc.integer({ min: 1, max: maxDepth }), fc.boolean())
  .map(([depth, isList]) =>
    JSON.parse(
      isList ? '['.repeat(depth) + ']'.repeat(depth) : `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`,
    ),
  );

/** JSON of a value; of one that is nested too deeply for the rest of this stack, only the nesting. */
export const jsonOf = (value: fc.Arbitrary<unknown>): fc.Arbitrary<string> =>
  value.map((one) => {
    try {
      return JSON.stringify(one) ?? '';
    } catch {
      return '['.repeat(maxDepth) + ']'.repeat(maxDepth);
    }
  });

const key = fc.oneof(oddText, fc.constantFrom('call_sid', 'tiers', 'pod_name', 'type', 'length', 'valueOf'));

/** Any JSON value; `__proto__` is an own key of it, as `JSON.parse` makes it. */
export const oddJson: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 4, arbitrary: oddText },
  { weight: 2, arbitrary: oddNumber },
  { weight: 2, arbitrary: fc.constantFrom(null, true, false, [], {}, [[]], [null], { a: null }) },
  { weight: 2, arbitrary: fc.jsonValue({ noUnicodeString: false }) },
  { weight: 1, arbitrary: nested },
  {
    weight: 2,
    arbitrary: fc
      .array(fc.tuple(key, fc.oneof(oddText, oddNumber, fc.constant(null))), { maxLength: 5 })
      .map((pairs) => Object.fromEntries(pairs)),
  },
  { weight: 1, arbitrary: fc.array(fc.oneof(oddText, oddNumber), { maxLength: 40 }) },
);

/** A value of the right kind most of the time, and now and then any value. */
export const orOdd = (arbitrary: fc.Arbitrary<unknown>, weight = 4): fc.Arbitrary<unknown> =>
  fc.oneof({ weight, arbitrary }, { weight: 1, arbitrary: oddJson });

/** An object with some of these fields. */
export const some = (fields: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<unknown> =>
  fc.record(fields, { requiredKeys: [], noNullPrototype: true });

/** A text that was damaged on its way: cut, doubled, with a strange character in it, or with a key twice. */
export function damaged(text: fc.Arbitrary<string>): fc.Arbitrary<string> {
  return fc
    .tuple(text, fc.nat(), fc.constantFrom('cut', 'insert', 'double', 'drop', 'key', 'bom', 'tail'), oddText)
    .map(([whole, place, how, odd]) => {
      const at = place % (whole.length + 1);
      switch (how) {
        case 'cut':
          return whole.slice(0, at);
        case 'insert':
          return whole.slice(0, at) + odd + whole.slice(at);
        case 'double':
          return whole + whole;
        case 'drop':
          return whole.slice(0, at) + whole.slice(at + 1);
        case 'key':
          return whole.replace('{', `{${JSON.stringify(odd)}:1,"call_sid":1,`);
        case 'bom':
          return `\ufeff${whole}`;
        default:
          return `${whole}${odd}`;
      }
    });
}
