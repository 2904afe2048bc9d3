import { describe, expect, it } from 'vitest';
import { NoPodsError, RouterUnavailableError } from '../../src/client/index.js';
import { failure, fixture, released } from './scripted-router.js';

const fallbackUrl = 'wss://fallback.example.com/ws';
const down = failure(503, 'store_unavailable');

describe('allocate while the router is down', () => {
  it('gives the fallback URL once the retries are used up', async () => {
    const { router, client, events } = await fixture({ fallbackUrl });
    router.otherwise = () => down;
    const call = await client.allocate({ callSid: 'CA1' });
    expect(call).toMatchObject({
      fallback: true,
      wsUrl: fallbackUrl,
      callSid: 'CA1',
      podName: null,
      fence: null,
    });
    expect(router.received).toHaveLength(4);
    expect(events.at(-1)).toMatchObject({ type: 'fallback', callSid: 'CA1' });
  });

  it('gives a call with every method of a routed one; there is no lease to renew', async () => {
    const { router, client } = await fixture({ fallbackUrl });
    router.otherwise = () => down;
    const call = await client.allocate({ callSid: 'CA1' });
    await expect(call.renew()).rejects.toThrow(RouterUnavailableError);
    call.keepAlive();
    call.detach();
    expect(router.received).toHaveLength(4);
  });

  it('gives it at once, without a request, while the breaker is open', async () => {
    const { router, client } = await fixture({ fallbackUrl, breaker: { failures: 1 } });
    router.otherwise = () => down;
    await client.allocate({ callSid: 'CA1' });
    expect(router.received).toHaveLength(1);
    const call = await client.allocate({ callSid: 'CA2' });
    expect(call).toMatchObject({ fallback: true, cause: { reason: 'breaker_open', attempts: 0 } });
    expect(router.received).toHaveLength(1);
  });

  it('asks a function for the URL, with the request', async () => {
    const { router, client } = await fixture({
      fallbackUrl: (request) => `wss://f.example.com/${request.merchantId}`,
    });
    router.otherwise = () => ({ text: '<html>' });
    const call = await client.allocate({ callSid: 'CA1', merchantId: 'm1' });
    expect(call.wsUrl).toBe('wss://f.example.com/m1');
  });

  it('throws RouterUnavailableError where no fallback is configured', async () => {
    const { router, client } = await fixture();
    router.otherwise = () => 'reset';
    await expect(client.allocate({ callSid: 'CA1' })).rejects.toThrow(RouterUnavailableError);
  });

  it('throws RouterUnavailableError if the fallback function fails, and emits an event', async () => {
    const { router, client, events } = await fixture({
      fallbackUrl: () => {
        throw new Error('no idea');
      },
    });
    router.otherwise = () => down;
    await expect(client.allocate({ callSid: 'CA1' })).rejects.toThrow(RouterUnavailableError);
    expect(events.at(-1)).toMatchObject({ type: 'callback_failed', callback: 'fallbackUrl' });
  });

  it('never falls back on no_pods or on a 4xx', async () => {
    const { router, client } = await fixture({ fallbackUrl });
    router.queue.push(failure(503, 'no_pods'), failure(401, 'unauthorized'));
    await expect(client.allocate({ callSid: 'CA1' })).rejects.toThrow(NoPodsError);
    await expect(client.allocate({ callSid: 'CA1' })).rejects.toMatchObject({ code: 'unauthorized' });
  });
});

describe('a fallback call', () => {
  it('has no lease to keep: keepAlive, detach and lost do nothing', async () => {
    const { router, clock, client } = await fixture({ fallbackUrl });
    router.otherwise = () => down;
    const call = await client.allocate({ callSid: 'CA1' }, { autoRenew: true });
    call.keepAlive();
    expect(clock.timersMs).toEqual([]);
    call.detach();
    expect(call.lost.aborted).toBe(false);
  });

  it('releases the SID, because a request whose answer was lost may have taken a pod', async () => {
    const { router, client } = await fixture({ fallbackUrl, retries: 0 });
    router.queue.push('reset', released, 'reset', failure(404, 'call_not_found'), 'reset', 'reset');
    const results = [];
    for (const callSid of ['CA1', 'CA2', 'CA3']) {
      const call = await client.allocate({ callSid });
      results.push(await call.release());
    }
    expect(results).toMatchObject([
      { released: true, podName: 'agent-1' },
      { released: false, reason: 'fallback' },
      { released: false, reason: 'fallback' },
    ]);
    expect(router.bodies('/api/v1/release')).toEqual([
      { call_sid: 'CA1' },
      { call_sid: 'CA2' },
      { call_sid: 'CA3' },
    ]);
  });

  it('sends no release when nothing was ever sent', async () => {
    const { router, clock, client } = await fixture({ fallbackUrl, breaker: { failures: 1 } });
    router.queue.push('reset');
    await client.allocate({ callSid: 'CA1' });
    const call = await client.allocate({ callSid: 'CA2' });
    clock.advance(30_000);
    expect(await call.release()).toEqual({ released: false, reason: 'fallback' });
    expect(router.received).toHaveLength(1);
  });
});
