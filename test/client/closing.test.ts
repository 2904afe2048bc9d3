import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { ClientClosedError } from '../../src/client/index.js';
import { allocated, eventually, failure, fixture, released } from './scripted-router.js';

describe('close', () => {
  it('fails requests in flight with ClientClosedError, not with a fallback', async () => {
    const { router, client } = await fixture({ fallbackUrl: 'wss://fallback.example.com' });
    router.otherwise = () => 'hang';
    const call = client.allocate({ callSid: 'CA1' }).catch((thrown: unknown) => thrown);
    await eventually(() => expect(router.inFlight).toBe(1));
    client.close();
    expect(await call).toBeInstanceOf(ClientClosedError);
    await eventually(() => expect(router.inFlight).toBe(0));
  });

  it('wakes an operation that waits for its next attempt', async () => {
    const { router, clock, client } = await fixture();
    router.otherwise = () => failure(503, 'store_unavailable', { 'retry-after': '1' });
    const renewal = client.renew('CA1').catch((thrown: unknown) => thrown);
    await eventually(() => expect(clock.sleepsMs).toEqual([1000]));
    client.close();
    expect(await renewal).toBeInstanceOf(ClientClosedError);
    expect(clock.sleepsMs).toEqual([]);
    expect(router.received).toHaveLength(1);
  });

  it('wakes a drain that waits for its next request', async () => {
    const { router, clock, client } = await fixture({ retries: 0 });
    router.otherwise = () => failure(503, 'store_unavailable');
    const drain = client.drain('agent-1', { wait: '1h' }).catch((thrown: unknown) => thrown);
    await eventually(() => expect(clock.sleepsMs).toEqual([500]));
    client.close();
    expect(await drain).toBeInstanceOf(ClientClosedError);
    expect(clock.sleepsMs).toEqual([]);
  });

  it('stops keepAlive and reporting, releases nothing, and does not abort lost', async () => {
    const { router, clock, client, events } = await fixture();
    router.queue.push(allocated(clock));
    const call = await client.allocate({ callSid: 'CA1' }, { autoRenew: true });
    client.startReporting('agent-1', () => ['CA1']);
    expect(clock.timersMs).toHaveLength(2);
    client.close();
    expect(clock.timersMs).toEqual([]);
    expect(call.lost.aborted).toBe(false);
    expect(router.received).toHaveLength(1);
    expect(events).toEqual([]);
  });

  it('refuses everything afterwards, and may be called twice', async () => {
    const { router, clock, client } = await fixture();
    router.queue.push(allocated(clock));
    const call = await client.allocate({ callSid: 'CA1' });
    client.close();
    client.close();
    await expect(client.allocate({ callSid: 'CA1' })).rejects.toThrow(ClientClosedError);
    await expect(call.release()).rejects.toThrow(ClientClosedError);
    expect(() => client.attach({ callSid: 'CA1' })).toThrow(ClientClosedError);
    expect(() => client.startReporting('agent-1', () => [])).toThrow(ClientClosedError);
    expect(router.received).toHaveLength(1);
  });
});

describe('a caller’s signal', () => {
  it('aborts every waiting operation at once with its reason', async () => {
    const { router, clock, client } = await fixture();
    router.queue.push('hang', failure(503, 'store_unavailable', { 'retry-after': '1' }));
    for (const waiting of [() => router.inFlight === 1, () => clock.sleepsMs.length === 1]) {
      const abort = new AbortController();
      const renewal = client.renew('CA1', { signal: abort.signal }).catch((thrown: unknown) => thrown);
      await eventually(() => expect(waiting()).toBe(true));
      const reason = new Error('hung up');
      abort.abort(reason);
      expect(await renewal).toBe(reason);
    }
    expect(router.received).toHaveLength(2);
  });

  it('sends nothing when it has aborted before', async () => {
    const { router, client } = await fixture();
    await expect(client.renew('CA1', { signal: AbortSignal.abort() })).rejects.toMatchObject({
      name: 'AbortError',
    });
    expect(router.received).toHaveLength(0);
  });

  it('says nothing about the router: the breaker does not count it', async () => {
    const { router, client } = await fixture({ breaker: { failures: 1 } });
    router.queue.push('hang');
    router.otherwise = () => released;
    const abort = new AbortController();
    const hung = client.release('CA1', { signal: abort.signal }).catch(() => {});
    await eventually(() => expect(router.inFlight).toBe(1));
    abort.abort();
    await hung;
    expect(client.breakerState).toBe('closed');
    expect(await client.release('CA1')).toMatchObject({ released: true });
  });

  it('carries no listener of a finished operation', async () => {
    const { router, client } = await fixture();
    router.otherwise = () => released;
    const { signal } = new AbortController();
    await client.release('CA1', { signal });
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });
});
