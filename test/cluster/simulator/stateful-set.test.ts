import { describe, expect, it } from 'vitest';
import { StatefulSet, type StatefulSetOptions } from '../../../src/cluster/simulator/stateful-set.js';
import type { Cluster } from '../../support/cluster.js';
import { ManualClock } from '../../support/manual-clock.js';
import { until } from '../../support/until.js';
import { ask, finallyDo, freshCluster, podsPath } from './support.js';

const defaults = { name: 'agent', replicas: 3, readyAfterMs: 100, graceMs: 1000 };

async function runSet(options: Partial<StatefulSetOptions> = {}) {
  const clock = new ManualClock();
  const cluster = await freshCluster({ clock });
  const history: string[] = [];
  const alive = new Map<string, string>();
  cluster.internals.store.onChange(({ plural }, { type, now: { name, uid } }) => {
    if (plural !== 'pods' || type === 'MODIFIED') return;
    history.push(`${type === 'ADDED' ? 'created' : 'removed'} ${name}`);
    if (type === 'ADDED' && alive.has(name)) history.push(`duplicate ${name}`);
    if (type === 'ADDED') alive.set(name, uid);
    else alive.delete(name);
  });
  const set = new StatefulSet(cluster, { ...defaults, ...options });
  finallyDo(() => set.stop());
  return { clock, cluster, set, history };
}

/** Advances the clock in small steps, for up to a minute, until the condition holds; promises run in between. */
async function advanceUntil(clock: ManualClock, isDone: () => boolean, what: string): Promise<void> {
  for (let step = 0; step < 6000; step += 1) {
    if (isDone()) return;
    clock.advance(10);
    await new Promise((resolve) => setImmediate(resolve));
  }
  throw new Error(`timed out: ${what}`);
}

const names = (cluster: Cluster) => cluster.pods.list().map(({ metadata }) => metadata.name);
const container = (cluster: Cluster, name: string) => cluster.pods.get(name)?.status.containerStatuses?.[0];
const uids = (cluster: Cluster) => cluster.pods.list().map(({ metadata }) => metadata.uid);

describe('a StatefulSet', () => {
  it('creates its pods in order, each after the one before is ready', async () => {
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
    await until(() => names(cluster).length === 2, 'the next one is created');
    await advanceUntil(clock, () => set.status().ready === 3, 'all are ready');
    expect(names(cluster)).toEqual(['agent-0', 'agent-1', 'agent-2']);
    expect(set.status()).toEqual({ desired: 3, replicas: 3, ready: 3, updated: 3, rolling: false });
  });

  it('creates all pods at once with the policy Parallel', async () => {
    const { cluster } = await runSet({ podManagementPolicy: 'Parallel' });
    expect(names(cluster)).toEqual(['agent-0', 'agent-1', 'agent-2']);
  });

  it('gives its pods the labels and owner of a StatefulSet', async () => {
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
});

describe('a roll', () => {
  it('replaces the pods from the highest ordinal down, each ready before the next is deleted', async () => {
    const { clock, cluster, set, history } = await runSet();
    await advanceUntil(clock, () => set.status().ready === 3, 'all are ready');
    const before = uids(cluster);
    let minReady = 3;
    cluster.internals.store.onChange(() => {
      minReady = Math.min(
        minReady,
        cluster.pods.list().filter((pod) => pod.status.containerStatuses?.[0]?.ready).length,
      );
    });
    set.roll({ version: '2' });
    await advanceUntil(clock, () => !set.status().rolling, 'the roll is complete');
    expect(history.slice(3)).toEqual([
      'removed agent-2',
      'created agent-2',
      'removed agent-1',
      'created agent-1',
      'removed agent-0',
      'created agent-0',
    ]);
    expect(minReady).toBe(2);
    expect(uids(cluster).some((uid) => before.includes(uid))).toBe(false);
    expect(container(cluster, 'agent-1')?.image).toBe('registry.example/voice-agent:2');
    expect(set.status()).toEqual({ desired: 3, replicas: 3, ready: 3, updated: 3, rolling: false });
  });

  it('waits until a new pod has been ready for minReadyMs', async () => {
    const { clock, set, history } = await runSet({ replicas: 2, minReadyMs: 500 });
    await advanceUntil(clock, () => set.status().ready === 2, 'both are ready');
    clock.advance(500);
    set.roll({ version: '2' });
    await advanceUntil(clock, () => history.includes('removed agent-1'), 'the first is removed');
    await advanceUntil(clock, () => set.status().ready === 2, 'it is ready again');
    clock.advance(400);
    await ask(await freshCluster(), 'GET', podsPath);
    expect(history).not.toContain('removed agent-0');
    await advanceUntil(clock, () => !set.status().rolling, 'the roll is complete');
    expect(history.filter((line) => line.startsWith('duplicate'))).toEqual([]);
  });
});

describe('the deletion of a pod', () => {
  it('runs preStop, then stops the container, then removes the pod; a new pod gets its name', async () => {
    const steps: string[] = [];
    const ends = new Map<string, () => void>();
    const step = (name: string) => (pod: { metadata: { name: string } }) => {
      if (pod.metadata.name !== 'agent-1') return undefined;
      steps.push(name);
      return new Promise<void>((resolve) => ends.set(name, resolve));
    };
    const { clock, cluster, set, history } = await runSet({
      replicas: 2,
      hooks: { preStop: step('preStop'), onStop: step('onStop'), onKill: () => void steps.push('killed') },
    });
    await advanceUntil(clock, () => set.status().ready === 2, 'both are ready');
    const old = cluster.pods.get('agent-1')?.metadata.uid;
    set.remove('agent-1');
    await until(() => steps.length === 1, 'preStop runs');
    expect(cluster.pods.get('agent-1')?.metadata.deletionTimestamp).toBeDefined();
    expect(container(cluster, 'agent-1')?.ready).toBe(true);
    ends.get('preStop')?.();
    await until(() => steps.length === 2, 'the container is stopped');
    expect(cluster.pods.get('agent-1')?.metadata.uid).toBe(old);
    ends.get('onStop')?.();
    await until(() => cluster.pods.get('agent-1')?.metadata.uid !== old, 'the old pod is removed');
    await advanceUntil(clock, () => set.status().ready === 2, 'its replacement is ready');
    expect(cluster.pods.get('agent-1')?.metadata.uid).not.toBe(old);
    expect(steps).toEqual(['preStop', 'onStop']);
    expect(history.slice(2)).toEqual(['removed agent-1', 'created agent-1']);
  });

  it('kills the container and aborts the signal at the end of the grace period', async () => {
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
    await advanceUntil(clock, () => set.status().ready === 1, 'it is ready');
    const old = cluster.pods.get('agent-0')?.metadata;
    await ask(cluster, 'DELETE', `${podsPath}/agent-0`);
    await until(() => steps.length === 1, 'preStop runs');
    expect(cluster.pods.get('agent-0')?.metadata.deletionGracePeriodSeconds).toBe(3);
    clock.advance(2499);
    expect(cluster.pods.get('agent-0')?.metadata.uid).toBe(old?.uid);
    clock.advance(1);
    expect(steps).toEqual(['preStop', 'aborted', 'killed agent-0']);
    await until(() => cluster.pods.get('agent-0')?.metadata.uid !== old?.uid, 'its replacement exists');
    expect(steps).not.toContain('onStop');
  });

  it('without a grace period kills the container at once', async () => {
    const killed: string[] = [];
    const { clock, cluster, set } = await runSet({
      replicas: 1,
      hooks: { onKill: ({ metadata }) => void killed.push(metadata.uid) },
    });
    await advanceUntil(clock, () => set.status().ready === 1, 'it is ready');
    const old = cluster.pods.get('agent-0')?.metadata.uid;
    await ask(cluster, 'DELETE', `${podsPath}/agent-0?gracePeriodSeconds=0`);
    expect(killed).toEqual([old]);
    await advanceUntil(clock, () => set.status().ready === 1, 'its replacement is ready');
    expect(cluster.pods.get('agent-0')?.metadata.uid).not.toBe(old);
  });

  it('removes a pod that has not started at once', async () => {
    const { cluster, set, history } = await runSet({ replicas: 1, startAfterMs: 1000 });
    set.remove('agent-0');
    await until(() => history.length === 3, 'it is created again');
    expect(history).toEqual(['created agent-0', 'removed agent-0', 'created agent-0']);
    expect(names(cluster)).toEqual(['agent-0']);
  });
});

describe('a crash', () => {
  it('restarts the container in the same pod: not ready, one more restart, ready later', async () => {
    const steps: string[] = [];
    const { clock, cluster, set } = await runSet({
      replicas: 1,
      restartAfterMs: 30,
      hooks: {
        onStart: ({ status }) => void steps.push(`start ${status.containerStatuses?.[0]?.restartCount}`),
        onKill: () => void steps.push('killed'),
      },
    });
    await advanceUntil(clock, () => set.status().ready === 1, 'it is ready');
    const { uid } = cluster.pods.get('agent-0')?.metadata ?? {};
    expect(set.crash('agent-0')).toBe(true);
    expect(container(cluster, 'agent-0')).toMatchObject({
      ready: false,
      restartCount: 0,
      state: { waiting: { reason: 'CrashLoopBackOff' } },
      lastState: { terminated: {} },
    });
    expect(set.crash('agent-0')).toBe(false);
    expect(set.crash('unknown')).toBe(false);
    clock.advance(30);
    expect(container(cluster, 'agent-0')).toMatchObject({
      ready: false,
      restartCount: 1,
      state: { running: {} },
    });
    await advanceUntil(clock, () => set.status().ready === 1, 'it is ready again');
    expect(cluster.pods.get('agent-0')?.metadata.uid).toBe(uid);
    expect(steps).toEqual(['start 0', 'killed', 'start 1']);
  });

  it('restarts a container whose start fails', async () => {
    let starts = 0;
    const { clock, cluster, set } = await runSet({
      replicas: 1,
      hooks: {
        onStart: () => {
          starts += 1;
          if (starts < 3) throw new Error('start failed');
        },
      },
    });
    await advanceUntil(clock, () => set.status().ready === 1, 'it is ready');
    expect(container(cluster, 'agent-0')?.restartCount).toBe(2);
  });
});
