/** Allocate with `wait` against real routers: hand-over, refusals, abort, and a replica that is killed while calls wait. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import {
  type AllocateOptions,
  type Client,
  type ClientEvent,
  createClient,
  NoPodsError,
  type WaitingPlace,
} from '../../src/client/index.js';
import { describeOneEngine } from '../support/engines.js';
import { startRouter } from '../support/processes.js';
import { baseEnv, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const env = {
  STATIC_PODS: 'gold-1=gold',
  TIER_CONFIG: JSON.stringify({ tiers: { gold: { target: 1 } }, hold: { max_wait: '60s', max_waiting: 2 } }),
};

describeOneEngine('a client that waits for a pod', (engine) => {
  let router: TestRouter;
  /** Where the next requests go, as a load balancer decides. */
  let target: string;
  let client: Client;
  let places: WaitingPlace[];
  let events: ClientEvent[];
  let openPolls: number;
  const waitFor = (callSid: string, options: AllocateOptions = {}, merchantId?: string) =>
    client.allocate({ callSid, merchantId }, { wait: '60s', onWaiting: (at) => places.push(at), ...options });
  const waitingCalls = async () => (await router.context.store.snapshot()).waitingCalls;

  beforeEach(async () => {
    router = await startTestRouter(engine.url, env);
    target = router.url;
    places = [];
    events = [];
    openPolls = 0;
    client = createClient({
      baseUrl: 'http://router.invalid',
      // The tests count retries: a busy machine causes none.
      timeoutMs: 20_000,
      async fetch(url, init) {
        const polls = init.body?.includes('"wait":"10000ms"') ? 1 : 0;
        openPolls += polls;
        const response = fetch(url.replace('http://router.invalid', target), init);
        return response.finally(() => {
          openPolls -= polls;
        });
      },
      onEvent: (event) => events.push(event),
    });
    await client.allocate({ callSid: 'busy' });
  });
  afterEach(async () => {
    client.close();
    await router.stop();
  });

  it('gets the pod of a call that ends, in order, with its wait', async () => {
    const first = waitFor('CA1');
    await until(() => places.length === 1, 'the first call waits');
    const second = waitFor('CA2');
    await until(() => places.length === 2, 'the second call waits');
    expect(places.map(({ position }) => position)).toEqual([1, 2]);
    expect((places[0]?.waitExpiresAt.getTime() ?? 0) - (places[0]?.waitingSince.getTime() ?? 0)).toBe(60_000);
    await client.release('busy');
    const call = await first;
    expect(call).toMatchObject({ podName: 'gold-1', wasExisting: false, waitedMs: expect.any(Number) });
    expect(await call.release()).toMatchObject({ released: true });
    expect(await second).toMatchObject({ podName: 'gold-1' });
  });

  it('is refused if the queue is full or its merchant has too many calls, without a retry', async () => {
    await router.put('/merchants/acme', { max_calls: 1 });
    const waits = [waitFor('CA1'), waitFor('CA2')].map((call) => call.catch((error: unknown) => error));
    await until(() => places.length === 2, 'two calls wait');
    await expect(waitFor('CA3')).rejects.toMatchObject({ name: 'NoPodsError', code: 'queue_full' });
    // A poll that arrives after the release of its call would queue the call again.
    await until(() => router.context.queue.openRequests === 2, 'both calls poll');
    await client.release('CA1');
    await client.release('CA2');
    // A poll that asks once more when the pod is free would take it.
    await until(() => router.context.queue.openRequests === 0, 'both polls have ended');
    await client.release('busy');
    await client.allocate({ callSid: 'CA4', merchantId: 'acme' });
    const refused = client.allocate({ callSid: 'CA5', merchantId: 'acme' });
    await expect(refused).rejects.toMatchObject({ name: 'NoPodsError', code: 'merchant_limit', status: 429 });
    expect(events.filter(({ type }) => type === 'retry')).toEqual([]);
    client.close();
    await Promise.all(waits);
  });

  it('throws wait_expired when the router ends its wait', async () => {
    await router.put('/merchants/acme', { hold: { max_wait: '1s' } });
    const error = await waitFor('CA1', {}, 'acme').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(NoPodsError);
    expect(error).toMatchObject({ code: 'wait_expired', status: 503 });
    expect(await waitingCalls()).toBe(0);
  });

  it('leaves the queue when it is aborted', async () => {
    const abort = new AbortController();
    const call = waitFor('CA1', { signal: abort.signal }).catch((error: unknown) => error);
    await until(() => places.length === 1, 'the call waits');
    abort.abort(new Error('hung up'));
    expect(await call).toMatchObject({ message: 'hung up' });
    await until(async () => (await waitingCalls()) === 0, 'the call has left the queue');
    await client.release('busy');
    expect(await client.allocate({ callSid: 'CA2' })).toMatchObject({ podName: 'gold-1', waitedMs: null });
  });

  it('keeps its place when the replica that it waits on is killed', async () => {
    const doomed = await startRouter({ ...baseEnv, ...env, REDIS_URL: engine.url });
    target = doomed.url;
    const first = waitFor('CA1');
    await until(() => places.length === 1, 'the first call waits');
    const second = waitFor('CA2');
    await until(() => places.length === 2, 'the second call waits');
    await until(() => openPolls === 2, 'both calls poll');
    target = router.url;
    await doomed.signal('SIGKILL');
    await until(() => places.length === 4, 'both calls have asked the other replica');
    expect(events.filter(({ type }) => type === 'retry')).toHaveLength(2);
    expect(
      places
        .slice(2)
        .map(({ position }) => position)
        .sort(),
    ).toEqual([1, 2]);
    await client.release('busy');
    expect(await first).toMatchObject({ podName: 'gold-1', fallback: false });
    expect(client.breakerState).toBe('closed');
    client.close();
    await second.catch(() => {});
  });
});
