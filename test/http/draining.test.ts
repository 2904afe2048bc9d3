/** Drain with wait: it answers when the last call has ended, when time is up, when the router stops. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { PoolStore } from '../../src/calls/store/pool-store.js';
import { describeOneEngine } from '../support/engines.js';
import { expireLease } from '../support/expire-lease.js';
import { postBytes, rawConnection } from '../support/raw-http.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const env = { STATIC_PODS: 'gold-1=gold', REQUEST_TIMEOUT: '10s', REDIS_COMMAND_TIMEOUT: '10s' };
const ended = {
  success: true,
  pod_name: 'gold-1',
  has_active_call: false,
  active_calls: 0,
  message: 'Pod gold-1 is draining with no active calls.',
  drain_expires_at: expect.stringMatching(/Z$/),
};
const live = {
  success: true,
  pod_name: 'gold-1',
  has_active_call: true,
  active_calls: 1,
  message: 'Pod gold-1 is draining with active call in progress. Will complete when call ends.',
  drain_expires_at: expect.stringMatching(/Z$/),
};

describeOneEngine('drain with wait', (engine) => {
  let router: TestRouter;
  beforeEach(async () => {
    router = await startTestRouter(engine.url, env);
  });
  afterEach(async () => {
    await engine.resume();
    await router.stop();
  });
  const waiting = (count = 1) => until(() => router.context.feed.listeners === count, `${count} wait`);

  /** A call on gold-1 and a drain that waits for its end. */
  async function drainBusyPod(wait = '1h') {
    await router.post('/allocate', { call_sid: 'CA1' });
    const start = performance.now();
    const answer = router.post('/drain', { pod_name: 'gold-1', wait });
    await waiting();
    return { answer, start };
  }

  it('answers at once when there is no call', async () => {
    expect((await router.post('/drain', { pod_name: 'gold-1', wait: '1h' })).body).toEqual(ended);
  });

  it('answers when the call is released, and leaves no waiter behind', async () => {
    const { answer } = await drainBusyPod();
    await router.post('/release', { call_sid: 'CA1' });
    expect((await answer).body).toEqual(ended);
    await waiting(0);
  });

  it('answers when the sweep ends a call whose lease has run out', async () => {
    const { answer } = await drainBusyPod();
    await expireLease(engine.redis, 'CA1');
    expect((await answer).body).toEqual(ended);
  });

  it('answers when the pod is removed', async () => {
    const { answer } = await drainBusyPod();
    const pools = new PoolStore(router.context.store.connection, 30_000);
    await pools.remove(await pools.takeEpoch(), ['gold-1'], 'test');
    expect((await answer).body).toEqual(ended);
  });

  it('answers with the live calls when the time is up', async () => {
    const { answer, start } = await drainBusyPod('400ms');
    expect((await answer).body).toEqual(live);
    expect(performance.now() - start).toBeGreaterThanOrEqual(400);
    await waiting(0);
  });

  it('answers several who wait for the same pod', async () => {
    const { answer } = await drainBusyPod();
    const others = [1, 2].map(() => router.post('/drain', { pod_name: 'gold-1', wait: '30m' }));
    await waiting(3);
    await router.post('/release', { call_sid: 'CA1' });
    for (const each of [answer, ...others]) expect((await each).body).toEqual(ended);
    await waiting(0);
  });

  it('removes a waiting request whose caller disconnects', async () => {
    await router.post('/allocate', { call_sid: 'CA1' });
    const { socket } = await rawConnection(router.port);
    socket.write(postBytes('/drain', { pod_name: 'gold-1', wait: '1h' }));
    await waiting();
    socket.destroy();
    await waiting(0);
  });

  it('does not wait for a caller that hung up before the store had answered', async () => {
    await router.post('/allocate', { call_sid: 'CA1' });
    const drain = vi.spyOn(router.context.router, 'drain');
    const pod = vi.spyOn(router.context.store, 'pod');
    await engine.pause();
    const { socket, closed } = await rawConnection(router.port);
    socket.write(postBytes('/drain', { pod_name: 'gold-1', wait: '1h' }));
    await until(() => drain.mock.calls.length === 1, 'the router has asked the store');
    socket.destroy();
    await closed;
    // A round trip on another connection: the router has seen the end of the first one by then.
    await router.get('/health');
    await engine.resume();
    await until(() => pod.mock.settledResults[0]?.type === 'fulfilled', 'it has looked once');
    await router.get('/pod/gold-1');
    await waiting(0);
  });

  it('keeps the drain while a request waits, beyond DRAINING_TTL', async () => {
    await router.stop();
    router = await startTestRouter(engine.url, { ...env, DRAINING_TTL: '1s' });
    const { answer } = await drainBusyPod('1h');
    await router.post('/drain', { pod_name: 'gold-1' });
    const { draining_until } = (await router.get('/pod/gold-1')).body;
    expect(Date.parse(draining_until) - Date.now()).toBeGreaterThan(3_600_000);
    await router.post('/release', { call_sid: 'CA1' });
    await answer;
  });

  it('answers at once with the live calls when the router stops', async () => {
    await router.stop();
    router = await startTestRouter(engine.url, { ...env, SHUTDOWN_TIMEOUT: '1h' });
    const { answer } = await drainBusyPod();
    const stopped = router.stop();
    const { body, headers } = await answer;
    expect(body).toEqual(live);
    expect(headers.connection).toBe('close');
    await stopped;
    expect(router.logText()).not.toContain('shutdown timeout');
  });

  it('continues through an outage of the store and never takes it for the end of the call', async () => {
    const { answer } = await drainBusyPod();
    await engine.pause();
    await until(async () => (await router.get('/ready')).status === 503, 'the store is unreachable');
    await engine.resume();
    await until(async () => (await router.get('/ready')).status === 200, 'the store is back');
    expect(router.context.feed.listeners).toBe(1);
    await until(
      async () => (await router.post('/release', { call_sid: 'CA1' })).status !== 503,
      'the call is released',
    );
    expect((await answer).body).toEqual(ended);
  });

  it('does not take a loss of the store’s data for the end of the call: the pod’s report decides', async () => {
    const { answer } = await drainBusyPod();
    let isAnswered = false;
    void answer.then(() => {
      isAnswered = true;
    });
    await engine.redis.flushall();
    // The leader registers the pod again, and the drain is set again by the request that waits.
    await until(async () => {
      const { body } = await router.get('/pod/gold-1');
      return body.blocked_by === 'draining' && body.calls.length === 0;
    }, 'the drain is set again');
    expect(isAnswered).toBe(false);
    expect((await router.post('/allocate', { call_sid: 'CA2' })).body.code).toBe('no_pods');
    expect((await router.post('/pod/gold-1/report', { calls: ['CA1'] })).body.adopted).toEqual(['CA1']);
    await router.post('/release', { call_sid: 'CA1' });
    expect((await answer).body).toEqual(ended);
  });
});
