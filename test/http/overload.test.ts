/** More requests than a router lets in, held by a store that does not answer: who is refused, and what it costs. */
import { afterEach, expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { postBytes, rawConnection } from '../support/raw-http.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

const patient = { REQUEST_TIMEOUT: '20s', REDIS_COMMAND_TIMEOUT: '20s' };

describeOneEngine('too many requests at once', (engine) => {
  let router: TestRouter;
  afterEach(() => router.stop());

  /** A router that lets `limit` in, on a store that is stuck until `pass`. */
  async function stuck(limit: number) {
    const proxy = await tcpProxy(engine.port);
    const url = new URL(engine.url);
    url.port = String(proxy.port);
    router = await startTestRouter(url.href.replace(/\/$/, ''), {
      ...patient,
      MAX_REQUESTS_IN_FLIGHT: String(limit),
      TWILIO_AUTH_TOKEN: '',
    });
    await router.post('/allocate', { call_sid: 'known' });
    await idle();
    proxy.blackHole();
    return proxy;
  }
  const inFlight = (count: number) =>
    until(() => router.context.admission.inFlight === count, `${count} requests are in flight`);
  const idle = () => inFlight(0);
  const overloads = () => router.logs().filter(({ msg }) => String(msg).startsWith('router overloaded'));
  const metric = async (line: string) => (await router.get('/metrics')).text.includes(`${line}\n`);

  it('the one over the limit gets 503 and Retry-After at once, the others their pods when the store is back', async () => {
    const proxy = await stuck(2);
    const waiting = ['CA1', 'CA2'].map((call_sid) => router.post('/allocate', { call_sid }));
    await inFlight(2);
    const refused = await router.ask('/allocate', {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-request-id': 'call-3' },
      body: JSON.stringify({ call_sid: 'CA3' }),
    });
    expect(refused.status).toBe(503);
    expect(refused.body).toEqual({ success: false, error: expect.any(String), code: 'overloaded' });
    expect(refused.headers).toMatchObject({
      'retry-after': '1',
      'x-request-id': 'call-3',
      'content-type': 'application/json; charset=utf-8',
    });
    expect(router.context.admission.inFlight).toBe(2);
    const scraped = router.get('/metrics');
    await until(async () => (await router.get('/health')).status === 200, 'probes are answered');
    proxy.pass();
    expect((await scraped).text).toMatch(
      /^smart_router_requests_in_flight 2$[\s\S]*^smart_router_requests_limit 2$/m,
    );
    expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual([200, 200]);
    await idle();
    expect((await router.get('/calls/CA3')).status).toBe(404);
    expect((await router.post('/release', { call_sid: 'CA1' })).status).toBe(200);
    expect((await router.post('/allocate', { call_sid: 'CA3' })).status).toBe(200);
    expect(await metric('smart_router_requests_shed_total{kind="call"} 1')).toBe(true);
    await until(() => overloads().length > 0, 'it is logged');
    expect(overloads()).toMatchObject([{ rejected: 1, limit: 2 }]);
  });

  it('requests that wait behind another one in a connection that breaks give their places back', async () => {
    const proxy = await stuck(4);
    const { socket, closed } = await rawConnection(router.port);
    // Only the first of them has the connection: the others never hear that it has ended.
    for (const call_sid of ['CA1', 'CA2', 'CA3', 'CA4']) socket.write(postBytes('/allocate', { call_sid }));
    await inFlight(4);
    socket.destroy();
    await closed;
    await idle();
    proxy.pass();
    // Pods of disconnected callers are released first.
    await until(async () => (await router.post('/allocate', { call_sid: 'CA5' })).status === 200, 'a pod');
  });

  it('a connection with too many requests at once is closed, and its places are free', async () => {
    const proxy = await stuck(40);
    const { socket, closed } = await rawConnection(router.port);
    socket.write(postBytes('/release', { call_sid: 'known' }).repeat(17));
    await closed;
    await idle();
    proxy.pass();
  });

  it('answers and counts each of five pipelined requests that are rejected', async () => {
    const proxy = await stuck(1);
    const waiting = [router.post('/allocate', { call_sid: 'CA1' })];
    await inFlight(1);
    waiting.push(router.post('/release', { call_sid: 'known' }));
    await inFlight(2);
    const { socket, text } = await rawConnection(router.port);
    const bytes = (path: string) => postBytes(path, { call_sid: 'CA2' });
    socket.write(bytes('/allocate').repeat(3) + bytes('/renew').repeat(2));
    await until(() => text().match(/HTTP\/1.1 503 /g)?.length === 5, 'five answers');
    socket.destroy();
    proxy.pass();
    await Promise.all(waiting);
    expect(await metric('smart_router_requests_shed_total{kind="call"} 3')).toBe(true);
    expect(await metric('smart_router_requests_shed_total{kind="other"} 2')).toBe(true);
    const labels = 'method="POST",endpoint="/api/v1/allocate",status="503"';
    expect(await metric(`http_requests_total{${labels}} 3`)).toBe(true);
  });

  it('answers an unknown path before its body has arrived', async () => {
    const proxy = await stuck(2);
    for (const path of ['/nothing', '/api/v1/events']) {
      const { socket, text } = await rawConnection(router.port);
      socket.write(`POST ${path} HTTP/1.1\r\nhost: router\r\ncontent-length: 50\r\n\r\n{}`);
      await until(() => /^HTTP\/1.1 40[45] /.test(text()), `${path} is answered`);
      socket.destroy();
    }
    await idle();
    proxy.pass();
  });

  it('counts a new call under a path that is written in another way', async () => {
    const proxy = await stuck(2);
    const waiting = ['CA1', 'CA2'].map((call_sid) => router.post('/allocate', { call_sid }));
    await inFlight(2);
    const refused = await router.post('/%61llocate', { call_sid: 'CA3' });
    expect(refused).toMatchObject({ status: 503, body: { code: 'overloaded' } });
    proxy.pass();
    await Promise.all(waiting);
  });

  it('release, renew and report pass while new calls are refused, then have an end too; probes are answered', async () => {
    const proxy = await stuck(2);
    const calls = ['CA1', 'CA2'].map((call_sid) => router.post('/allocate', { call_sid }));
    await inFlight(2);
    const others = [
      router.post('/release', { call_sid: 'known' }),
      router.post('/pod/basic-1/report', { calls: [] }),
    ];
    await inFlight(4);
    expect((await router.post('/allocate', { call_sid: 'CA3' })).body.code).toBe('overloaded');
    expect((await router.post('/renew', { call_sid: 'known' })).body.code).toBe('overloaded');
    expect((await router.get('/health')).status).toBe(200);
    proxy.pass();
    expect((await Promise.all(others)).map(({ status }) => status)).toEqual([200, 200]);
    expect((await Promise.all(calls)).map(({ status }) => status)).toEqual([200, 200]);
    expect(await metric('smart_router_requests_shed_total{kind="other"} 1')).toBe(true);
  });

  it('a webhook that rings is rejected, counted and logged as a new call is; one that hangs up passes', async () => {
    const proxy = await stuck(2);
    const calls = ['CA1', 'CA2'].map((call_sid) => router.post('/allocate', { call_sid }));
    await inFlight(2);
    const ringing = await router.form('/twilio/allocate', { CallSid: 'CA3' });
    expect([ringing.status, ringing.body.code, ringing.headers['retry-after']]).toEqual([
      503,
      'overloaded',
      '1',
    ]);
    const hangsUp = router.form('/plivo/allocate', { CallUUID: 'known', CallStatus: 'completed' });
    await inFlight(3);
    proxy.pass();
    expect((await hangsUp).status).toBe(200);
    expect((await Promise.all(calls)).map(({ status }) => status)).toEqual([200, 200]);
    await idle();
    expect((await router.get('/calls/known')).status).toBe(404);
    expect(await metric('smart_router_requests_shed_total{kind="call"} 1')).toBe(true);
    await until(() => overloads().length > 0, 'it is logged');
    expect(overloads()).toMatchObject([{ rejected: 1, limit: 2 }]);
  });

  it('callers that hang up make room, and refused ones leave nothing behind on their connection', async () => {
    const proxy = await stuck(1);
    const leaving = new AbortController();
    const gone = router
      .ask('/allocate', {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ call_sid: 'CA1' }),
        signal: leaving.signal,
      })
      .catch(() => undefined);
    await inFlight(1);
    const big = JSON.stringify({ call_sid: 'CA2', padding: 'x'.repeat(60_000) });
    const answers = await Promise.all(
      Array.from({ length: 50 }, () =>
        router.ask('/allocate', {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: big,
        }),
      ),
    );
    expect(new Set(answers.map(({ body }) => body.code))).toEqual(new Set(['overloaded']));
    leaving.abort();
    await gone;
    await idle();
    proxy.pass();
    await until(
      async () => (await router.get('/calls/CA1')).status === 404,
      'the pod of the disconnected caller is free',
    );
    expect((await router.post('/allocate', { call_sid: 'CA2' })).status).toBe(200);
  });
});
