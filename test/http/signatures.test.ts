/** Webhooks with tokens: valid signatures, the signed URL, and disabled providers. */
import { createHmac } from 'node:crypto';
import { request } from 'node:http';
import { afterEach, expect, it } from 'vitest';
import { twilioSignature } from '../../src/http/providers/signatures.js';
import { describeOneEngine } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';

const tokens = {
  TWILIO_AUTH_TOKEN: 'twilio-token',
  PLIVO_AUTH_TOKEN: 'plivo-token',
  EXOTEL_WEBHOOK_TOKEN: 'exotel-token',
};
const key = 'an-api-key-of-sixteen';

describeOneEngine('signed webhooks', (engine) => {
  let router: TestRouter;
  afterEach(() => router.stop());
  const start = async (env: Record<string, string>) => {
    router = await startTestRouter(engine.url, env);
  };
  const twilio = (url: string, fields: Record<string, string>, token = tokens.TWILIO_AUTH_TOKEN) => ({
    'x-twilio-signature': twilioSignature(token, url, Object.entries(fields)),
  });
  const ring = { CallSid: 'CA1', From: '+15550001' };
  const refused = [403, 'forbidden'];

  it('Twilio: right is 200; wrong, missing, other fields or another address are 403 and take no pod', async () => {
    await start(tokens);
    const path = '/twilio/allocate?merchant_id=acme';
    const url = `${router.url}/api/v1${path}`;
    const tries = [
      {},
      { 'x-twilio-signature': '' },
      { 'x-twilio-signature': 'wrong' },
      twilio(url, ring, 'other-token'),
      twilio(url, { ...ring, CallSid: 'CA2' }),
      twilio(`${router.url}/api/v1/twilio/allocate`, ring),
      twilio(url.replace('127.0.0.1', 'elsewhere'), ring),
    ];
    for (const headers of tries) {
      const answer = await router.form(path, ring, headers as Record<string, string>);
      expect([answer.status, answer.body.code]).toEqual(refused);
    }
    expect((await router.get('/status')).body.active_calls).toBe(0);
    expect((await router.form(path, ring, twilio(url, ring))).status).toBe(200);
    expect((await router.get('/metrics')).text).toContain(
      `smart_router_webhook_refusals_total{provider="twilio"} ${tries.length}`,
    );
  });

  it('the status callback is checked too', async () => {
    await start(tokens);
    const done = { CallSid: 'CA1', CallStatus: 'completed' };
    await router.post('/allocate', { call_sid: 'CA1' });
    expect((await router.form('/twilio/status', done)).status).toBe(403);
    const signed = twilio(`${router.url}/api/v1/twilio/status`, done);
    expect((await router.form('/twilio/status', done, signed)).body.released).toBe(true);
  });

  it('Plivo: V3 over address, fields and nonce', async () => {
    await start(tokens);
    const url = `${router.url}/api/v1/plivo/allocate`;
    const sign = (token: string, nonce: string) =>
      createHmac('sha256', token).update(`${url}?CallUUIDP1.${nonce}`).digest('base64');
    const send = (signature: string, nonce = '123') =>
      router.form(
        '/plivo/allocate',
        { CallUUID: 'P1' },
        {
          'x-plivo-signature-v3': signature,
          'x-plivo-signature-v3-nonce': nonce,
        },
      );
    expect((await send('wrong')).status).toBe(403);
    expect((await send(sign('other-token', '123'))).status).toBe(403);
    expect((await send(sign(tokens.PLIVO_AUTH_TOKEN, '123'), '124')).status).toBe(403);
    expect((await router.form('/plivo/allocate', { CallUUID: 'P1' })).status).toBe(403);
    expect((await send(sign(tokens.PLIVO_AUTH_TOKEN, '123'))).status).toBe(200);
  });

  it('Plivo: the signature of a V3 request ends no other call, as V2 or from another address', async () => {
    await start(tokens);
    await router.post('/allocate', { call_sid: 'victim' });
    const url = `${router.url}/api/v1/plivo/status`;
    const sign = (message: string) =>
      createHmac('sha256', tokens.PLIVO_AUTH_TOKEN).update(message).digest('base64');
    const done = { CallUUID: 'victim', CallStatus: 'completed' };
    const rest = '?CallStatusin-progressCallUUIDP1.123';
    const asV2 = { 'x-plivo-signature-v2': sign(url + rest), 'x-plivo-signature-v2-nonce': rest };
    expect((await router.form('/plivo/status', done, asV2)).status).toBe(403);
    // A Host header that makes the path of the request a query, which V2 does not sign.
    const from = (host: string, signed: string) =>
      new Promise((resolve, reject) => {
        const headers = {
          host,
          connection: 'close',
          'content-type': 'application/x-www-form-urlencoded',
          'x-plivo-signature-v2': sign(`${signed}1`),
          'x-plivo-signature-v2-nonce': '1',
        };
        request(url, { method: 'POST', headers }, (answer) => resolve(answer.resume().statusCode))
          .on('error', reject)
          .end(new URLSearchParams(done).toString());
      });
    expect(await from('a.example/b?', 'http://a.example/b')).toBe(403);
    expect(await from('a.example/b#', 'http://a.example/b')).toBe(403);
    expect((await router.get('/status')).body.active_calls).toBe(1);
    expect(await from('a.example', 'http://a.example/api/v1/plivo/status')).toBe(200);
  });

  it('an address over 2 KiB is refused before its token or signature is looked at', async () => {
    await start(tokens);
    const path = (provider: string, length: number) => {
      const start = `/${provider}/status?a=`;
      return start + '+'.repeat(length - '/api/v1'.length - start.length);
    };
    for (const provider of ['twilio', 'plivo', 'exotel']) {
      expect((await router.form(path(provider, 2048), {})).status).toBe(403);
      const long = await router.form(path(provider, 2049), {});
      expect([long.status, long.body.error]).toEqual([400, 'the URL is longer than 2 KiB']);
    }
  });

  it('a form or a query with more fields than providers send, or a body over 16 KiB, is refused unparsed', async () => {
    await start(tokens);
    const wrong = { 'x-twilio-signature': 'wrong' };
    const fields = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => [`f${i}`, 'x']));
    expect((await router.form('/twilio/status', fields(200), wrong)).status).toBe(403);
    expect((await router.form('/twilio/status', fields(201), wrong)).status).toBe(400);
    expect((await router.form(`/twilio/status?${'a&'.repeat(200)}`, {}, wrong)).status).toBe(400);
    const large = await router.form('/twilio/status', { f: 'x'.repeat(16_384) }, wrong);
    expect([large.status, large.body.error]).toEqual([413, 'the body is larger than 16 KiB']);
  });

  it('Exotel: token in the query or as the password', async () => {
    await start(tokens);
    const basic = (password: string) => ({
      authorization: `Basic ${Buffer.from(`exotel:${password}`).toString('base64')}`,
    });
    const path = '/exotel/allocate?CallSid=E1';
    expect((await router.get(path)).status).toBe(403);
    expect((await router.get(`${path}&token=wrong`)).status).toBe(403);
    expect((await router.get(`${path}&token=exotel-token&token=x`)).status).toBe(403);
    expect((await router.get(path, basic('wrong'))).status).toBe(403);
    expect((await router.get(`${path}&token=exotel-token`)).status).toBe(200);
    expect((await router.get(path, basic('exotel-token'))).status).toBe(200);
  });

  it('the signature is computed over PUBLIC_URL, not over the Host header', async () => {
    await start({ ...tokens, PUBLIC_URL: 'https://calls.example.com/voice' });
    const send = (url: string) => router.form('/twilio/allocate', ring, twilio(url, ring));
    expect((await send(`${router.url}/api/v1/twilio/allocate`)).status).toBe(403);
    expect((await send('https://calls.example.com/voice/api/v1/twilio/allocate')).status).toBe(200);
  });

  it('forwarded headers count only with TRUST_PROXY', async () => {
    const forwarded = { 'x-forwarded-proto': 'https', 'x-forwarded-host': 'calls.example.com' };
    const signed = twilio('https://calls.example.com/api/v1/twilio/allocate', ring);
    await start(tokens);
    expect((await router.form('/twilio/allocate', ring, { ...forwarded, ...signed })).status).toBe(403);
    await router.stop();
    for (const TRUST_PROXY of ['true', '1', '127.0.0.1']) {
      await start({ ...tokens, TRUST_PROXY });
      expect((await router.form('/twilio/allocate', ring, { ...forwarded, ...signed })).status).toBe(200);
      await router.stop();
    }
    await start({ ...tokens, TRUST_PROXY: '10.0.0.0/8' });
    expect((await router.form('/twilio/allocate', ring, { ...forwarded, ...signed })).status).toBe(403);
  });

  it.each([{ SMART_ROUTER_API_KEY: key }, { SMART_ROUTER_ADMIN_KEY: key }])(
    'once a key is set (%o), a provider without a token is disabled for every request',
    async (keys) => {
      await start({ ...keys, EXOTEL_WEBHOOK_TOKEN: 'exotel-token' });
      const bearer = { authorization: `Bearer ${key}` };
      for (const [path, fields] of [
        ['/twilio/allocate', { CallSid: 'CA1' }],
        ['/twilio/status', { CallSid: 'CA1', CallStatus: 'completed' }],
        ['/plivo/allocate', { CallUUID: 'P1' }],
        ['/plivo/status', { CallUUID: 'P1', CallStatus: 'completed' }],
      ] as const) {
        const answer = await router.form(path, fields, bearer);
        expect([answer.status, answer.body.code]).toEqual(refused);
        expect(answer.body.error).toMatch(/^webhooks of (twilio|plivo) are disabled: set its token/);
      }
      expect((await router.get('/exotel/allocate?CallSid=E1&token=exotel-token')).status).toBe(200);
    },
  );
});
