import { expect, it } from 'vitest';
import { requestUrl } from '../../../src/http/providers/signatures.js';

const seen = {
  protocol: 'http',
  host: '10.0.0.7:8080',
  originalUrl: '/api/v1/twilio/allocate?a=b+c%20d&e=%c3%a9',
};
const path = '/api/v1/twilio/allocate?a=b+c%20d&e=%c3%a9';

it.each([
  ['the address it came to', {}, `http://10.0.0.7:8080${path}`],
  ['a protocol with its colon', { protocol: 'https:' }, `https://10.0.0.7:8080${path}`],
  ['PUBLIC_URL', { publicUrl: 'https://calls.example' }, `https://calls.example${path}`],
  ['PUBLIC_URL with a slash', { publicUrl: 'https://calls.example/' }, `https://calls.example${path}`],
  [
    'PUBLIC_URL with a port and a path',
    { publicUrl: 'https://calls.example:8443/router/' },
    `https://calls.example:8443/router${path}`,
  ],
  [
    'PUBLIC_URL without its own query',
    { publicUrl: 'https://calls.example/r?x=1#y' },
    `https://calls.example/r${path}`,
  ],
  ['an empty PUBLIC_URL as none', { publicUrl: '' }, `http://10.0.0.7:8080${path}`],
  [
    'an absolute request target',
    { originalUrl: `http://other.example${path}` },
    `http://10.0.0.7:8080${path}`,
  ],
  [
    'an absolute target without a path',
    { originalUrl: 'http://other.example?x=1' },
    'http://10.0.0.7:8080/?x=1',
  ],
  [
    'a target that begins with two slashes',
    { originalUrl: '//evil.example/x' },
    'http://10.0.0.7:8080//evil.example/x',
  ],
])('requestUrl uses %s', (_name, change, expected) => {
  expect(requestUrl({ ...seen, ...change })).toBe(expected);
});
