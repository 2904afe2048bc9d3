/** The router's own client against the simulated cluster. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { systemClock } from '../../../src/clock.js';
import { connectKubernetes, type KubeApi } from '../../../src/cluster/kubernetes/api.js';
import type { Cluster } from '../../support/cluster.js';
import { until } from '../../support/until.js';
import { finallyDo, freshCluster, lease, leasesPath, podsPath } from './support.js';

async function connect(cluster: Cluster, client: string): Promise<KubeApi> {
  const folder = mkdtempSync(join(tmpdir(), 'kubeconfig-'));
  finallyDo(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'config');
  writeFileSync(file, cluster.kubeconfigFor(client));
  const api = await connectKubernetes({ kubeconfig: file }, systemClock);
  finallyDo(() => api.close());
  return api;
}

const timeoutMs = 30_000;

it('the client lists, writes and watches, and the request log has its name', async () => {
  const cluster = await freshCluster({ token: 'secret' });
  const api = await connect(cluster, 'router-1');
  cluster.pods.create({ name: 'a' });
  const list = await api.json<{ items: unknown[]; metadata: { resourceVersion: string } }>({
    path: podsPath,
    timeoutMs,
  });
  expect(list.items).toHaveLength(1);

  const { resourceVersion } = list.metadata;
  const lines: string[] = [];
  const query = { watch: 'true', resourceVersion, allowWatchBookmarks: 'true' };
  const watching = (async () => {
    for await (const line of api.lines({ path: podsPath, query, timeoutMs })) lines.push(line);
  })();
  await until(() => cluster.openWatches === 1, 'the watch is open');
  cluster.pods.create({ name: 'b' });
  await until(() => lines.length === 1, 'the event has come');
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({ type: 'ADDED', object: { metadata: { name: 'b' } } });
  cluster.faults.endWatches({ client: 'router-1' });
  await watching;

  const made = await api.json<{ metadata: { resourceVersion: string } }>({
    method: 'POST',
    path: leasesPath,
    body: lease('leader', 'me'),
    timeoutMs,
  });
  const put = () =>
    api.json({
      method: 'PUT',
      path: `${leasesPath}/leader`,
      body: lease('leader', 'you', {}, made.metadata.resourceVersion),
      timeoutMs,
    });
  await put();
  await expect(put()).rejects.toMatchObject({ status: 409, reason: 'Conflict' });
  expect(new Set(cluster.requests.list().map(({ client }) => client))).toEqual(new Set(['router-1']));
  expect(cluster.requests.used()).toEqual(['create leases', 'list pods', 'update leases', 'watch pods']);
});

it('the client gets an error for a broken watch and the reason of a rejected request', async () => {
  const cluster = await freshCluster();
  const api = await connect(cluster, 'router-1');
  const watching = (async () => {
    for await (const _ of api.lines({ path: podsPath, query: { watch: '1' }, timeoutMs }));
  })();
  await until(() => cluster.openWatches === 1, 'the watch is open');
  const broken = expect(watching).rejects.toMatchObject({ name: 'KubeError', status: undefined });
  cluster.faults.cutWatches();
  await broken;
  cluster.faults.failRequests({ client: 'router-1', status: 429, retryAfterSeconds: 3, times: 1 });
  await expect(api.json({ path: podsPath, timeoutMs })).rejects.toMatchObject({
    status: 429,
    reason: 'TooManyRequests',
    retryAfterMs: 3000,
  });
});
