import { describe, expect, it } from 'vitest';
import { NoPodsError, RouterUnavailableError } from '../../src/client/index.js';
import {
  allocated,
  eventually,
  type Fixture,
  failure,
  fixture,
  released,
  renewed,
} from './scripted-router.js';

/** Breakers that never open in these tests. */
const breaker = { failures: 1000 };

function delays(events: Fixture['events']): number[] {
  return events.flatMap((event) => (event.type === 'retry' ? [event.delayMs] : []));
}

describe('retries', () => {
  it.each([
    ['a cut connection', 'reset' as const],
    ['a 500', failure(500, 'internal')],
    ['a 503 for an unreachable store', failure(503, 'store_unavailable')],
    ['a 502 of a proxy', { status: 502, text: '<html>' }],
    ['a 429', failure(429, 'too_many_requests')],
    ['a 200 that is not the router’s', { text: '<html>' }],
  ])('sends again after %s, and succeeds', async (_what, reply) => {
    const { router, clock, client } = await fixture({ breaker });
    router.queue.push(reply, reply, reply, allocated(clock, { was_existing: true }));
    const call = await client.allocate({ callSid: 'CA1' });
    expect(call).toMatchObject({ fallback: false, wasExisting: true });
    expect(router.bodies('/api/v1/allocate')).toEqual(Array(4).fill({ call_sid: 'CA1' }));
  });

  it('sends again when the answer does not come within the timeout of an attempt', async () => {
    const { router, clock, client } = await fixture({ breaker, timeoutMs: 700 });
    router.queue.push('hang', allocated(clock));
    const call = client.allocate({ callSid: 'CA1' });
    await eventually(() => expect(router.received).toHaveLength(1));
    clock.advance(699);
    expect(router.inFlight).toBe(1);
    clock.advance(1);
    expect(await call).toMatchObject({ podName: 'agent-1' });
  });

  it('counts a body that stops half way against the timeout', async () => {
    const { router, clock, client, events } = await fixture({ breaker, retries: 0 });
    router.queue.push({ text: '{"succ', headers: { 'content-length': '5000' } });
    const call = client.allocate({ callSid: 'CA1' });
    const failed = expect(call).rejects.toMatchObject({ reason: 'timeout' });
    await eventually(() => expect(router.received).toHaveLength(1));
    clock.advance(2000);
    await failed;
    expect(events).toEqual([]);
  });

  it('gives up after retries + 1 requests, with the last failure in the error', async () => {
    const { router, client } = await fixture({ breaker, retries: 2 });
    router.otherwise = () => failure(503, 'store_unavailable');
    const error = await client.release('CA1', { fence: 3 }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(RouterUnavailableError);
    expect(error).toMatchObject({
      reason: 'server_error',
      code: 'store_unavailable',
      status: 503,
      attempts: 3,
    });
    expect(router.received).toHaveLength(3);
  });

  it('retries three times by default', async () => {
    const { router, client } = await fixture({ breaker });
    router.otherwise = () => 'reset';
    await expect(client.renew('CA1')).rejects.toMatchObject({ reason: 'network', attempts: 4 });
    expect(router.received).toHaveLength(4);
  });

  it('throws the 429 itself when it persists: the router is busy, not down', async () => {
    const { router, client } = await fixture({ retries: 1, fallbackUrl: 'wss://fallback.example.com' });
    router.otherwise = () => failure(429, 'too_many_requests', { 'retry-after': '0' });
    await expect(client.allocate({ callSid: 'CA1' })).rejects.toMatchObject({
      name: 'ApiError',
      code: 'too_many_requests',
    });
    expect(router.received).toHaveLength(2);
  });

  it('never retries no_pods', async () => {
    const { router, client } = await fixture();
    router.otherwise = () => failure(503, 'no_pods', { 'retry-after': '5' });
    await expect(client.allocate({ callSid: 'CA1' })).rejects.toThrow(NoPodsError);
    expect(router.received).toHaveLength(1);
  });

  it('says which address could not be reached', async () => {
    const { router, client } = await fixture({ breaker, retries: 0 });
    await router.stop();
    await expect(client.renew('CA1')).rejects.toThrow(
      /renew CA1: cannot reach the router at http:\/\/127.*ECONNREFUSED/,
    );
  });

  it('finds its own first release in the retry and calls the call ended', async () => {
    const { router, client } = await fixture();
    router.queue.push('reset', failure(404, 'call_not_found'));
    expect(await client.release('CA1', { fence: 3 })).toEqual({ released: false, reason: 'already_ended' });
  });
});

describe('how long it waits between attempts', () => {
  async function delaysWith(random: number, replies: number, backoff = {}) {
    const { router, clock, client, events } = await fixture({ breaker, retries: replies, backoff });
    clock.nextRandom = random;
    router.otherwise = () => (router.received.length < replies ? 'reset' : renewed(clock));
    const done = client.renew('CA1');
    for (let attempt = 1; attempt <= replies; attempt++) {
      await eventually(() => expect(delays(events).length).toBeGreaterThanOrEqual(attempt));
      clock.advance(delays(events)[attempt - 1] ?? 0);
    }
    await done;
    return delays(events);
  }

  it('draws from zero up to a doubling bound, never above the maximum', async () => {
    expect(await delaysWith(0, 5)).toEqual([0, 0, 0, 0, 0]);
    expect(await delaysWith(0.5, 6)).toEqual([50, 100, 200, 400, 500, 500]);
    const highest = await delaysWith(0.999999, 5);
    highest.forEach((delayMs, index) => {
      const boundMs = Math.min(1000, 100 * 2 ** index);
      expect(delayMs).toBeLessThan(boundMs);
      expect(delayMs).toBeGreaterThan(boundMs * 0.99);
    });
  });

  it('uses the backoff it is given', async () => {
    expect(await delaysWith(0.5, 3, { baseMs: 10, maxMs: 30 })).toEqual([5, 10, 15]);
  });

  it.each([
    ['one second', '1', 1000],
    ['an hour, up to the cap', '3600', 2000],
    ['nonsense, not at all', 'soon', 0],
    ['a negative number, not at all', '-5', 0],
    ['a date', new Date(1_700_000_001_000).toUTCString(), 1000],
    ['a date gone by, at once', new Date(1_600_000_000_000).toUTCString(), 0],
  ])('obeys a Retry-After of %s', async (_what, header, expectedMs) => {
    const { router, clock, client, events } = await fixture({ breaker });
    router.queue.push(failure(503, 'store_unavailable', { 'retry-after': header }), released);
    const done = client.release('CA1');
    await eventually(() => expect(delays(events)).toEqual([expectedMs]));
    expect(clock.sleepsMs).toEqual(expectedMs === 0 ? [] : [expectedMs]);
    clock.advance(expectedMs);
    await done;
  });

  it('adds jitter to Retry-After, so that clients sent away together do not return together', async () => {
    const { router, clock, client, events } = await fixture({ breaker });
    clock.nextRandom = 0.5;
    router.queue.push(failure(429, 'too_many_requests', { 'retry-after': '1' }), released);
    const done = client.release('CA1');
    await eventually(() => expect(delays(events)).toEqual([1050]));
    clock.advance(1050);
    await done;
  });
});
