/**
 * The store loses everything while calls run. Pools are restored from the cluster, live calls from the reports of
 * their pods, and a pod that must report first never gets a second call while its own is alive.
 */
import { expect, it, onTestFinished } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { openFleet } from '../support/fleet.js';
import { checkInvariants } from '../support/invariants.js';
import { pause } from '../support/processes.js';
import type { TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const podCount = 8;
const reconcileMs = 1000;
const reportEveryMs = 100;

/** A voice agent: it knows the calls it serves, independent of the store. */
class Agent {
  readonly calls = new Set<string>();
  readonly violations: string[] = [];
  constructor(
    readonly name: string,
    readonly uid: string,
  ) {}

  begin(sid: string): void {
    if (this.calls.size > 0) this.violations.push(`${this.name} got ${sid} beside ${[...this.calls]}`);
    this.calls.add(sid);
  }

  async report(router: TestRouter): Promise<number> {
    const body = { calls: [...this.calls], uid: this.uid };
    const answer = await router.post(`/pod/${this.name}/report`, body);
    // It drops a call that ended or that another pod has.
    for (const sid of answer.body?.conflicts ?? []) this.calls.delete(sid);
    return answer.body?.adopted?.length ?? 0;
  }
}

describeOneEngine('losing all of the store under load', (engine) => {
  it('restores pools and live calls, gives no pod two calls, and fences and epochs only grow', async () => {
    const fleet = await openFleet(engine.url);
    const agents = new Map<string, Agent>();
    for (let i = 0; i < podCount; i++) {
      const { metadata } = fleet.cluster.pods.create({
        name: `agent-${i}`,
        annotations: { 'smart-router/report': 'required' },
      });
      agents.set(metadata.name, new Agent(metadata.name, metadata.uid));
    }
    const routers = [
      await fleet.startHere('r-0', { RECONCILE_INTERVAL: `${reconcileMs}ms`, REPORT_GRACE: '3s' }),
      await fleet.startHere('r-1', { RECONCILE_INTERVAL: `${reconcileMs}ms`, REPORT_GRACE: '3s' }),
    ];
    const any = () => routers[Math.floor(Math.random() * routers.length)] as TestRouter;

    let over = false;
    let isLost = false;
    let adopted = 0;
    let served = 0;
    const fences: number[] = [];
    const reporting = [...agents.values()].map(async (agent) => {
      while (!over) {
        adopted += await agent.report(any());
        await pause(reportEveryMs);
      }
    });
    const calling = Array.from({ length: 12 }, async (_, caller) => {
      for (let i = 0; !over; i++) {
        const sid = `call-${caller}-${i}`;
        const { status, body } = await any().post('/allocate', { call_sid: sid });
        if (status !== 200) {
          await pause(50);
          continue;
        }
        fences.push(body.fence);
        const agent = agents.get(body.pod_name);
        agent?.begin(sid);
        await pause(500 + Math.random() * 1500);
        // No caller hangs up before the store is restored, even on a busy machine.
        while (isLost && !over) await pause(50);
        // The agent hangs up first; the release may find nothing right after the loss.
        agent?.calls.delete(sid);
        await any().post('/release', { call_sid: sid, fence: body.fence });
        served += 1;
      }
    });

    onTestFinished(async () => {
      over = true;
      await Promise.allSettled([...reporting, ...calling]);
    });

    const epoch = async () => Number((await engine.redis.get('voice:leader:epoch')) ?? 0);
    const rounds = () =>
      routers
        .flatMap(({ context }) => context.loops())
        .reduce((sum, loop) => sum + (loop.name === 'reconcile' ? loop.rounds : 0), 0);
    const assigned = async () => (await engine.redis.scard('voice:pool:gold:assigned')) === podCount;
    await until(() => served > 8, 'calls are served');
    for (let losses = 0; losses < 3; losses++) {
      const before = {
        adopted,
        served,
        epoch: await epoch(),
        fence: Math.max(...fences),
        count: fences.length,
      };
      const live = () => [...agents.values()].filter(({ calls }) => calls.size > 0).length;
      await until(() => live() >= podCount / 2, 'calls are live');
      isLost = true;
      await engine.redis.flushall();
      const atLoss = rounds();
      // The one that was under way may have looked before; the one after it has not.
      await until(() => rounds() >= atLoss + 2, 'a whole reconcile has run');
      expect(await assigned()).toBe(true);
      await until(() => adopted > before.adopted, 'live calls are adopted again');
      isLost = false;
      await until(() => served > before.served + 12, 'calls are served again');
      expect(await epoch()).toBeGreaterThanOrEqual(before.epoch);
      // Answers that were on their way when the store was emptied are from before it.
      const given = fences.slice(before.count + 12);
      expect(given.filter((fence) => fence <= before.fence)).toEqual([]);
    }
    over = true;
    await Promise.all([...reporting, ...calling]);
    expect([...agents.values()].flatMap(({ violations }) => violations)).toEqual([]);
    for (const agent of agents.values()) await agent.report(any());
    const idle = async () => (await any().get('/status')).body.active_calls === 0;
    await until(async () => {
      for (const agent of agents.values()) await agent.report(any());
      return idle();
    }, 'no call is left');
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
    // Three losses in one test.
  }, 150_000);
});
