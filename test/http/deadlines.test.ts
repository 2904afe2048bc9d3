/** A store that does not answer, and callers that disconnect: every request ends in time, and no pod is lost. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { afterEach, expect, it, vi } from 'vitest';
import { allocateFor } from '../../src/http/allocation.js';
import type { App } from '../../src/http/context.js';
import { describeEngines } from '../support/engines.js';
import { postBytes, rawConnection } from '../support/raw-http.js';
import { impatient, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const patient = { REQUEST_TIMEOUT: '20s', REDIS_COMMAND_TIMEOUT: '20s', STATIC_PODS: 'gold-1=gold' };

describeEngines('deadlines', (engine) => {
  let router: TestRouter;
  afterEach(async () => {
    await engine.resume();
    await router.stop();
  });

  it('with the store paused every endpoint that needs it is 503 in time, and afterwards no pod was taken', async () => {
    router = await startTestRouter(engine.url, impatient);
    await router.post('/allocate', { call_sid: 'known' });
    await engine.pause();
    const answers = await Promise.all([
      router.post('/allocate', { call_sid: 'CA1' }),
      router.post('/release', { call_sid: 'known' }),
      router.post('/renew', { call_sid: 'known' }),
      router.post('/drain', { pod_name: 'gold-1', wait: '1h' }),
      router.post('/undrain', { pod_name: 'gold-1' }),
      router.post('/pod/gold-1/report', { calls: [] }),
      router.get('/pod/gold-1'),
      router.get('/pods'),
      router.get('/calls'),
      router.get('/calls/known'),
      router.get('/removals'),
      router.get('/audit'),
      router.post('/removals/confirm', {}),
      router.get('/tiers'),
      router.put('/tiers', { gold: 1 }),
      router.get('/merchants'),
      router.put('/merchants/acme', {}),
      router.get('/events?since=0'),
      router.get('/ready'),
      router.form('/twilio/allocate', { CallSid: 'CA2' }),
    ]);
    // The store stays paused: every response is due to the deadline.
    for (const { status, body, headers } of answers) {
      expect(status).toBe(503);
      expect(body).toEqual({ success: false, error: expect.any(String), code: expect.any(String) });
      expect(['store_unavailable', 'timeout']).toContain(body.code);
      expect(headers['retry-after']).toBe('1');
    }
    const status = await router.get('/status');
    expect([status.status, status.body.status, status.body.active_calls]).toEqual([200, 'down', null]);
    expect(status.body.store_error).toMatch(/./);
    expect((await router.get('/health')).status).toBe(200);
    await engine.resume();
    await until(async () => (await router.get('/ready')).status === 200, 'the store is back');
    for (const sid of ['CA1', 'CA2']) expect((await router.get(`/calls/${sid}`)).status).toBe(404);
  });

  it('with the store unreachable from the start it answers 503, and says why in its log', async () => {
    router = await startTestRouter('redis://127.0.0.1:1', impatient, { ready: false });
    const answer = await router.post('/allocate', { call_sid: 'CA1' });
    expect([answer.status, answer.body.code]).toEqual([503, 'store_unavailable']);
    expect((await router.get('/health')).status).toBe(200);
    expect((await router.get('/ready')).status).toBe(503);
    expect(router.logText()).toContain('store not usable yet');
  });

  /** The request is in the router, waiting for the paused store, when the caller hangs up. */
  async function hungUp(callSid: string, beforeResume: () => Promise<void> = async () => {}) {
    let app: App | undefined;
    const extend = async (server: App) => {
      app = server;
    };
    router = await startTestRouter(engine.url, patient, { extend });
    const connections = () =>
      new Promise<number>((resolve) => app?.server.getConnections((_, count) => resolve(count)));
    const allocate = vi.spyOn(router.context.router, 'allocate');
    const giveBack = vi.spyOn(router.context.router, 'giveBack');
    await engine.pause();
    const { socket, closed } = await rawConnection(router.port);
    socket.write(postBytes('/allocate', { call_sid: callSid }));
    await until(() => allocate.mock.calls.length === 1, 'the router has asked the store');
    socket.destroy();
    await closed;
    await until(async () => (await connections()) === 0, 'the router knows that the caller has disconnected');
    await beforeResume();
    await engine.resume();
    await until(() => giveBack.mock.settledResults[0]?.type === 'fulfilled', 'the pod was released');
    return { allocate, giveBack };
  }

  it('a caller that hangs up while the store works takes no pod', async () => {
    const { allocate } = await hungUp('CA1');
    expect(allocate.mock.settledResults[0]?.value).toMatchObject({ podName: 'gold-1', wasExisting: false });
    expect((await router.get('/calls/CA1')).status).toBe(404);
    expect((await router.post('/allocate', { call_sid: 'CA2' })).body.pod_name).toBe('gold-1');
    expect((await router.get('/metrics')).text).toContain(
      'smart_router_releases_total{pool="pool:gold",status="caller_gone"} 1',
    );
  });

  it('a retry of the same call on another connection keeps the pod', async () => {
    let retry: ReturnType<TestRouter['post']> | undefined;
    await hungUp('CA1', async () => {
      retry = router.post('/allocate', { call_sid: 'CA1' });
      const { allocate } = router.context.router;
      await until(() => vi.mocked(allocate).mock.calls.length === 2, 'the retry has asked the store');
    });
    const answer = await retry;
    expect(answer?.body).toMatchObject({ success: true, pod_name: 'gold-1' });
    expect((await router.get('/calls/CA1')).body.fence).toBe(answer?.body.fence);
  });

  it('a caller that disconnects before the store is asked gets no pod', async () => {
    router = await startTestRouter(engine.url);
    const request = { about: {}, raw: { socket: { destroyed: true } } } as unknown as FastifyRequest;
    const wanted = { callSid: 'CA1', merchantId: '', provider: 'twilio', flow: 'v2', template: undefined };
    const reply = {} as FastifyReply;
    await expect(allocateFor(router.context, { request, reply }, wanted)).rejects.toThrow(
      /the caller closed/,
    );
    expect((await router.get('/metrics')).text).not.toContain('smart_router_allocations_total{');
  });

  it('an allocate that is done after its answer was due gives its pod back', async () => {
    // The store answers within its own limit, but later than the request may take.
    router = await startTestRouter(engine.url, { REQUEST_TIMEOUT: '3s', REDIS_COMMAND_TIMEOUT: '3s' });
    const real = router.context.router.allocate.bind(router.context.router);
    const giveBack = vi.spyOn(router.context.router, 'giveBack');
    vi.spyOn(router.context.router, 'allocate').mockImplementation(async (request) => {
      const allocation = await real(request);
      await answered;
      return allocation;
    });
    let answer: (value?: unknown) => void = () => {};
    const answered = new Promise((resolve) => {
      answer = resolve;
    });
    const late = await router.post('/allocate', { call_sid: 'CA1' });
    expect([late.status, late.body.code, late.headers['retry-after']]).toEqual([503, 'timeout', '1']);
    answer();
    await until(() => giveBack.mock.settledResults[0]?.type === 'fulfilled', 'the pod was released');
    expect((await router.get('/calls/CA1')).status).toBe(404);
  });

  it('returns a valid request id as it was sent, and generates one otherwise', async () => {
    router = await startTestRouter(engine.url);
    const id = async (given?: string) => {
      const answer = await router.get('/pod/ghost', given === undefined ? {} : { 'x-request-id': given });
      return answer.headers['x-request-id'] as string;
    };
    const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
    expect(await id('call-42:a.b')).toBe('call-42:a.b');
    for (const odd of [undefined, '', 'a b', 'x'.repeat(129), 'a"b', 'ü'])
      expect(await id(odd)).toMatch(uuid);
    expect((await router.get('/calls/%E0%A4%A', { 'x-request-id': 'bad-url' })).headers['x-request-id']).toBe(
      'bad-url',
    );
    const line = await until(
      () => router.logs().find((each) => each.reqId === 'call-42:a.b' && each.msg === 'request'),
      'the request is logged',
    );
    expect(line).toMatchObject({
      method: 'GET',
      endpoint: '/api/v1/pod/:pod',
      status: '404',
      code: 'pod_not_found',
    });
  });

  it("Fastify's own log lines about a request have its id", async () => {
    const extend = async (server: App) => {
      server.get('/twice', (_, reply) => {
        reply.send('one');
        reply.send('two');
      });
    };
    router = await startTestRouter(engine.url, {}, { extend });
    await fetch(`${router.url}/twice`, { headers: { 'x-request-id': 'sent-twice' } });
    const line = await until(
      () => router.logs().find(({ msg }) => String(msg).startsWith('Reply was already sent')),
      'Fastify warns',
    );
    expect(line).toMatchObject({ level: 'warn', reqId: 'sent-twice' });
  });
});
