/** Every endpoint with random input: it answers in its format, and the store stays consistent. */
import { get } from 'node:http';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { rawConnection } from '../support/raw-http.js';
import { baseEnv, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';
import { asAdmin, expectCleanLog, expectGood, secrets, unhurried } from './answers.js';
import { encoded, operationsOf, requestsOf, type Sent } from './requests.js';
import { fuzzing } from './runs.js';
import { oddText } from './values.js';

describeOneEngine('an endpoint that is asked anything', (engine) => {
  let router: TestRouter;
  beforeEach(async () => {
    router = await startTestRouter(engine.url, { ...secrets, ...unhurried });
  });
  afterEach(() => router.stop());

  const send = ({ method, path, headers, body }: Sent, credentials: Record<string, string> = asAdmin) =>
    router.ask(`/${path}`, {
      method,
      headers: { ...headers, ...credentials },
      ...(body === undefined ? {} : { body }),
    });
  const expectStoreTrue = async () =>
    expect(await checkInvariants(engine.redis, { maxLowered: true, tampered: true })).toEqual([]);
  const expectStillServing = async () => {
    for (const sid of ['CA1', 'CA2', 'CA3', 'CA 4/é', '😀'])
      await router.post('/release', { call_sid: sid }, asAdmin);
    const tiers = JSON.parse(baseEnv.TIER_CONFIG) as unknown;
    expect((await router.put('/tiers', tiers, asAdmin)).status).toBe(200);
    const pods = ['gold-1', 'gold-2', 'basic-1'];
    for (const pod_name of pods) await router.post('/undrain', { pod_name }, asAdmin);
    expect((await router.get('/tiers', asAdmin)).body).toMatchObject(tiers as object);
    // Odd reports may have announced an interval, or calls that no agent has: proper ones put that right.
    await until(async () => {
      for (const pod of pods) await router.post(`/pod/${pod}/report`, { calls: [] }, asAdmin);
      return (await router.post('/allocate', { call_sid: 'good' }, asAdmin)).status === 200;
    }, 'a call gets a pod');
    expect((await router.post('/release', { call_sid: 'good' }, asAdmin)).status).toBe(200);
    expect((await router.get('/status', asAdmin)).body.status).toBe('up');
    expectCleanLog(router);
  };

  it('executes a request or rejects it with a message', async () => {
    const operations = operationsOf((await router.get('/openapi.json', asAdmin)).body).filter(
      // The stream has no end, and has a test of its own.
      ({ path }) => path !== '/api/v1/events',
    );
    expect(operations.length).toBeGreaterThan(35);
    const request = fc.oneof(...operations.map(requestsOf));
    await fc.assert(
      fc.asyncProperty(fc.array(request, { minLength: 1, maxLength: 4 }), async (requests) => {
        for (const one of requests) expectGood(await send(one), one);
        await expectStoreTrue();
      }),
      fuzzing(200),
    );
    await expectStillServing();
  });

  it('rejects every caller without the key, for any key', async () => {
    const operations = operationsOf((await router.get('/openapi.json', asAdmin)).body).filter(
      ({ path }) => !/twilio|plivo|exotel|session|health|ready|metrics/.test(path),
    );
    const visible = oddText.map((text) => text.replace(/[^\x20-\x7e]/g, ''));
    const credentials = fc.oneof(
      visible.map((text) => ({ authorization: text })),
      visible.map((text) => ({ authorization: `Bearer ${text}` })),
      visible.map((text) => ({ cookie: `smart_router_session=${text}`, 'x-console': '1' })),
      fc.constant({}),
    );
    await fc.assert(
      fc.asyncProperty(fc.oneof(...operations.map(requestsOf)), credentials, async (request, headers) => {
        const answer = await send(request, headers as Record<string, string>);
        expectGood(answer, { request, headers });
        expect([400, 401, 403, 404, 405]).toContain(answer.status);
      }),
      fuzzing(60),
    );
    await expectStillServing();
  });

  it('answers at any path with any method', async () => {
    const segment = fc.oneof(
      encoded(oddText),
      fc.constantFrom('api', 'v1', 'pod', 'assets', 'calls', 'tiers'),
    );
    const path = fc.array(segment, { maxLength: 5 }).map((parts) => `/${parts.join('/')}`);
    const method = fc.constantFrom(
      'GET',
      'POST',
      'PUT',
      'DELETE',
      'PATCH',
      'OPTIONS',
      'TRACE',
      'PROPFIND',
      'SEARCH',
    );
    await fc.assert(
      fc.asyncProperty(path, method, async (path, method) => {
        const request = { method, path, headers: {}, body: undefined };
        expectGood(await send(request), request);
      }),
      fuzzing(50),
    );
    await expectStillServing();
  });

  it('opens the event stream from anywhere, or says why not', async () => {
    const since = fc.oneof(
      encoded(oddText).map((text) => `?since=${text}`),
      fc.bigInt({ min: 0n, max: 10n ** 17n }).map((ms) => `?since=${ms}`),
      fc
        .tuple(fc.maxSafeNat(), fc.bigInt({ min: 0n, max: 10n ** 20n }))
        .map((id) => `?since=${id.join('-')}`),
      fc.constant(''),
    );
    const lastId = oddText.map((text) => text.replace(/[^\x21-\x7e]/g, ''));
    await fc.assert(
      fc.asyncProperty(since, lastId, async (query, id) => {
        const path = `/api/v1/events${query}`;
        const headers = { ...asAdmin, 'last-event-id': id };
        const status = await new Promise<number>((resolve, reject) => {
          const request = get({ port: router.port, host: '127.0.0.1', path, headers, agent: false });
          request.once('error', reject);
          request.once('response', (response) => {
            response.destroy();
            resolve(response.statusCode ?? 0);
          });
        });
        if (status !== 200) expectGood(await router.get(`/events${query}`, headers), path);
      }),
      fuzzing(80),
    );
    await expectStillServing();
  });

  it('survives invalid and incomplete requests', async () => {
    const head = fc.constantFrom(
      `POST /api/v1/allocate HTTP/1.1\r\nhost: x\r\nauthorization: ${asAdmin.authorization}\r\ncontent-type: application/json\r\n`,
      'GET / HTTP/1.1\r\nhost: x\r\n',
      'POST /api/v1/twilio/allocate HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded\r\n',
    );
    const length = fc.constantFrom(
      'content-length: 30\r\n',
      'content-length: -1\r\n',
      'content-length: 99999999\r\n',
      'transfer-encoding: chunked\r\n',
      'content-length: 5\r\ncontent-length: 6\r\n',
      '',
    );
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 200 }).map((array) => Buffer.from(array)),
      fc
        .tuple(head, length, oddText)
        .map(([start, size, rest]) => Buffer.from(`${start}${size}\r\n{"call_sid":"${rest}`)),
      fc.tuple(head, oddText).map(([start, rest]) => Buffer.from(`${start}x: ${rest}\r\n\r\n`)),
    );
    await fc.assert(
      fc.asyncProperty(bytes, async (sent) => {
        const connection = await rawConnection(router.port);
        connection.socket.end(sent);
        await connection.closed;
        const answer = connection.text();
        expect(answer).not.toMatch(/^HTTP\/1.1 500/);
        for (const secret of Object.values(secrets)) expect(answer).not.toContain(secret);
      }),
      fuzzing(60),
    );
    await expectStillServing();
  });
});
