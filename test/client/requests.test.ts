import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import {
  ApiError,
  createClient,
  InvalidArgumentError,
  NoPodsError,
  PodReplacedError,
  RouterUnavailableError,
} from '../../src/client/index.js';
import { version } from '../../src/version.js';
import { allocated, eventually, failure, fixture, released, renewed, reported } from './scripted-router.js';

describe('what the client sends', () => {
  it('sends an allocation in snake case and gives the answer in camel case', async () => {
    const { router, clock, client } = await fixture({ apiKey: 'k-123' });
    router.queue.push(allocated(clock));
    const call = await client.allocate({
      callSid: 'CA1',
      merchantId: 'm1',
      provider: 'plivo',
      flow: 'v1',
      template: 't',
    });
    expect(router.received[0]).toMatchObject({
      method: 'POST',
      path: '/api/v1/allocate',
      headers: {
        authorization: 'Bearer k-123',
        'content-type': 'application/json',
        'user-agent': `smart-router/${version}`,
      },
      body: { call_sid: 'CA1', merchant_id: 'm1', provider: 'plivo', flow: 'v1', template: 't' },
    });
    expect(call).toMatchObject({
      callSid: 'CA1',
      podName: 'agent-1',
      wsUrl: 'wss://voice.example.com/ws/pod/agent-1',
      sourcePool: 'pool:gold',
      fence: 41,
      wasExisting: false,
      fallback: false,
      allocatedAt: new Date(clock.now()),
      leaseExpiresAt: new Date(clock.now() + 900_000),
    });
  });

  it('sends no fence for a call without one', async () => {
    const { router, clock, client } = await fixture();
    router.queue.push(renewed(clock), released);
    await client.renew('CA1', { fence: null });
    await client.release('CA1', { fence: null });
    expect(router.received.map(({ body }) => body)).toEqual([{ call_sid: 'CA1' }, { call_sid: 'CA1' }]);
  });

  it('omits undefined fields, and the Authorization header without a key', async () => {
    const { router, clock, client } = await fixture();
    router.queue.push(allocated(clock));
    await client.allocate({ callSid: 'CA1' });
    expect(router.received[0]?.body).toEqual({ call_sid: 'CA1' });
    expect(router.received[0]?.headers.authorization).toBeUndefined();
  });

  it('sends release, renew, report, drain and undrain to their paths, fences as integers', async () => {
    const { router, clock, client } = await fixture();
    router.queue.push(released, renewed(clock), reported({ renewed: ['CA1'] }));
    router.queue.push({
      json: {
        success: true,
        pod_name: 'agent-1',
        has_active_call: true,
        active_calls: 2,
        message: 'Draining.',
      },
    });
    router.queue.push({ json: { success: true } });
    expect(await client.release('CA1', { fence: 7 })).toEqual({
      released: true,
      podName: 'agent-1',
      releasedToPool: 'pool:gold',
      wasDraining: false,
    });
    expect((await client.renew('CA1', { fence: 7 })).leaseExpiresAt.getTime()).toBe(clock.now() + 900_000);
    expect((await client.report('agent-1', ['CA1'], { uid: 'u1' })).renewed).toEqual(['CA1']);
    expect(await client.drain('agent-1')).toMatchObject({ hasActiveCall: true, activeCalls: 2 });
    expect(await client.undrain('agent-1')).toBeUndefined();
    expect(router.received.map(({ path, body }) => [path, body])).toEqual([
      ['/api/v1/release', { call_sid: 'CA1', fence: 7 }],
      ['/api/v1/renew', { call_sid: 'CA1', fence: 7 }],
      ['/api/v1/pod/agent-1/report', { calls: ['CA1'], uid: 'u1' }],
      ['/api/v1/drain', { pod_name: 'agent-1' }],
      ['/api/v1/undrain', { pod_name: 'agent-1' }],
    ]);
  });

  it('keeps a path prefix of the base URL, with or without a slash at its end', async () => {
    const { router, clock, another } = await fixture();
    router.queue.push(renewed(clock), renewed(clock));
    await another({ baseUrl: `${router.baseUrl}/router/` }).renew('CA1');
    await another({ baseUrl: `${router.baseUrl}/router` }).renew('CA1');
    expect(router.received.map((request) => request.path)).toEqual([
      '/router/api/v1/renew',
      '/router/api/v1/renew',
    ]);
  });
});

describe('drain with wait', () => {
  const drained = {
    json: { success: true, pod_name: 'agent-1', has_active_call: false, active_calls: 0, message: 'Done.' },
  };

  it('gives the router the wait on top of the timeout', async () => {
    const { router, clock, client } = await fixture({ timeoutMs: 500 });
    router.otherwise = () => {
      expect(clock.timersMs).toEqual([30_500]);
      return drained;
    };
    await client.drain('agent-1', { wait: '30s' });
    expect(router.received[0]?.body).toEqual({ pod_name: 'agent-1', wait: '30000ms' });
  });

  it('waits in a retry only for the rest of the time', async () => {
    const { router, clock, client } = await fixture();
    router.otherwise = () => {
      if (router.received.length > 0) return drained;
      clock.advance(12_000);
      return 'reset';
    };
    await client.drain('agent-1', { wait: 30_000 });
    expect(router.bodies('/api/v1/drain').map((body) => body.wait)).toEqual(['30000ms', '18000ms']);
  });

  it('asks again while calls live and time is left, in slices that proxies let pass', async () => {
    const { router, clock, client } = await fixture();
    const busy = { json: { ...drained.json, has_active_call: true, active_calls: 1 } };
    router.otherwise = () => {
      if (router.received.length === 2) return drained;
      clock.advance(50_000);
      return busy;
    };
    const done = client.drain('agent-1', { wait: '2m' });
    for (const requests of [1, 2]) {
      await eventually(() => expect(router.received).toHaveLength(requests));
      await eventually(() => expect(clock.sleepsMs).toEqual([500]));
      clock.advance(500);
    }
    expect(await done).toMatchObject({ hasActiveCall: false });
    const waits = router.bodies('/api/v1/drain').map((body) => body.wait);
    expect(waits).toEqual(['50000ms', '50000ms', '19000ms']);
  });

  it('continues while the router is down or has too many drains, and fails only when the time is up', async () => {
    const { router, clock, client, events } = await fixture({ retries: 0, breaker: { failures: 1000 } });
    router.queue.push('reset', failure(429, 'too_many_requests'), failure(503, 'store_unavailable'), drained);
    const done = client.drain('agent-1', { wait: '10m' });
    for (let requests = 1; requests <= 3; requests++) {
      await eventually(() => expect(router.received).toHaveLength(requests));
      await eventually(() => expect(clock.sleepsMs).toEqual([500]));
      clock.advance(500);
    }
    expect(await done).toMatchObject({ hasActiveCall: false });
    expect(events.map(({ type }) => type)).toEqual(['retry', 'retry', 'retry']);
    router.otherwise = () => {
      clock.advance(60_000);
      return 'reset';
    };
    await expect(client.drain('agent-1', { wait: '1m' })).rejects.toMatchObject({
      code: 'router_unavailable',
    });
  });

  it('sends the uid, and reports a replaced pod', async () => {
    const { router, client } = await fixture();
    const drain_expires_at = '2026-11-15T09:11:44.906Z';
    router.queue.push({ json: { ...drained.json, drain_expires_at } }, drained);
    expect((await client.drain('agent-1', { uid: 'u1' })).drainExpiresAt).toEqual(new Date(drain_expires_at));
    expect((await client.drain('agent-1')).drainExpiresAt).toBe(null);
    router.otherwise = () => failure(409, 'pod_replaced');
    await expect(client.drain('agent-1', { uid: 'u1', wait: '5m' })).rejects.toThrow(PodReplacedError);
    await expect(client.undrain('agent-1', { uid: 'u1' })).rejects.toThrow(PodReplacedError);
    expect(router.received.map(({ body }) => body.uid)).toEqual(['u1', undefined, 'u1', 'u1']);
  });

  it('rejects a wait that is not a duration', async () => {
    const { client } = await fixture();
    for (const wait of ['soon', '-1s', 1.5, Number.NaN, '999h']) {
      await expect(client.drain('agent-1', { wait })).rejects.toThrow(InvalidArgumentError);
    }
  });
});

describe('what the client makes of answers', () => {
  it('throws the router’s code and sentence for a 4xx, after one request', async () => {
    const { router, client } = await fixture();
    for (const [status, code] of [
      [400, 'invalid_request'],
      [401, 'unauthorized'],
      [403, 'forbidden'],
      [404, 'not_found'],
      [413, 'payload_too_large'],
    ] as const) {
      router.queue.push(failure(status, code));
      const error = await client.allocate({ callSid: 'CA1' }).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(ApiError);
      expect(error).toMatchObject({ status, code });
      expect((error as Error).message).toContain(
        `allocate CA1: the router answered ${status} ${code}: It is ${code}.`,
      );
    }
    expect(router.received).toHaveLength(5);
  });

  it.each([
    ['a proxy’s HTML page', { text: '<html>Sign in</html>' }, 'not a JSON object'],
    ['an empty body', { text: '' }, 'not a JSON object'],
    ['JSON without the fields', { json: { success: true } }, 'fence is not an integer'],
    ['a refusal dressed as success', { json: { success: false } }, 'success: false'],
    ['a fence that is text', { json: { success: true, fence: '41' } }, 'fence is not an integer'],
    ['a redirect', { status: 302, headers: { location: '/login' } }, 'redirect'],
    ['an endless page', { text: 'x'.repeat(34_000_000) }, 'longer than'],
  ])('calls %s a router that is not there', async (_what, reply, words) => {
    const { router, client } = await fixture({ retries: 0 });
    router.queue.push(reply as never);
    const error = await client.allocate({ callSid: 'CA1' }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(RouterUnavailableError);
    expect(error).toMatchObject({ reason: 'bad_response', attempts: 1 });
    expect((error as Error).message).toContain(words);
  });

  it('does not take a proxy’s 404 page for the end of a call', async () => {
    const { router, client } = await fixture();
    router.queue.push({ status: 404, text: '<html>nginx</html>' });
    await expect(client.release('CA1')).rejects.toMatchObject({ status: 404, code: 'unexpected_status' });
  });

  it('throws NoPodsError with the time to wait', async () => {
    const { router, client } = await fixture();
    router.queue.push(failure(503, 'no_pods', { 'retry-after': '7' }));
    const error = await client.allocate({ callSid: 'CA1' }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(NoPodsError);
    expect(error).toMatchObject({ code: 'no_pods', status: 503, retryAfterMs: 7000 });
  });
});

describe('arguments and options', () => {
  it('refuses what the router would refuse, without a request', async () => {
    const { router, client } = await fixture();
    await expect(client.allocate({ callSid: '' })).rejects.toThrow(InvalidArgumentError);
    await expect(client.allocate({ callSid: 5 as never })).rejects.toThrow('callSid must be');
    await expect(client.release('a\nb')).rejects.toThrow(InvalidArgumentError);
    await expect(client.renew('CA1', { fence: 1.5 })).rejects.toThrow('fence must be');
    await expect(client.drain('..')).rejects.toThrow('Kubernetes name');
    await expect(client.report('a/b', [])).rejects.toThrow('Kubernetes name');
    await expect(client.report('agent-1', undefined as never)).rejects.toThrow('calls must be an array');
    expect(router.received).toHaveLength(0);
  });

  it.each([
    [{ baseUrl: 'router:8080' }, 'baseUrl'],
    [{ baseUrl: 'http://u:p@router' }, 'baseUrl must have no user'],
    [{ baseUrl: 'http://router', timeoutMs: 0 }, 'timeoutMs must be an integer from 1'],
    [{ baseUrl: 'http://router', retries: -1 }, 'retries'],
    [{ baseUrl: 'http://router', breaker: { trials: 0 } }, 'breaker.trials'],
    [{ baseUrl: 'http://router', breaker: { failure: 5 } }, 'breaker has no option "failure"'],
    [{ baseUrl: 'http://router', backoff: { baseMs: 0.5 } }, 'backoff.baseMs'],
    [{ baseUrl: 'http://router', timeout: 5 }, 'createClient has no option "timeout"'],
    [{ baseUrl: 'http://router', fallbackUrl: 'nowhere' }, 'fallbackUrl'],
  ])('refuses %j and names the option', (options, words) => {
    expect(() => createClient(options as never)).toThrow(InvalidArgumentError);
    expect(() => createClient(options as never)).toThrow(words);
  });
});

describe('readPod', () => {
  it('reads the calls of a pod with a GET without a body, and retries', async () => {
    const { router, client } = await fixture({ apiKey: 'a-key' });
    router.queue.push('reset', { json: { pod_name: 'agent-1', uid: 'u-1', calls: ['CA1', 'CA2'] } });
    expect(await client.readPod('agent-1')).toEqual({
      podName: 'agent-1',
      uid: 'u-1',
      calls: ['CA1', 'CA2'],
    });
    expect(router.received.map(({ method, path }) => `${method} ${path}`)).toEqual([
      'GET /api/v1/pod/agent-1',
      'GET /api/v1/pod/agent-1',
    ]);
    expect(router.received[1]?.headers).toMatchObject({ authorization: 'Bearer a-key' });
    expect(router.received[1]?.headers).not.toHaveProperty('content-type');
  });

  it('fails with pod_not_found, and on an answer without calls', async () => {
    const { router, client } = await fixture({ retries: 0 });
    router.queue.push(failure(404, 'pod_not_found'), { json: { pod_name: 'agent-1' } });
    await expect(client.readPod('agent-1')).rejects.toMatchObject({ code: 'pod_not_found' });
    await expect(client.readPod('agent-1')).rejects.toMatchObject({ reason: 'bad_response' });
  });
});

describe('the API key', () => {
  const apiKey = 'sk-very-secret';

  it('is not in errors, events, or what a logger prints of the client and its handles', async () => {
    const { router, clock, client, events, another } = await fixture({ apiKey });
    router.queue.push(allocated(clock));
    const call = await client.allocate({ callSid: 'CA1' }, { autoRenew: true });
    const reporter = client.startReporting('agent-1', () => []);
    router.otherwise = () => ({
      status: 500,
      json: { success: false, code: 'internal', error: `Bearer ${apiKey}` },
    });
    const errors = [
      await client.release('CA1').catch((thrown: unknown) => thrown),
      await another({ apiKey, baseUrl: 'http://127.0.0.1:1', retries: 0 })
        .release('CA1')
        .catch((thrown: unknown) => thrown),
    ];
    for (const thing of [client, call, reporter, errors, events]) {
      expect(inspect(thing, { depth: 12, showHidden: true })).not.toContain(apiKey);
    }
    expect(errors.every((error) => error instanceof RouterUnavailableError)).toBe(true);
  });

  it('is refused when it cannot be a header, without being quoted', () => {
    const make = () => createClient({ baseUrl: 'http://router', apiKey: `${apiKey}\n` });
    expect(make).toThrow('apiKey must be printable ASCII');
    expect(make).not.toThrow(apiKey);
  });
});
