/** Terms, epochs and the loops of a leader. Guarantee 9. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { describeEngines } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { intervals, type Leader, openLeader } from './fixture.js';

const { reconcileIntervalMs, cleanupIntervalMs } = intervals;
const waitFor = (check: () => void | Promise<void>) => vi.waitFor(check, { timeout: 40_000 });

describeEngines('the pool manager', (engine) => {
  const leaders: Leader[] = [];
  const open = async () => {
    const leader = await openLeader(engine.url);
    leader.source.set('a', 'b', 'c', 'd');
    leaders.push(leader);
    return leader;
  };
  let first: Leader;
  beforeEach(async () => {
    first = await open();
  });
  afterEach(async () => {
    for (const { manager, store } of leaders.splice(0)) {
      await manager.stop();
      store.close();
    }
  });

  const rounds = ({ manager }: Leader) =>
    Object.fromEntries(manager.loops.map((loop) => [loop.name, loop.rounds]));
  const started = async (leader: Leader) => {
    leader.manager.start();
    await waitFor(() => expect(rounds(leader).reconcile).toBe(1));
  };
  const warnings = ({ log }: Leader) => log.filter(({ level }) => level === 40).map(({ msg }) => msg);
  const assigned = async () =>
    (await first.store.calls.snapshot()).pools.reduce((sum, pool) => sum + pool.assigned, 0);

  it('starts with a full sync, then sweeps and syncs at their intervals', async () => {
    expect(first.manager.isLeader).toBe(false);
    await started(first);
    expect(first.manager.isLeader).toBe(true);
    expect(first.leading).toEqual([true]);
    expect(await assigned()).toBe(4);
    expect(rounds(first)).toMatchObject({ reconcile: 1, sweep: 0 });
    first.clock.advance(cleanupIntervalMs);
    await waitFor(() => expect(rounds(first)).toMatchObject({ reconcile: 1, sweep: 1 }));
    first.clock.advance(reconcileIntervalMs - cleanupIntervalMs);
    await waitFor(() => expect(rounds(first)).toMatchObject({ reconcile: 2, sweep: 2 }));
    expect(first.manager.loops.find(({ name }) => name === 'sweep')?.counts).toMatchObject({ pods: 4 });
  });

  it('takes one epoch per term for all its loops', async () => {
    await started(first);
    const epoch = await engine.redis.get('voice:leader:epoch');
    first.clock.advance(reconcileIntervalMs);
    await waitFor(() => expect(rounds(first)).toMatchObject({ reconcile: 2 }));
    expect(await engine.redis.get('voice:leader:epoch')).toBe(epoch);
  });

  it('ends expired calls although the cluster does not respond', async () => {
    await first.store.register(['left-over'], 'pool:gold');
    await engine.redis.del('voice:pool:gold:available');
    first.source.failure = new Error('the cluster does not answer');
    first.manager.start();
    await waitFor(() => expect(first.crashes).toEqual(['reconcile']));
    first.clock.advance(cleanupIntervalMs);
    await waitFor(() => expect(rounds(first).sweep).toBe(1));
    expect(await engine.redis.smembers('voice:pool:gold:available')).toEqual(['left-over']);
  });

  it('resumes when the source responds again', async () => {
    first.source.failure = new Error('the cluster does not answer');
    first.manager.start();
    await waitFor(() => expect(first.crashes).toHaveLength(1));
    first.source.failure = undefined;
    await waitFor(() => expect(first.clock.sleepsMs).toContain(1000));
    first.clock.advance(1000);
    await waitFor(() => expect(rounds(first).reconcile).toBe(1));
    expect(await assigned()).toBe(4);
  });

  it.each([
    ['reconcile', reconcileIntervalMs],
    ['sweep', cleanupIntervalMs],
  ])(
    'an older leader that is refused in its %s stops its pool work, warns once, and keeps serving',
    async (_, ms) => {
      await started(first);
      const second = await open();
      await started(second);
      expect(first.manager.isLeader).toBe(true);
      // A pod that only the older one would remove.
      first.source.set('a');
      first.clock.advance(ms);
      await waitFor(() => expect(first.manager.isLeader).toBe(false));
      expect(second.manager.isLeader).toBe(true);
      expect(first.leading).toEqual([true, false]);
      expect(warnings(first)).toEqual(['epoch refused: another replica is the leader; ending this term']);

      await waitFor(() => expect(first.manager.loops).toEqual([]));
      first.clock.advance(3 * reconcileIntervalMs);
      expect(await assigned()).toBe(4);
      expect(warnings(first)).toHaveLength(1);
      expect(first.crashes).toEqual([]);
      expect(await first.store.allocate('1', ['pool:gold'])).toBeDefined();
      expect(await second.store.calls.release('1')).toMatchObject({ activeCalls: 0 });
      expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
    },
  );

  it('a flush is healed with the next sync, in the same term', async () => {
    await started(first);
    const epoch = await engine.redis.get('voice:leader:epoch');
    await engine.redis.flushall();
    first.clock.advance(reconcileIntervalMs);
    await waitFor(() => expect(rounds(first).reconcile).toBe(2));
    expect(await assigned()).toBe(4);
    expect(await engine.redis.get('voice:leader:epoch')).toBe(epoch);
    expect(first.manager.isLeader).toBe(true);
  });

  it('after a flush the newer of two leaders wins, also if the older writes first', async () => {
    await started(first);
    const second = await open();
    await started(second);
    const epoch = await engine.redis.get('voice:leader:epoch');
    await engine.redis.flushall();
    first.clock.advance(reconcileIntervalMs);
    await waitFor(() => expect(rounds(first).reconcile).toBe(2));
    second.clock.advance(reconcileIntervalMs);
    await waitFor(() => expect(rounds(second).reconcile).toBe(2));
    first.clock.advance(reconcileIntervalMs);
    await waitFor(() => expect(first.manager.isLeader).toBe(false));
    expect(second.manager.isLeader).toBe(true);
    expect(await engine.redis.get('voice:leader:epoch')).toBe(epoch);
  });

  it('a stop ends its loops and its leadership', async () => {
    await started(first);
    await first.manager.stop();
    expect(first.leading.at(-1)).toBe(false);
    expect(first.manager.loops).toEqual([]);
    expect(first.clock.sleepsMs).toEqual([]);
  });
});
