import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Pair } from '../../../src/http/providers/form.js';
import { type PlivoRequest, type Received, verifyPlivo } from '../../../src/http/providers/signatures.js';

const token = 'my_auth_token';
const nonce = '05429567804466091622';
const address = 'https://router.example/api/v1/plivo/allocate';
const params: Pair[] = [
  ['To', '918000000000'],
  ['CallUUID', '97ceeb52-58b6-11e1-86da-77300b68f8bb'],
  ['Event', 'StartApp'],
];
const fields = 'CallUUID97ceeb52-58b6-11e1-86da-77300b68f8bbEventStartAppTo918000000000';

function sign(message: string, key = token): string {
  return createHmac('sha256', key).update(message).digest('base64');
}

function v3(message: string, request: Partial<PlivoRequest> = {}): PlivoRequest {
  const headers = { 'x-plivo-signature-v3': sign(message), 'x-plivo-signature-v3-nonce': nonce };
  return { token, headers, method: 'POST', url: address, params, ...request };
}

/** What Plivo signs for a POST. */
function v3Message(base: string, query: Pair[], posted: Pair[], anyNonce: string): string {
  const inQuery = query.map(([name, value]) => `${name}=${value}`).join('&');
  const inBody = posted.map(([name, value]) => name + value).join('');
  const mark = inQuery !== '' || posted.length > 0 ? '?' : '';
  return `${base}${mark}${inQuery}${inQuery && posted.length > 0 ? '.' : ''}${inBody}.${anyNonce}`;
}

describe('verifyPlivo V3', () => {
  // The strings to sign, as construct_get_url and construct_post_url of plivo-node (lib/utils/v3Security.js) and
  // plivo-python (plivo/utils/signature_v3.py) build them. Plivo publishes no vector with its result.
  it.each<[string, string, Partial<PlivoRequest>]>([
    ['a POST without a query', `${address}?${fields}.${nonce}`, {}],
    [
      'a POST with a query, sorted and decoded',
      `${address}?flow=v2&merchant_id=a b.${fields}.${nonce}`,
      { url: `${address}?merchant_id=a%20b&flow=v2` },
    ],
    ['a POST with nothing in it', `${address}.${nonce}`, { params: [] }],
    ['a POST with only a query', `${address}?a=1.${nonce}`, { params: [], url: `${address}?a=1` }],
    ['a GET without a query', `${address}.${nonce}`, { method: 'GET', params: [] }],
    [
      'a GET, whose parameters are all in the query',
      `${address}?CallUUID=1&b=&b=10&b=2&z=x y.${nonce}`,
      { method: 'get', url: `${address}?z=x+y&b=2&b=10&b=&CallUUID=1` },
    ],
    [
      'an address with a port',
      `https://router.example:8443/x?${fields}.${nonce}`,
      { url: 'https://router.example:8443/x' },
    ],
  ])('accepts %s', (_name, message, request) => {
    expect(verifyPlivo(v3(message, request))).toBe(true);
  });

  const message = `${address}?${fields}.${nonce}`;
  const good = sign(message);
  it.each<[string, Record<string, Received>, boolean]>([
    ['the main account’s signature', { 'x-plivo-signature-ma-v3': good }, true],
    ['one of several signatures', { 'x-plivo-signature-v3': `${sign('x')},${good}` }, true],
    ['the eighth of several signatures', { 'x-plivo-signature-v3': `${'x,'.repeat(7)}${good}` }, true],
    ['one behind more than accounts have', { 'x-plivo-signature-v3': `${'x,'.repeat(8)}${good}` }, false],
    ['one of several, with spaces', { 'x-plivo-signature-v3': `${sign('x')} , ${good}` }, true],
    [
      'a right main account’s beside a wrong own one',
      { 'x-plivo-signature-v3': sign('x'), 'x-plivo-signature-ma-v3': good },
      true,
    ],
    ['a doubled header', { 'x-plivo-signature-v3': [good, good] }, false],
    ['no signature', {}, false],
    ['an empty signature', { 'x-plivo-signature-v3': '' }, false],
    [
      'a doubled nonce',
      { 'x-plivo-signature-v3': good, 'x-plivo-signature-v3-nonce': [nonce, nonce] },
      false,
    ],
    ['no nonce', { 'x-plivo-signature-v3': good, 'x-plivo-signature-v3-nonce': undefined }, false],
    [
      'an empty nonce',
      { 'x-plivo-signature-v3': sign(`${address}?${fields}.`), 'x-plivo-signature-v3-nonce': '' },
      false,
    ],
    [
      'the V2 nonce only',
      {
        'x-plivo-signature-v3': good,
        'x-plivo-signature-v3-nonce': undefined,
        'x-plivo-signature-v2-nonce': nonce,
      },
      false,
    ],
    [
      'a wrong V3 beside a right V2',
      {
        'x-plivo-signature-v3': sign('x'),
        'x-plivo-signature-v2': sign(address + nonce),
        'x-plivo-signature-v2-nonce': nonce,
      },
      false,
    ],
  ])('decides on %s', (_name, headers, expected) => {
    const all = { 'x-plivo-signature-v3-nonce': nonce, ...headers };
    expect(verifyPlivo({ token, headers: all, method: 'POST', url: address, params })).toBe(expected);
  });

  it('refuses another method, token, parameter or query, and an empty token', () => {
    expect(verifyPlivo(v3(message, { method: 'PUT' }))).toBe(false);
    expect(verifyPlivo(v3(message, { token: 'other' }))).toBe(false);
    expect(verifyPlivo(v3(message, { params: params.slice(1) }))).toBe(false);
    expect(verifyPlivo(v3(message, { url: `${address}?merchant_id=gold` }))).toBe(false);
    const headers = { 'x-plivo-signature-v3': sign(message, ''), 'x-plivo-signature-v3-nonce': nonce };
    expect(verifyPlivo(v3(message, { token: '', headers }))).toBe(false);
  });

  it('refuses a signature with any single character changed', () => {
    fc.assert(
      fc.property(fc.nat(good.length - 1), fc.constantFrom(...'ABCabc019+/=-_ '), (at, char) => {
        fc.pre(good[at] !== char);
        const forged = good.slice(0, at) + char + good.slice(at + 1);
        const headers = { 'x-plivo-signature-v3': forged, 'x-plivo-signature-v3-nonce': nonce };
        expect(verifyPlivo(v3(message, { headers }))).toBe(false);
      }),
    );
  });

  it('never throws, for any headers', () => {
    const text = fc.string({ unit: 'binary' });
    const value = fc.oneof(text, fc.array(text), fc.constant(undefined));
    const names = ['v3', 'ma-v3', 'v3-nonce', 'v2', 'ma-v2', 'v2-nonce'].map(
      (name) => `x-plivo-signature-${name}`,
    );
    const headers = fc.dictionary(fc.constantFrom(...names), value);
    fc.assert(
      fc.property(headers, text, text, fc.array(fc.tuple(text, text)), (any, method, url, pairs) => {
        for (const each of [method, 'GET', 'POST']) {
          expect(verifyPlivo({ token, headers: any, method: each, url, params: pairs })).toBe(false);
        }
      }),
    );
  });
});

describe('verifyPlivo V2', () => {
  // Vectors: plivo/plivo-node test/utils.js, the first also in plivo-ruby, plivo-java and plivo-dotnet.
  it.each([
    ['https://answer.url', '12345', 'ehV3IKhLysWBxC1sy8INm0qGoQYdYsHwuoKjsX7FsXc=', 'my_auth_token', true],
    [
      'https://answer.url?merchant_id=1',
      '12345',
      'ehV3IKhLysWBxC1sy8INm0qGoQYdYsHwuoKjsX7FsXc=',
      'my_auth_token',
      true,
    ],
    [
      'https://answer.url:8000',
      '24725744043720739450',
      'LDphWoWimP4QM5AoWI1uwP6WmlWtt5ITPZjXIWYvCNU=',
      'my_auth_token',
      true,
    ],
    [
      'https://answer.url:8080',
      '123456',
      'xeV6S6BPIQJ/rgKCjCm/Fo2ve5zNe1fatQoHyRT8vxQ=',
      'my_auth_tokens',
      true,
    ],
    [
      'https://answer.url:8000',
      '12345',
      'ehV3IKhLysWBxC1sy8INm0qGoQYdYsHwuoKjsX7FsXc=',
      'my_auth_token',
      false,
    ],
    ['https://answer.url', '123456', 'ehV3IKhLysWBxC1sy8INm0qGoQYdYsHwuoKjsX7FsXc=', 'my_auth_tokens', false],
  ])('agrees with Plivo’s libraries on %s with nonce %s', (url, anyNonce, signature, anyToken, expected) => {
    for (const name of ['x-plivo-signature-v2', 'x-plivo-signature-ma-v2']) {
      const headers = { [name]: signature, 'x-plivo-signature-v2-nonce': anyNonce };
      expect(verifyPlivo({ token: anyToken, headers, method: 'POST', url, params })).toBe(expected);
    }
  });

  it('does not take the signature of a V3 request, with any nonce and body', () => {
    const text = fc.string({ unit: fc.constantFrom(...'ab1.?=&/#-') });
    const pairs = fc.array(fc.tuple(text, text), { maxLength: 3 });
    const nonces = fc.stringMatching(/^[A-Za-z0-9-]{1,20}$/);
    fc.assert(
      fc.property(pairs, pairs, nonces, text, pairs, (query, posted, seenNonce, path, body) => {
        const seen = address + path.replace(/[?#]/g, '');
        const signed = v3Message(seen, query, posted, seenNonce);
        // Every place at which an address can end and a nonce begin.
        for (let at = address.length; at < signed.length; at += 1) {
          const headers = {
            'x-plivo-signature-v2': sign(signed),
            'x-plivo-signature-ma-v2': sign(signed),
            'x-plivo-signature-v2-nonce': signed.slice(at),
          };
          const request = { token, headers, method: 'POST', params: body };
          expect(verifyPlivo({ ...request, url: address })).toBe(false);
          expect(verifyPlivo({ ...request, url: `${address}?${signed.slice(at)}` })).toBe(false);
        }
      }),
    );
  });
});

describe('a nonce', () => {
  it.each(['?a.1', '.1', '1.2', 'a=b', 'a&b', 'a/b', '1, 1', '1 ', '', 'é', '1\n', '1'.repeat(65)])(
    'that Plivo does not send is refused: %j',
    (odd) => {
      const url = `${address}?a=1`;
      const headers = (version: string, signed: string) => ({
        [`x-plivo-signature-${version}`]: sign(signed),
        [`x-plivo-signature-${version}-nonce`]: odd,
      });
      const v2 = headers('v2', address + odd);
      expect(verifyPlivo({ token, headers: v2, method: 'POST', url, params })).toBe(false);
      const signed = headers('v3', `${url}.${fields}.${odd}`);
      expect(verifyPlivo({ token, headers: signed, method: 'POST', url, params })).toBe(false);
      const got = headers('v3', `${url}.${odd}`);
      expect(verifyPlivo({ token, headers: got, method: 'GET', url, params })).toBe(false);
    },
  );

  it('cannot take over the end of the signed fields', () => {
    const signed = `${address}?CallUUID1To1.5.${nonce}`;
    const request = (to: string, any: string): PlivoRequest => ({
      ...v3(signed),
      headers: { 'x-plivo-signature-v3': sign(signed), 'x-plivo-signature-v3-nonce': any },
      params: [
        ['CallUUID', '1'],
        ['To', to],
      ],
    });
    expect(verifyPlivo(request('1.5', nonce))).toBe(true);
    expect(verifyPlivo(request('1', `5.${nonce}`))).toBe(false);
  });
});

describe('an address with "#"', () => {
  // Fastify reads what follows the "#" as a query.
  it('is signed as a whole', () => {
    const url = `${address}#merchant_id=gold`;
    expect(verifyPlivo(v3(`${address}?${fields}.${nonce}`, { url }))).toBe(false);
    const headers = { 'x-plivo-signature-v2': sign(address + nonce), 'x-plivo-signature-v2-nonce': nonce };
    expect(verifyPlivo(v3('', { url, headers }))).toBe(false);
  });
});
