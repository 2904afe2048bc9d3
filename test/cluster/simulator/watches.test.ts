import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../support/manual-clock.js';
import { until } from '../../support/until.js';
import { ask, freshCluster, lease, leasesPath, sees, watch } from './support.js';

describe('a watch', () => {
  it.each(['', 'resourceVersion=0'])('without a version (%s) starts with all objects', async (query) => {
    const cluster = await freshCluster();
    for (const name of ['b', 'a']) cluster.pods.create({ name });
    const open = await watch(cluster, query);
    cluster.pods.setReady('a', false);
    cluster.pods.remove('b');
    await sees(open, 'ADDED a', 'ADDED b', 'MODIFIED a', 'DELETED b');
  });

  it('from a version replays the later changes in order, then follows', async () => {
    const cluster = await freshCluster();
    cluster.pods.create({ name: 'a' });
    const version = cluster.resourceVersion;
    cluster.pods.create({ name: 'b' });
    cluster.pods.remove('a');
    const open = await watch(cluster, `resourceVersion=${version}`);
    cluster.pods.create({ name: 'c' });
    await sees(open, 'ADDED b', 'DELETED a', 'ADDED c');
    const versions = open.events.map(({ object }) => Number(object.metadata.resourceVersion));
    expect(versions).toEqual([...versions].sort((a, b) => a - b));
    expect(open.events[0]?.object).toMatchObject({ kind: 'Pod', apiVersion: 'v1' });
  });

  it('with a selector sees a pod added and deleted as its labels change', async () => {
    const cluster = await freshCluster();
    cluster.pods.create({ name: 'a', labels: { app: 'other' } });
    const open = await watch(cluster, 'labelSelector=app%3Dagent');
    cluster.pods.create({ name: 'ignored', labels: { app: 'other' } });
    cluster.pods.patch('a', { metadata: { labels: { app: 'agent' } } });
    cluster.pods.setReady('a', false);
    cluster.pods.patch('a', { metadata: { labels: { app: 'other' } } });
    await sees(open, 'ADDED a', 'MODIFIED a', 'DELETED a');
    const last = open.events.at(-1)?.object;
    expect(last.metadata.labels.app).toBe('agent');
    expect(last.metadata.resourceVersion).toBe(String(cluster.resourceVersion));
    cluster.pods.remove('a');
    cluster.pods.create({ name: 'b', labels: { app: 'agent' } });
    await sees(open, 'ADDED a', 'MODIFIED a', 'DELETED a', 'ADDED b');
  });

  it('sees its own namespace and resource only', async () => {
    const cluster = await freshCluster();
    const open = await watch(cluster);
    const leases = await watch(cluster, '', leasesPath);
    cluster.pods.create({ name: 'a', namespace: 'other' });
    await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    cluster.pods.create({ name: 'b' });
    await sees(open, 'ADDED b');
    await sees(leases, 'ADDED leader');
  });

  it('from an expired version gets the ERROR event 410 and ends', async () => {
    const cluster = await freshCluster({ historyLimit: 2 });
    cluster.pods.create({ name: 'a' });
    const version = cluster.resourceVersion;
    cluster.pods.create({ name: 'b' });
    cluster.pods.create({ name: 'c' });
    await sees(await watch(cluster, `resourceVersion=${version}`), 'ADDED b', 'ADDED c');
    cluster.pods.create({ name: 'd' });
    const late = await watch(cluster, `resourceVersion=${version}`);
    await until(() => late.ended() === 'clean', 'the watch ends');
    expect(late.events).toHaveLength(1);
    expect(late.events[0]).toMatchObject({
      type: 'ERROR',
      object: { kind: 'Status', status: 'Failure', code: 410, reason: 'Expired' },
    });
  });

  it('gets bookmarks if requested, also at its timeout', async () => {
    const clock = new ManualClock();
    const cluster = await freshCluster({ clock, bookmarkIntervalMs: 2000 });
    const version = cluster.resourceVersion;
    const wants = await watch(
      cluster,
      `resourceVersion=${version}&allowWatchBookmarks=true&timeoutSeconds=3`,
    );
    const other = await watch(cluster, `resourceVersion=${version}&timeoutSeconds=3`);
    cluster.pods.create({ name: 'a' });
    await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    clock.advance(2000);
    await until(() => wants.events.length === 2, 'a pod and a bookmark');
    expect(wants.events[1]).toEqual({
      type: 'BOOKMARK',
      object: {
        kind: 'Pod',
        apiVersion: 'v1',
        metadata: { resourceVersion: String(cluster.resourceVersion), creationTimestamp: null },
      },
    });
    await ask(cluster, 'PATCH', `${leasesPath}/leader`, { spec: { holderIdentity: 'you' } });
    clock.advance(1000);
    await until(() => wants.ended() === 'clean' && other.ended() === 'clean', 'both end');
    expect(wants.events.map(({ type }) => type)).toEqual(['ADDED', 'BOOKMARK', 'BOOKMARK']);
    expect(wants.events[2]?.object.metadata.resourceVersion).toBe(String(cluster.resourceVersion));
    expect(other.events.map(({ type }) => type)).toEqual(['ADDED']);
  });

  it('delivers 5,000 pods to three watches', async () => {
    const cluster = await freshCluster();
    const open = await Promise.all(Array.from({ length: 3 }, () => watch(cluster)));
    for (let n = 0; n < 5000; n += 1) cluster.pods.create({ name: `agent-${n}` });
    await until(() => open.every(({ events }) => events.length === 5000), 'every watch has seen every pod');
    expect(open[2]?.events.at(-1)?.object.metadata.name).toBe('agent-4999');
  });

  it('is removed when its client disconnects', async () => {
    const cluster = await freshCluster();
    const open = await watch(cluster);
    expect(cluster.openWatches).toBe(1);
    open.close();
    await until(() => cluster.openWatches === 0, 'the server has noticed');
  });
});
