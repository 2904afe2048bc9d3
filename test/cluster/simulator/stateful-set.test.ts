import { describe, expect, it } from 'vitest';
import type { Cluster } from '../../../src/cluster/simulator/cluster.js';
import { runStatefulSet, type StatefulSetOptions } from '../../../src/cluster/simulator/stateful-set.js';
import { ManualClock } from '../../support/manual-clock.js';
import { until } from '../../support/until.js';
import { ask, finallyDo, freshCluster, podsPath, setsPath } from './support.js';

const defaults = { name: 'agent', replicas: 3, readyAfterMs: 100, graceMs: 1000 };

async function runSet(options: Partial<StatefulSetOptions> = {}) {
  const clock = new ManualClock();
  const cluster = await freshCluster({ clock });
  const story: string[] = [];
  const alive = new Map<string, string>();
  cluster.internals.store.onChange(({ plural }, { type, now: { name, uid } }) => {
    if (plural !== 'pods' || type === 'MODIFIED') return;
    story.push(`${type === 'ADDED' ? 'made' : 'gone'} ${name}`);
    if (type === 'ADDED' && alive.has(name)) story.push(`two of ${name}`);
    if (type === 'ADDED') alive.set(name, uid);
    else alive.delete(name);
  });
  const set = runStatefulSet(cluster, { ...defaults, ...options });
  finallyDo(() => set.stop());
  return { clock, cluster, set, story };
}

/** A simulated minute goes by in small steps, until it is so; every step lets promises run. */
async function lapse(clock: ManualClock, isSo: () => boolean, what: string): Promise<void> {
  for (let step = 0; step < 6000; step += 1) {
    if (isSo()) return;
    clock.advance(10);
    await new Promise((resolve) => setImmediate(resolve));
  }
  throw new Error(`waited in vain until ${what}`);
}

const names = (cluster: Cluster) => cluster.pods.list().map(({ metadata }) => metadata.name);
const container = (cluster: Cluster, name: string) => cluster.pods.get(name)?.status.containerStatuses?.[0];
const uids = (cluster: Cluster) => cluster.pods.list().map(({ metadata }) => metadata.uid);

describe('a set', () => {
  it('makes its pods one after the other, each when the one before is ready', async () => {
    const { clock, cluster, set } = await runSet({ startAfterMs: 50 });
    expect(names(cluster)).toEqual(['agent-0']);
    expect(cluster.pods.get('agent-0')?.status.phase).toBe('Pending');
    clock.advance(50);
    expect(cluster.pods.get('agent-0')?.status).toMatchObject({
      phase: 'Running',
      podIP: expect.any(String),
    });
    expect(container(cluster, 'agent-0')?.ready).toBe(false);
    await until(() => clock.timersMs.includes(100), 'the container has started');
    clock.advance(99);
    expect(container(cluster, 'agent-0')?.ready).toBe(false);
    clock.advance(1);
    expect(container(cluster, 'agent-0')?.ready).toBe(true);
    await until(() => names(cluster).length === 2, 'the next one is made');
    await lapse(clock, () => set.status().ready === 3, 'all are ready');
    expect(names(cluster)).toEqual(['agent-0', 'agent-1', 'agent-2']);
    expect(set.status()).toEqual({ desired: 3, replicas: 3, ready: 3, updated: 3, rolling: false });
  });

  it('makes them all at once when it is parallel', async () => {
    const { cluster } = await runSet({ podManagementPolicy: 'Parallel' });
    expect(names(cluster)).toEqual(['agent-0', 'agent-1', 'agent-2']);
  });

  it('marks its pods as its own', async () => {
    const { cluster } = await runSet({ labels: { app: 'voice' }, annotations: { note: 'x' } });
    const { metadata } = cluster.pods.get('agent-0') ?? {};
    expect(metadata).toMatchObject({
      generateName: 'agent-',
      labels: {
        app: 'voice',
        'statefulset.kubernetes.io/pod-name': 'agent-0',
        'apps.kubernetes.io/pod-index': '0',
        'controller-revision-hash': expect.stringMatching(/^agent-/),
      },
      annotations: { note: 'x' },
      ownerReferences: [{ kind: 'StatefulSet', name: 'agent', controller: true }],
    });
  });

  it('grows from the bottom and shrinks from the top', async () => {
    const { clock, cluster, set, story } = await runSet({ replicas: 2 });
    await lapse(clock, () => set.status().ready === 2, 'both are ready');
    set.scale(4);
    await lapse(clock, () => set.status().ready === 4, 'four are ready');
    set.scale(1);
    await lapse(clock, () => names(cluster).length === 1, 'one is left');
    expect(story.slice(2)).toEqual([
      'made agent-2',
      'made agent-3',
      'gone agent-3',
      'gone agent-2',
      'gone agent-1',
    ]);
  });

  it('is scaled and rolled through the API, too', async () => {
    const { clock, cluster, set } = await runSet({ replicas: 1 });
    await lapse(clock, () => set.status().ready === 1, 'it is ready');
    await ask(cluster, 'PATCH', `${setsPath}/agent`, { spec: { replicas: 2 } });
    await lapse(clock, () => set.status().ready === 2, 'two are ready');
    const before = uids(cluster);
    const restart = { spec: { template: { metadata: { annotations: { restartedAt: 'now' } } } } };
    await ask(cluster, 'PATCH', `${setsPath}/agent`, restart);
    expect(set.status().rolling).toBe(true);
    await lapse(clock, () => !set.status().rolling, 'the roll is over');
    expect(uids(cluster).some((uid) => before.includes(uid))).toBe(false);
    const { body } = await ask(cluster, 'GET', `${setsPath}/agent`);
    expect(body.status).toMatchObject({
      replicas: 2,
      readyReplicas: 2,
      updatedReplicas: 2,
      observedGeneration: 3,
    });
    expect(body.status.currentRevision).toBe(body.status.updateRevision);
  });

  it('takes its pods with it when it is deleted', async () => {
    const { clock, cluster, set } = await runSet({ podManagementPolicy: 'Parallel' });
    await lapse(clock, () => set.status().ready === 3, 'all are ready');
    await ask(cluster, 'DELETE', `${setsPath}/agent`);
    await lapse(clock, () => names(cluster).length === 0, 'all pods are gone');
  });
});

describe('a roll', () => {
  it('replaces the pods from the top, one at a time, each ready before the next ends', async () => {
    const { clock, cluster, set, story } = await runSet();
    await lapse(clock, () => set.status().ready === 3, 'all are ready');
    const before = uids(cluster);
    let fewestReady = 3;
    cluster.internals.store.onChange(() => {
      fewestReady = Math.min(
        fewestReady,
        cluster.pods.list().filter((pod) => pod.status.containerStatuses?.[0]?.ready).length,
      );
    });
    set.roll({ version: '2' });
    await lapse(clock, () => !set.status().rolling, 'the roll is over');
    expect(story.slice(3)).toEqual([
      'gone agent-2',
      'made agent-2',
      'gone agent-1',
      'made agent-1',
      'gone agent-0',
      'made agent-0',
    ]);
    expect(fewestReady).toBe(2);
    expect(uids(cluster).some((uid) => before.includes(uid))).toBe(false);
    expect(container(cluster, 'agent-1')?.image).toBe('registry.example/voice-agent:2');
    expect(set.status()).toEqual({ desired: 3, replicas: 3, ready: 3, updated: 3, rolling: false });
  });

  it('waits until a new pod has been ready for some time', async () => {
    const { clock, set, story } = await runSet({ replicas: 2, minReadyMs: 500 });
    await lapse(clock, () => set.status().ready === 2, 'both are ready');
    clock.advance(500);
    set.roll({ version: '2' });
    await lapse(clock, () => story.includes('gone agent-1'), 'the first has gone');
    await lapse(clock, () => set.status().ready === 2, 'it is ready again');
    clock.advance(400);
    await ask(await freshCluster(), 'GET', podsPath);
    expect(story).not.toContain('gone agent-0');
    await lapse(clock, () => !set.status().rolling, 'the roll is over');
    expect(story.filter((line) => line.startsWith('two'))).toEqual([]);
  });
});

describe('the end of a pod', () => {
  it('is preStop, then the stop of the container, then the removal; its name comes back with a new UID', async () => {
    const steps: string[] = [];
    const ends = new Map<string, () => void>();
    const step = (name: string) => (pod: { metadata: { name: string } }) => {
      if (pod.metadata.name !== 'agent-1') return undefined;
      steps.push(name);
      return new Promise<void>((resolve) => ends.set(name, resolve));
    };
    const { clock, cluster, set, story } = await runSet({
      replicas: 2,
      hooks: { preStop: step('preStop'), onStop: step('onStop'), onKill: () => void steps.push('killed') },
    });
    await lapse(clock, () => set.status().ready === 2, 'both are ready');
    const old = cluster.pods.get('agent-1')?.metadata.uid;
    set.remove('agent-1');
    await until(() => steps.length === 1, 'preStop runs');
    expect(cluster.pods.get('agent-1')?.metadata.deletionTimestamp).toBeDefined();
    expect(container(cluster, 'agent-1')?.ready).toBe(true);
    ends.get('preStop')?.();
    await until(() => steps.length === 2, 'the container is asked to end');
    expect(cluster.pods.get('agent-1')?.metadata.uid).toBe(old);
    ends.get('onStop')?.();
    await until(() => cluster.pods.get('agent-1')?.metadata.uid !== old, 'the old one is gone');
    await lapse(clock, () => set.status().ready === 2, 'its successor is ready');
    expect(cluster.pods.get('agent-1')?.metadata.uid).not.toBe(old);
    expect(steps).toEqual(['preStop', 'onStop']);
    expect(story.slice(2)).toEqual(['gone agent-1', 'made agent-1']);
  });

  it('comes at the latest with its grace period: the container is killed, the signal says so', async () => {
    const steps: string[] = [];
    const { clock, cluster, set } = await runSet({
      replicas: 1,
      graceMs: 2500,
      hooks: {
        preStop: (_, signal) => {
          steps.push('preStop');
          return new Promise((resolve) => {
            signal.addEventListener('abort', () => {
              steps.push('aborted');
              resolve();
            });
          });
        },
        onStop: () => void steps.push('onStop'),
        onKill: ({ metadata }) => void steps.push(`killed ${metadata.name}`),
      },
    });
    await lapse(clock, () => set.status().ready === 1, 'it is ready');
    const old = cluster.pods.get('agent-0')?.metadata;
    await ask(cluster, 'DELETE', `${podsPath}/agent-0`);
    await until(() => steps.length === 1, 'preStop runs');
    expect(cluster.pods.get('agent-0')?.metadata.deletionGracePeriodSeconds).toBe(3);
    clock.advance(2499);
    expect(cluster.pods.get('agent-0')?.metadata.uid).toBe(old?.uid);
    clock.advance(1);
    expect(steps).toEqual(['preStop', 'aborted', 'killed agent-0']);
    await until(() => cluster.pods.get('agent-0')?.metadata.uid !== old?.uid, 'its successor is there');
    expect(steps).not.toContain('onStop');
  });

  it('by force kills the container at once', async () => {
    const killed: string[] = [];
    const { clock, cluster, set } = await runSet({
      replicas: 1,
      hooks: { onKill: ({ metadata }) => void killed.push(metadata.uid) },
    });
    await lapse(clock, () => set.status().ready === 1, 'it is ready');
    const old = cluster.pods.get('agent-0')?.metadata.uid;
    await ask(cluster, 'DELETE', `${podsPath}/agent-0?gracePeriodSeconds=0`);
    expect(killed).toEqual([old]);
    await lapse(clock, () => set.status().ready === 1, 'its successor is ready');
    expect(cluster.pods.get('agent-0')?.metadata.uid).not.toBe(old);
  });

  it('of a pod that has not started yet is at once', async () => {
    const { cluster, set, story } = await runSet({ replicas: 1, startAfterMs: 1000 });
    set.remove('agent-0');
    await until(() => story.length === 3, 'it is made anew');
    expect(story).toEqual(['made agent-0', 'gone agent-0', 'made agent-0']);
    expect(names(cluster)).toEqual(['agent-0']);
  });
});

describe('a crash', () => {
  it('restarts the container in the same pod: not ready, one restart more, ready later', async () => {
    const steps: string[] = [];
    const { clock, cluster, set } = await runSet({
      replicas: 1,
      restartAfterMs: 30,
      hooks: {
        onStart: ({ status }) => void steps.push(`start ${status.containerStatuses?.[0]?.restartCount}`),
        onKill: () => void steps.push('killed'),
      },
    });
    await lapse(clock, () => set.status().ready === 1, 'it is ready');
    const { uid } = cluster.pods.get('agent-0')?.metadata ?? {};
    expect(set.crash('agent-0')).toBe(true);
    expect(container(cluster, 'agent-0')).toMatchObject({
      ready: false,
      restartCount: 0,
      state: { waiting: { reason: 'CrashLoopBackOff' } },
      lastState: { terminated: {} },
    });
    expect(set.crash('agent-0')).toBe(false);
    expect(set.crash('nobody')).toBe(false);
    clock.advance(30);
    expect(container(cluster, 'agent-0')).toMatchObject({
      ready: false,
      restartCount: 1,
      state: { running: {} },
    });
    await lapse(clock, () => set.status().ready === 1, 'it is ready again');
    expect(cluster.pods.get('agent-0')?.metadata.uid).toBe(uid);
    expect(steps).toEqual(['start 0', 'killed', 'start 1']);
  });

  it('is what a start that fails amounts to', async () => {
    let starts = 0;
    const { clock, cluster, set } = await runSet({
      replicas: 1,
      hooks: {
        onStart: () => {
          starts += 1;
          if (starts < 3) throw new Error('no luck');
        },
      },
    });
    await lapse(clock, () => set.status().ready === 1, 'it is ready in the end');
    expect(container(cluster, 'agent-0')?.restartCount).toBe(2);
  });
});
