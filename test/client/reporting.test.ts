import { describe, expect, it } from 'vitest';
import { InvalidArgumentError } from '../../src/client/index.js';
import {
  deferred,
  eventually,
  type Fixture,
  failure,
  fixture,
  leaseMs,
  released,
  renewed,
  reported,
} from './scripted-router.js';

const reportPath = '/api/v1/pod/agent-1/report';

function failures(events: Fixture['events']): number[] {
  return events.flatMap((event) => (event.type === 'report_failed' ? [event.retryInMs] : []));
}

describe('attach', () => {
  it('renews at once, to learn the lease, then at a third of it, with the fence', async () => {
    const { router, clock, client } = await fixture();
    router.otherwise = () => renewed(clock);
    clock.nextRandom = 1;
    const call = client.attach({ callSid: 'CA1', fence: 9 });
    expect(call).toMatchObject({ fence: 9, leaseExpiresAt: null, podName: null });
    call.keepAlive();
    clock.advance(0);
    await eventually(() => expect(clock.timersMs).toEqual([leaseMs / 3]));
    expect(router.received.map((request) => request.body)).toEqual([{ call_sid: 'CA1', fence: 9 }]);
  });

  it('releases with the fence', async () => {
    const { router, client } = await fixture();
    router.queue.push(released);
    await client.attach({ callSid: 'CA1', fence: 9 }).release();
    expect(router.received[0]?.body).toEqual({ call_sid: 'CA1', fence: 9 });
  });

  it('works without a fence until a report brings it', async () => {
    const { router, clock, client } = await fixture();
    const call = client.attach({ callSid: 'CA1' });
    router.queue.push(renewed(clock), reported({ renewed: ['CA1'], fences: { CA1: 12 } }), renewed(clock));
    await call.renew();
    await client.report('agent-1', ['CA1']);
    await call.renew();
    expect(router.bodies('/api/v1/renew')).toEqual([{ call_sid: 'CA1' }, { call_sid: 'CA1', fence: 12 }]);
  });

  it('accepts the null fence of a fallback call as no fence', async () => {
    const { router, clock, client, another } = await fixture();
    const fallbackUrl = 'wss://fallback.example.com/ws';
    router.queue.push('reset', renewed(clock), released);
    const { callSid, fence } = await another({ fallbackUrl, retries: 0 }).allocate({ callSid: 'CA1' });
    const call = client.attach({ callSid, fence });
    expect(call.fence).toBeNull();
    await call.renew();
    await call.release();
    expect(router.bodies('/api/v1/renew')).toEqual([{ call_sid: 'CA1' }]);
    expect(router.bodies('/api/v1/release')).toEqual([{ call_sid: 'CA1' }]);
  });

  it('refuses an invalid fence', async () => {
    const { client } = await fixture();
    expect(() => client.attach({ callSid: 'CA1', fence: '9' as never })).toThrow(InvalidArgumentError);
  });
});

describe('the answer of a report', () => {
  it('raises the fence of an adopted call, and never lowers it', async () => {
    const { router, client } = await fixture();
    const call = client.attach({ callSid: 'CA1', fence: 9 });
    router.queue.push(
      reported({ adopted: ['CA1'], fences: { CA1: 20 } }),
      reported({ fences: { CA1: 15 } }),
      released,
    );
    await client.report('agent-1', ['CA1']);
    await client.report('agent-1', ['CA1']);
    expect(call.fence).toBe(20);
    await call.release();
    expect(router.received.at(-1)?.body).toEqual({ call_sid: 'CA1', fence: 20 });
  });

  it('aborts lost for a conflict', async () => {
    const { router, clock, client } = await fixture();
    const call = client.attach({ callSid: 'CA1', fence: 9 });
    router.otherwise = () => reported({ conflicts: ['CA1'] });
    call.keepAlive({ intervalMs: 1000 });
    await client.report('agent-1', ['CA1']);
    expect(call.lost.reason).toMatchObject({ reason: 'conflict' });
    expect(clock.timersMs).toEqual([]);
  });

  it('means nothing to a handle that has been let go', async () => {
    const { router, client } = await fixture();
    const call = client.attach({ callSid: 'CA1', fence: 9 });
    call.detach();
    router.queue.push(reported({ conflicts: ['CA1'], fences: { CA1: 30 } }));
    await client.report('agent-1', ['CA1']);
    expect(call.fence).toBe(9);
    expect(call.lost.aborted).toBe(false);
  });

  it('leaves handles of other pods alone', async () => {
    const { router, client } = await fixture();
    const call = client.attach({ callSid: 'CA1', fence: 9, podName: 'agent-2' });
    router.queue.push(reported({ conflicts: ['CA1'], fences: { CA1: 30 } }));
    await client.report('agent-1', ['CA1']);
    expect(call.lost.aborted).toBe(false);
    expect(call.fence).toBe(9);
  });

  it('does not lose a call to the 409 of an old renewal after its adoption', async () => {
    const { router, clock, client, events } = await fixture();
    const renewal = deferred();
    router.queue.push(renewal.reply, reported({ adopted: ['CA1'], fences: { CA1: 20 } }));
    router.otherwise = () => renewed(clock);
    const call = client.attach({ callSid: 'CA1', fence: 9 });
    call.keepAlive();
    clock.advance(0);
    await eventually(() => expect(router.received).toHaveLength(1));
    await client.report('agent-1', ['CA1']);
    renewal.answer(failure(409, 'stale_fence'));
    await eventually(() => expect(events.at(-1)).toMatchObject({ type: 'renew_failed' }));
    await eventually(() => expect(clock.timersMs).toHaveLength(1));
    clock.advance(1000);
    await eventually(() =>
      expect(router.bodies('/api/v1/renew').at(-1)).toEqual({ call_sid: 'CA1', fence: 20 }),
    );
    expect(call.lost.aborted).toBe(false);
  });
});

describe('startReporting', () => {
  it('reports at once and then every interval, each time with the calls of that moment', async () => {
    const { router, clock, client } = await fixture();
    router.otherwise = () => reported();
    clock.nextRandom = 1;
    const serving: string[] = [];
    const reporter = client.startReporting('agent-1', () => serving, { uid: 'u1' });
    clock.advance(0);
    for (let turn = 1; turn <= 3; turn++) {
      await eventually(() => expect(clock.timersMs).toEqual([10_000]));
      serving.push(`CA${turn}`);
      clock.advance(10_000);
      await eventually(() => expect(router.bodies(reportPath)).toHaveLength(turn + 1));
    }
    expect(router.bodies(reportPath)).toEqual([
      { calls: [], uid: 'u1', interval_ms: 10_000 },
      { calls: ['CA1'], uid: 'u1', interval_ms: 10_000 },
      { calls: ['CA1', 'CA2'], uid: 'u1', interval_ms: 10_000 },
      { calls: ['CA1', 'CA2', 'CA3'], uid: 'u1', interval_ms: 10_000 },
    ]);
    reporter.stop();
  });

  it.each([
    [1, 100],
    [600_000, 600_000],
    [600_001, undefined],
  ])('an interval of %i ms is sent as the router takes it: %s', async (intervalMs, sent) => {
    const { router, client } = await fixture();
    router.otherwise = () => reported();
    await client.report('agent-1', [], { intervalMs });
    expect(router.bodies(reportPath)).toEqual([{ calls: [], ...(sent && { interval_ms: sent }) }]);
  });

  it('names conflicts and adopted calls, and continues when a callback throws', async () => {
    const { router, clock, client, events } = await fixture();
    router.otherwise = () => reported({ conflicts: ['CA1'], adopted: ['CA2'] });
    const told: unknown[] = [];
    client.startReporting('agent-1', () => ['CA1', 'CA2'], {
      onConflict: (callSids) => {
        told.push(['conflict', callSids]);
        throw new Error('broken callback');
      },
      onAdopted: (callSids) => told.push(['adopted', callSids]),
    });
    clock.advance(0);
    await eventually(() => expect(clock.timersMs).toEqual([8000]));
    expect(told).toEqual([
      ['conflict', ['CA1']],
      ['adopted', ['CA2']],
    ]);
    expect(events).toContainEqual(
      expect.objectContaining({ type: 'callback_failed', callback: 'onConflict' }),
    );
  });

  it('leaves out SIDs that the router would reject, names them as conflicts, and renews the others', async () => {
    const { router, clock, client } = await fixture();
    router.otherwise = () => reported({ conflicts: [] });
    const conflicts: unknown[] = [];
    client.startReporting('agent-1', () => ['CA1', 'a\u0000b', 'CA\ud800', ''], {
      onConflict: (callSids) => conflicts.push(callSids),
    });
    clock.advance(0);
    await eventually(() => expect(clock.timersMs).toEqual([8000]));
    expect(router.bodies(reportPath)).toMatchObject([{ calls: ['CA1'] }]);
    expect(conflicts).toEqual([['a\u0000b', 'CA\ud800', '']]);
    await expect(client.report('agent-1', ['CA\ud800'])).rejects.toThrow(InvalidArgumentError);
  });

  it('repeats a failed report sooner, but never later than the interval', async () => {
    const { router, clock, client, events } = await fixture();
    clock.nextRandom = 0.5;
    router.queue.push('reset', failure(404, 'pod_not_found'), failure(500, 'internal'));
    router.otherwise = () => failure(404, 'pod_not_found');
    client.startReporting('agent-1', () => [], { intervalMs: 5000 });
    clock.advance(0);
    for (let turn = 1; turn <= 5; turn++) {
      await eventually(() => expect(failures(events)).toHaveLength(turn));
      expect(router.received).toHaveLength(turn);
      await eventually(() => expect(clock.timersMs).toHaveLength(1));
      clock.advance(failures(events)[turn - 1] ?? 0);
    }
    expect(failures(events)).toEqual([500, 1000, 2000, 2500, 2500]);
    expect(clock.sleepsMs).toEqual([]);
  });

  it.each<[string, () => string[]]>([
    [
      'throws',
      () => {
        throw new Error('not ready');
      },
    ],
    ['gives no list', () => undefined as never],
    ['gives a promise', () => Promise.resolve([]) as never],
  ])('sends nothing when the list of calls %s: an empty one would end every call', async (_what, list) => {
    const { router, clock, client, events } = await fixture();
    client.startReporting('agent-1', list);
    clock.advance(0);
    await eventually(() => expect(failures(events)).toHaveLength(1));
    expect(router.received).toHaveLength(0);
  });

  it('ends with stop, which cancels a report in flight', async () => {
    const { router, clock, client, events } = await fixture();
    router.otherwise = () => 'hang';
    const reporter = client.startReporting('agent-1', () => []);
    clock.advance(0);
    await eventually(() => expect(router.inFlight).toBe(1));
    reporter.stop();
    await eventually(() => expect(router.inFlight).toBe(0));
    expect(clock.timersMs).toEqual([]);
    expect(events).toEqual([]);
  });

  it('reports on demand, never beside another report', async () => {
    const { router, clock, client } = await fixture();
    const first = deferred();
    router.queue.push(first.reply);
    router.otherwise = () => reported({ renewed: ['CA1'] });
    const reporter = client.startReporting('agent-1', () => ['CA1']);
    clock.advance(0);
    await eventually(() => expect(router.received).toHaveLength(1));
    const second = reporter.runOnce();
    // Round trips in which a second report would have arrived.
    for (let i = 0; i < 5; i++) await client.undrain('agent-1');
    expect(router.bodies(reportPath)).toHaveLength(1);
    first.answer(reported());
    expect((await second).renewed).toEqual(['CA1']);
    expect(router.bodies(reportPath)).toHaveLength(2);
  });
});
