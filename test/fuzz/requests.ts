/**
 * Requests made from the router's own OpenAPI document: right in everything but, most of the time, one thing, so that
 * they get past the checks that stand first.
 */
import fc from 'fast-check';
import { damaged, jsonOf, oddJson, oddText, some } from './values.js';

interface Schema {
  type?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
  required?: string[];
}

export interface Operation {
  method: string;
  /** With `{name}` where a parameter stands. */
  path: string;
  inPath: string[];
  inQuery: string[];
  body: Schema | undefined;
}

export interface Sent {
  method: string;
  path: string;
  headers: Record<string, string>;
  body: string | undefined;
}

interface Document {
  paths: Record<
    string,
    Record<
      string,
      {
        parameters?: { in: string; name: string }[];
        requestBody?: { content: Record<string, { schema: Schema }> };
      }
    >
  >;
}

export function operationsOf(document: Document): Operation[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { parameters = [], requestBody }]) => {
      const named = (place: string) => parameters.filter((one) => one.in === place).map(({ name }) => name);
      return {
        method: method.toUpperCase(),
        path,
        inPath: named('path'),
        inQuery: named('query'),
        body: requestBody?.content['application/json']?.schema,
      };
    }),
  );
}

const callSid = fc.constantFrom('CA1', 'CA2', 'CA3', 'CA 4/é', '😀');
const pod = fc.constantFrom('gold-1', 'gold-2', 'basic-1', 'nowhere');
const tier = fc.constantFrom('gold', 'basic', 'nowhere');
const merchant = fc.constantFrom('acme', 'vip', 'constructor');
const recordId = fc.constantFrom('1', '2', '3', '999999');
export const tierConfig = fc.oneof(
  fc.constant({ gold: 2, basic: 1 }),
  fc.record({
    tiers: fc.dictionary(
      fc.constantFrom('gold', 'basic', 'vip', 'constructor', 'a.b', 'tiers'),
      fc.record(
        {
          type: fc.constantFrom('exclusive', 'shared'),
          target: fc.nat(5),
          max_concurrent: fc.constantFrom(1, 3),
        },
        { requiredKeys: [] },
      ),
      { maxKeys: 4 },
    ),
    default_chain: fc.array(fc.constantFrom('gold', 'basic', 'vip', 'nowhere'), { maxLength: 4 }),
  }),
);
export const merchantConfig = some({
  tier,
  pool: merchant,
  fallback: fc.array(fc.oneof(tier, fc.constantFrom('merchant:acme', 'merchant:vip')), { maxLength: 4 }),
});

/** What fits a field or a parameter, by its name; texts because that is what a path and a query have. */
const known: Record<string, fc.Arbitrary<unknown>> = {
  call_sid: callSid,
  call: callSid,
  sid: callSid,
  calls: fc.array(callSid, { maxLength: 4 }),
  merchant_id: merchant,
  merchant,
  id: merchant,
  provider: fc.constantFrom('twilio', 'plivo', 'somebody'),
  flow: fc.constantFrom('v1', 'v2'),
  template: fc.constantFrom('order-confirmation', 'a b'),
  fence: fc.oneof(fc.nat({ max: 5 }), fc.maxSafeNat()),
  pod_name: pod,
  pod,
  wait: fc.constantFrom('0', '1ms', '0.5ms'),
  uid: fc.constantFrom('u-1', 'u-2'),
  tier,
  as_of: fc.maxSafeNat(),
  interval_ms: fc.integer({ min: 100, max: 600_000 }),
  key: oddText,
  dry_run: fc.boolean(),
  ids: fc.array(recordId, { minLength: 1, maxLength: 4 }),
  workflow: fc.constantFrom('jobs', 'sitemap-import', 'nothing'),
  pool: fc.constantFrom('pool:gold', 'pool:basic', 'merchant:vip', 'pool:nowhere'),
  cursor: fc
    .tuple(
      fc.constantFrom('pool:gold', 'pool:basic', 'merchant:zzz', 'pool:a'),
      fc.bigInt({ min: 0n, max: 2n ** 64n }),
    )
    .map(([one, cursor]) => `${one},${cursor}`),
  limit: fc.constantFrom('1', '2', '100', '500', '1000'),
  minutes: fc.constantFrom('1', '60', '360', '1440'),
  since: fc.oneof(fc.constantFrom('0', '0-0', '9999999999999999-0'), eventId()),
  before: fc.oneof(fc.constantFrom('0-0', '999999999999999-9999999999999999999'), eventId()),
  type: fc.constantFrom('call_allocated', 'call_allocated,no_pods', 'nothing'),
  q: fc.constantFrom('CA', 'gold'),
};

const fitting = new Map(Object.entries(known));

function eventId(): fc.Arbitrary<string> {
  const digits = (max: bigint) => fc.bigInt({ min: 0n, max });
  return fc.tuple(digits(10n ** 16n), digits(10n ** 20n)).map((parts) => parts.join('-'));
}

function bodyOf({ path, body }: Operation): fc.Arbitrary<unknown> | undefined {
  if (!body) return undefined;
  if (path.includes('/tiers')) return tierConfig;
  if (path.includes('/merchants/')) return merchantConfig;
  const fields = Object.keys(body.properties ?? {}).map(
    (name) => [name, fitting.get(name) ?? oddJson] as const,
  );
  return fc.record(Object.fromEntries(fields), {
    requiredKeys: body.required ?? [],
    noNullPrototype: true,
  } as fc.RecordConstraints<string>);
}

/** One place of an object, at any depth, gets another value, or another name, or goes. */
export function withOneWrong(value: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  return fc
    .tuple(
      value,
      fc.array(fc.nat(20), { minLength: 1, maxLength: 4 }),
      fc.constantFrom('value', 'gone', 'name'),
      oddJson,
      oddText,
    )
    .map(([whole, path, how, odd, name]) => {
      let copy: unknown;
      try {
        copy = structuredClone(whole);
      } catch {
        // Nested too deeply to be copied here: odd enough as it is.
        return whole;
      }
      let place: unknown = copy;
      for (const [step, number] of path.entries()) {
        if (typeof place !== 'object' || place === null) break;
        const holder = place as Record<string, unknown>;
        const keys = Object.keys(holder);
        const key = keys[number % (keys.length + 1)];
        if (key === undefined) {
          define(holder, name, odd);
          break;
        }
        const next = holder[key];
        const isLast = step === path.length - 1 || typeof next !== 'object' || next === null;
        if (!isLast) {
          place = next;
          continue;
        }
        if (how === 'gone') delete holder[key];
        else define(holder, how === 'name' ? name : key, odd);
        break;
      }
      return copy;
    });
}

/** Also `__proto__`, as its own key. */
function define(holder: object, key: string, value: unknown): void {
  if (Array.isArray(holder)) holder.push(value);
  else Object.defineProperty(holder, key, { value, enumerable: true, configurable: true, writable: true });
}

const contentType = fc.oneof(
  { weight: 12, arbitrary: fc.constant('application/json') },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      'application/json; charset=utf-16',
      'application/JSON;',
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'application/json/json',
      ';;;',
      '',
      'application/vnd.api+json',
    ),
  },
);

export function bodyText(value: fc.Arbitrary<unknown>): fc.Arbitrary<string> {
  return fc.oneof(
    { weight: 3, arbitrary: jsonOf(value) },
    { weight: 5, arbitrary: jsonOf(withOneWrong(value)) },
    { weight: 1, arbitrary: jsonOf(oddJson) },
    { weight: 2, arbitrary: damaged(jsonOf(value)) },
    { weight: 1, arbitrary: oddText },
  );
}

/** Half a character cannot be encoded. */
const wellFormed = (text: string) => Buffer.from(text).toString();

/** As it may stand in an address: encoded, or broken in a way that a client could still send. */
export const encoded = (text: fc.Arbitrary<unknown>): fc.Arbitrary<string> =>
  fc.oneof(
    { weight: 6, arbitrary: text.map((one) => encodeURIComponent(wellFormed(String(one)))) },
    {
      weight: 1,
      arbitrary: fc.constantFrom('%', '%zz', '%ff', '%00', '%2F', '%C3', '', '.', '..', '%0d%0a', '+', ';'),
    },
  );

const fromNames = (names: string[]): fc.Arbitrary<string[]> =>
  fc.tuple(
    ...names.map((name) =>
      encoded(
        fc.oneof({ weight: 4, arbitrary: fitting.get(name) ?? oddText }, { weight: 1, arbitrary: oddText }),
      ),
    ),
  );

const queryText = (names: string[]): fc.Arbitrary<string> => {
  const name =
    names.length > 0
      ? fc.oneof({ weight: 6, arbitrary: fc.constantFrom(...names) }, { weight: 1, arbitrary: oddText })
      : oddText;
  const pair = name.chain((one) =>
    encoded(
      fc.oneof({ weight: 4, arbitrary: fitting.get(one) ?? oddText }, { weight: 1, arbitrary: oddText }),
    ).map((value) => `${encodeURIComponent(wellFormed(one))}=${value}`),
  );
  return fc.array(pair, { maxLength: 4 }).map((pairs) => (pairs.length > 0 ? `?${pairs.join('&')}` : ''));
};

export function requestsOf(operation: Operation): fc.Arbitrary<Sent> {
  const { method, path, inPath, inQuery } = operation;
  const body = bodyOf(operation);
  return fc
    .tuple(
      fromNames(inPath),
      queryText(inQuery),
      contentType,
      body
        ? bodyText(body).map((text): string | undefined => text)
        : fc.constant<string | undefined>(undefined),
    )
    .map(([values, query, type, text]) => ({
      method,
      path: `${inPath.reduce((whole, name, i) => whole.replace(`{${name}}`, () => values[i] ?? ''), path)}${query}`,
      headers: text === undefined ? {} : { 'content-type': type },
      body: text,
    }));
}
