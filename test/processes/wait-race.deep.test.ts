/**
 * Three routers, five pods, 200 callers that wait, and routers that are killed all the time. Promises 12 to 14: every caller
 * is served, in order within its merchant, no pod has two calls, and nothing is left behind.
 */
import { expect, it } from 'vitest';
import { recordHistory } from '../history/recording.js';
import { describeOneEngine } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import {
  type Answer,
  isIdle,
  pause,
  type RouterProcess,
  release,
  renew,
  startRouter,
  until,
  untilServing,
} from '../support/processes.js';
import { followEvents, overtakings, replay, seeded } from './history.js';

const callers = 200;
const podCount = 5;
const limits = { 'pool:gold': 1 };
const env = {
  TIER_CONFIG: JSON.stringify({
    tiers: { gold: { type: 'exclusive', target: podCount } },
    default_chain: ['gold'],
    hold: { max_wait: '5m', max_waiting: 1000 },
  }),
  STATIC_PODS: Array.from({ length: podCount }, (_, i) => `agent-${i}`).join(','),
  CLEANUP_INTERVAL: '500ms',
  RECONCILE_INTERVAL: '1s',
  // The two cores are busy with three routers: a slow answer is not what this test is about.
  REQUEST_TIMEOUT: '30s',
  REDIS_COMMAND_TIMEOUT: '30s',
};
const merchants = [undefined, 'acme', 'zenith'];

describeOneEngine('three routers with waiting callers', (engine) => {
  it('serve 200 callers on five pods in order, although routers are killed all the time', {
    timeout: 180_000,
  }, async () => {
    const seed = Math.floor(Math.random() * 2 ** 32);
    const random = seeded(seed);
    const recorded = recordHistory({ pools: { 'pool:gold': { kind: 'exclusive' } }, lease_ms: 900_000 });
    const start = async () => recorded.of(await startRouter({ ...env, REDIS_URL: engine.url }));
    const routers = [await start(), await start(), await start()];
    for (const router of routers) await untilServing(router, podCount);
    for (const [i, merchant] of merchants.slice(1).entries())
      await routers[0]?.put(`/api/v1/merchants/${merchant}`, { tier: 'gold', weight: 3 * i + 1 });
    // A router that does not know a merchant yet puts its calls into the shared queue.
    for (const router of routers)
      await until('every router knows the merchants', async () => {
        const { status } = await router.get('/api/v1/merchants/zenith');
        return status === 200;
      });
    const events = followEvents(engine.url);
    const problems: string[] = [];
    let served = 0;

    /** Repeats a request until a router has answered it: a killed one answers nothing, a new one 503 for a while. */
    const ask = async (act: (router: RouterProcess) => Promise<Answer>): Promise<Answer> => {
      for (;;) {
        const router = routers[Math.floor(random() * routers.length)] as RouterProcess;
        const answer = await act(router);
        const isRefused = ['store_unavailable', 'overloaded', 'shutting_down'].includes(
          answer.body.code ?? '',
        );
        if (answer.status !== 0 && !isRefused) return answer;
        await pause(random() * 50);
      }
    };
    const call = async (sid: string, merchant: string | undefined) => {
      const request = {
        call_sid: sid,
        ...(merchant === undefined ? {} : { merchant_id: merchant }),
        wait: '5s',
      };
      let answer = await ask((router) => router.post('/api/v1/allocate', request));
      while (answer.status === 202) answer = await ask((router) => router.post('/api/v1/allocate', request));
      const { fence = 0 } = answer.body;
      if (answer.status !== 200) problems.push(`${sid}: ${answer.text}`);
      await pause(random() * 200);
      // A renewed call is a served one: a pod whose calls all end at once would be set back.
      await ask((router) => renew(router, sid, fence));
      const { status, text } = await ask((router) => release(router, sid, fence));
      // 404: the router was killed after the release.
      if (status !== 200 && status !== 404) problems.push(`${sid}: ${text}`);
      served += 1;
    };
    const all = Promise.all(
      Array.from({ length: callers }, (_, i) => call(`CA-${i}`, merchants[i % merchants.length])),
    );
    let kills = 0;
    for (; served < callers && problems.length === 0; kills++) {
      await pause(300 + random() * 1000);
      const victim = Math.floor(random() * routers.length);
      await routers[victim]?.signal('SIGKILL');
      routers[victim] = await start();
    }
    await all;
    expect(problems, `seed ${seed}`).toEqual([]);
    expect(kills).toBeGreaterThan(0);
    expect((await recorded.verdict()).violations, `seed ${seed}`).toEqual([]);

    for (const router of routers) await until('every pod is free', () => isIdle(router));
    const history = await events.all();
    expect(overtakings(history), `seed ${seed}`).toEqual([]);
    expect(replay(history, limits), `seed ${seed}`).toMatchObject({ violations: [], live: 0 });
    expect(history.filter(({ type }) => type === 'call_assigned').length).toBeGreaterThan(callers / 2);
    expect(
      await engine.redis.exists('voice:waiting:due', 'voice:waiting:queues', 'voice:pool:gold:waiting'),
    ).toBe(0);
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
  });
});
