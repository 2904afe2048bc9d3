/** The life of pods, from the API server to the store, through the leader's loops. Guarantee 8. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { type Kubernetes, kubernetes } from '../cluster/fixture.js';
import type { Cluster } from '../support/cluster.js';
import { describeEngines } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { openStore, type TestStore, testTiers } from '../support/store.js';
import { until } from '../support/until.js';
import { type Reign, type ReignOptions, reign, sourceOf } from './leader-fixture.js';

const basic = { 'smart-router/tier': 'basic' };

describeEngines('pods of a cluster', (engine) => {
  let k8s: Kubernetes;
  let cluster: Cluster;
  let store: TestStore;
  const reigns: Reign[] = [];
  beforeEach(async () => {
    k8s = kubernetes();
    store = await openStore(engine.url, { virtualTime: true });
    // The clocks of the nodes go as the store's.
    cluster = await k8s.cluster({ clock: { ...systemClock, now: store.nowMs } });
  });
  afterEach(async () => {
    for (const one of reigns.splice(0)) await one.stop();
    expect(await checkInvariants(engine.redis, { nowMs: store.nowMs() })).toEqual([]);
    store.close();
    await k8s.stop();
  });

  type Options = Partial<ReignOptions> & Parameters<typeof sourceOf>[2];
  const lead = async ({ labelSelector, silenceMs, ...options }: Options = {}) => {
    const source = await sourceOf(k8s, cluster.kubeconfig, {
      ...(labelSelector ? { labelSelector } : {}),
      ...(silenceMs ? { silenceMs } : {}),
    });
    const leader = await reign({ store, tiers: testTiers, source, ...options });
    reigns.push(leader);
    return leader;
  };
  const create = (...names: string[]) =>
    names.map((name) => cluster.pods.create({ name, annotations: basic }));
  const watching = () => until(() => cluster.openWatches === 1, 'the watch is open');
  const known = async () => (await engine.redis.smembers('voice:pool:basic:assigned')).sort();
  const free = async () => (await engine.redis.zrange('voice:pool:basic:available', '0', '-1')).sort();
  const untilKnown = (...names: string[]) =>
    until(async () => JSON.stringify(await known()) === JSON.stringify(names), `the pods are ${names}`);
  const suspended = (name: string) => engine.redis.get(`voice:pod:suspended:${name}`);
  const untilSuspended = (name: string, why: string | null) =>
    until(async () => (await suspended(name)) === why, `${name} is suspended: ${why}`);
  const allocate = (sid: string) => store.allocate(sid, ['pool:basic']);
  /** Of everything: who looks for one pod by its name lists nothing. */
  const lists = () =>
    cluster.requests.count({
      ...{ verb: 'list', resource: 'pods' },
      match: ({ path }) => !path.includes('fieldSelector'),
    });

  it('a full sync first, then the watch from its version: what changes is there at once, without a list', async () => {
    create('a', 'b');
    await lead();
    expect(await known()).toEqual(['a', 'b']);
    const version = String(cluster.resourceVersion);
    await watching();
    const [watch] = cluster.requests.list({ verb: 'watch' });
    expect(new URLSearchParams(watch?.path.split('?')[1]).get('resourceVersion')).toBe(version);
    create('c');
    await untilKnown('a', 'b', 'c');
    cluster.pods.remove('a');
    await untilKnown('b', 'c');
    expect(lists()).toBe(1);
  });

  it('a pod that becomes ready is registered, and not before', async () => {
    await lead();
    await watching();
    cluster.pods.create({ name: 'a', annotations: basic, phase: 'Pending' });
    cluster.pods.start('a');
    create('b');
    await untilKnown('b');
    cluster.pods.setReady('a', true);
    await untilKnown('a', 'b');
    expect(await free()).toEqual(['a', 'b']);
  });

  it('not ready with a call: suspended, the call continues, and the pod takes calls again when it is ready', async () => {
    create('a');
    await lead();
    const call = await allocate('1');
    cluster.pods.setReady('a', false);
    await untilSuspended('a', 'not_ready');
    expect(await allocate('2')).toBeUndefined();
    expect(await store.calls.renew('1', call?.fence)).toMatchObject({ podName: 'a' });
    cluster.pods.setReady('a', true);
    await untilSuspended('a', null);
    expect(await allocate('2')).toMatchObject({ podName: 'a' });
    expect((await store.calls.pod('a')).calls).toHaveLength(2);
  });

  it('not ready with a call that is released: the pod is removed by the next reconcile', async () => {
    create('a');
    const { sync } = await lead();
    await allocate('1');
    cluster.pods.setReady('a', false);
    await untilSuspended('a', 'not_ready');
    await sync();
    expect(await known()).toEqual(['a']);
    expect(await store.calls.release('1')).toMatchObject({ releasedToPool: null });
    await sync();
    expect(await known()).toEqual([]);
  });

  it('not ready without a call: removed, and back when it is ready', async () => {
    create('a');
    const { lost } = await lead();
    cluster.pods.setReady('a', false);
    await untilKnown();
    await expect(store.calls.drain('a', 0)).rejects.toMatchObject({ code: 'pod_not_found' });
    cluster.pods.setReady('a', true);
    await untilKnown('a');
    expect(lost).toEqual([]);
  });

  const reporting = { ...basic, 'smart-router/report': 'required' };

  it('an idle pod that must report takes calls as soon as it is ready again, without another report', async () => {
    cluster.pods.create({ name: 'a', annotations: reporting });
    const { sync } = await lead();
    await untilSuspended('a', 'awaiting_report');
    await store.calls.report('a', []);
    cluster.pods.setReady('a', false);
    await untilSuspended('a', 'not_ready');
    await sync();
    expect(await allocate('1')).toBeUndefined();
    cluster.pods.setReady('a', true);
    await untilSuspended('a', null);
    expect(await allocate('1')).toMatchObject({ podName: 'a' });
  });

  it('an idle pod that must report and never did still waits for it after it was not ready', async () => {
    cluster.pods.create({ name: 'a', annotations: reporting });
    await lead();
    await untilSuspended('a', 'awaiting_report');
    cluster.pods.setReady('a', false);
    await untilSuspended('a', 'not_ready');
    cluster.pods.setReady('a', true);
    await untilSuspended('a', 'awaiting_report');
    expect(await allocate('1')).toBeUndefined();
  });

  it.each([
    ['ends', () => cluster.pods.stopContainer('a')],
    ['is found restarted', () => cluster.pods.restartContainer('a', { ready: false })],
  ])('an idle pod that must report waits for a report again when its container %s', async (_, end) => {
    cluster.pods.create({ name: 'a', annotations: reporting });
    const first = await lead();
    await store.calls.report('a', []);
    await first.stop();
    end();
    await lead();
    await untilKnown();
    if (cluster.pods.get('a')?.status.containerStatuses?.[0]?.state.terminated) cluster.pods.start('a');
    cluster.pods.setReady('a', true);
    await untilSuspended('a', 'awaiting_report');
    expect(await allocate('1')).toBeUndefined();
  });

  it('a draining pod that flaps not ready keeps its drain', async () => {
    create('a', 'b');
    const { sync } = await lead();
    const { untilMs } = await store.calls.drain('a', 0);
    cluster.pods.setReady('a', false);
    await untilSuspended('a', 'not_ready');
    await sync();
    cluster.pods.setReady('a', true);
    await untilSuspended('a', null);
    expect(await engine.redis.get('voice:pod:draining:a')).toBe(String(untilMs));
    expect(await free()).toEqual(['b']);
    await store.calls.undrain('a');
    expect(await free()).toEqual(['a', 'b']);
  });

  it('terminating: no new call, running ones can be renewed, drain answers; deleted: they are lost', async () => {
    create('a');
    const { lost } = await lead();
    const call = await allocate('1');
    cluster.pods.remove('a', { graceMs: 60_000 });
    await untilSuspended('a', 'terminating');
    cluster.pods.setReady('a', false);
    expect(await allocate('2')).toBeUndefined();
    expect(await store.calls.renew('1', call?.fence)).toMatchObject({ podName: 'a' });
    expect(await store.calls.drain('a', 60_000)).toMatchObject({ activeCalls: 1 });
    expect(await store.calls.undrain('a')).toMatchObject({ blockedBy: 'terminating' });
    expect(await allocate('2')).toBeUndefined();
    cluster.pods.remove('a');
    await untilKnown();
    await until(() => lost.length > 0, 'the loss is reported');
    expect(lost).toEqual([['removed', 1]]);
    await expect(store.calls.renew('1')).rejects.toMatchObject({ code: 'call_not_found' });
  });

  it('terminating without a call: still known, so that its drain is answered', async () => {
    create('a');
    await lead();
    cluster.pods.remove('a', { graceMs: 60_000 });
    await untilSuspended('a', 'terminating');
    expect(await store.calls.drain('a', 0)).toMatchObject({ activeCalls: 0 });
  });

  it('a restarted container has lost its calls, and the next ones are its own', async () => {
    create('a');
    const { lost, sync } = await lead();
    await allocate('1');
    cluster.pods.restartContainer('a');
    await until(() => lost.length === 1, 'the call is lost');
    expect(lost).toEqual([['restarted', 1]]);
    await until(async () => (await free()).length === 1, 'it is free again');
    expect(await allocate('2')).toMatchObject({ podName: 'a', wasExisting: false });
    await sync();
    expect((await store.calls.pod('a')).calls).toHaveLength(1);
  });

  it.each([
    ['terminated', () => {}],
    ['in CrashLoopBackOff', () => cluster.pods.backOff('a')],
  ])('ends the calls of a container that is %s, before it runs again', async (_, then) => {
    create('a', 'b');
    const { lost, sync } = await lead();
    await store.calls.drain('b', 0);
    await allocate('1');
    await store.calls.undrain('b');
    store.advance(60_000);
    cluster.pods.stopContainer('a');
    then();
    await untilKnown('b');
    await until(() => lost.length > 0, 'the loss is reported');
    expect(lost).toEqual([['restarted', 1]]);
    expect(await allocate('1')).toMatchObject({ podName: 'b', wasExisting: false });
    store.advance(20_000);
    cluster.pods.start('a');
    cluster.pods.setReady('a', true);
    await untilKnown('a', 'b');
    await sync();
    expect(lost).toHaveLength(1);
  });

  it('a new leader that finds a crashed container ends exactly the calls from before the crash', async () => {
    create('a');
    await (await lead()).stop();
    await allocate('before');
    store.advance(5000);
    cluster.pods.stopContainer('a');
    cluster.pods.backOff('a');
    store.advance(5000);
    await allocate('after');
    const second = await lead();
    expect(second.lost).toEqual([['restarted', 1]]);
    expect((await store.calls.pod('a')).calls.map(({ callSid }) => callSid)).toEqual(['after']);
    // The call given in between went to no container: it ends when the next one starts.
    store.advance(5000);
    cluster.pods.start('a');
    await untilKnown();
    await until(() => second.lost.length === 2, 'the other loss is reported');
  });

  it('a terminating pod whose agent has ended loses its calls before the pod is deleted', async () => {
    create('a');
    const { lost } = await lead();
    await allocate('1');
    store.advance(5000);
    cluster.pods.remove('a', { graceMs: 60_000 });
    cluster.pods.stopContainer('a');
    await until(() => lost.length > 0, 'the loss is reported');
    expect(lost).toEqual([['restarted', 1]]);
    expect(await suspended('a')).toBe('terminating');
  });

  it('a restart without a watch ends exactly the calls from before it', async () => {
    create('a');
    const first = await lead();
    await allocate('before');
    await first.stop();
    store.advance(5000);
    cluster.pods.restartContainer('a');
    store.advance(5000);
    await allocate('after');
    const second = await lead();
    expect(second.lost).toEqual([['restarted', 1]]);
    expect((await store.calls.pod('a')).calls.map(({ callSid }) => callSid)).toEqual(['after']);
    await second.sync();
    expect(second.lost).toHaveLength(1);
  });

  it('the restart of a sidecar ends no call', async () => {
    create('a');
    const { lost, sync } = await lead();
    await allocate('1');
    const status = cluster.pods.get('a')?.status;
    const terminated = {
      exitCode: 1,
      reason: 'Error',
      finishedAt: new Date(store.nowMs() + 60_000).toISOString(),
    };
    const ended = { restartCount: 7, ready: false, state: { terminated } };
    const sidecar = { ...status?.containerStatuses?.[0], ...ended, name: 'a-sidecar' };
    // A native sidecar is an init container that keeps running.
    const native = { ...sidecar, name: 'mesh' };
    cluster.pods.patch('a', {
      spec: { initContainers: [{ name: 'mesh', image: 'mesh', restartPolicy: 'Always' }] },
      status: {
        containerStatuses: [sidecar, ...(status?.containerStatuses ?? [])],
        initContainerStatuses: [native],
      },
    });
    await sync();
    expect(lost).toEqual([]);
  });

  it('another pod of the same name ends the calls of the first', async () => {
    create('a');
    const { lost } = await lead();
    await allocate('1');
    cluster.pods.remove('a');
    create('a');
    await until(() => lost.length === 1, 'the call is lost');
    await until(async () => (await free()).length === 1, 'its successor is free');
    expect(await engine.redis.hget('voice:pod:a', 'uid')).toBe(cluster.pods.get('a')?.metadata.uid);
    expect(await allocate('2')).toMatchObject({ podName: 'a' });
  });

  it('another pod of the same name that appeared without a watch', async () => {
    create('a');
    const first = await lead();
    await allocate('1');
    await first.stop();
    cluster.pods.remove('a');
    create('a');
    const second = await lead();
    expect(second.lost).toEqual([['replaced', 1]]);
    expect(await free()).toEqual(['a']);
  });

  it('a call allocated without a watch stays with the current pod of the name', async () => {
    create('a');
    const first = await lead();
    await allocate('before');
    await first.stop();
    cluster.pods.remove('a');
    store.advance(5000);
    create('a');
    store.advance(5000);
    const given = await allocate('after');
    const second = await lead();
    expect(second.lost).toEqual([['replaced', 1]]);
    await expect(store.calls.call('before')).rejects.toMatchObject({ code: 'call_not_found' });
    expect(await store.calls.call('after')).toMatchObject({ podName: 'a', fence: given?.fence });
    expect(await engine.redis.hget('voice:pod:a', 'uid')).toBe(cluster.pods.get('a')?.metadata.uid);
    expect((await store.calls.pod('a')).calls).toHaveLength(1);
    expect(await free()).toEqual(['a']);
  });

  it.each(['Succeeded', 'Failed'] as const)(
    '%s: removed, although the API server still has it',
    async (phase) => {
      create('a', 'b');
      const { lost, sync } = await lead();
      await store.calls.drain('b', 0);
      await allocate('1');
      cluster.pods.finish('a', phase);
      await untilKnown('b');
      await sync();
      await until(() => lost.length > 0, 'the loss is reported');
      expect(lost).toEqual([['removed', 1]]);
      expect(await known()).toEqual(['b']);
    },
  );

  it('a pod is removed when its label leaves the selector, and registered when it matches again', async () => {
    create('a', 'b');
    await lead();
    cluster.pods.patch('a', { metadata: { labels: { app: 'retired' } } });
    await untilKnown('b');
    cluster.pods.patch('a', { metadata: { labels: { app: 'voice-agent' } } });
    await untilKnown('a', 'b');
  });

  it('a wrong selector removes nothing, and the right one restores all pods with their calls', async () => {
    const six = ['a', 'b', 'c', 'd', 'e', 'f'];
    create(...six);
    await (await lead()).stop();
    const calls = await Promise.all(six.map((sid) => allocate(sid)));
    const wrong = await lead({ labelSelector: 'app=voice-agnet' });
    await wrong.sync();
    expect(await known()).toEqual(six);
    expect(await free()).toEqual([]);
    expect(wrong.lost).toEqual([]);
    expect(wrong.log.filter(({ level }) => level === 50)).toHaveLength(2);
    expect((await store.pools.removals()).held).toEqual(six);
    expect((await store.calls.snapshot()).removalsHeld).toBe(6);
    expect(await allocate('7')).toBeUndefined();
    await wrong.stop();
    await lead();
    expect(await free()).toEqual(six);
    expect(await store.pools.removals()).toEqual({ held: [], confirmed: [] });
    for (const [i, sid] of six.entries()) {
      expect(await store.calls.renew(sid, calls[i]?.fence)).toMatchObject({ podName: calls[i]?.podName });
    }
  });

  it('deleted pods are removed after three lists, or when an operator confirms', async () => {
    create('a', 'b', 'c', 'd', 'e');
    await (await lead()).stop();
    await allocate('1');
    for (const name of ['a', 'b', 'c', 'd', 'e']) cluster.pods.remove(name);
    const leader = await lead();
    // In quick succession they are one list, however many.
    for (let i = 0; i < 5; i++) await leader.sync();
    expect(await known()).toHaveLength(5);
    await leader.stop();
    const patient = await lead({ reconcileIntervalMs: 100 });
    await untilKnown();
    // The store has forgotten them before the leader has read its answer.
    await until(() => patient.lost.length > 0, 'the loss is reported');
    expect(patient.lost).toEqual([['removed', 1]]);

    create('a', 'b', 'c', 'd', 'e');
    await untilKnown('a', 'b', 'c', 'd', 'e');
    await patient.stop();
    for (const name of ['a', 'b', 'c', 'd', 'e']) cluster.pods.remove(name);
    const other = await lead();
    expect(await store.pools.confirmRemovals('an operator')).toBe(5);
    await other.sync();
    expect(await known()).toEqual([]);
    expect(await store.pools.removals()).toEqual({ held: [], confirmed: [] });
  });

  /** As a Deployment rolls while no leader runs: other names, and none of the old pods exists any more. */
  const rollUnwatched = async () => {
    const old = Array.from({ length: 10 }, (_, i) => `old-${i}`);
    const young = Array.from({ length: 10 }, (_, i) => `young-${i}`);
    create(...old);
    await (await lead()).stop();
    await allocate('1');
    for (const name of old) cluster.pods.remove(name);
    create(...young);
    return { old, young };
  };

  it('removes pods at once that a GET by name confirms as deleted', async () => {
    const { young } = await rollUnwatched();
    const { log, lost } = await lead();
    expect(await known()).toEqual(young);
    expect(lost).toEqual([['removed', 1]]);
    expect((await store.pools.removals()).held).toEqual([]);
    expect(log.filter(({ level }) => level === 50)).toEqual([]);
  });

  it.each([
    ['the lookup fails', { status: 500 }],
    ['the role does not allow it', { status: 403 }],
  ])('holds missing pods when %s', async (_, fault) => {
    const { old, young } = await rollUnwatched();
    cluster.faults.failRequests({ verb: 'get', resource: 'pods', ...fault });
    const { log, lost } = await lead();
    expect(await known()).toEqual([...old, ...young].sort());
    expect(lost).toEqual([]);
    expect((await store.pools.removals()).held).toEqual(old);
    expect(log.filter(({ level }) => level === 50)).toHaveLength(1);
    expect(cluster.requests.count({ verb: 'get', resource: 'pods' })).toBeLessThan(old.length);
  });

  it('holds only the missing pods that still exist with other labels', async () => {
    const { old, young } = await rollUnwatched();
    const [relabelled = ''] = old;
    cluster.pods.create({ name: relabelled, labels: { app: 'elsewhere' } });
    await lead();
    expect(await known()).toEqual([relabelled, ...young].sort());
    expect((await store.pools.removals()).held).toEqual([relabelled]);
  });

  it('held pods are released as they are listed again', async () => {
    const five = ['a', 'b', 'c', 'd', 'e'];
    create(...five);
    await (await lead()).stop();
    for (const name of five) cluster.pods.patch(name, { metadata: { labels: { app: 'elsewhere' } } });
    await lead();
    expect(await free()).toEqual([]);
    cluster.pods.patch('c', { metadata: { labels: { app: 'voice-agent' } } });
    await until(async () => (await free()).join() === 'c', 'c is free');
    expect((await store.pools.removals()).held).toEqual(['a', 'b', 'd', 'e']);
  });

  it('an API server that is down: the leader sweeps on, and follows again when it is back', async () => {
    create('a', 'b');
    const { manager } = await lead({ cleanupIntervalMs: 20 });
    await allocate('1');
    await cluster.down();
    store.advance(900_001);
    await until(async () => (await store.calls.snapshot()).activeCalls === 0, 'the sweep has ended the call');
    expect(manager.isLeader).toBe(true);
    create('c');
    cluster.pods.remove('b');
    await cluster.up();
    await untilKnown('a', 'c');
  });

  const resets = () => cluster.faults.cutWatches();
  it.each([
    ['is cut', 'connection', resets],
    ['is ended by the server', 'closed', () => cluster.faults.endWatches()],
    [
      'meets an API server that starts',
      'server_error',
      () => {
        cluster.faults.failRequests({ verb: 'watch', status: 503, times: 1 });
        return resets();
      },
    ],
  ])('a watch that %s resumes, as a reconnect and not as a crash', async (_, reason, end) => {
    create('a', 'b');
    const { manager, log, reconnects } = await lead();
    await watching();
    expect(end()).toBe(1);
    cluster.pods.remove('a');
    create('c');
    await untilKnown('b', 'c');
    expect(lists()).toBe(1);
    expect(reconnects).toContain(reason);
    expect(manager.loops.find(({ name }) => name === 'watch')?.crashes).toBe(0);
    expect(log.filter(({ level }) => level > 30)).toEqual([]);
  });

  it('a watch that the Role does not allow is an error', async () => {
    cluster.faults.failRequests({ verb: 'watch', status: 403 });
    const { manager, reconnects } = await lead();
    const watch = () => manager.loops.find(({ name }) => name === 'watch');
    await until(() => (watch()?.crashes ?? 0) > 0, 'the watch has failed');
    expect(reconnects).toEqual([]);
  });

  it('a watch whose version is too old lists again, and resumes from there', async () => {
    create('a', 'b');
    const { reconnects } = await lead();
    await watching();
    const end = cluster.faults.failRequests({ verb: 'watch', hang: true });
    cluster.faults.cutWatches();
    cluster.pods.remove('a');
    create('c');
    cluster.faults.expireHistory();
    end();
    await untilKnown('b', 'c');
    expect(lists()).toBe(2);
    expect(reconnects).toContain('expired');
    await watching();
    create('d');
    await untilKnown('b', 'c', 'd');
    expect(lists()).toBe(2);
  });

  it('a watch without events is reopened', async () => {
    create('a');
    const { reconnects } = await lead({ silenceMs: 200 });
    await watching();
    cluster.faults.silenceWatches();
    create('b');
    await untilKnown('a', 'b');
    expect(reconnects).toContain('timeout');
    expect(lists()).toBe(1);
  });

  it.each([
    { changed: 'a', what: 'busy' },
    { changed: 'unselected', what: 'quiet' },
  ])(
    'a $what cluster that was restored from a backup is followed again, by list and by watch',
    async ({ changed }) => {
      create('a', 'b');
      cluster.pods.create({ name: 'unselected', labels: { app: 'other' } });
      for (let i = 0; i < 50; i += 1)
        cluster.pods.patch(changed, { metadata: { labels: { turn: String(i) } } });
      const { log } = await lead({ reconcileIntervalMs: 100 });
      await watching();
      const { port } = cluster;
      await cluster.stop();
      cluster = await k8s.cluster({ port, clock: { ...systemClock, now: store.nowMs } });
      create('b', 'c');
      // Until three lists have said so, it may be an API server that lags.
      await untilKnown('b', 'c');
      expect(
        log.filter(({ msg }) => msg.includes('list older than known versions')).length,
      ).toBeGreaterThanOrEqual(2);
      expect(log.filter(({ msg }) => msg.includes('went backwards'))).toHaveLength(1);
      const fromNow = ({ path }: { path: string }) =>
        Number(new URLSearchParams(path.split('?')[1]).get('resourceVersion')) <= cluster.resourceVersion;
      await until(() => cluster.requests.list({ verb: 'watch' }).some(fromNow), 'it is watched from there');
      create('d');
      cluster.pods.remove('c');
      await untilKnown('b', 'd');
    },
  );

  it('five hundred pods at once', async () => {
    for (let i = 0; i < 500; i += 1) create(`pod-${i}`);
    await lead();
    expect(await known()).toHaveLength(500);
    await watching();
    for (let i = 0; i < 500; i += 1) cluster.pods.remove(`pod-${i}`);
    await until(async () => (await known()).length === 0, 'all are removed');
  });
});
