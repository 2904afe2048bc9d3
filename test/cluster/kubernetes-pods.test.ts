/** What a pod object says, and that no object can say anything that breaks us. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { observePod } from '../../src/cluster/kubernetes/pods.js';
import type { ClusterPod } from '../../src/cluster/pods.js';
import { mergePatch } from '../../src/cluster/simulator/objects.js';
import { noWrites } from '../../src/pool/pod-writer.js';
import { openLeader } from '../pool/fixture.js';
import { describeEngines } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';

const ready = {
  kind: 'Pod',
  metadata: { name: 'agent-0', uid: 'u1', resourceVersion: '17', labels: { app: 'voice-agent' } },
  spec: { containers: [{ name: 'agent' }, { name: 'sidecar' }] },
  status: {
    phase: 'Running',
    podIP: '10.0.0.1',
    conditions: [
      { type: 'ContainersReady', status: 'True' },
      { type: 'Ready', status: 'True' },
    ],
    // Kubelets sort them by name, not as the spec has them.
    containerStatuses: [
      { name: 'agent', restartCount: 2, state: { running: { startedAt: '2026-11-15T10:00:00Z' } } },
      { name: 'sidecar', restartCount: 9, state: { running: { startedAt: '2026-11-15T11:00:00Z' } } },
    ],
  },
};
const seen: ClusterPod = {
  name: 'agent-0',
  uid: 'u1',
  version: '17',
  state: 'ready',
  restarts: 2,
  startedAt: '2026-11-15T10:00:01.000Z',
  mustReport: false,
};
const observe = (patch: object) => observePod(mergePatch(ready, patch));
const deleted = { deletionTimestamp: '2026-11-15T12:00:00Z' };
const notReady = { conditions: [{ type: 'Ready', status: 'False' }] };

describe('what a pod object says', () => {
  it('a ready pod', () => {
    expect(observePod(ready)).toEqual(seen);
  });

  it.each<[what: string, patch: object, state: ClusterPod['state']]>([
    ['ready', {}, 'ready'],
    ['phase Pending', { status: { phase: 'Pending' } }, 'not_ready'],
    ['phase Unknown', { status: { phase: 'Unknown' } }, 'not_ready'],
    ['no phase', { status: { phase: null } }, 'not_ready'],
    ['phase Succeeded', { status: { phase: 'Succeeded' } }, 'gone'],
    ['phase Failed', { status: { phase: 'Failed' } }, 'gone'],
    ['phase Failed while it is deleted', { metadata: deleted, status: { phase: 'Failed' } }, 'gone'],
    ['condition Ready false', { status: notReady }, 'not_ready'],
    [
      'condition Ready unknown',
      { status: { conditions: [{ type: 'Ready', status: 'Unknown' }] } },
      'not_ready',
    ],
    [
      'condition Ready is a boolean',
      { status: { conditions: [{ type: 'Ready', status: true }] } },
      'not_ready',
    ],
    [
      'only its containers are ready',
      { status: { conditions: [{ type: 'ContainersReady', status: 'True' }] } },
      'not_ready',
    ],
    ['no conditions', { status: { conditions: null } }, 'not_ready'],
    ['no address', { status: { podIP: null } }, 'not_ready'],
    ['an empty address', { status: { podIP: '' } }, 'not_ready'],
    ['deletionTimestamp', { metadata: deleted }, 'terminating'],
    ['deletionTimestamp, not ready', { metadata: deleted, status: notReady }, 'terminating'],
    [
      'deletionTimestamp, not started',
      { metadata: deleted, status: { phase: 'Pending', podIP: null } },
      'terminating',
    ],
    ['no status at all', { status: null }, 'not_ready'],
  ])('%s', (_, patch, state) => {
    expect(observe(patch)?.state).toBe(state);
  });

  const labels = (values: Record<string, unknown>) => ({ metadata: { labels: values } });
  const annotations = (values: Record<string, unknown>) => ({ metadata: { annotations: values } });

  it.each<[what: string, patch: object, wishes: Partial<ClusterPod>]>([
    ['nothing asked', {}, {}],
    ['a tier by label', labels({ 'smart-router/tier': 'gold' }), { tier: 'gold' }],
    ['a tier by annotation', annotations({ 'smart-router/tier': 'gold' }), { tier: 'gold' }],
    ['a merchant by label', labels({ 'smart-router/merchant': 'acme' }), { merchant: 'acme' }],
    ['a merchant by annotation', annotations({ 'smart-router/merchant': 'acme' }), { merchant: 'acme' }],
    [
      'labels win over annotations',
      {
        metadata: { labels: { 'smart-router/tier': 'gold' }, annotations: { 'smart-router/tier': 'basic' } },
      },
      { tier: 'gold' },
    ],
    ['a name that cannot be one', labels({ 'smart-router/tier': 'a b', 'smart-router/merchant': '' }), {}],
    ['a name that is too long', annotations({ 'smart-router/merchant': 'x'.repeat(65) }), {}],
    ['a name with a colon', annotations({ 'smart-router/merchant': 'a:b' }), {}],
    ['a tier that is a number', annotations({ 'smart-router/tier': 7 }), {}],
    ['must report', annotations({ 'smart-router/report': 'required' }), { mustReport: true }],
    ['must report, by label', labels({ 'smart-router/report': 'required' }), { mustReport: true }],
    ['another word about reports', annotations({ 'smart-router/report': 'true' }), { mustReport: false }],
  ])('%s', (_, patch, wishes) => {
    expect(observe(patch)).toEqual({ ...seen, ...wishes });
  });

  const named = (name: unknown) => annotations({ 'kubectl.kubernetes.io/default-container': name });
  const { containerStatuses } = ready.status;
  const reversed = { containerStatuses: containerStatuses.toReversed() };
  const container = (fields: object) => ({
    status: { containerStatuses: [{ ...containerStatuses[0], ...fields }] },
  });
  const started = (startedAt: unknown) => container({ state: { running: { startedAt } } });
  const { restarts: _r, startedAt: _s, ...withoutContainer } = seen;

  it.each<[what: string, patch: object, expected: Pick<ClusterPod, 'restarts' | 'startedAt' | 'endedAt'>]>([
    [
      'the first container of the spec, with its status in any place',
      { status: reversed },
      { restarts: 2, startedAt: seen.startedAt as string },
    ],
    [
      'the container that the annotation names',
      named('sidecar'),
      { restarts: 9, startedAt: '2026-11-15T11:00:01.000Z' },
    ],
    [
      'an annotation that names none: the first of the spec',
      { ...named('missing'), status: reversed },
      { restarts: 2, startedAt: seen.startedAt as string },
    ],
    [
      'an annotation that is not text',
      { ...named(5), status: reversed },
      { restarts: 2, startedAt: seen.startedAt as string },
    ],
    [
      'a spec without containers: the only status there is',
      { spec: { containers: null } },
      { restarts: 2, startedAt: seen.startedAt as string },
    ],
    ['no status of any container', { status: { containerStatuses: null } }, {}],
    [
      'a container that has ended',
      container({ state: { terminated: { exitCode: 1, finishedAt: '2026-11-15T10:30:00Z' } } }),
      { restarts: 2, endedAt: '2026-11-15T10:30:01.000Z' },
    ],
    [
      'a crash loop',
      container({
        state: { waiting: { reason: 'CrashLoopBackOff' } },
        lastState: { terminated: { finishedAt: '2026-11-15T10:30:00Z' } },
      }),
      { restarts: 2, endedAt: '2026-11-15T10:30:01.000Z' },
    ],
    [
      'a container that waits for another reason after its end',
      container({
        state: { waiting: { reason: 'ImagePullBackOff' } },
        lastState: { terminated: { finishedAt: '2026-11-15T10:30:00Z' } },
      }),
      { restarts: 2, endedAt: '2026-11-15T10:30:01.000Z' },
    ],
    [
      'a first start that waits',
      container({ state: { waiting: { reason: 'ContainerCreating' } }, lastState: {} }),
      { restarts: 2 },
    ],
    ['an end without a time', container({ state: { terminated: { exitCode: 1 } } }), { restarts: 2 }],
    [
      'a running container with an earlier end',
      container({ lastState: { terminated: { finishedAt: '2026-11-15T09:59:00Z' } } }),
      { restarts: 2, startedAt: seen.startedAt as string },
    ],
    [
      'only the status of a sidecar: nothing about the agent',
      { status: { containerStatuses: [containerStatuses[1]] } },
      {},
    ],
    [
      'a native sidecar that has ended: the agent runs',
      {
        spec: { initContainers: [{ name: 'mesh', restartPolicy: 'Always' }] },
        status: {
          initContainerStatuses: [
            { name: 'mesh', restartCount: 3, state: { terminated: { finishedAt: '2026-11-15T10:30:00Z' } } },
          ],
        },
      },
      { restarts: 2, startedAt: seen.startedAt as string },
    ],
    ['a restart count that is a text', container({ restartCount: '2' }), {}],
    ['a negative restart count', container({ restartCount: -1 }), {}],
    ['a broken restart count', container({ restartCount: 1.5 }), {}],
    ['a restart count beyond all numbers', container({ restartCount: Number.POSITIVE_INFINITY }), {}],
    [
      'a start with a fraction',
      started('2026-11-15T10:00:00.250Z'),
      { restarts: 2, startedAt: '2026-11-15T10:00:01.250Z' },
    ],
    [
      'a start in another time zone',
      started('2026-11-15T12:00:00+02:00'),
      { restarts: 2, startedAt: seen.startedAt as string },
    ],
    ['a start that is not a time', started('yesterday'), { restarts: 2 }],
    ['a start that is a number', started(1_800_000_000_000), { restarts: 2 }],
    ['a start at the end of all times', started('+275760-09-13T00:00:00.000Z'), { restarts: 2 }],
    ['a start that could not be compared as text', started('+010000-01-01T00:00:00.000Z'), { restarts: 2 }],
  ])('%s', (_, patch, expected) => {
    expect(observe(patch)).toEqual({ ...withoutContainer, ...expected });
  });

  it('an end counts until the pod is no longer ready: the kubelet may notice it late', () => {
    const ended = container({ state: { terminated: { finishedAt: '2026-11-15T10:30:00Z' } } });
    const conditions = [{ type: 'Ready', status: 'False', lastTransitionTime: '2026-11-15T10:30:02Z' }];
    expect(observe({ status: { ...ended.status, conditions } })?.endedAt).toBe('2026-11-15T10:30:03.000Z');
    const earlier = [{ ...conditions[0], lastTransitionTime: '2026-11-15T10:20:00Z' }];
    expect(observe({ status: { ...ended.status, conditions: earlier } })?.endedAt).toBe(
      '2026-11-15T10:30:01.000Z',
    );
  });

  it.each([
    undefined,
    null,
    0,
    '',
    'pod',
    [],
    {},
    { metadata: null },
    { metadata: { name: 5 } },
    { metadata: { name: '' } },
    { metadata: { name: 'metadata' } },
    { metadata: { name: 'Upper' } },
    { metadata: { name: 'a:b' } },
    { metadata: { name: 'a'.repeat(254) } },
    { metadata: [{ name: 'a' }] },
  ])('%j is not a pod', (object) => {
    expect(observePod(object)).toBeUndefined();
  });
});

/** The used fields, with values of every wrong type. */
const anything = fc.oneof(
  fc.jsonValue(),
  fc.string({ unit: 'binary' }),
  fc.constantFrom(
    '\ud800',
    '+275760-09-13T00:00:00Z',
    '9'.repeat(400),
    Number.POSITIVE_INFINITY,
    -0,
    1e308,
    undefined,
  ),
);
const orAnything = (arbitrary: fc.Arbitrary<unknown>) =>
  fc.oneof({ weight: 3, arbitrary }, { weight: 1, arbitrary: anything });
const record = (fields: Record<string, fc.Arbitrary<unknown>>) =>
  orAnything(fc.record(fields, { requiredKeys: [], noNullPrototype: true }));
const wishes = record({
  'smart-router/tier': orAnything(fc.constantFrom('gold', 'basic', 'nowhere')),
  'smart-router/merchant': orAnything(fc.constantFrom('acme', 'vip')),
  'smart-router/report': orAnything(fc.constant('required')),
  'kubectl.kubernetes.io/default-container': orAnything(fc.constant('agent')),
});
const anyPod = record({
  metadata: record({
    name: orAnything(fc.constantFrom('a', 'b')),
    uid: anything,
    resourceVersion: anything,
    labels: wishes,
    annotations: wishes,
    deletionTimestamp: anything,
  }),
  spec: record({
    containers: orAnything(fc.array(record({ name: orAnything(fc.constant('agent')) }), { maxLength: 2 })),
  }),
  status: record({
    phase: orAnything(fc.constantFrom('Running', 'Pending', 'Failed')),
    podIP: orAnything(fc.constant('10.0.0.1')),
    conditions: orAnything(
      fc.array(record({ type: fc.constant('Ready'), status: orAnything(fc.constant('True')) }), {
        maxLength: 2,
      }),
    ),
    containerStatuses: orAnything(
      fc.array(
        record({
          name: orAnything(fc.constant('agent')),
          restartCount: orAnything(fc.nat(3)),
          state: record({
            running: record({ startedAt: orAnything(fc.constant('2026-11-15T10:00:00Z')) }),
            terminated: record({ finishedAt: orAnything(fc.constant('2026-11-15T10:00:00Z')) }),
            waiting: record({ reason: orAnything(fc.constant('CrashLoopBackOff')) }),
          }),
          lastState: record({ terminated: record({ finishedAt: anything }) }),
        }),
        { maxLength: 2 },
      ),
    ),
  }),
});

describeEngines('a malformed pod object', (engine) => {
  it('never throws, and its result can be stored', async () => {
    const leader = await openLeader(engine.url);
    const { writer, store } = leader;
    try {
      await fc.assert(
        fc.asyncProperty(anyPod, async (object) => {
          const pod = observePod(object);
          if (!pod) return;
          expect(['ready', 'not_ready', 'terminating', 'gone']).toContain(pod.state);
          await writer.writeList(store.epoch, [pod], '', noWrites(), new AbortController().signal);
        }),
        { numRuns: 300 },
      );
      expect(await checkInvariants(engine.redis)).toEqual([]);
    } finally {
      store.close();
    }
  });
});
