/**
 * The eight rolling-update and crash scenarios of the audit, by their names, over real HTTP to the simulated API server
 * and a real store. Recovery times are scaled down by sixty (a minute is a second); where the contract promises more
 * than the audit found, the tests ask for it.
 */
import { expect, it } from 'vitest';
import type { Cluster } from '../support/cluster.js';
import { describeEngines } from '../support/engines.js';
import { openFleet } from '../support/fleet.js';
import { checkInvariants } from '../support/invariants.js';
import { impatient, type TestRouter } from '../support/router.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

/** 1 min, 30 s, 15 min, 6 min, in sixtieths. */
const times = {
  RECONCILE_INTERVAL: '1s',
  CLEANUP_INTERVAL: '500ms',
  LEASE_TTL: '15s',
  DRAINING_TTL: '6s',
  CALL_INFO_TTL: '1m',
  LEADER_ELECTION_ENABLED: 'false',
};
/** So that only the watch can report changes. */
const watchOnly = { ...times, RECONCILE_INTERVAL: '1h', CLEANUP_INTERVAL: '20s' };
const gold = (name: string, annotations: Record<string, string> = {}) => ({
  name,
  annotations: { 'smart-router/tier': 'gold', ...annotations },
});

describeEngines('rolling updates and crashes', (engine) => {
  const open = async (pods: readonly string[], env: Record<string, string> = times, url = engine.url) => {
    const fleet = await openFleet(url);
    for (const name of pods) fleet.cluster.pods.create(gold(name));
    const router = await fleet.startHere('router', env);
    await untilKnown(router, ...pods);
    return { fleet, cluster: fleet.cluster, router };
  };
  const known = async () => (await engine.redis.smembers('voice:pool:gold:assigned')).sort();
  const free = async () => (await engine.redis.smembers('voice:pool:gold:available')).sort();
  const untilKnown = (_: TestRouter, ...names: string[]) =>
    until(async () => `${await known()}` === `${[...names].sort()}`, `${names} are registered`);
  const untilFree = (...names: string[]) =>
    until(async () => `${await free()}` === `${[...names].sort()}`, `${names} are available`);
  const allocate = async (router: TestRouter, call_sid: string) =>
    (await router.post('/allocate', { call_sid })).body;
  const release = (router: TestRouter, call_sid: string) => router.post('/release', { call_sid });
  const status = async (router: TestRouter, call_sid: string) =>
    (await router.get(`/calls/${call_sid}`)).status;
  const settled = async () => expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);

  it('Scenario 1: Happy Path — Drain Called Externally, Then Pod Killed', async () => {
    const { cluster, router } = await open(['agent-0']);
    expect(await allocate(router, 'c1')).toMatchObject({ success: true, pod_name: 'agent-0' });
    const drained = await router.post('/drain', { pod_name: 'agent-0' });
    expect(drained.body).toMatchObject({ has_active_call: true, active_calls: 1 });
    expect((await router.post('/allocate', { call_sid: 'c2' })).status).toBe(503);
    expect((await release(router, 'c1')).body).toMatchObject({ released_to_pool: null, was_draining: true });

    cluster.pods.remove('agent-0');
    await untilKnown(router);
    expect(await engine.redis.keys('voice:*agent-0*')).toEqual([]);
    // The new one of the same name starts with a clean slate: no drain is left over.
    cluster.pods.create(gold('agent-0'));
    await untilFree('agent-0');
    expect(await allocate(router, 'c3')).toMatchObject({ pod_name: 'agent-0', was_existing: false });
    await settled();
  });

  it('Scenario 2: Voice-Agent Pod Dies WITHOUT Drain (Most Common!)', async () => {
    const { cluster, router } = await open(['agent-0', 'agent-1'], watchOnly);
    const { pod_name } = await allocate(router, 'c1');
    const other = pod_name === 'agent-0' ? 'agent-1' : 'agent-0';
    // The ordinary way: terminating first. It takes no new call and keeps the one it has.
    cluster.pods.remove(pod_name, { graceMs: 30_000 });
    await until(async () => (await router.get(`/pod/${pod_name}`)).body.blocked_by === 'terminating', 'seen');
    expect(await allocate(router, 'c2')).toMatchObject({ pod_name: other });
    expect((await router.post('/allocate', { call_sid: 'c3' })).status).toBe(503);
    expect((await router.post('/renew', { call_sid: 'c1' })).status).toBe(200);
    expect((await router.post('/drain', { pod_name })).body).toMatchObject({
      success: true,
      active_calls: 1,
    });
    // Gone: its call is lost, at once, and the books say so.
    cluster.pods.remove(pod_name, { graceMs: 0 });
    await untilKnown(router, other);
    expect(await status(router, 'c1')).toBe(404);
    expect((await release(router, 'c1')).status).toBe(404);
    expect((await router.get('/status')).body.active_calls).toBe(1);
    expect((await router.get('//metrics')).text).toContain(
      'smart_router_calls_lost_total{reason="removed"} 1',
    );
    cluster.pods.create(gold(pod_name));
    await untilFree(pod_name);
    await settled();
  });

  it('the preStop of a pod that was deleted by force does not drain its successor', async () => {
    const { cluster, router } = await open(['agent-0'], watchOnly);
    await allocate(router, 'c1');
    const { uid } = (await router.get('/pod/agent-0')).body;
    const waiting = router.post('/drain', { pod_name: 'agent-0', uid, wait: '1h' });
    await until(async () => (await router.get('/pod/agent-0')).body.is_draining, 'it drains');
    cluster.pods.remove('agent-0');
    cluster.pods.create(gold('agent-0'));
    await untilFree('agent-0');
    await allocate(router, 'c2');
    expect(['pod_replaced', undefined]).toContain((await waiting).body.code);
    for (const path of ['/drain', '/undrain'])
      expect((await router.post(path, { pod_name: 'agent-0', uid })).body).toMatchObject({
        success: false,
        code: 'pod_replaced',
      });
    expect((await router.get('/pod/agent-0')).body).toMatchObject({ is_draining: false, calls: ['c2'] });
    await settled();
  });

  it('Scenario 2, the watch misses it: the reconciler finds the ghost within its interval', async () => {
    const { cluster, router } = await open(['agent-0', 'agent-1'], {
      ...times,
      KUBERNETES_WATCH_TIMEOUT: '1h',
    });
    cluster.faults.silenceWatches();
    const { pod_name } = await allocate(router, 'c1');
    cluster.pods.remove(pod_name);
    await untilKnown(router, pod_name === 'agent-0' ? 'agent-1' : 'agent-0');
    expect(await status(router, 'c1')).toBe(404);
    await settled();
  });

  it('Scenario 3: Voice-Agent Pod Crash During Active Call (OOM/segfault)', async () => {
    const { cluster, router } = await open(['agent-0'], watchOnly);
    await allocate(router, 'c1');
    // A flap of its readiness cuts nothing.
    cluster.pods.setReady('agent-0', false);
    await until(async () => (await router.get('/pod/agent-0')).body.blocked_by === 'not_ready', 'suspended');
    expect((await router.post('/renew', { call_sid: 'c1' })).status).toBe(200);
    cluster.pods.setReady('agent-0', true);
    await until(async () => (await router.get('/pod/agent-0')).body.blocked_by === null, 'back');
    expect(await status(router, 'c1')).toBe(200);
    // A restarted container has lost its call; the pod is as good as new.
    cluster.pods.restartContainer('agent-0');
    await untilFree('agent-0');
    expect(await status(router, 'c1')).toBe(404);
    expect(await allocate(router, 'c2')).toMatchObject({ pod_name: 'agent-0' });
    // Evicted: it is never restarted with this UID.
    cluster.pods.finish('agent-0', 'Failed');
    await untilKnown(router);
    expect(await status(router, 'c2')).toBe(404);
    await settled();
  });

  it('Scenario 4: Smart-Router Rolling Update (Leader Election)', async () => {
    const fleet = await openFleet(engine.url);
    for (const name of ['agent-0', 'agent-1', 'agent-2']) fleet.cluster.pods.create(gold(name));
    const env = { ...times, LEADER_ELECTION_ENABLED: 'true' };
    const old = await Promise.all(['old-0', 'old-1', 'old-2'].map((name) => fleet.startHere(name, env)));
    const leads = async (router: TestRouter) => (await router.get('/status')).body.is_leader === true;
    const leaderOf = (routers: readonly TestRouter[]) =>
      until(async () => {
        const states = await Promise.all(routers.map(leads));
        const found = routers.filter((_, i) => states[i]);
        return found.length === 1 ? found[0] : undefined;
      }, 'one of them leads');
    await leaderOf(old);
    await untilFree('agent-0', 'agent-1', 'agent-2');
    const [first] = old;
    if (!first) throw new Error('no router');
    const { pod_name } = await allocate(first, 'c1');

    // Routers are replaced in sequence; a live call keeps its pod, and new calls are served throughout.
    const fresh: TestRouter[] = [];
    for (const [i, router] of old.entries()) {
      const next = await fleet.startHere(`new-${i}`, env);
      fresh.push(next);
      await router.stop();
      const sid = `during-${i}`;
      expect(await allocate(next, sid)).toMatchObject({ success: true });
      expect((await release(next, sid)).status).toBe(200);
    }
    expect(await allocate(fresh[0] as TestRouter, 'c1')).toMatchObject({ pod_name, was_existing: true });
    // The new leader is true to the cluster.
    await leaderOf(fresh);
    fleet.cluster.pods.create(gold('agent-3'));
    await untilKnown(first, 'agent-0', 'agent-1', 'agent-2', 'agent-3');
    await settled();
  });

  it('Scenario 5: Redis Blip During Rolling Update', async () => {
    const proxy = await tcpProxy(Number(new URL(engine.url).port));
    const { cluster, router } = await open(
      ['agent-0', 'agent-1'],
      { ...watchOnly, ...impatient },
      `redis://127.0.0.1:${proxy.port}`,
    );
    // Each request may be late on a busy machine: this router is impatient.
    const pod_name = await until(
      async () => (await allocate(router, 'c1')).pod_name as string | undefined,
      'a call gets a pod',
    );
    const other = pod_name === 'agent-0' ? 'agent-1' : 'agent-0';
    await proxy.down();
    cluster.pods.remove(pod_name);
    await until(async () => (await router.get('//ready')).status === 503, 'the store is down');
    await proxy.up();
    // The change is repeated until the store has it, and no dead pod is made available.
    await untilKnown(router, other);
    expect(await free()).toEqual([other]);
    await until(async () => (await status(router, 'c1')) === 404, 'the call has ended');
    await settled();
  });

  it('Scenario 6: Multiple Voice-Agent Pods Rolling Simultaneously', async () => {
    const names = ['agent-0', 'agent-1', 'agent-2', 'agent-3', 'agent-4', 'agent-5'];
    const { cluster, router } = await open(names, watchOnly);
    for (const [i] of names.entries()) await allocate(router, `c${i}`);
    for (const name of names) cluster.pods.remove(name);
    await untilKnown(router);
    const refused = await router.post('/allocate', { call_sid: 'late' });
    expect(refused).toMatchObject({ status: 503, body: { code: 'no_pods' } });
    expect((await router.get('/status')).body.active_calls).toBe(0);
    for (const name of names) cluster.pods.create({ ...gold(name), ready: false });
    for (const [i, name] of names.entries()) {
      cluster.pods.setReady(name, true);
      await untilFree(...names.slice(0, i + 1));
    }
    expect(await allocate(router, 'late')).toMatchObject({ success: true });
    await settled();
  });

  it('Scenario 7: New Pod Same Name While Old Still Terminating', async () => {
    const { cluster, router } = await open(['agent-0'], watchOnly);
    await allocate(router, 'c1');
    await router.post('/drain', { pod_name: 'agent-0' });
    // The watch breaks; the old pod ends and its successor is ready before the next watch.
    const { heal } = await whileCut(cluster, () => {
      cluster.pods.remove('agent-0');
      cluster.pods.create(gold('agent-0'));
    });
    heal();
    await untilFree('agent-0');
    expect(await status(router, 'c1')).toBe(404);
    expect((await router.get('/pod/agent-0')).body).toMatchObject({ is_draining: false, calls: [] });
    expect((await router.get('/pod/agent-0')).body.uid).toBe(cluster.pods.get('agent-0')?.metadata.uid);
    expect(await allocate(router, 'c2')).toMatchObject({ pod_name: 'agent-0' });
    // What the old process still reports under its own UID is refused.
    const late = await router.post('/pod/agent-0/report', { calls: ['c1'], uid: 'the-old-one' });
    expect(late.status).toBe(404);
    await settled();
  });

  it('Scenario 8: Drain Called But Pod Never Dies', async () => {
    const { router } = await open(['agent-0', 'agent-1'], { ...times, DRAINING_TTL: '3s' });
    const { pod_name } = await allocate(router, 'c1');
    for (const name of ['agent-0', 'agent-1']) await router.post('/drain', { pod_name: name });
    expect((await router.post('/allocate', { call_sid: 'c2' })).status).toBe(503);
    // The idle one is back when the mark has run out and a sweep has seen it.
    await untilFree(pod_name === 'agent-0' ? 'agent-1' : 'agent-0');
    // The busy one keeps its call, and is back with its release.
    await until(
      async () => (await router.get(`/pod/${pod_name}`)).body.is_draining === false,
      'its mark is over',
    );
    expect(await status(router, 'c1')).toBe(200);
    expect((await release(router, 'c1')).body).toMatchObject({ released_to_pool: 'pool:gold' });
    await untilFree('agent-0', 'agent-1');
    await settled();
  });
});

/** Cuts every watch and lets none through while `change` happens. */
async function whileCut(cluster: Cluster, change: () => void): Promise<{ heal(): void }> {
  const heal = cluster.faults.failRequests({ reset: true });
  cluster.faults.cutWatches();
  change();
  return { heal };
}
