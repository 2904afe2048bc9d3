/** An API server with random responses: each one is understood or rejected, and the leader continues. */
import type { ServerResponse } from 'node:http';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Clock, systemClock } from '../../src/clock.js';
import { type KubeApi, KubeError } from '../../src/cluster/kubernetes/api.js';
import { kubernetesSource } from '../../src/cluster/kubernetes/source.js';
import { type PodChange, type PodSource, VersionExpired } from '../../src/cluster/pods.js';
import { KubernetesLock } from '../../src/leadership/kubernetes-lock.js';
import { ObservedLock } from '../../src/leadership/observed-lock.js';
import { Watcher } from '../../src/pool/watcher.js';
import { type Kubernetes, kubeconfig, kubernetes } from '../cluster/fixture.js';
import { openLeader, silentLog } from '../pool/fixture.js';
import { describeOneEngine } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { ManualClock } from '../support/manual-clock.js';
import { fuzzing } from './runs.js';
import { damaged, jsonOf, oddJson, oddText, orOdd, some } from './values.js';

const version = orOdd(fc.nat({ max: 1000 }).map(String), 6);
const wishes = orOdd(
  some({ 'smart-router/tier': orOdd(fc.constantFrom('gold', 'basic')), 'smart-router/merchant': oddJson }),
);
const pod = orOdd(
  some({
    metadata: orOdd(
      some({
        name: orOdd(fc.constantFrom('a', 'b', 'c'), 8),
        uid: orOdd(fc.constantFrom('1', '2')),
        resourceVersion: version,
        labels: wishes,
        annotations: wishes,
        deletionTimestamp: oddJson,
      }),
      10,
    ),
    spec: orOdd(some({ containers: orOdd(fc.array(orOdd(fc.constant({ name: 'agent' })))) })),
    status: orOdd(
      some({
        phase: orOdd(fc.constantFrom('Running', 'Pending', 'Failed')),
        podIP: orOdd(fc.constant('10.0.0.1')),
        conditions: orOdd(fc.constant([{ type: 'Ready', status: 'True' }])),
        containerStatuses: orOdd(
          fc.array(orOdd(some({ name: oddJson, restartCount: orOdd(fc.nat(3)), state: oddJson }))),
        ),
      }),
      8,
    ),
  }),
  8,
);
const page = orOdd(
  some({
    metadata: orOdd(some({ resourceVersion: version, continue: orOdd(fc.constantFrom('', 'more')) })),
    items: orOdd(fc.array(pod, { maxLength: 4 }), 6),
  }),
  10,
);
const event = orOdd(
  some({ type: orOdd(fc.constantFrom('ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR'), 8), object: pod }),
  10,
);
const lease = orOdd(
  some({
    metadata: orOdd(
      some({
        resourceVersion: version,
        annotations: orOdd(
          some({ 'smart-router/leader-process': orOdd(fc.constant('me 2026-11-15T10:00:00.000000Z 1')) }),
        ),
      }),
      6,
    ),
    spec: orOdd(
      some({
        holderIdentity: orOdd(fc.constantFrom('me', 'you', '')),
        leaseDurationSeconds: orOdd(fc.constantFrom(15, 1)),
        acquireTime: orOdd(fc.constant('2026-11-15T10:00:00.000000Z')),
        renewTime: orOdd(fc.constant('2026-11-15T10:00:00.000000Z')),
        leaseTransitions: orOdd(fc.nat(5)),
      }),
      8,
    ),
  }),
  10,
);
/** A line, and so without a break. */
const line = fc
  .oneof(
    { weight: 6, arbitrary: jsonOf(event) },
    { weight: 1, arbitrary: damaged(jsonOf(event)) },
    { weight: 1, arbitrary: oddText },
  )
  .map((one) => one.replaceAll('\n', ' '));

const namespace = 'default';
const expectTold = (error: unknown) => {
  if (error instanceof VersionExpired) return;
  expect(error).toBeInstanceOf(KubeError);
  expect((error as Error).message.length).toBeLessThan(2500);
};
const expectLockError = (error: unknown) => {
  if (!/is not a Lease$/.test((error as Error).message)) expectTold(error);
};

describe('an API server that says anything', () => {
  let k8s: Kubernetes;
  let api: KubeApi;
  let answer: (response: ServerResponse, isFirst: boolean) => void;
  beforeEach(async () => {
    k8s = kubernetes();
    const server = await k8s.serve((request, response) => {
      request.resume();
      answer(response, !request.url?.includes('continue='));
    });
    api = await k8s.connect(kubeconfig(server));
  });
  afterEach(() => k8s.stop());

  const json = (body: string, status = 200) => {
    answer = (response) => response.writeHead(status, { 'content-type': 'application/json' }).end(body);
  };
  const source = () => {
    const made = kubernetesSource({
      api,
      namespace,
      labelSelector: 'a=b',
      silenceMs: 5000,
      clock: systemClock,
      log: silentLog,
    });
    return made as PodSource & Required<Pick<PodSource, 'watch'>>;
  };
  const never = new AbortController().signal;

  it('is reported as an error, or its list has valid pods', async () => {
    const body = fc.oneof(jsonOf(page), damaged(jsonOf(page)));
    const status = fc.oneof(
      { weight: 6, arbitrary: fc.constant(200) },
      { weight: 1, arbitrary: fc.constantFrom(201, 204, 401, 404, 410, 429, 500) },
    );
    await fc.assert(
      fc.asyncProperty(body, status, async (body, status) => {
        answer = (response, isFirst) =>
          response.writeHead(status).end(isFirst ? body : JSON.stringify({ metadata: {}, items: [] }));
        try {
          const { pods, version } = await source().list(never);
          expect(version).toBeTypeOf('string');
          for (const { name, uid, version } of pods) {
            expect(name).toMatch(/^[a-z0-9.-]{1,253}$/);
            expect(uid).toBeTypeOf('string');
            if (version !== undefined) expect(version).toBeTypeOf('string');
          }
        } catch (error) {
          expectTold(error);
        }
      }),
      fuzzing(120),
    );
  });

  it('gives changes with a version each, or ends the watch', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(line, { maxLength: 5 }), async (lines) => {
        json(`${lines.join('\n')}\n`);
        const changes: PodChange[] = [];
        try {
          for await (const change of source().watch('1', never)) changes.push(change);
        } catch (error) {
          expectTold(error);
        }
        for (const { version } of changes) expect(version).toBeTypeOf('string');
      }),
      fuzzing(120),
    );
  });

  it('cannot make a follower believe that a holder it sees renew is dead', async () => {
    const clock = new ManualClock();
    await fc.assert(
      fc.asyncProperty(fc.oneof(jsonOf(lease), damaged(jsonOf(lease))), async (body) => {
        json(body);
        const lock = new KubernetesLock({ api, namespace, name: 'leader', clock: systemClock });
        const record = await lock.read(5000).catch(expectLockError);
        if (!record) return;
        for (const field of ['version', 'holder', 'writer', 'acquiredAt', 'renewedAt'] as const)
          expect(record[field], field).toBeTypeOf('string');
        expect(Number.isFinite(record.durationMs) && record.durationMs >= 0).toBe(true);
        expect(Number.isSafeInteger(record.transitions) && record.transitions >= 0).toBe(true);
        const observed = new ObservedLock(clock, 15_000);
        observed.observe(record);
        expect(observed.isFreeFor('another holder')).toBe(record.holder === '');
        const mine = { ...record, holder: 'me', writer: 'w', durationMs: 15_000 };
        await lock.write(mine, record.version, 5000).catch(expectLockError);
      }),
      fuzzing(120),
    );
  });

  describeOneEngine('the watcher', (engine) => {
    it('outlives every line, and follows the next good one', async () => {
      const leader = await openLeader(engine.url);
      const { writer, store } = leader;
      const hurried: Clock = { ...systemClock, sleep: async () => undefined };
      let count = 0;
      try {
        await fc.assert(
          fc.asyncProperty(fc.array(line, { maxLength: 4 }), async (lines) => {
            const { watch } = source();
            const options = { source: { watch }, clock: hurried, log: silentLog };
            const watcher = new Watcher(options, writer, () => undefined);
            watcher.listed('1');
            json(`${lines.join('\n')}\n`);
            await watcher.runOnce(store.epoch, never).catch(expectTold);
            count += 1;
            const good = {
              metadata: { name: `good-${count}`, uid: '1', resourceVersion: '1000' },
              status: {
                phase: 'Running',
                podIP: '10.0.0.1',
                conditions: [{ type: 'Ready', status: 'True' }],
              },
            };
            json(`${JSON.stringify({ type: 'ADDED', object: good })}\n`);
            watcher.listed('1', true);
            await watcher.runOnce(store.epoch, never);
            expect(await engine.redis.exists(`voice:pod:tier:good-${count}`)).toBe(1);
            json(`${JSON.stringify({ type: 'DELETED', object: good })}\n`);
            await watcher.runOnce(store.epoch, never);
          }),
          fuzzing(80),
        );
        expect(await checkInvariants(engine.redis)).toEqual([]);
      } finally {
        store.close();
      }
    });
  });
});
