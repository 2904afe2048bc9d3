/** The generated parts of docs/api.md, from a small OpenAPI document. */
import { expect, it } from 'vitest';
import { withApiReference } from '../../scripts/docs-api.mjs';

const text = { type: 'string', description: 'a text' };
const thing = {
  type: 'object',
  required: ['id', 'size'],
  properties: {
    id: text,
    size: { anyOf: [{ type: 'integer', description: 'how large' }, { type: 'null' }] },
    note: { type: 'string', description: 'a|b' },
  },
};
const failed = (description: string) => ({ description, content: {} });
const of = (schema: object) => ({ content: { 'application/json': { schema } } });

const document = (answer: object = thing) => ({
  paths: {
    '/things': {
      get: {
        parameters: [
          { name: 'limit', in: 'query', description: 'how many', schema: { type: 'string', default: '10' } },
        ],
        responses: {
          '200': of({
            type: 'object',
            required: ['things'],
            properties: { things: { type: 'array', items: answer, description: 'all' } },
          }),
          '400': failed('an error'),
        },
      },
    },
    '/things/{id}': {
      get: { responses: { '200': of(answer), '404': failed('pod_not_found, call_not_found') } },
    },
  },
});

const page = `# Title

## Things

### \`GET /things\`

By hand.

\`\`\`sh
curl things
\`\`\`

More by hand.

### \`GET /things/{id}\`

### \`GET /unknown\`

Stays.
`;

it('puts parameters before the example, response and errors after it, and keeps hand-written text', () => {
  const written = withApiReference(page, document());
  const order = ['By hand.', '| `limit` | `10` | how many |', 'curl things', '| `things` |', 'More by hand.'];
  const places = order.map((part) => written.indexOf(part));
  expect(places).toEqual([...places].sort((a, b) => a - b));
  expect(places).not.toContain(-1);
  expect(written).toContain('Errors: 400 `invalid_request`.');
  expect(written).toContain('Errors: 404 `pod_not_found`, `call_not_found`.');
  expect(written).toContain('### `GET /unknown`\n\nStays.\n');
  expect(withApiReference(written, document())).toBe(written);
});

it('describes an object once, where it is the whole answer, and refers to it elsewhere', () => {
  const written = withApiReference(page, document());
  expect(written).toContain('| `things` | list of objects | all; as [`GET /things/{id}`](#get-thingsid) |');
  expect(written).toContain('| `size` | integer or null | how large |');
  expect(written).toContain('| `note` | string, may be absent | a\\|b |');
  expect(written.match(/how large/g)).toHaveLength(1);
});

it('a changed answer changes the page, and one that has nothing to say leaves no marks', () => {
  const before = withApiReference(page, document());
  const after = withApiReference(before, document({ ...thing, properties: { id: text, other: text } }));
  expect(after).toContain('| `other` |');
  expect(after).not.toContain('how large');
  expect(withApiReference(after, document())).toBe(before);
  expect(withApiReference(before, { paths: { '/things': { get: {} }, '/things/{id}': { get: {} } } })).toBe(
    page,
  );
});

it('refuses an error whose status has several codes and that names none', () => {
  const unclear = { paths: { '/things': { get: { responses: { '404': failed('an error') } } } } };
  expect(() => withApiReference(page, unclear)).toThrow('404 has several codes');
});
