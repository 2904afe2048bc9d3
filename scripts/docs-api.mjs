// Generates parts of docs/api.md from the router's OpenAPI document: parameters, fields of body and answer, and error codes of
// every endpoint. Purpose and examples are written by hand.
import { cell, filled, table } from './docs-marks.mjs';

/**
 * @typedef {{ type?: string, description?: string, default?: unknown, enum?: unknown[], anyOf?: Schema[],
 *   items?: Schema, properties?: Record<string, Schema>, required?: string[],
 *   additionalProperties?: Schema | boolean }} Schema
 * @typedef {{ content?: Record<string, { schema?: Schema }>, description?: string }} Content
 * @typedef {{ parameters?: { name: string, in: string, required?: boolean, description?: string, schema: Schema }[],
 *   requestBody?: Content, responses?: Record<string, Content> }} Operation
 * @typedef {{ paths: Record<string, Record<string, Operation>> }} OpenApi
 * @typedef {{ title: string, path: string }} Place where an object is described: endpoint and field
 */

/** Codes of a status whose response names none. */
const onlyCodes = new Map([
  ['400', 'invalid_request'],
  ['401', 'unauthorized'],
  ['403', 'forbidden'],
  ['429', 'too_many_requests'],
  ['503', 'store_unavailable, timeout'],
]);
const unnamedError = 'an error';
/** Smaller objects are repeated instead of linked. */
const minSharedFields = 3;

/**
 * Returns the page with its generated parts.
 * @param {string} page
 * @param {OpenApi} document
 */
export function withApiReference(page, document) {
  const [intro = '', ...sections] = page.split(/^(?=##+ )/m);
  const titles = sections.map((section) => /^### `([A-Z]+ \S+)`$/m.exec(section)?.[1]);
  const known = wholeAnswers(titles, document);
  const parts = sections.map((section, i) => {
    const title = titles[i];
    const operation = title === undefined ? undefined : operationOf(document, title);
    if (title === undefined || !operation) return section;
    const withRequest = filled(section, 'request', requestOf(operation), beforeExample);
    return filled(withRequest, 'answer', answerOf(operation, title, known), afterExamples);
  });
  return `${[intro, ...parts].join('').trimEnd()}\n`;
}

/** @param {string} section */
function beforeExample(section) {
  const at = section.search(/^```sh$/m);
  return at < 0 ? section.trimEnd().length : at;
}

/** @param {string} section */
function afterExamples(section) {
  const at = section.lastIndexOf('\n```\n');
  return at < 0 ? section.trimEnd().length : at + '\n```\n'.length;
}

/**
 * @param {OpenApi} document
 * @param {string} title
 */
function operationOf(document, title) {
  const [method = '', path = ''] = title.split(' ');
  return document.paths[path]?.[method.toLowerCase()];
}

/** @param {Content | undefined} content */
const jsonOf = (content) => content?.content?.['application/json']?.schema;

/**
 * Finds objects that are a whole answer: they are described there, and linked from elsewhere.
 * @returns {Map<string, Place>}
 * @param {readonly (string | undefined)[]} titles
 * @param {OpenApi} document
 */
function wholeAnswers(titles, document) {
  const known = new Map();
  for (const title of titles) {
    const answer = title === undefined ? undefined : jsonOf(operationOf(document, title)?.responses?.['200']);
    if (answer && isShareable(answer) && !known.has(identity(answer)))
      known.set(identity(answer), { title, path: '' });
  }
  return known;
}

/** @param {Schema} schema */
const isShareable = ({ properties }) => Object.keys(properties ?? {}).length >= minSharedFields;

/** Two objects with the same fields are the same, also with different descriptions. @param {Schema} schema */
const identity = ({ properties }) => JSON.stringify(properties);

// --- Request ---

/** @param {Operation} operation */
function requestOf({ parameters = [], requestBody }) {
  const body = jsonOf(requestBody);
  const ofBody = Object.entries(body?.properties ?? {}).map(([name, schema]) => [
    `\`${name}\``,
    typeOf(schema),
    body?.required?.includes(name) ? 'required' : usual(schema),
    meaningOf(schema),
  ]);
  const given = ['path', 'query'].map((where) => {
    const rows = parameters
      .filter((parameter) => parameter.in === where)
      .map(({ name, required, description = '', schema }) => [
        `\`${name}\``,
        ...(where === 'path' ? [] : [required ? 'required' : usual(schema)]),
        cell(description.replace(': a string of ', ': ')),
      ]);
    const titles = where === 'path' ? [where, 'meaning'] : [where, 'default', 'meaning'];
    return rows.length === 0 ? [] : [table(titles, rows)];
  });
  const tables = ofBody.length === 0 ? [] : [table(['body', 'type', 'default', 'meaning'], ofBody)];
  return [...given.flat(), ...tables].join('\n\n');
}

/** @param {Schema} schema */
function usual({ default: value }) {
  return value === undefined ? '' : `\`${String(value)}\``;
}

// --- Answer ---

/**
 * @param {Operation} operation
 * @param {string} title
 * @param {Map<string, Place>} known described objects and their places
 */
function answerOf({ responses = {} }, title, known) {
  const answer = jsonOf(responses['200']);
  const place = answer && known.get(identity(answer));
  const rows =
    answer && place && place.title !== title
      ? `The answer is that of ${link(place)}.`
      : tableOf(answer ? rowsOf(answer, '', title, known) : []);
  const errors = Object.entries(responses)
    .filter(([status]) => Number(status) >= 400)
    .map(([status, response]) => `${status} ${codesOf(status, response)}`);
  const said = errors.length === 0 ? '' : `Errors: ${errors.join('; ')}.`;
  return [rows, said].filter((part) => part !== '').join('\n\n');
}

/** @param {string[][]} rows */
const tableOf = (rows) => (rows.length === 0 ? '' : table(['answer', 'type', 'meaning'], rows));

/**
 * @param {string} status
 * @param {Content} response
 */
function codesOf(status, { description = '' }) {
  const codes = description === unnamedError ? onlyCodes.get(status) : description;
  if (codes === undefined)
    throw new Error(`status ${status} has several codes: name the possible ones (errorOf)`);
  return codes
    .split(', ')
    .map((code) => `\`${code}\``)
    .join(', ');
}

/**
 * Returns a row for every field of an object, followed by those of its inner objects.
 * @param {Schema} schema
 * @param {string} path
 * @param {string} title
 * @param {Map<string, Place>} known
 * @returns {string[][]}
 */
function rowsOf({ properties = {}, required = [] }, path, title, known) {
  return Object.entries(properties).flatMap(([name, schema]) => {
    if (name === 'success') return [];
    const inner = innerOf(schema);
    const where = `${path}${name}${inner?.suffix ?? ''}`;
    const type = `${typeOf(schema)}${required.includes(name) ? '' : ', may be absent'}`;
    const row = [`\`${path}${name}\``, type, meaningOf(schema)];
    if (!inner) return [row];
    const place = isShareable(inner.schema) ? known.get(identity(inner.schema)) : undefined;
    const same = place && (place.title === title ? `\`${place.path}\`` : link(place));
    if (same)
      return [[`\`${path}${name}\``, type, [meaningOf(schema), `as ${same}`].filter(Boolean).join('; ')]];
    if (isShareable(inner.schema)) known.set(identity(inner.schema), { title, path: where });
    return [row, ...rowsOf(inner.schema, `${where}.`, title, known)];
  });
}

/** Returns the object of a field: the field itself, an item of a list, or a value by name. @param {Schema} schema @returns {{ schema: Schema, suffix: string } | undefined} */
function innerOf(schema) {
  const plain = withoutNull(schema);
  if (plain.properties) return { schema: plain, suffix: '' };
  if (plain.items?.properties) return { schema: plain.items, suffix: '[]' };
  const { additionalProperties } = plain;
  return typeof additionalProperties === 'object' && additionalProperties.properties
    ? { schema: additionalProperties, suffix: '.*' }
    : undefined;
}

/** @param {Schema} schema */
function withoutNull(schema) {
  const others = schema.anyOf?.filter(({ type }) => type !== 'null') ?? [];
  return others.length === 1 ? (others[0] ?? schema) : schema;
}

/** @param {Schema} schema @returns {string} */
function typeOf(schema) {
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(' or ');
  if (schema.enum) return schema.enum.map((value) => `\`${String(value)}\``).join(' or ');
  if (schema.items) return schema.items.properties ? 'list of objects' : `list of ${typeOf(schema.items)}s`;
  if (typeof schema.additionalProperties === 'object' && !schema.properties)
    return `object of ${typeOf(schema.additionalProperties)}s`;
  return schema.type ?? 'any';
}

/** @param {Schema} schema */
function meaningOf(schema) {
  const plain = withoutNull(schema);
  const text = [schema.description ?? plain.description, plain.items?.description].filter(Boolean).join('; ');
  return cell(text.replace(/: a (string of|whole number$)/, (_, kind) => (kind === 'string of' ? ':' : '')));
}

/** @param {Place} place */
function link({ title, path }) {
  const anchor = title
    .toLowerCase()
    .replace(/[^a-z0-9 _-]/g, '')
    .replaceAll(' ', '-');
  return path === '' ? `[\`${title}\`](#${anchor})` : `\`${path}\` of [\`${title}\`](#${anchor})`;
}

/**
 * Returns the fields of answers without a description.
 * @param {OpenApi} document
 * @returns {string[]}
 */
export function undescribed({ paths }) {
  return Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).flatMap(([method, { responses }]) => {
      const answer = jsonOf(responses?.['200']);
      const title = `${method.toUpperCase()} ${path}`;
      return rowsOf(answer ?? {}, '', title, new Map())
        .filter(([, , meaning]) => meaning === '')
        .map(([name]) => `${title} ${name}`);
    }),
  );
}
