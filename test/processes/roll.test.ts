/**
 * A new version of the agents at noon, with calls running: a StatefulSet of twenty is rolled, each pod through drain
 * and wait, and no call is cut. The agents do what the shipped manifests do; the controller, the grace period and the
 * deletions are the simulator's.
 */
import { expect, it, onTestFinished } from 'vitest';
import { StatefulSet } from '../../src/cluster/simulator/stateful-set.js';
import { describeOneEngine } from '../support/engines.js';
import { openFleet } from '../support/fleet.js';
import { checkInvariants } from '../support/invariants.js';
import { pause } from '../support/processes.js';
import type { TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const agentCount = 20;

describeOneEngine('rolling out a new agent version', (engine) => {
  it('rolls twenty agents through drain-and-wait with live calls, and cuts none', {
    timeout: 90_000,
  }, async () => {
    const fleet = await openFleet(engine.url);
    const routers = [await fleet.startHere('r-0'), await fleet.startHere('r-1')];
    const any = () => routers[Math.floor(Math.random() * routers.length)] as TestRouter;

    /** Calls that each running container serves, by the UID of its pod. */
    const serving = new Map<string, Set<string>>();
    const cut: string[] = [];
    const callsOf = (uid: string) => serving.get(uid) ?? new Set();
    const end = (uid: string) => {
      cut.push(...callsOf(uid));
      serving.delete(uid);
    };
    const set = new StatefulSet(fleet.cluster, {
      name: 'voice-agent',
      replicas: agentCount,
      podManagementPolicy: 'Parallel',
      readyAfterMs: 20,
      graceMs: 30_000,
      hooks: {
        onStart: ({ metadata }) => {
          serving.set(metadata.uid, new Set());
        },
        // As the example manifest does: again and again until no call is left.
        preStop: async ({ metadata }, signal) => {
          while (!signal.aborted) {
            const { status, body } = await any().post('/drain', { pod_name: metadata.name, wait: '500ms' });
            if (status === 200 && body.active_calls === 0) return;
          }
        },
        onStop: ({ metadata }) => end(metadata.uid),
        onKill: ({ metadata }) => end(metadata.uid),
      },
    });
    onTestFinished(() => set.stop());
    const available = async () => (await engine.redis.scard('voice:pool:gold:available')) === agentCount;
    await until(available, 'all agents are ready and known');

    let over = false;
    let served = 0;
    const refused: string[] = [];
    const callers = Array.from({ length: 10 }, async (_, caller) => {
      for (let i = 0; !over; i++) {
        const sid = `call-${caller}-${i}`;
        const { status, body } = await any().post('/allocate', { call_sid: sid });
        if (status !== 200) {
          refused.push(`${sid}: ${status}`);
          await pause(50);
          continue;
        }
        const uid = fleet.cluster.pods.get(body.pod_name)?.metadata.uid ?? '';
        const calls = serving.get(uid);
        if (calls) calls.add(sid);
        else cut.push(`${sid} was allocated to ${body.pod_name}, a pod that does not run`);
        for (let beats = 0; beats < 4; beats++) {
          await pause(50 + Math.random() * 150);
          const renewed = await any().post('/renew', { call_sid: sid, fence: body.fence });
          if (renewed.status !== 200) cut.push(`${sid} lost its pod: ${renewed.text}`);
        }
        calls?.delete(sid);
        const { status: done } = await any().post('/release', { call_sid: sid, fence: body.fence });
        if (done !== 200) cut.push(`${sid} was not found at its end: ${done}`);
        served += 1;
      }
    });
    onTestFinished(async () => {
      over = true;
      await Promise.allSettled(callers);
    });
    await until(() => served > 10, 'calls run');
    const before = new Set(fleet.cluster.pods.list().map(({ metadata }) => metadata.uid));
    set.roll({ version: '2' });
    await until(
      () => !set.status().rolling && set.status().updated === agentCount,
      'the roll is done',
      60_000,
    );
    const after = fleet.cluster.pods.list().map(({ metadata }) => metadata.uid);
    expect(after.filter((uid) => before.has(uid))).toEqual([]);
    const during = served;
    await until(() => served > during + 10, 'calls run on the new version');
    over = true;
    await Promise.all(callers);

    expect(cut).toEqual([]);
    // Ten callers and twenty agents of which one rolls at a time: there was always a free one.
    expect(refused).toEqual([]);
    for (const router of routers)
      expect((await router.get('//metrics')).text).not.toMatch(/smart_router_calls_lost_total\{.*\} [1-9]/);
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
  });

  it('an ordinary deletion waits until the call ends', async () => {
    const fleet = await openFleet(engine.url);
    const router = await fleet.startHere('r-0');
    const set = new StatefulSet(fleet.cluster, {
      name: 'voice-agent',
      replicas: 1,
      readyAfterMs: 0,
      graceMs: 30_000,
      hooks: {
        preStop: async ({ metadata }) => {
          let active = 1;
          while (active > 0) {
            const { body } = await router.post('/drain', { pod_name: metadata.name, wait: '300ms' });
            active = body.active_calls;
          }
        },
      },
    });
    onTestFinished(() => set.stop());
    const uid = () => fleet.cluster.pods.get('voice-agent-0')?.metadata.uid;
    const pod = async () => (await router.get('/pod/voice-agent-0')).body;
    await until(async () => (await pod()).uid === uid() && uid() !== undefined, 'the pod is registered');
    const first = uid();
    const call = { call_sid: 'c1' };
    expect((await router.post('/allocate', call)).status).toBe(200);
    set.remove('voice-agent-0');
    await until(async () => (await pod()).blocked_by === 'terminating', 'it is terminating');
    for (let i = 0; i < 5; i++) {
      expect((await router.post('/renew', call)).status).toBe(200);
      expect(uid()).toBe(first);
      await pause(200);
    }
    expect((await router.post('/release', call)).body).toMatchObject({ released_to_pool: null });
    await until(async () => (await pod()).uid === uid() && uid() !== first, 'its successor is registered');
    expect((await router.post('/allocate', { call_sid: 'c2' })).status).toBe(200);
  });
});
