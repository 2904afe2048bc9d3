import { describe, expect, it } from 'vitest';
import {
  CallLostError,
  CallNotFoundError,
  type RoutedCall,
  StaleFenceError,
} from '../../src/client/index.js';
import {
  allocated,
  deferred,
  eventually,
  type Fixture,
  failure,
  fixture,
  leaseMs,
  released,
  renewed,
} from './scripted-router.js';

const renewPath = '/api/v1/renew';
const releasePath = '/api/v1/release';

async function withCall(more: Record<string, unknown> = {}): Promise<Fixture & { call: RoutedCall }> {
  const all = await fixture();
  all.router.queue.push(allocated(all.clock, more));
  const call = await all.client.allocate({ callSid: 'CA1' });
  if (call.fallback) throw new Error('expected a pod');
  return { ...all, call };
}

describe('keepAlive', () => {
  it('renews at a third of the lease, again and again, always with the fence', async () => {
    const { router, clock, call } = await withCall();
    router.otherwise = () => renewed(clock);
    clock.nextRandom = 1;
    call.keepAlive();
    for (let turn = 1; turn <= 4; turn++) {
      await eventually(() => expect(clock.timersMs).toEqual([leaseMs / 3]));
      clock.advance(leaseMs / 3 - 1);
      expect(router.bodies(renewPath)).toHaveLength(turn - 1);
      clock.advance(1);
      await eventually(() => expect(router.bodies(renewPath)).toHaveLength(turn));
    }
    await eventually(() => expect(call.leaseExpiresAt.getTime()).toBe(clock.now() + leaseMs));
    expect(router.bodies(renewPath)).toEqual(Array(4).fill({ call_sid: 'CA1', fence: 41 }));
  });

  it('comes up to a fifth earlier, by chance, and never later', async () => {
    const { clock, call } = await withCall();
    clock.nextRandom = 0;
    call.keepAlive();
    expect(clock.timersMs).toEqual([(leaseMs / 3) * 0.8]);
  });

  it('takes the length of the lease from the store’s times, independent of the local clock', async () => {
    const { clock, call } = await withCall({
      allocated_at: '2001-01-01T00:00:00.000Z',
      lease_expires_at: '2001-01-01T00:01:00.000Z',
    });
    clock.nextRandom = 1;
    call.keepAlive();
    expect(clock.timersMs).toEqual([20_000]);
  });

  it('keeps sane intervals when an existing call and a wrong clock leave it guessing', async () => {
    for (const [expiresAt, expectedMs] of [
      ['2001-01-01T00:00:00.000Z', 1000],
      ['2099-01-01T00:00:00.000Z', 300_000],
    ] as const) {
      const { clock, call } = await withCall({ was_existing: true, lease_expires_at: expiresAt });
      clock.nextRandom = 1;
      call.keepAlive();
      expect(clock.timersMs).toEqual([expectedMs]);
    }
  });

  it('starts with autoRenew, and only once when called twice', async () => {
    const { router, clock, client } = await fixture();
    router.queue.push(allocated(clock));
    const call = await client.allocate({ callSid: 'CA1' }, { autoRenew: true });
    call.keepAlive();
    expect(clock.timersMs).toHaveLength(1);
  });

  it('uses a given interval', async () => {
    const { clock, call } = await withCall();
    clock.nextRandom = 1;
    call.keepAlive({ intervalMs: 4000 });
    expect(clock.timersMs).toEqual([4000]);
  });

  it.each([
    ['the call has ended', failure(404, 'call_not_found'), 'ended', CallNotFoundError],
    ['a later claim holds it', failure(409, 'stale_fence'), 'stale_fence', StaleFenceError],
  ] as const)('stops and aborts lost when %s', async (_what, reply, reason, cause) => {
    const { router, clock, call, events } = await withCall();
    router.queue.push(reply);
    call.keepAlive();
    clock.advanceToNext();
    await eventually(() => expect(call.lost.aborted).toBe(true));
    expect(call.lost.reason).toBeInstanceOf(CallLostError);
    expect(call.lost.reason).toMatchObject({ callSid: 'CA1', reason });
    expect(call.lost.reason.cause).toBeInstanceOf(cause);
    expect(events.filter((event) => event.type === 'lost')).toEqual([
      { type: 'lost', callSid: 'CA1', reason },
    ]);
    expect(clock.timersMs).toEqual([]);
    call.keepAlive();
    expect(clock.timersMs).toEqual([]);
  });

  it('continues through outages, rejections and an open breaker until it is released', async () => {
    const { router, clock, call, events } = await withCall();
    clock.nextRandom = 0.5;
    const replies = [
      'reset',
      failure(500, 'internal'),
      failure(401, 'unauthorized'),
      { text: '<html>' },
    ] as const;
    let next = 0;
    router.otherwise = () => replies[next++ % replies.length] ?? 'reset';
    call.keepAlive();
    const retries = () => events.flatMap((event) => (event.type === 'renew_failed' ? [event.retryInMs] : []));
    clock.advanceToNext();
    for (let turn = 1; turn <= 9; turn++) {
      await eventually(() => expect(retries()).toHaveLength(turn));
      await eventually(() => expect(clock.timersMs).toHaveLength(1));
      clock.advance(retries()[turn - 1] ?? 0);
    }
    expect(retries()).toEqual([500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000, 15_000]);
    expect(call.lost.aborted).toBe(false);
    router.otherwise = () => released;
    await eventually(() => expect(clock.timersMs).toHaveLength(1));
    expect(await call.release()).toMatchObject({ released: true });
    expect(clock.timersMs).toEqual([]);
  });

  it('never sleeps in a way that keeps the process alive, not even between failed renewals', async () => {
    const { router, clock, call, events } = await withCall();
    clock.nextRandom = 0.5;
    router.otherwise = () => 'reset';
    call.keepAlive();
    clock.advanceToNext();
    await eventually(() => expect(events.at(-1)).toMatchObject({ type: 'renew_failed' }));
    expect(clock.sleepsMs).toEqual([]);
  });

  it('survives a listener that throws', async () => {
    const { router, clock, another } = await fixture();
    const client = another({
      onEvent: () => {
        throw new Error('broken listener');
      },
    });
    router.queue.push(allocated(clock));
    router.otherwise = () => renewed(clock);
    await client.allocate({ callSid: 'CA1' }, { autoRenew: true });
    for (let turn = 1; turn <= 2; turn++) {
      await eventually(() => expect(clock.timersMs).toEqual([(leaseMs / 3) * 0.8]));
      clock.advanceToNext();
      await eventually(() => expect(router.bodies(renewPath)).toHaveLength(turn));
    }
  });
});

describe('renew of a handle', () => {
  it('renews the lease, and aborts lost when the call has ended', async () => {
    const { router, clock, call } = await withCall();
    clock.advance(60_000);
    router.queue.push(renewed(clock), failure(409, 'stale_fence'));
    await call.renew();
    expect(call.leaseExpiresAt.getTime()).toBe(clock.now() + leaseMs);
    await expect(call.renew()).rejects.toThrow(StaleFenceError);
    expect(call.lost.aborted).toBe(true);
  });
});

describe('release of a handle', () => {
  it('sends the fence, stops renewing, and does not abort lost', async () => {
    const { router, clock, call } = await withCall();
    call.keepAlive();
    router.queue.push(released);
    expect(await call.release()).toEqual({
      released: true,
      podName: 'agent-1',
      releasedToPool: 'pool:gold',
      wasDraining: false,
    });
    expect(router.bodies(releasePath)).toEqual([{ call_sid: 'CA1', fence: 41 }]);
    expect(clock.timersMs).toEqual([]);
    expect(call.lost.aborted).toBe(false);
  });

  it('gives null as pool when the pod takes no calls', async () => {
    const { router, call } = await withCall();
    router.queue.push({
      json: { success: true, pod_name: 'agent-1', released_to_pool: null, was_draining: true },
    });
    expect(await call.release()).toMatchObject({ released: true, releasedToPool: null, wasDraining: true });
  });

  it.each([
    ['has ended already', failure(404, 'call_not_found'), 'already_ended'],
    ['belongs to a later claim', failure(409, 'stale_fence'), 'not_ours'],
  ] as const)('is a result, not an error, when the call %s', async (_what, reply, reason) => {
    const { router, call } = await withCall();
    router.queue.push(reply);
    expect(await call.release()).toEqual({ released: false, reason });
  });

  it('cancels a renewal in flight, whose answer then means nothing', async () => {
    const { router, clock, call } = await withCall();
    const renewal = deferred();
    router.queue.push(renewal.reply, released);
    call.keepAlive();
    clock.advanceToNext();
    await eventually(() => expect(router.bodies(renewPath)).toHaveLength(1));
    await call.release();
    renewal.answer(failure(404, 'call_not_found'));
    await eventually(() => expect(router.inFlight).toBe(0));
    expect(call.lost.aborted).toBe(false);
    expect(clock.timersMs).toEqual([]);
  });

  it('is sent once for callers at the same time and afterwards', async () => {
    const { router, call } = await withCall();
    router.queue.push(released);
    const results = await Promise.all([call.release(), call.release()]);
    results.push(await call.release());
    expect(results.every((result) => result.released)).toBe(true);
    expect(router.bodies(releasePath)).toHaveLength(1);
  });

  it('is retried while the router is down, gives up, and may be called again', async () => {
    const { router, call } = await withCall();
    router.queue.push('reset', 'reset', 'reset', 'reset', released);
    await expect(call.release()).rejects.toMatchObject({ name: 'RouterUnavailableError', attempts: 4 });
    expect(await call.release()).toMatchObject({ released: true });
    expect(router.bodies(releasePath)).toEqual(Array(5).fill({ call_sid: 'CA1', fence: 41 }));
  });
});

describe('detach', () => {
  it('stops renewing and sends nothing', async () => {
    const { router, clock, call } = await withCall();
    call.keepAlive();
    call.detach();
    expect(clock.timersMs).toEqual([]);
    expect(call.lost.aborted).toBe(false);
    expect(router.received).toHaveLength(1);
  });
});
