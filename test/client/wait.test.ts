/** Allocate with `wait`: polls, refusals, lost connections and the caller's own deadline. */
import { describe, expect, it } from 'vitest';
import { ClientClosedError, InvalidArgumentError, NoPodsError } from '../../src/client/index.js';
import {
  allocated,
  deferred,
  eventually,
  type Fixture,
  failure,
  fixture,
  type Reply,
  renewed,
} from './scripted-router.js';

const path = '/api/v1/allocate';
const since = '2026-11-16T10:00:00.000Z';
const until = '2026-11-16T10:01:00.000Z';
const waiting = (position: number): Reply => ({
  status: 202,
  json: {
    success: true,
    status: 'waiting',
    position,
    waiting_since: since,
    wait_expires_at: until,
    retry_after_ms: 5000,
  },
});
const place = (position: number) => ({
  position,
  waitingSince: new Date(since),
  waitExpiresAt: new Date(until),
});
const waits = ({ router }: Fixture) => router.bodies(path).map(({ wait }) => wait);
const errorOf = (promise: Promise<unknown>) => promise.catch((thrown: unknown) => thrown);

/** Answers each poll with `reply` when the time that it asked for is over. */
function answerPolls({ router, clock }: Fixture, reply: () => Reply): void {
  router.otherwise = ({ body }) => {
    clock.advance(Number.parseInt(String(body.wait), 10));
    return reply();
  };
}

describe('allocate with wait', () => {
  it('enters the queue at once, then polls until it has a pod', async () => {
    const all = await fixture();
    const { router, clock, client } = all;
    const places: unknown[] = [];
    router.queue.push(waiting(3));
    let position = 3;
    answerPolls(all, () => (position-- > 2 ? waiting(position) : allocated(clock, { waited_ms: 20_000 })));
    const call = await client.allocate(
      { callSid: 'CA1', merchantId: 'acme' },
      { wait: '25s', onWaiting: (at) => places.push(at) },
    );
    expect(call).toMatchObject({ podName: 'agent-1', fallback: false, waitedMs: 20_000 });
    expect(places).toEqual([place(3), place(2)]);
    expect(router.bodies(path)).toEqual(
      ['0ms', '10000ms', '10000ms'].map((wait) => ({ call_sid: 'CA1', merchant_id: 'acme', wait })),
    );
    expect(client.breakerState).toBe('closed');
  });

  it('gets a free pod with one request, and sends no wait unless it is asked to', async () => {
    const all = await fixture();
    all.router.otherwise = () => allocated(all.clock);
    const call = await all.client.allocate({ callSid: 'CA1' }, { wait: 60_000 });
    expect(call.waitedMs).toBe(null);
    await all.client.allocate({ callSid: 'CA2' });
    expect(waits(all)).toEqual(['0ms', undefined]);
  });

  it('throws StillWaitingError with the place when its own time is up, and never falls back', async () => {
    const all = await fixture({ fallbackUrl: 'wss://fallback.example.com' });
    all.router.queue.push(waiting(2));
    answerPolls(all, () => waiting(1));
    const error = await errorOf(all.client.allocate({ callSid: 'CA1' }, { wait: '12s' }));
    expect(error).toMatchObject({ name: 'StillWaitingError', code: 'still_waiting', ...place(1) });
    expect(waits(all)).toEqual(['0ms', '10000ms', '2000ms']);
    all.router.queue.push(waiting(1));
    expect(await errorOf(all.client.allocate({ callSid: 'CA1' }, { wait: 0 }))).toMatchObject(place(1));
    expect(all.router.bodies('/api/v1/release')).toEqual([]);
  });

  it('gives a poll its time on top of the deadline of an attempt', async () => {
    const { router, clock, client } = await fixture();
    router.queue.push(waiting(1), 'hang', allocated(clock));
    const call = client.allocate({ callSid: 'CA1' }, { wait: '1m' });
    await eventually(() => expect(router.received).toHaveLength(2));
    clock.advance(11_999);
    expect(router.inFlight).toBe(1);
    clock.advance(1);
    expect(await call).toMatchObject({ podName: 'agent-1' });
  });

  it('asks again with the same SID after a cut connection, also if one after another fails', async () => {
    const all = await fixture({ retries: 0 });
    const { router, clock, client, events } = all;
    router.queue.push(waiting(2), 'reset', 'reset', failure(503, 'store_unavailable'), waiting(1), 'hang');
    const call = errorOf(client.allocate({ callSid: 'CA1' }, { wait: '1m' }));
    for (const asked of [3, 4]) {
      await eventually(() => expect(router.received).toHaveLength(asked));
      await eventually(() => expect(clock.sleepsMs).toEqual([500]));
      clock.advance(500);
    }
    await eventually(() => expect(router.received).toHaveLength(6));
    expect(waits(all)).toEqual(['0ms', '10000ms', '0ms', '0ms', '0ms', '10000ms']);
    expect(events.filter(({ type }) => type === 'retry')).toHaveLength(3);
    client.close();
    expect(await call).toBeInstanceOf(ClientClosedError);
  });

  it('gives the fallback URL if the router is down before it has a place, or once the breaker is open', async () => {
    const { router, client } = await fixture({
      fallbackUrl: 'wss://f.example.com',
      retries: 1,
      breaker: { failures: 3 },
    });
    router.queue.push('reset', 'reset', waiting(1), 'reset', 'reset', 'reset');
    expect(await client.allocate({ callSid: 'CA1' }, { wait: '1m' })).toMatchObject({ fallback: true });
    expect(router.received).toHaveLength(2);
    expect(await client.allocate({ callSid: 'CA2' }, { wait: '1m' })).toMatchObject({
      fallback: true,
      cause: { reason: 'network' },
    });
    expect(router.received).toHaveLength(6);
  });

  it('pauses between polls that are answered early, up to the time that the router asks for', async () => {
    const { router, clock, client } = await fixture();
    clock.nextRandom = 1;
    router.otherwise = () => waiting(1);
    const call = errorOf(client.allocate({ callSid: 'CA1' }, { wait: '1h' }));
    for (const pauseMs of [500, 1000, 2000, 4000, 5000, 5000]) {
      await eventually(() => expect(clock.sleepsMs).toEqual([pauseMs]));
      clock.advance(pauseMs);
    }
    await eventually(() => expect(clock.sleepsMs).toEqual([5000]));
    client.close();
    expect(await call).toBeInstanceOf(ClientClosedError);
    expect(clock.sleepsMs).toEqual([]);
  });

  it.each([
    [503, 'queue_full'],
    [503, 'wait_expired'],
    [429, 'merchant_limit'],
  ])('%i %s is a NoPodsError: sent once, no fallback, and the breaker stays closed', async (status, code) => {
    const { router, clock, client } = await fixture({
      fallbackUrl: 'wss://f.example.com',
      breaker: { failures: 1 },
    });
    router.otherwise = () => failure(status, code, { 'retry-after': '1' });
    const error = await errorOf(client.allocate({ callSid: 'CA1' }));
    expect(error).toBeInstanceOf(NoPodsError);
    expect(error).toMatchObject({ code, status, retryAfterMs: 1000 });
    router.queue.push(waiting(1));
    await expect(client.allocate({ callSid: 'CA1' }, { wait: '1m' })).rejects.toMatchObject({ code });
    expect(router.received).toHaveLength(3);
    router.otherwise = () => renewed(clock);
    await client.renew('CA2');
    expect(client.breakerState).toBe('closed');
  });

  it('counts one failure if a dying replica cuts many polls at once', async () => {
    const { router, clock, client } = await fixture({ fallbackUrl: 'wss://f.example.com' });
    const cut = deferred();
    router.otherwise = ({ body }) =>
      body.wait === '0ms' ? (cutAt > 0 ? allocated(clock) : waiting(1)) : cut.reply;
    let cutAt = 0;
    const sids = Array.from({ length: 20 }, (_, i) => `CA${i}`);
    const calls = Promise.all(sids.map((callSid) => client.allocate({ callSid }, { wait: '1m' })));
    await eventually(() => expect(router.inFlight).toBe(20));
    await eventually(() => expect(router.received).toHaveLength(40));
    cutAt = router.received.length;
    cut.answer('reset');
    expect(new Set((await calls).map(({ fallback }) => fallback))).toEqual(new Set([false]));
    expect(client.breakerState).toBe('closed');
  });

  it('releases a waiting call once, in the background, when its signal aborts', async () => {
    const { router, client } = await fixture();
    const left = {
      success: true,
      pod_name: null,
      released_to_pool: null,
      was_draining: false,
      was_waiting: true,
    };
    router.queue.push('hang', waiting(1), 'hang', 'reset', { json: left });
    const hungUp = new Error('hung up');
    const abortAfter = async (requests: number) => {
      const abort = new AbortController();
      const call = errorOf(client.allocate({ callSid: 'CA1' }, { wait: '1m', signal: abort.signal }));
      await eventually(() => expect(router.received).toHaveLength(requests));
      abort.abort(hungUp);
      expect(await call).toBe(hungUp);
    };
    await abortAfter(1); // not known to wait: it may have a pod of an earlier request
    await abortAfter(3);
    await eventually(() => expect(router.bodies('/api/v1/release')).toEqual([{ call_sid: 'CA1' }]));
    expect(await client.release('CA1')).toEqual({ released: false, reason: 'was_waiting' });
    expect(router.bodies('/api/v1/release')).toHaveLength(2);
  });

  it('sends nothing if its signal has aborted before, and refuses a wrong wait', async () => {
    const { router, client } = await fixture();
    const signal = AbortSignal.abort(new Error('too late'));
    await expect(client.allocate({ callSid: 'CA1' }, { wait: '1m', signal })).rejects.toThrow('too late');
    await expect(client.allocate({ callSid: 'CA1' }, { wait: 'long' })).rejects.toThrow(InvalidArgumentError);
    expect(router.received).toHaveLength(0);
  });

  it('continues if onWaiting throws, and reports it', async () => {
    const { router, clock, client, events } = await fixture();
    router.queue.push(waiting(1), allocated(clock));
    const onWaiting = () => {
      throw new Error('oops');
    };
    await client.allocate({ callSid: 'CA1' }, { wait: '1m', onWaiting });
    expect(events).toMatchObject([{ type: 'callback_failed', callback: 'onWaiting' }]);
  });

  it('renews by the lease that began when it got the pod, not when the pod was kept for it', async () => {
    const { router, clock, client } = await fixture();
    clock.nextRandom = 1;
    const at = (ms: number) => new Date(clock.now() + ms).toISOString();
    router.queue.push(
      allocated(clock, { waited_ms: 100, allocated_at: at(-20_000), lease_expires_at: at(10_000) }),
    );
    await client.allocate({ callSid: 'CA1' }, { wait: '1m', autoRenew: true });
    expect(clock.timersMs).toEqual([10_000 / 3]);
  });
});
