/** The lock as a Lease, over HTTP to the simulated API server. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { connectKubernetes, type KubeApi } from '../../src/cluster/kubernetes/api.js';
import { Election } from '../../src/leadership/election.js';
import { KubernetesLock } from '../../src/leadership/kubernetes-lock.js';
import { silentLogger } from '../../src/observe/log.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { until } from '../support/until.js';
import { describeLock, example } from './conformance.js';

const namespace = 'voice';
const name = 'smart-router-leader';
const folderPath = `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`;
const path = `${folderPath}/${name}`;
const timeoutMs = 5000;

interface Lease {
  metadata: Record<string, unknown> & { annotations: Record<string, string>; resourceVersion: string };
  spec: Record<string, unknown>;
}

describe('the lock as a Lease', () => {
  let folder: string;
  let cluster: Cluster;
  let api: KubeApi;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'smart-router-lease-'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  beforeEach(async () => {
    cluster = await startCluster({ clock: systemClock, namespace });
    const file = join(folder, 'kubeconfig');
    writeFileSync(file, cluster.kubeconfig);
    api = await connectKubernetes({ kubeconfig: file }, systemClock);
  });
  afterEach(async () => {
    api.close();
    await cluster.stop();
  });

  const open = () => new KubernetesLock({ api, namespace, name, clock: systemClock });
  const get = () => api.json<Lease>({ path, timeoutMs });
  const put = (lease: Lease) => api.json<Lease>({ method: 'PUT', path, body: lease, timeoutMs });

  describeLock(() => ({
    open,
    wipe: async () => void (await api.json({ method: 'DELETE', path, timeoutMs })),
    silence: async () => {
      const end = cluster.faults.failRequests({ hang: true });
      return async () => end();
    },
  }));

  it('has the fields of client-go, in its units', async () => {
    await open().write({ ...example, durationMs: 14_001 }, undefined, timeoutMs);
    const lease = await get();
    expect(lease.spec).toEqual({
      holderIdentity: 'router-0',
      leaseDurationSeconds: 15,
      acquireTime: '2026-11-15T10:00:00.000000Z',
      renewTime: '2026-11-15T10:00:02.123000Z',
      leaseTransitions: 3,
    });
    const record = await open().read(timeoutMs);
    expect(record).toEqual({ ...example, durationMs: 15_000, version: lease.metadata.resourceVersion });
  });

  it('never asks for less than a second', async () => {
    await open().write({ ...example, durationMs: 1 }, undefined, timeoutMs);
    expect((await get()).spec.leaseDurationSeconds).toBe(1);
  });

  it('leaves alone what others have written into it', async () => {
    const lock = open();
    await lock.write(example, undefined, timeoutMs);
    const lease = await get();
    await put({
      ...lease,
      metadata: {
        ...lease.metadata,
        labels: { team: 'voice' },
        annotations: { ...lease.metadata.annotations, note: 'by hand' },
      },
    });
    const seen = await lock.read(timeoutMs);
    await lock.write({ ...example, holder: 'router-1' }, seen?.version, timeoutMs);
    const after = await get();
    expect(after.metadata).toMatchObject({ labels: { team: 'voice' }, annotations: { note: 'by hand' } });
    expect(after.spec.holderIdentity).toBe('router-1');
  });

  it('an edit by hand changes the version, not the writer', async () => {
    const lock = open();
    const before = await lock.write(example, undefined, timeoutMs);
    const lease = await get();
    await put({ ...lease, metadata: { ...lease.metadata, labels: { a: 'b' } } });
    const after = await lock.read(timeoutMs);
    expect(after?.version).not.toBe(before?.version);
    expect(after?.writer).toBe(example.writer);
  });

  it('a write of client-go under our name, which keeps our annotation, does not count as ours', async () => {
    const lock = open();
    await lock.write(example, undefined, timeoutMs);
    const lease = await get();
    await put({ ...lease, spec: { ...lease.spec, renewTime: '2026-11-15T10:00:02.123456Z' } });
    expect(await lock.read(timeoutMs)).toMatchObject({ holder: 'router-0', writer: '' });
  });

  it('a Lease without a spec is free', async () => {
    const body = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name, namespace } };
    await api.json({ method: 'POST', path: folderPath, body, timeoutMs });
    const lock = open();
    const seen = await lock.read(timeoutMs);
    expect(seen).toMatchObject({ holder: '', writer: '', durationMs: 0, transitions: 0 });
    expect(await lock.write(example, seen?.version, timeoutMs)).toMatchObject({ holder: 'router-0' });
  });

  it.each([401, 403, 429, 500, 503])(
    '%i leaves the result of the write unknown, and throws',
    async (status) => {
      const lock = open();
      const held = await lock.write(example, undefined, timeoutMs);
      const end = cluster.faults.failRequests({ status });
      await expect(lock.read(timeoutMs)).rejects.toMatchObject({ status });
      await expect(lock.write(example, held?.version, timeoutMs)).rejects.toMatchObject({ status });
      end();
      // It has not forgotten the Lease over it.
      expect(await lock.write(example, held?.version, timeoutMs)).toBeDefined();
    },
  );

  it('a write whose answer was lost throws, and is there', async () => {
    const lock = open();
    const held = await lock.write(example, undefined, timeoutMs);
    cluster.faults.failRequests({ lost: true, verb: 'update', times: 1 });
    const next = { ...example, transitions: 4 };
    await expect(lock.write(next, held?.version, 1000)).rejects.toThrow();
    expect(await lock.read(timeoutMs)).toMatchObject({ transitions: 4, writer: example.writer });
  });

  it('of three routers one leads, through a deleted Lease and lost answers; when it stops, another one does', async () => {
    const terms: string[] = [];
    const elections = ['a', 'b', 'c'].map(
      (identity) =>
        new Election({
          lock: open(),
          identity,
          durationMs: 9000,
          renewDeadlineMs: 6000,
          retryPeriodMs: 100,
          clock: systemClock,
          log: silentLogger,
          lead: (signal) => {
            terms.push(identity);
            return new Promise((resolve) =>
              signal.addEventListener('abort', () => resolve(), { once: true }),
            );
          },
        }),
    );
    const leaders = () => elections.filter(({ isLeader }) => isLeader);
    try {
      for (const election of elections) election.start();
      const first = await until(() => leaders()[0], 'one leads');
      await until(() => elections.every(({ leader }) => leader === first.leader), 'all know it');
      await api.json({ method: 'DELETE', path, timeoutMs });
      const again = await until(get, 'the leader writes it again');
      expect(again.spec.holderIdentity).toBe(first.leader);
      cluster.faults.failRequests({ lost: true, verb: 'update', times: 1 });
      await until(async () => {
        const { metadata } = await get();
        return Number(metadata.resourceVersion) > Number(again.metadata.resourceVersion) + 3;
      }, 'it is renewed');
      expect(leaders()).toEqual([first]);
      expect(terms).toEqual([first.leader]);
      await first.stop();
      const second = await until(() => leaders()[0], 'another one leads');
      expect(second).not.toBe(first);
    } finally {
      await Promise.all(elections.map((election) => election.stop()));
    }
    expect((await get()).spec.holderIdentity).toBe('');
  });
});
