/** Wrong requests as a table: the request, and the expected status, code and message. */
import { connect } from 'node:net';
import type { Answer, TestRouter } from '../support/router.js';
import { wrongFields, wrongSids } from './bad-input-fields.js';

const json = { 'content-type': 'application/json' };
type Send = (router: TestRouter) => Promise<Answer>;
export type Row = [what: string, status: number, code: string, sentence: RegExp, send: Send];

const post =
  (path: string, body: unknown, headers?: Record<string, string>): Send =>
  (router) =>
    router.post(path, body, headers);
const raw =
  (path: string, body: string | Buffer, headers: Record<string, string>, method = 'POST'): Send =>
  (router) =>
    router.ask(path, { method, body, headers });
const get =
  (path: string): Send =>
  (router) =>
    router.get(path);
const put =
  (path: string, body: unknown, headers?: Record<string, string>): Send =>
  (router) =>
    router.put(path, body, headers);

export const rows: Row[] = [
  ...['/allocate', '/release', '/renew'].flatMap((path): Row[] => [
    [`${path} without call_sid`, 400, 'invalid_request', /^call_sid is missing: it must be/, post(path, {})],
    ...wrongSids.map(([what, call_sid, sentence]): Row => {
      return [`${path} with call_sid ${what}`, 400, 'invalid_request', sentence, post(path, { call_sid })];
    }),
  ]),
  ...wrongFields.flatMap(([path, good, wrong]) =>
    Object.entries(wrong).flatMap(([field, values]) =>
      values.map((value): Row => {
        const shown = JSON.stringify(value).slice(0, 40);
        const what = `${path} with ${field} ${shown}`;
        const sentence = new RegExp(`^${field}(\\.\\d+)? must be .+, got `);
        return [what, 400, 'invalid_request', sentence, post(path, { ...good, [field]: value })];
      }),
    ),
  ),
  ['/drain without pod_name', 400, 'invalid_request', /^pod_name is missing/, post('/drain', {})],
  ['/report without calls', 400, 'invalid_request', /^calls is missing/, post('/pod/gold-1/report', {})],
  ...[[1], null, 7, 'text', true].map((body): Row => {
    const what = `a body that is ${JSON.stringify(body)}`;
    return [
      what,
      400,
      'invalid_request',
      /^the body must be a JSON object with call_sid, got /,
      post('/allocate', body),
    ];
  }),
  [
    'broken JSON',
    400,
    'invalid_request',
    /^the body is not valid JSON/,
    raw('/allocate', '{"call_sid":', json),
  ],
  ['an empty body', 400, 'invalid_request', /^the body is empty/, raw('/allocate', '', json)],
  ['no body at all', 400, 'invalid_request', /^the body must be a JSON object/, raw('/allocate', '', {})],
  [
    'a __proto__ in the body',
    400,
    'invalid_request',
    /^the body is not valid JSON, or has the key __proto__/,
    raw('/allocate', '{"call_sid":"CA1","__proto__":{"a":1}}', json),
  ],
  ...['text/plain', 'application/x-www-form-urlencoded', 'application/xml', 'nonsense'].map((type): Row => {
    const send = raw('/allocate', '{"call_sid":"CA1"}', { 'content-type': type });
    return [`content type ${type}`, 415, 'unsupported_media_type', /^the body must be JSON/, send];
  }),
  [
    'no content type',
    415,
    'unsupported_media_type',
    /^the body must be JSON/,
    raw('/allocate', '{"call_sid":"CA1"}', {}),
  ],
  [
    'a body over 64 KiB',
    413,
    'payload_too_large',
    /^the body is larger than 64 KiB/,
    post('/allocate', { call_sid: 'CA1', note: 'x'.repeat(65_536) }),
  ],
  [
    'headers over 16 KiB',
    413,
    'payload_too_large',
    /^the request headers are larger than 16 KiB/,
    post('/allocate', { call_sid: 'CA1' }, { 'x-long': 'x'.repeat(20_000) }),
  ],
  // Two ids that differ only in such a byte would be one key of the store.
  ...['/allocate', '/release', '/renew', '/pod/gold-1/report', '/drain'].map((path): Row => {
    const body = Buffer.from('{"call_sid":"CA\xff","calls":["CA\xff"],"pod_name":"gold-1\xff"}', 'latin1');
    const sentence = /^the body is not valid UTF-8/;
    return [`${path} with bytes that are not UTF-8`, 400, 'invalid_request', sentence, raw(path, body, json)];
  }),
  ...['{"call_sid":"CA\\udfff"}', '{"call_sid":"CA1","x":[{"\\uD800":1}]}'].map((body): Row => {
    const sentence = /^the body has a \\u escape of a lone surrogate/;
    return [
      `half a surrogate pair in ${body}`,
      400,
      'invalid_request',
      sentence,
      raw('/allocate', body, json),
    ];
  }),
  ...[
    '/calls/CA%FF',
    '/calls/CA%ED%A0%80',
    '/pod/gold-1%C3',
    '/merchants/a%80',
    '/calls?cursor=%FF',
    '/exotel/allocate?CallSid=CA%FF',
    '/exotel/allocate?CallSid=CA1&merchant_id=%ED%BF%BF',
  ].map((path): Row => {
    const sentence = /^the (path has invalid|URL is not valid) percent-enc/;
    return [`${path}, which is not UTF-8`, 400, 'invalid_request', sentence, get(path)];
  }),
  ...[
    ['/twilio/allocate', 'application/x-www-form-urlencoded', 'CallSid=CA%FF'],
    ['/twilio/status', 'application/x-www-form-urlencoded', 'CallSid=CA\xff&CallStatus=completed'],
    ['/plivo/allocate', 'application/x-www-form-urlencoded', 'CallUUID=CA%ED%A0%80'],
    ['/exotel/allocate', 'application/json', '{"CallSid":"CA\xff"}'],
    ['/exotel/allocate', 'application/json', '{"CallSid":"CA\\ud800"}'],
    [
      '/exotel/status',
      'multipart/form-data; boundary=b',
      '--b\r\ncontent-disposition: form-data; name="CallSid"\r\n\r\nCA\xff\r\n--b--',
    ],
  ].map(([path = '', type = '', body = '']): Row => {
    const send = raw(path, Buffer.from(body, 'latin1'), { 'content-type': type });
    const sentence = /^the body (must be a form in UTF-8|is not valid UTF-8|has a .u escape)/;
    return [`${path} with ${JSON.stringify(body)}`, 400, 'invalid_request', sentence, send];
  }),
  [
    'bytes that are not HTTP',
    400,
    'invalid_request',
    /^invalid HTTP request/,
    (router) => bytes(router, 'HELLO?\r\n\r\n'),
  ],
  [
    'a byte beyond ASCII in the path',
    400,
    'invalid_request',
    /^(the URL is not valid percent-encoded|invalid HTTP request)/,
    (router) =>
      bytes(router, 'GET /api/v1/calls/CA\xff HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n'),
  ],
  [
    'release of an unknown call',
    404,
    'call_not_found',
    /^no live call "nobody"/,
    post('/release', { call_sid: 'nobody' }),
  ],
  [
    'renew of an unknown call',
    404,
    'call_not_found',
    /^no live call "nobody"/,
    post('/renew', { call_sid: 'nobody' }),
  ],
  ['an unknown call', 404, 'call_not_found', /^no live call "nobody"/, get('/calls/nobody')],
  ['drain of an unknown pod', 404, 'pod_not_found', /^no pod "ghost"/, post('/drain', { pod_name: 'ghost' })],
  [
    'undrain of an unknown pod',
    404,
    'pod_not_found',
    /^no pod "ghost"/,
    post('/undrain', { pod_name: 'ghost' }),
  ],
  [
    'report of an unknown pod',
    404,
    'pod_not_found',
    /^no pod "ghost"/,
    post('/pod/ghost/report', { calls: ['CA1'] }),
  ],
  ['an unknown pod', 404, 'pod_not_found', /^no pod "ghost"/, get('/pod/ghost')],
  [
    'a pod called metadata',
    400,
    'invalid_request',
    /^params: pod must be .+"metadata"/,
    get('/pod/metadata'),
  ],
  ['a pod name in capitals', 400, 'invalid_request', /^params: pod must be/, get('/pod/GOLD-1')],
  [
    'a call id too long for a path',
    400,
    'invalid_request',
    /^params: sid must be/,
    get(`/calls/${'x'.repeat(257)}`),
  ],
  [
    'a path segment without end',
    400,
    'invalid_request',
    /^the path is too long/,
    get(`/calls/${'x'.repeat(4000)}`),
  ],
  [
    'broken percent-encoding',
    400,
    'invalid_request',
    /^the path has invalid percent-encoding/,
    get('/calls/%E0%A4%A'),
  ],
  ['an unknown path', 404, 'not_found', /^no route for GET \/api\/v1\/nowhere/, get('/nowhere')],
  ['an unknown path outside the prefix', 404, 'not_found', /^no route for GET \/allocate/, get('//allocate')],
  [
    'GET where POST belongs',
    405,
    'method_not_allowed',
    /^method GET is not allowed for .+: use POST$/,
    get('/allocate'),
  ],
  [
    'DELETE where GET belongs',
    405,
    'method_not_allowed',
    /: use GET or HEAD$/,
    (router) => router.del('/status'),
  ],
  ['PUT on a webhook', 405, 'method_not_allowed', /: use POST$/, put('/twilio/allocate', {})],
  ...['pods', 'calls'].flatMap((list): Row[] => [
    ...['0', '-1', '1001', '1.5', 'ten', ''].map((limit): Row => {
      return [
        `/${list} with limit ${limit}`,
        400,
        'invalid_request',
        /^querystring: limit must be a whole number/,
        get(`/${list}?limit=${limit}`),
      ];
    }),
    ...['1', 'pool:gold', 'pool:gold,x', 'gold,0', 'pool:gold,0,1'].map((cursor): Row => {
      return [
        `/${list} with cursor ${cursor}`,
        400,
        'invalid_request',
        /^querystring: cursor must be the cursor of/,
        get(`/${list}?cursor=${cursor}`),
      ];
    }),
    [
      `/${list} with pool gold`,
      400,
      'invalid_request',
      /^querystring: pool must be a pool like/,
      get(`/${list}?pool=gold`),
    ],
    [
      `/${list} with limit twice`,
      400,
      'invalid_request',
      /^querystring: limit must be/,
      get(`/${list}?limit=1&limit=2`),
    ],
  ]),
  [
    '/events with a wrong since',
    400,
    'invalid_request',
    /^querystring: since must be an event id/,
    get('/events?since=now'),
  ],
  ...(
    [
      ['a list', [], /^the body must be a JSON object/],
      ['no tier', {}, /must name at least one tier/],
      ['a wrong type', { a: { type: 'golden' } }, /a\.type must be "exclusive" or "shared", got "golden"/],
      ['a wrong name', { 'a b': 1 }, /not a tier name: "a b"/],
      ['a number as text', { a: '1' }, /a must be a whole number/],
    ] as const
  ).map(([what, body, sentence]): Row => {
    return [`PUT /tiers with ${what}`, 400, 'invalid_request', sentence, put('/tiers', body)];
  }),
  [
    'PUT /tiers with a wrong If-Match',
    400,
    'invalid_request',
    /^If-Match must be a version/,
    put('/tiers', { a: 1 }, { 'if-match': 'x' }),
  ],
  [
    'PUT /tiers at an old version',
    409,
    'version_conflict',
    /changed: it is at version 1 now; read it again$/,
    put('/tiers', { a: 1 }, { 'if-match': '"99"' }),
  ],
  [
    'a merchant with unknown keys',
    400,
    'invalid_request',
    /unknown keys: "tiers"/,
    put('/merchants/acme', { tiers: 'gold' }),
  ],
  [
    'a merchant with a wrong tier',
    400,
    'invalid_request',
    /tier must be a tier name/,
    put('/merchants/acme', { tier: 5 }),
  ],
  [
    'a merchant id with a space',
    400,
    'invalid_request',
    /^params: id must be the id of a merchant/,
    put('/merchants/a%20b', {}),
  ],
  [
    'an unknown merchant',
    404,
    'merchant_not_found',
    /^no configuration for merchant acme/,
    get('/merchants/acme'),
  ],
  [
    'deleting an unknown merchant',
    404,
    'merchant_not_found',
    /^no configuration for merchant acme/,
    (router) => router.del('/merchants/acme'),
  ],
];

/** An HTTP client cannot send invalid HTTP. */
function bytes(router: TestRouter, sent: string): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const socket = connect(router.port, '127.0.0.1', () => socket.write(sent, 'latin1'));
    let text = '';
    socket.on('data', (chunk) => {
      text += chunk.toString();
    });
    socket.once('error', reject);
    socket.once('close', () => {
      const [head = '', body = ''] = text.split('\r\n\r\n');
      const status = Number(head.split(' ')[1]);
      resolve({ status, headers: {}, text: body, body: JSON.parse(body) });
    });
  });
}
