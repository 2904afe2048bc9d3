/**
 * Promises 13 and 16 over random merchants, weights and arrivals, and the cost of a hand-over. `PROPERTY_RUNS` sets the number
 * of runs.
 */
import fc from 'fast-check';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { PoolId } from '../../../src/config/tiers.js';
import { describeOneEngine } from '../../support/engines.js';
import { propertyRuns } from '../../support/property-runs.js';
import { holdRules, openStore, type TestStore } from '../../support/store.js';

const runs = propertyRuns(25);
const gold: PoolId[] = ['pool:gold'];

interface Merchant {
  name: string;
  weight: number;
  priority: number;
}

const weight = fc.oneof(fc.constantFrom(1, 1, 2, 3, 5, 10), fc.integer({ min: 1, max: 100 }));
const merchants = (priority: fc.Arbitrary<number>) =>
  fc
    .array(fc.record({ weight, priority }), { minLength: 2, maxLength: 6 })
    .map((all) => all.map((rules, i) => ({ name: `m${i}`, ...rules })));

describeOneEngine('the order of waiting calls', (engine) => {
  let store: TestStore;
  let arrivals: Map<string, number>;
  let live: string[];
  beforeEach(() => {
    live = [];
    arrivals = new Map();
  });
  afterEach(() => store.close());

  /** A store whose pods are all busy. */
  async function open(pods: number): Promise<void> {
    store?.close();
    await engine.redis.flushall();
    store = await openStore(engine.url, { virtualTime: true });
    const names = Array.from({ length: pods }, (_, i) => `pod-${i}`);
    await store.register(names, 'pool:gold');
    live = names.map((name) => `busy on ${name}`);
    for (const sid of live) await store.allocate(sid, gold);
    arrivals = new Map();
  }

  async function arrive({ name, weight, priority }: Merchant): Promise<void> {
    const count = arrivals.get(name) ?? 0;
    arrivals.set(name, count + 1);
    const hold = holdRules({ queue: name, weight, priority, maxWaitMs: 3_600_000 });
    await store.ask(`${name} ${count}`, gold, { merchantId: name, hold });
  }

  /** Ends a call and returns the merchant and the number of the call that got its pod. */
  async function serve(which: number): Promise<{ name: string; count: number }> {
    const [ended = ''] = live.splice(which % live.length, 1);
    const { podName } = await store.calls.release(ended);
    const [next = ''] = await engine.redis.zrange(`voice:pod:calls:${podName}`, 0, '0');
    live.push(next);
    const [name = '', count] = next.split(' ');
    return { name, count: Number(count) };
  }

  it('16: a merchant that always has a call waiting gets its weighted share, less one call', {
    timeout: 60_000 + runs * 2000,
  }, async () => {
    const scenario = fc.record({
      pods: fc.integer({ min: 1, max: 3 }),
      all: merchants(fc.constant(0)),
      ends: fc.array(fc.nat(), { minLength: 40, maxLength: 40 }),
    });
    await fc.assert(
      fc.asyncProperty(scenario, async ({ pods, all, ends }) => {
        await open(pods);
        for (const merchant of all) for (let i = 0; i < 2; i++) await arrive(merchant);
        const weights = all.reduce((sum, merchant) => sum + merchant.weight, 0);
        const served = new Map<string, number>();
        for (const [total, which] of ends.entries()) {
          const { name, count } = await serve(which);
          expect(count, `13: ${name} in order of arrival`).toBe(served.get(name) ?? 0);
          served.set(name, count + 1);
          await arrive(all.find((merchant) => merchant.name === name) as Merchant);
          for (const { name: other, weight: own } of all) {
            const share = (own / weights) * (total + 1);
            expect(served.get(other) ?? 0, `${other} of ${total + 1}`).toBeGreaterThanOrEqual(share - 1);
          }
        }
      }),
      { numRuns: runs },
    );
  });

  it('13: calls of a merchant get pods in order of arrival, and higher priorities before lower ones', {
    timeout: 60_000 + runs * 2000,
  }, async () => {
    const scenario = fc.record({
      pods: fc.integer({ min: 1, max: 3 }),
      all: merchants(fc.integer({ min: 0, max: 9 })),
      steps: fc.array(fc.record({ arrives: fc.array(fc.nat(), { maxLength: 3 }), ends: fc.nat() }), {
        minLength: 20,
        maxLength: 20,
      }),
    });
    await fc.assert(
      fc.asyncProperty(scenario, async ({ pods, all, steps }) => {
        await open(pods);
        const served = new Map<string, number>();
        const waits = ({ name }: Merchant) => (arrivals.get(name) ?? 0) > (served.get(name) ?? 0);
        for (const { arrives, ends } of steps) {
          for (const i of arrives) await arrive(all[i % all.length] as Merchant);
          const highest = Math.max(...all.filter(waits).map(({ priority }) => priority));
          // Otherwise the pod stays free, and the next call would not wait.
          if (!all.some(waits)) continue;
          const { name, count } = await serve(ends);
          expect(count, `${name} in order of arrival`).toBe(served.get(name) ?? 0);
          expect(all.find((merchant) => merchant.name === name)?.priority, name).toBe(highest);
          served.set(name, count + 1);
        }
      }),
      { numRuns: runs },
    );
  });

  it('a release with a hand-over runs as many commands with 10,000 waiting calls as with 10', async () => {
    await open(1);
    const commands = async (work: () => Promise<unknown>) => {
      await engine.redis.config('RESETSTAT');
      await work();
      const stats = await engine.redis.info('commandstats');
      const own = [...stats.matchAll(/^cmdstat_(\S+):calls=(\d+)/gm)];
      return own
        .flatMap(([, name = '', calls]) => (/^(config|info|eval)/.test(name) ? [] : [`${name} ${calls}`]))
        .sort();
    };
    const enter = async (count: number) => {
      const before = arrivals.size;
      // Half of them in one queue, which is served first, half in queues of their own. In pieces: 10,000 commands at once could
      // take longer than the timeout of one.
      for (let first = 0; first < count; first += 500) {
        const asks = Array.from({ length: Math.min(500, count - first) }, (_, i) => {
          const isBig = i % 2 === 0;
          const name = isBig ? 'big' : `small-${before + first + i}`;
          return arrive({ name, weight: isBig ? 100 : 1, priority: 0 });
        });
        await Promise.all(asks);
      }
    };
    const free = () => commands(() => store.calls.release(live[0] ?? ''));
    await enter(10);
    live = ['busy on pod-0'];
    const few = await free();
    const [handed = ''] = await engine.redis.zrange('voice:pod:calls:pod-0', 0, '0');
    expect(handed).not.toBe('');
    await enter(10_000);
    live = [handed];
    expect(await free()).toEqual(few);
  });
});
