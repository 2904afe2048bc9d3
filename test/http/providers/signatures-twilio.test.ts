import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import type { Pair } from '../../../src/http/providers/form.js';
import { twilioSignature, verifyTwilio } from '../../../src/http/providers/signatures.js';

const work = vi.hoisted(() => ({ hmacs: 0, queries: 0 }));
vi.mock('node:crypto', async (original) => {
  const crypto = await original<typeof import('node:crypto')>();
  const createHmac: typeof crypto.createHmac = (...args) => {
    work.hmacs += 1;
    return crypto.createHmac(...args);
  };
  return { ...crypto, createHmac };
});
vi.mock('node:querystring', async (original) => {
  const querystring = await original<typeof import('node:querystring')>();
  const stringify: typeof querystring.stringify = (...args) => {
    work.queries += 1;
    return querystring.stringify(...args);
  };
  return { ...querystring, stringify };
});

// Vectors: twilio/twilio-node spec/validation.spec.js and twilio/twilio-python tests/unit/test_request_validator.py.
const token = '12345';
const url = 'https://mycompany.com/myapp.php?foo=1&bar=2';
const signature = 'RSOYDt4T1cUTdK1PDd93/VVr8B8=';
const params: Pair[] = [
  ['To', '+18005551212'],
  ['CallSid', 'CA1234567890ABCDE'],
  ['Caller', '+14158675309'],
  ['Digits', '1234'],
  ['From', '+14158675309'],
];

describe('twilioSignature', () => {
  it('is the one in Twilio’s documentation, for any order of the parameters', () => {
    expect(twilioSignature(token, url, params)).toBe(signature);
    expect(twilioSignature(token, url, [...params].reverse())).toBe(signature);
  });

  it.each<[string, Pair[], string]>([
    [
      'two values of one name',
      [
        ['MessagingBinding.Address', '+1415xxxxxxx'],
        ['MessagingBinding.Address', '+1325xxxxxxx'],
      ],
      '83O6e2vORAoJHUNzJjDWN1jz+BA=',
    ],
    [
      'the same value twice, and a name that begins like another',
      [
        ['Sid', 'CA123'],
        ['SidAccount', 'AC123'],
        ['Digits', '5678'],
        ['Digits', '1234'],
        ['Digits', '1234'],
      ],
      'IK+Dwps556ElfBT0I3Rgjkr1wJU=',
    ],
  ])('agrees with Twilio’s library on %s', (_name, pairs, expected) => {
    expect(twilioSignature(token, url, pairs)).toBe(expected);
  });
});

describe('verifyTwilio', () => {
  const http = url.replace('https', 'http');
  it.each([
    ['the documented request', url, signature],
    ['https signed without the port', url.replace('.com', '.com:1234'), signature],
    ['http signed with its port', http.replace('.com', '.com:1234'), 'Zmvh+3yNM1Phv2jhDCwEM3q5ebU='],
    ['https signed with port 443', url, 'kvajT1Ptam85bY51eRf/AJRuM3w='],
    ['http signed with port 80', http, '0ZXoZLH/DfblKGATFgpif+LLRf4='],
    ['credentials in the address', url.replace('//', '//user:pass@'), 'CukzLTc1tT5dXEDIHm/tKBanW10='],
    ['a user name in the address', url.replace('//', '//user@'), '2YRLlVAflCqxaNicjMpJcSTgzSs='],
    ['credentials, signed with port 443', url.replace('//', '//user:pass@'), 'ZQFR1PTIZXF2MXB8ZnKCvnnA+rI='],
    ['special characters in the query', `${url}&Body=It's+amazing`, 'dsq4Ehbj6cs+KdTkpF5sSSplOWw='],
  ])('accepts %s', (_name, address, expected) => {
    expect(verifyTwilio({ token, signature: expected, url: address, params })).toBe(true);
  });

  it('accepts a query that Twilio encoded again before it signed', () => {
    const expected = twilioSignature(token, 'https://mycompany.com/x?template=a%20b', params);
    expect(
      verifyTwilio({ token, signature: expected, url: 'https://mycompany.com/x?template=a+b', params }),
    ).toBe(true);
  });

  it.each([
    ['no header', undefined],
    ['an empty header', ''],
    ['a doubled header', [signature, signature]],
    ['a doubled header, joined by Node', `${signature}, ${signature}`],
    ['a signature without its padding', signature.slice(0, -1)],
  ])('refuses %s', (_name, header) => {
    expect(verifyTwilio({ token, signature: header, url, params })).toBe(false);
  });

  it.each([
    ['a signature of the right length', 'x'.repeat(28), { hmacs: 8, queries: 1 }],
    ['one of another length', 'x'.repeat(15_000), { hmacs: 0, queries: 0 }],
  ])('does little work for %s that is wrong', async (_name, header, expected) => {
    // Unit tests share their modules: another file may have loaded this one with the real node:crypto.
    vi.resetModules();
    const counted = await import('../../../src/http/providers/signatures.js');
    Object.assign(work, { hmacs: 0, queries: 0 });
    // Each step changes this address: the case of its host, its port, the encoding of its query.
    const odd = "https://Mycompany.com:8443/x?a='+b";
    expect(counted.verifyTwilio({ token, signature: header, url: odd, params })).toBe(false);
    expect(work).toEqual(expected);
  });

  it('refuses a changed parameter, path, query or token, and an empty token', () => {
    const good = { token, signature, url, params };
    expect(verifyTwilio({ ...good, params: params.slice(1) })).toBe(false);
    expect(verifyTwilio({ ...good, url: url.replace('myapp', 'yourapp') })).toBe(false);
    expect(verifyTwilio({ ...good, url: `${url}&merchant_id=gold` })).toBe(false);
    expect(verifyTwilio({ ...good, token: '12346' })).toBe(false);
    const empty = twilioSignature('', url, params);
    expect(verifyTwilio({ ...good, token: '', signature: empty })).toBe(false);
  });

  it('refuses a signature with any single character changed', () => {
    fc.assert(
      fc.property(
        fc.nat(signature.length - 1),
        fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }),
        (at, char) => {
          fc.pre(signature[at] !== char);
          const forged = signature.slice(0, at) + char + signature.slice(at + 1);
          expect(verifyTwilio({ token, signature: forged, url, params })).toBe(false);
        },
      ),
    );
  });

  it('accepts what it signs itself, for any address and parameters', () => {
    const pair = fc.tuple(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' }));
    fc.assert(
      fc.property(fc.webUrl({ withQueryParameters: true }), fc.array(pair), (address, pairs) => {
        const own = twilioSignature(token, address, pairs);
        expect(verifyTwilio({ token, signature: own, url: address, params: pairs })).toBe(true);
      }),
    );
  });

  it('never throws, for any input', () => {
    const text = fc.string({ unit: 'binary' });
    const header = fc.oneof(text, fc.array(text), fc.constant(undefined));
    fc.assert(
      fc.property(text, header, text, fc.array(fc.tuple(text, text)), (anyToken, any, anyUrl, pairs) => {
        expect(verifyTwilio({ token: anyToken, signature: any, url: anyUrl, params: pairs })).toBe(false);
      }),
    );
  });
});
