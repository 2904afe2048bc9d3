/**
 * The audit of a store under full load: replicas and a leader run all operations at once. Every finding would be a false
 * alarm, because all operations are atomic.
 */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Auditor } from '../../../src/calls/audit/auditor.js';
import type { AuditReport } from '../../../src/calls/audit/findings.js';
import type { PoolId } from '../../../src/config/tiers.js';
import { AppError } from '../../../src/errors.js';
import { describeEngines } from '../../support/engines.js';
import { checkInvariants } from '../../support/invariants.js';
import { holdRules, openStore, type TestStore } from '../../support/store.js';
import { connectWithTimeout } from '../short-timeout.js';

const names = (prefix: string, count: number) => Array.from({ length: count }, (_, i) => `${prefix}-${i}`);
const homes: Record<string, PoolId> = {
  ...Object.fromEntries(names('g', 120).map((pod) => [pod, 'pool:gold'])),
  ...Object.fromEntries(names('b', 60).map((pod) => [pod, 'pool:basic'])),
  ...Object.fromEntries(names('v', 10).map((pod) => [pod, 'merchant:vip'])),
};
const pods = Object.keys(homes);
const calls = names('call', 300);
const chains: PoolId[][] = [['pool:gold', 'pool:basic'], ['merchant:vip', 'pool:gold'], ['pool:basic']];
const merchants = ['', 'one', 'two', 'three'];
const pick = <T>(all: readonly T[]): T => all[Math.floor(Math.random() * all.length)] as T;

describeEngines('the live audit', (engine) => {
  let stores: TestStore[] = [];
  beforeEach(async () => {
    // Leases expire all the time. Records do not: on a busy machine a sweep may come more than 5 s after a lease expired.
    const times = {
      ...{ leaseTtlMs: 60, reportGraceMs: 50, drainingTtlMs: 40 },
      ...{ holdClaimTtlMs: 30, holdPollIntervalMs: 20 },
    };
    for (let i = 0; i < 3; i++) stores.push(await openStore(engine.url, { times }));
    for (const pool of new Set(Object.values(homes)))
      await stores[2]?.register(
        pods.filter((pod) => homes[pod] === pool),
        pool,
      );
  });
  afterEach(() => {
    for (const store of stores) store.close();
    stores = [];
  });

  /** Runs random operations until `isOver`. */
  async function hammer(store: TestStore, isOver: () => boolean): Promise<number> {
    const epoch = stores[2]?.epoch ?? '';
    const sweeps = ['calls', 'pods', 'available'] as const;
    const wait = () => {
      const [queue, priority] = [pick(merchants), pick([0, 5])];
      const hold = holdRules({ queue, priority, weight: pick([1, 7]), maxWaitMs: pick([20, 200]) });
      return store.ask(pick(calls), pick(chains), { merchantId: queue, hold });
    };
    const operations: (() => Promise<unknown>)[] = [
      wait,
      wait,
      wait,
      () => store.waits.serve(),
      () => store.waits.refresh([pick(calls), pick(calls)]),
      () => {
        const rules = { queue: pick(merchants), chain: pick(chains).join(' '), priority: 0, weight: 3 };
        return store.waits.serve([rules]);
      },
      () => store.connection.run('setMerchant', [pick(['two', 'three']), '{}', 'test', pick(['', 1, 4, 30])]),
      () => store.allocate(pick(calls), pick(chains)),
      () => store.allocate(pick(calls), pick(chains)),
      () => store.allocate(pick(calls), pick(chains)),
      () => store.calls.release(pick(calls)),
      () => store.calls.release(pick(calls)),
      () => store.calls.renew(pick(calls)),
      () => store.calls.report(pick(pods), [pick(calls), pick(calls)]),
      () => store.calls.drain(pick(pods)),
      () => store.calls.undrain(pick(pods)),
      // Limits are lowered under the calls, and pools change their type.
      () => {
        const [gold, basic] = [pick(['exclusive', 'shared:2']), pick(['shared:3', 'shared:2', 'shared:1'])];
        const kinds = ['pool:gold', gold, 'pool:basic', basic, 'merchant:vip', 'exclusive'];
        return store.connection.run('setTiers', [`${gold} ${basic}`, 'replace', '', 'test', ...kinds]);
      },
      () => store.pools.suspend(epoch, 'not_ready', [pick(pods)]),
      () => store.pools.remove(epoch, [pick(pods)], 'test'),
      () => store.pools.sweep(epoch, pick(Object.values(homes)), pick(sweeps), '0', 100),
      ...[1, 2].map(() => () => {
        const pod = pick(pods);
        // Now and then into another pool.
        return (
          stores[2]?.register(
            [pod],
            Math.random() < 0.2 ? pick(Object.values(homes)) : (homes[pod] as PoolId),
          ) ?? Promise.resolve()
        );
      }),
    ];
    let done = 0;
    while (!isOver()) {
      await pick(operations)().catch((error: unknown) => {
        if (!(error instanceof AppError) || error.code === 'internal') throw error;
      });
      done += 1;
    }
    return done;
  }

  it('reports no violation while three replicas run all operations at once', {
    timeout: 120_000,
  }, async () => {
    const reports: AuditReport[] = [];
    let isOver = false;
    const work = stores.flatMap((store) => [1, 2, 3, 4].map(() => hammer(store, () => isOver)));
    const auditor = new Auditor((stores[0] as TestStore).connection);
    try {
      for (let round = 0; round < 30; round++) reports.push(await auditor.audit());
    } finally {
      isOver = true;
    }
    const done = (await Promise.all(work)).reduce((sum, count) => sum + count, 0);
    expect(reports.flatMap(({ violations }) => violations)).toEqual([]);
    expect(reports.every((report) => report.complete && report.violation_count === 0)).toBe(true);
    // The store was not idle.
    expect(done).toBeGreaterThan(1000);
    expect(Math.max(...reports.map((report) => report.looked_at.calls))).toBeGreaterThan(20);
    expect(await checkInvariants(engine.redis, { maxLowered: true })).toEqual([]);
  });

  it('a request during an audit gets the next audit, which sees later changes', async () => {
    const auditor = new Auditor((stores[0] as TestStore).connection);
    const [first, same] = [auditor.audit(), auditor.audit()];
    expect(await first).toBe(await same);
    const running = auditor.audit();
    await new Promise(setImmediate); // It has started; the store has not answered yet.
    const next = [auditor.audit(), auditor.audit()];
    const [before, one, other] = await Promise.all([running, ...next]);
    expect(one).not.toBe(before);
    expect(one).toBe(other);
  });

  it('reports a stopped audit as incomplete', async () => {
    const auditor = new Auditor((stores[0] as TestStore).connection, AbortSignal.abort());
    expect(await auditor.audit()).toMatchObject({ complete: false, violation_count: 0 });
  });

  it('rejects while the store does not answer', async () => {
    const hasty = await connectWithTimeout(engine.url, 300);
    await engine.pause();
    await expect(new Auditor(hasty).audit()).rejects.toMatchObject({ code: 'store_unavailable' });
    await engine.resume();
  });
});
