import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  bearerMatches,
  type Received,
  secretsEqual,
  verifyExotel,
} from '../../../src/http/providers/signatures.js';

function basic(pair: string): string {
  return `Basic ${Buffer.from(pair).toString('base64')}`;
}

describe('verifyExotel', () => {
  it.each<[string, string, Received, Received, boolean]>([
    ['the token in the query', 's3cret', 's3cret', undefined, true],
    ['the token as password, any user', 's3cret', undefined, basic('exotel:s3cret'), true],
    ['the token as password, no user', 's3cret', undefined, basic(':s3cret'), true],
    ['a scheme in lower case', 's3cret', undefined, basic('exotel:s3cret').replace('Basic', 'basic'), true],
    ['a wrong query token beside the right password', 's3cret', 'nope', basic('exotel:s3cret'), true],
    ['the right query token beside a wrong password', 's3cret', 's3cret', basic('exotel:nope'), true],
    ['user and password for a token with a colon', 'exotel:s3cret', undefined, basic('exotel:s3cret'), true],
    ['another user for a token with a colon', 'exotel:s3cret', undefined, basic('other:s3cret'), false],
    ['a token with a colon in the query', 'exotel:s3cret', 'exotel:s3cret', undefined, true],
    ['a token with a colon as the password', 'exotel:s3cret', undefined, basic('x:exotel:s3cret'), false],
    ['nothing', 's3cret', undefined, undefined, false],
    ['an empty token', 's3cret', '', undefined, false],
    ['a wrong token', 's3cret', 's3creT', undefined, false],
    ['a doubled token', 's3cret', ['s3cret', 's3cret'], undefined, false],
    ['a doubled header', 's3cret', undefined, [basic('exotel:s3cret')], false],
    ['credentials without a colon', 's3cret', undefined, basic('s3cret'), false],
    ['the token as user name', 's3cret', undefined, basic('s3cret:'), false],
    ['a bearer token', 's3cret', undefined, 'Bearer s3cret', false],
    ['no configured token', '', '', basic(':'), false],
  ])('decides on %s', (_name, token, queryToken, authorization, expected) => {
    expect(verifyExotel({ token, queryToken, authorization })).toBe(expected);
  });
});

describe('bearerMatches', () => {
  it.each<[string, Received, string, boolean]>([
    ['the key', 'Bearer k3y', 'k3y', true],
    ['a scheme in lower case and two spaces', 'bearer  k3y', 'k3y', true],
    ['another key', 'Bearer k3y2', 'k3y', false],
    ['a key with something behind it', 'Bearer k3y ', 'k3y', false],
    ['no scheme', 'k3y', 'k3y', false],
    ['another scheme', 'Basic k3y', 'k3y', false],
    ['an empty key', 'Bearer ', '', false],
    ['no header', undefined, 'k3y', false],
    ['a doubled header', ['Bearer k3y', 'Bearer k3y'], 'k3y', false],
  ])('decides on %s', (_name, header, key, expected) => {
    expect(bearerMatches(header, key)).toBe(expected);
  });

  it('accepts a key only without a single character changed', () => {
    const key = 'sr_live_0123456789abcdef';
    fc.assert(
      fc.property(fc.nat(key.length - 1), fc.string({ minLength: 1, maxLength: 1 }), (at, char) => {
        const presented = key.slice(0, at) + char + key.slice(at + 1);
        expect(bearerMatches(`Bearer ${presented}`, key)).toBe(presented === key);
      }),
    );
  });
});

it('never throws on any header', () => {
  const text = fc.string({ unit: 'binary' });
  const header = fc.oneof(
    text,
    text.map((t) => `Basic ${t}`),
    text.map((t) => `Bearer ${t}`),
    fc.array(text),
    fc.constant(undefined),
  );
  fc.assert(
    fc.property(header, header, (one, other) => {
      expect(verifyExotel({ token: 'an unguessable token', queryToken: one, authorization: other })).toBe(
        false,
      );
      expect(bearerMatches(one, 'an unguessable key')).toBe(false);
    }),
  );
});

it('compares secrets of any two lengths', () => {
  expect(secretsEqual('', '')).toBe(true);
  expect(secretsEqual('a', 'aa')).toBe(false);
});
