/** Server-sent events: live, replayed, resumed, bounded. */
import { afterEach, expect, it, vi } from 'vitest';
import { type Clock, systemClock } from '../../src/clock.js';
import { pollEveryMs, stuckAfterMs } from '../../src/http/routes/events.js';
import { describeEngines } from '../support/engines.js';
import { rawConnection } from '../support/raw-http.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { type Listener, listen } from '../support/sse.js';
import { until } from '../support/until.js';

/** The long waits of the event stream become short; everything else keeps its time. */
const hasty: Clock = {
  ...systemClock,
  sleep: (ms, signal) => systemClock.sleep(ms === pollEveryMs ? 5 : ms === stuckAfterMs ? 200 : ms, signal),
};

describeEngines('events', (engine) => {
  let router: TestRouter;
  const listeners: Listener[] = [];
  afterEach(async () => {
    await engine.resume();
    for (const listener of listeners.splice(0)) listener.close();
    await router.stop();
  });
  async function hear(query = '', headers: Record<string, string> = {}): Promise<Listener> {
    const listener = await listen(`${router.url}/api/v1/events${query}`, headers);
    listeners.push(listener);
    return listener;
  }
  const kept = async () => (await engine.redis.xrange('voice:events', '-', '+')).map(([id]) => id);
  const heard = (listener: Listener, id: string | undefined) =>
    until(() => listener.events.at(-1)?.id === id, `event ${id} arrives`);

  it('arrive live, from the start of the answer, with type and call', async () => {
    router = await startTestRouter(engine.url);
    const listener = await hear();
    expect([listener.status, listener.headers['content-type']]).toEqual([200, 'text/event-stream']);
    expect(listener.headers['cache-control']).toBe('no-store');
    expect(listener.headers['x-request-id']).toMatch(/./);
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1', merchant_id: 'acme' });
    await router.post('/release', { call_sid: 'CA1' });
    await until(() => listener.events.length === 2, 'both events arrive');
    const [first, second] = listener.events;
    expect(first).toEqual({
      id: expect.stringMatching(/^\d+-\d+$/),
      type: 'call_allocated',
      data: {
        id: first?.id,
        type: 'call_allocated',
        at: expect.stringMatching(/Z$/),
        call: 'CA1',
        pod: call.pod_name,
        pool: 'pool:gold',
        merchant: 'acme',
        fence: String(call.fence),
      },
    });
    expect(second?.type).toBe('call_released');
  });

  it('are replayed from since and from Last-Event-ID, exclusive, each once', async () => {
    router = await startTestRouter(engine.url);
    for (let i = 0; i < 5; i += 1) await router.post('/allocate', { call_sid: `CA${i}` });
    const ids = await kept();
    const middle = ids[3] as string;
    const [all, since, resumed, both] = await Promise.all([
      hear('?since=0'),
      hear(`?since=${middle}`),
      hear('', { 'last-event-id': middle }),
      hear(`?since=${middle}`, { 'last-event-id': '0-1' }),
    ]);
    await Promise.all([all, since, resumed, both].map((one) => heard(one, ids.at(-1))));
    expect(all.events.map(({ id }) => id)).toEqual(ids);
    for (const one of [since, resumed, both]) expect(one.events.map(({ id }) => id)).toEqual(ids.slice(4));
    const byTime = await hear(`?since=${middle.split('-')[0]}`);
    await heard(byTime, ids.at(-1));
  });

  it('have no gap and no double while calls come and go and listeners join in the middle', async () => {
    router = await startTestRouter(engine.url);
    let running = true;
    const load = Array.from({ length: 4 }, async (_, worker) => {
      for (let i = 0; running; i += 1) {
        await router.post('/allocate', { call_sid: `${worker}-${i}` });
        await router.post('/release', { call_sid: `${worker}-${i}` });
      }
    });
    const joined: { listener: Listener; since: string }[] = [];
    for (let i = 0; i < 12; i += 1) {
      await until(async () => (await kept()).length > 20 * (i + 1), 'more has happened');
      const ids = await kept();
      const since = i % 3 === 0 ? '0-0' : (ids[Math.floor(ids.length / 2)] as string);
      joined.push({ listener: await hear(`?since=${since}`), since });
    }
    running = false;
    await Promise.all(load);
    const ids = await kept();
    for (const { listener, since } of joined) {
      await heard(listener, ids.at(-1));
      expect(listener.events.map(({ id }) => id)).toEqual(ids.slice(ids.indexOf(since) + 1));
    }
  });

  it('are resumed without a gap by a listener that lost the store', async () => {
    // Requests that must succeed have this limit too.
    router = await startTestRouter(engine.url, { REQUEST_TIMEOUT: '3s', REDIS_COMMAND_TIMEOUT: '3s' });
    const first = await hear('?since=0');
    await router.post('/allocate', { call_sid: 'CA1' });
    await heard(first, (await kept()).at(-1));
    const last = first.events.at(-1)?.id as string;
    await engine.pause();
    expect((await router.get(`/events?since=${last}`)).body.code).toBe('store_unavailable');
    await engine.resume();
    await until(async () => (await router.post('/release', { call_sid: 'CA1' })).status !== 503, 'released');
    const again = await hear('', { 'last-event-id': last });
    await until(() => again.events.some(({ type }) => type === 'call_released'), 'it continues');
    expect(again.events.map(({ id }) => id)).toEqual((await kept()).filter((id) => id > last));
  });

  it('are refused with 429 and Retry-After beyond 100 listeners, until one leaves', async () => {
    router = await startTestRouter(engine.url);
    await Promise.all(Array.from({ length: 100 }, () => hear()));
    const refused = await router.get('/events');
    expect([refused.status, refused.body.code, refused.headers['retry-after']]).toEqual([
      429,
      'too_many_requests',
      '5',
    ]);
    listeners[0]?.close();
    await until(() => router.context.feed.listeners === 99, 'one has left');
    expect((await hear()).status).toBe(200);
  });

  it('are not refused because many wait for drains', async () => {
    router = await startTestRouter(engine.url, { STATIC_PODS: 'gold-1=gold' });
    await router.post('/allocate', { call_sid: 'CA1' });
    const waiting = Array.from({ length: 101 }, () =>
      router.post('/drain', { pod_name: 'gold-1', wait: '1h' }),
    );
    await until(() => router.context.feed.listeners === 101, '101 wait');
    expect((await hear()).status).toBe(200);
    await router.post('/release', { call_sid: 'CA1' });
    await Promise.all(waiting);
  });

  it('keep a silent connection alive', async () => {
    router = await startTestRouter(engine.url, {}, { clock: hasty });
    const listener = await hear();
    await until(() => listener.comments.length >= 3, 'heartbeats arrive');
    expect(listener.events).toEqual([]);
  });

  it('are not kept for a listener that does not read: it is cut off', async () => {
    router = await startTestRouter(engine.url, {}, { clock: hasty });
    const note = 'x'.repeat(4000);
    const pipeline = engine.redis.pipeline();
    for (let i = 0; i < 4000; i += 1) pipeline.xadd('voice:events', '*', 'type', 'note', 'text', note);
    await pipeline.exec();
    const replay = vi.spyOn(router.context.feed, 'replay');
    const { socket } = await rawConnection(router.port);
    socket.pause();
    socket.write('GET /api/v1/events?since=0 HTTP/1.1\r\nhost: router\r\n\r\n');
    await until(() => router.context.feed.listeners === 1, 'it listens');
    await until(() => router.context.feed.listeners === 0, 'it is cut off');
    // Read page by page: what it never took was not held in memory for it.
    expect(replay.mock.calls.length).toBeLessThan(8);
    socket.destroy();
  });

  it('are all replayed to a listener that reads', async () => {
    router = await startTestRouter(engine.url);
    const pipeline = engine.redis.pipeline();
    for (let i = 0; i < 4000; i += 1)
      pipeline.xadd('voice:events', '*', 'type', 'note', 'text', 'x'.repeat(1000));
    await pipeline.exec();
    const ids = await kept();
    const listener = await hear('?since=0');
    await heard(listener, ids.at(-1));
    expect(listener.events.map(({ id }) => id)).toEqual(ids);
  });

  it('remove a listener that disconnects, also before its answer has begun', async () => {
    router = await startTestRouter(engine.url, { REQUEST_TIMEOUT: '10s', REDIS_COMMAND_TIMEOUT: '10s' });
    const listener = await hear();
    listener.close();
    await until(() => router.context.feed.listeners === 0, 'it is forgotten');
    await engine.pause();
    const { socket, closed } = await rawConnection(router.port);
    socket.write('GET /api/v1/events?since=0 HTTP/1.1\r\nhost: router\r\n\r\n');
    await until(() => router.context.feed.listeners === 1, 'the router has asked the store');
    socket.destroy();
    await closed;
    await engine.resume();
    await until(() => router.context.feed.listeners === 0, 'it is forgotten too');
  });

  it('have no body for HEAD', async () => {
    router = await startTestRouter(engine.url);
    expect((await router.ask('/events', { method: 'HEAD' })).status).toBe(405);
  });
});
