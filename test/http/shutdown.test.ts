/** A clean stop: it finishes requests in flight, answers waiting ones, accepts no new connection, and does not hang. */
import { afterEach, expect, it, vi } from 'vitest';
import type { App } from '../../src/http/context.js';
import { describeOneEngine } from '../support/engines.js';
import { rawConnection } from '../support/raw-http.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { listen } from '../support/sse.js';
import { until } from '../support/until.js';

const env = { REQUEST_TIMEOUT: '20s', REDIS_COMMAND_TIMEOUT: '20s', SHUTDOWN_TIMEOUT: '8s' };
const largeBytes = 24_000_000;

describeOneEngine('a clean stop', (engine) => {
  let router: TestRouter;
  afterEach(async () => {
    await engine.resume();
    await router.stop();
  });
  const untilRefused = () =>
    until(async () => {
      const refused = await rawConnection(router.port).catch((error: NodeJS.ErrnoException) => error.code);
      if (typeof refused === 'object') refused.socket.destroy();
      return refused === 'ECONNREFUSED';
    }, 'new connections are refused');

  it('finishes an allocate that is in flight, on a connection that would be kept alive', async () => {
    router = await startTestRouter(engine.url, env);
    const allocate = vi.spyOn(router.context.router, 'allocate');
    await engine.pause();
    const answer = router.post('/allocate', { call_sid: 'CA1' }, { connection: 'keep-alive' });
    await until(() => allocate.mock.calls.length === 1, 'the allocate is in flight');
    const stopped = router.stop();
    await untilRefused();
    await engine.resume();
    const { status, headers } = await answer;
    expect([status, headers.connection]).toEqual([200, 'close']);
    await stopped;
    expect(router.logText()).not.toContain('shutdown timeout');
    expect(await engine.redis.hget('voice:call:CA1', 'pod_name')).toMatch(/^gold-/);
  });

  it('serves a request whose sender was in the middle of it, and says that it is not ready any more', async () => {
    router = await startTestRouter(engine.url, env);
    const { socket, text, closed } = await rawConnection(router.port);
    socket.write('GET /api/v1/ready HTTP/1.1\r\nhost: router\r\n');
    await router.get('/health');
    const stopped = router.stop();
    await until(() => router.context.stopping.aborted, 'the router stops');
    socket.write('\r\n');
    await closed;
    expect(text()).toMatch(/^HTTP\/1\.1 503 /);
    expect(text()).toMatch(/connection: close/i);
    expect(text()).toMatch(/\{"success":false,"error":"this router is stopping","code":"shutting_down"\}$/);
    await stopped;
  });

  it('closes the streams of events', async () => {
    router = await startTestRouter(engine.url, { ...env, SHUTDOWN_TIMEOUT: '1h' });
    const listeners = await Promise.all([1, 2, 3].map(() => listen(`${router.url}/api/v1/events`)));
    await router.stop();
    for (const { closed } of listeners) await closed;
    expect(router.logText()).not.toContain('shutdown timeout');
    expect(router.context.feed.listeners).toBe(0);
  });

  it('does not wait for idle connections', async () => {
    router = await startTestRouter(engine.url, { ...env, SHUTDOWN_TIMEOUT: '1h' });
    const { socket, text, closed } = await rawConnection(router.port);
    socket.write('GET /api/v1/health HTTP/1.1\r\nhost: router\r\n\r\n');
    await until(() => text().includes('"ok"'), 'the connection is used and idle');
    await router.stop();
    await closed;
  });

  /** A router that has begun to answer with more than the buffers on the way to a caller hold, who does not read it. */
  async function answering(begin: 'before the stop' | 'in the stop') {
    let isAsked = false;
    const extend = async (app: App) => {
      app.get('/large', { config: { access: 'public' } }, async () => {
        isAsked = true;
        const { stopping } = router.context;
        if (begin === 'in the stop')
          await new Promise((resolve) => stopping.addEventListener('abort', resolve, { once: true }));
        return 'x'.repeat(largeBytes);
      });
    };
    router = await startTestRouter(engine.url, { ...env, SHUTDOWN_TIMEOUT: '1h' }, { extend });
    const caller = await rawConnection(router.port);
    caller.socket.pause();
    caller.socket.write('GET /large HTTP/1.1\r\nhost: router\r\n\r\n');
    await until(() => isAsked, 'it has come to the request');
    // A round trip on another connection: what could be written by then is written.
    await router.get('/health');
    return caller;
  }

  it.each(['before the stop', 'in the stop'] as const)(
    'finishes an answer that was begun %s',
    async (begin) => {
      const { socket, text, closed } = await answering(begin);
      const stopped = router.stop();
      await untilRefused();
      socket.resume();
      await closed;
      expect(text().split('\r\n\r\n')[1]).toHaveLength(largeBytes);
      await stopped;
      expect(router.logText()).not.toContain('shutdown timeout');
    },
  );

  it('does not wait for SHUTDOWN_TIMEOUT when only an unread response is left', async () => {
    const { socket, closed } = await answering('in the stop');
    await router.stop();
    socket.resume();
    await closed;
    expect(router.logText()).toContain('closed connections with an unfinished request or unread response');
    expect(router.logText()).not.toContain('shutdown timeout');
  });

  it('cuts unfinished requests after SHUTDOWN_TIMEOUT', async () => {
    router = await startTestRouter(engine.url, { ...env, SHUTDOWN_TIMEOUT: '300ms' });
    const { socket, closed } = await rawConnection(router.port);
    socket.write(
      'POST /api/v1/allocate HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{',
    );
    await router.get('/health');
    await router.stop();
    await closed;
    expect(router.logText()).toContain('shutdown timeout: closing connections of unfinished requests');
  });

  it('may be requested twice', async () => {
    router = await startTestRouter(engine.url, env);
    await Promise.all([router.stop(), router.stop()]);
  });

  it('one line says where it listens, and no deprecation warning was printed', async () => {
    const warnings: string[] = [];
    const note = (warning: Error) => warnings.push(`${warning.name} ${warning.message}`);
    process.on('warning', note);
    router = await startTestRouter(engine.url, env);
    await router.get('/health');
    process.off('warning', note);
    expect(warnings).toEqual([]);
    expect(router.logs().filter(({ msg }) => /listening/i.test(String(msg)))).toMatchObject([
      { msg: 'smart-router is listening', url: router.url },
    ]);
  });
});
