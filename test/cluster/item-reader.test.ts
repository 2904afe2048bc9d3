/** The items of a list, read from bytes that are cut anywhere: the same as reading the whole list. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ItemReader } from '../../src/cluster/kubernetes/item-reader.js';

function read(text: string, cuts: readonly number[] = []) {
  const items: unknown[] = [];
  const reader = new ItemReader((item) => items.push(item));
  const bytes = Buffer.from(text);
  const places = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  for (const [i, place] of places.entries()) reader.push(bytes.subarray(places[i - 1] ?? 0, place));
  return { items, envelope: reader.end() };
}

it('gives every item and the list without them, with any chunks', () => {
  const list = fc.record({
    kind: fc.constant('PodList'),
    metadata: fc.record({ resourceVersion: fc.string(), items: fc.array(fc.jsonValue(), { maxLength: 2 }) }),
    items: fc.array(fc.jsonValue(), { maxLength: 5 }),
    note: fc.oneof(fc.constant('items'), fc.string({ unit: 'binary' }), fc.jsonValue()),
  });
  fc.assert(
    fc.property(list, fc.array(fc.nat(2000), { maxLength: 8 }), fc.boolean(), (value, cuts, isSpaced) => {
      const text = JSON.stringify(value, null, isSpaced ? 2 : undefined);
      const { items, ...rest } = JSON.parse(text) as { items: unknown[] };
      expect(read(text, cuts)).toEqual({ items, envelope: { ...rest, items: [] } });
    }),
  );
});

it.each(['', '{"items":[', '{"items":[{"a":1}', '{"items":[{]}', '{"items":[1 2]}', '<html>502</html>'])(
  'malformed input is an error: %s',
  (text) => {
    expect(() => read(text)).toThrow(SyntaxError);
  },
);

it('gives no items without a list of items', () => {
  expect(read('{"items":null}')).toEqual({ items: [], envelope: { items: null } });
  expect(read('[{"items":[1]}]')).toEqual({ items: [], envelope: [{ items: [1] }] });
  expect(read('null')).toEqual({ items: [], envelope: null });
});

it('an item is given before the list has ended', () => {
  const items: unknown[] = [];
  new ItemReader((item) => items.push(item)).push(Buffer.from('{"items":[{"a":1},{"b":'));
  expect(items).toEqual([{ a: 1 }]);
});
