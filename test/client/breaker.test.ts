import { describe, expect, it } from 'vitest';
import { RouterUnavailableError } from '../../src/client/index.js';
import {
  deferred,
  eventually,
  type Fixture,
  failure,
  fixture,
  type Reply,
  renewed,
} from './scripted-router.js';

const down = failure(500, 'internal');

/** A client whose breaker has just opened: five failed requests, no retries. */
async function opened(): Promise<Fixture> {
  const all = await fixture({ retries: 0 });
  all.router.otherwise = () => down;
  for (let i = 0; i < 5; i++) await expect(all.client.renew('CA1')).rejects.toThrow(RouterUnavailableError);
  expect(all.client.breakerState).toBe('open');
  all.router.received.length = 0;
  all.router.otherwise = () => renewed(all.clock);
  return all;
}

/** Renewals of CA0, CA1 and CA2, each with its answer: on three connections they may arrive in any order. */
function heldRenewals({ router, client }: Fixture) {
  const answers = [deferred(), deferred(), deferred()];
  const { otherwise } = router;
  router.otherwise = (request) =>
    answers[Number(String(request.body.call_sid).slice(2))]?.reply ?? otherwise(request);
  return { answers, renewals: answers.map((_, i) => client.renew(`CA${i}`)) };
}

function changes(events: Fixture['events']): string[] {
  return events.flatMap((event) => (event.type === 'breaker' ? [`${event.from} > ${event.to}`] : []));
}

describe('closed', () => {
  it.each<[string, Reply]>([
    ['cut connections', 'reset'],
    ['5xx answers', down],
    ['pages that are not the router’s', { text: '<html>' }],
  ])('opens after five %s in a row, not after four', async (_what, reply) => {
    const { router, client } = await fixture({ retries: 0 });
    router.otherwise = () => reply;
    for (let i = 0; i < 4; i++) await client.renew('CA1').catch(() => {});
    expect(client.breakerState).toBe('closed');
    await client.renew('CA1').catch(() => {});
    expect(client.breakerState).toBe('open');
  });

  it('opens after five timeouts', async () => {
    const { router, clock, client } = await fixture({ retries: 0 });
    router.otherwise = () => 'hang';
    const all = Promise.allSettled(Array.from({ length: 5 }, () => client.renew('CA1')));
    await eventually(() => expect(router.received).toHaveLength(5));
    clock.advance(2000);
    await all;
    expect(client.breakerState).toBe('open');
  });

  it('counts attempts, and stops retrying once it is open', async () => {
    const { router, client, events } = await fixture({ retries: 10 });
    router.otherwise = () => down;
    const error = await client.renew('CA1').catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ reason: 'breaker_open', attempts: 5 });
    expect((error as Error).message).toContain('Last failure: renew CA1');
    expect(events.filter((event) => event.type === 'retry')).toHaveLength(4);
    expect(router.received).toHaveLength(5);
  });

  it('starts counting again after one success', async () => {
    const { router, clock, client } = await fixture({ retries: 0 });
    router.queue.push(down, down, down, down, renewed(clock), down, down, down, down);
    for (let i = 0; i < 9; i++) await client.renew('CA1').catch(() => {});
    expect(client.breakerState).toBe('closed');
  });

  it.each<[string, Reply]>([
    ['no_pods', failure(503, 'no_pods')],
    ['store_full', failure(503, 'store_full')],
    ['a 4xx', failure(400, 'invalid_request')],
    ['a 429', failure(429, 'too_many_requests')],
  ])('takes %s for a router that works', async (_what, reply) => {
    const { router, client } = await fixture({ retries: 0 });
    router.queue.push(down, down, down, down, reply, down, down, down, down);
    for (let i = 0; i < 9; i++) await client.allocate({ callSid: 'CA1' }).catch(() => {});
    expect(client.breakerState).toBe('closed');
    for (let i = 0; i < 20; i++) {
      router.queue.push(reply);
      await client.allocate({ callSid: 'CA1' }).catch(() => {});
    }
    expect(client.breakerState).toBe('closed');
  });

  it('obeys its own settings', async () => {
    const { router, clock, client } = await fixture({
      retries: 0,
      breaker: { failures: 1, openMs: 10, trials: 1 },
    });
    router.queue.push(down, renewed(clock));
    await client.renew('CA1').catch(() => {});
    expect(client.breakerState).toBe('open');
    clock.advance(10);
    await client.renew('CA1');
    expect(client.breakerState).toBe('closed');
  });
});

describe('open', () => {
  it('sends nothing for 30 s and says when it will', async () => {
    const { router, clock, client } = await opened();
    clock.advance(29_999);
    const error = await client.renew('CA1').catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ name: 'RouterUnavailableError', reason: 'breaker_open', attempts: 0 });
    expect((error as Error).message).toContain('The next attempt is in 1 ms');
    expect(router.received).toHaveLength(0);
  });

  it('does not even call fetch', async () => {
    let fetched = 0;
    const { client } = await fixture({
      retries: 0,
      fetch: () => {
        fetched += 1;
        return Promise.reject(new TypeError('fetch failed'));
      },
    });
    for (let i = 0; i < 8; i++) await client.renew('CA1').catch(() => {});
    expect(fetched).toBe(5);
  });
});

describe('half open', () => {
  it('closes after three successes', async () => {
    const { clock, client, events } = await opened();
    clock.advance(30_000);
    await client.renew('CA1');
    await client.renew('CA1');
    expect(client.breakerState).toBe('half_open');
    await client.renew('CA1');
    expect(client.breakerState).toBe('closed');
    expect(changes(events)).toEqual(['closed > open', 'open > half_open', 'half_open > closed']);
  });

  it('opens for another 30 s after one failure', async () => {
    const { router, clock, client } = await opened();
    clock.advance(30_000);
    router.queue.push(renewed(clock), down);
    await client.renew('CA1');
    await client.renew('CA1').catch(() => {});
    clock.advance(29_999);
    expect(client.breakerState).toBe('open');
    clock.advance(1);
    expect(client.breakerState).toBe('half_open');
  });

  it('lets three through at a time and refuses the fourth without a request', async () => {
    const all = await opened();
    const { router, clock, client } = all;
    clock.advance(30_000);
    const { answers: trials, renewals } = heldRenewals(all);
    await eventually(() => expect(router.received).toHaveLength(3));
    await expect(client.renew('CA9')).rejects.toMatchObject({ reason: 'breaker_open', attempts: 0 });
    trials[0]?.answer(renewed(clock));
    await renewals[0];
    await expect(client.renew('CA9')).rejects.toMatchObject({ reason: 'breaker_open' });
    trials[1]?.answer(renewed(clock));
    trials[2]?.answer(renewed(clock));
    await Promise.all(renewals);
    expect(client.breakerState).toBe('closed');
    expect(router.received).toHaveLength(3);
    await client.renew('CA9');
  });

  it('ignores responses to requests from before it opened', async () => {
    const all = await fixture({ retries: 0, timeoutMs: 60_000 });
    const { router, clock, client } = all;
    const { answers: late, renewals } = heldRenewals(all);
    const lateRenewals = renewals.map((renewal) => renewal.catch(() => {}));
    await eventually(() => expect(router.received).toHaveLength(3));
    router.otherwise = () => down;
    for (let i = 0; i < 5; i++) await client.renew('CA3').catch(() => {});
    late[0]?.answer(renewed(clock));
    await lateRenewals[0];
    expect(client.breakerState).toBe('open');
    clock.advance(30_000);
    expect(client.breakerState).toBe('half_open');
    late[1]?.answer(down);
    await lateRenewals[1];
    expect(client.breakerState).toBe('half_open');
    router.otherwise = () => renewed(clock);
    late[2]?.answer(renewed(clock));
    await lateRenewals[2];
    for (let i = 0; i < 2; i++) await client.renew('CA3');
    expect(client.breakerState).toBe('half_open');
  });

  it('gives the place of a cancelled trial to the next', async () => {
    const { router, clock, client } = await opened();
    clock.advance(30_000);
    router.queue.push('hang', 'hang', 'hang');
    const abort = new AbortController();
    const stuck = Promise.allSettled(
      ['CA1', 'CA2', 'CA3'].map((sid) => client.renew(sid, { signal: abort.signal })),
    );
    await eventually(() => expect(router.received).toHaveLength(3));
    abort.abort();
    await stuck;
    for (let i = 0; i < 3; i++) await client.renew('CA4');
    expect(client.breakerState).toBe('closed');
  });

  it('is not held up by a drain that waits', async () => {
    const { router, clock, client } = await opened();
    clock.advance(30_000);
    router.queue.push('hang');
    const drain = client.drain('agent-1', { wait: '10m' }).catch((thrown: unknown) => thrown);
    await eventually(() => expect(router.received).toHaveLength(1));
    for (let i = 0; i < 3; i++) await client.renew('CA1');
    expect(client.breakerState).toBe('closed');
    client.close();
    expect(await drain).toMatchObject({ code: 'client_closed' });
  });
});
