import { describe, expect, it } from 'vitest';
import type { Cluster } from '../../support/cluster.js';
import { ask, freshCluster, podsPath } from './support.js';

// biome-ignore lint/suspicious/noExplicitAny: items of any kind.
const names = (items: any[]) => items.map((item) => item.metadata.name as string);

async function pages(cluster: Cluster, limit: number, between: (page: number) => void = () => {}) {
  const versions = new Set<string>();
  const items: { metadata: { name: string; labels?: Record<string, string> } }[] = [];
  let token = '';
  for (let page = 1; ; page += 1) {
    const { status, body } = await ask(cluster, 'GET', `${podsPath}?limit=${limit}&continue=${token}`);
    expect(status).toBe(200);
    versions.add(body.metadata.resourceVersion);
    items.push(...body.items);
    token = body.metadata.continue ?? '';
    if (token === '') return { items, versions, page };
    between(page);
  }
}

describe('a list', () => {
  it('contains the pods of its namespace, sorted by name, and the latest version', async () => {
    const cluster = await freshCluster();
    for (const name of ['b', 'c', 'a']) cluster.pods.create({ name });
    cluster.pods.create({ name: 'elsewhere', namespace: 'other' });
    const { body } = await ask(cluster, 'GET', podsPath);
    expect(body).toMatchObject({ kind: 'PodList', apiVersion: 'v1' });
    expect(names(body.items)).toEqual(['a', 'b', 'c']);
    expect(body.metadata).toEqual({ resourceVersion: String(cluster.resourceVersion) });
    expect(body.items[0].kind).toBeUndefined();
    const everywhere = await ask(cluster, 'GET', '/api/v1/pods');
    expect(names(everywhere.body.items)).toEqual(['a', 'b', 'c', 'elsewhere']);
  });

  it('contains realistic pods of 2 to 4 KB', async () => {
    const cluster = await freshCluster();
    cluster.pods.create({ name: 'agent-0', annotations: { 'smart-router/tier': 'gold' } });
    const { body } = await ask(cluster, 'GET', `${podsPath}/agent-0`);
    expect(body).toMatchObject({
      kind: 'Pod',
      metadata: { name: 'agent-0', namespace: 'default', annotations: { 'smart-router/tier': 'gold' } },
      spec: { containers: [{ name: 'agent' }] },
      status: { phase: 'Running', containerStatuses: [{ name: 'agent', ready: true, restartCount: 0 }] },
    });
    expect(body.metadata.uid).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
    expect(body.metadata.creationTimestamp).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    expect(body.status.podIP).toMatch(/^10\./);
    const ready = body.status.conditions.find(({ type }: { type: string }) => type === 'Ready');
    expect(ready).toMatchObject({ status: 'True', lastTransitionTime: body.metadata.creationTimestamp });
    const length = JSON.stringify(body).length;
    expect(length).toBeGreaterThan(2000);
    expect(length).toBeLessThan(4000);
  });

  it.each([
    ['app=a', ['one', 'two']],
    ['app==a', ['one', 'two']],
    ['app!=a', ['none', 'three']],
    ['app in (a, b)', ['one', 'three', 'two']],
    ['app notin (a)', ['none', 'three']],
    ['app', ['one', 'three', 'two']],
    ['!app', ['none']],
    ['app=a,tier in (gold,silver),!spare', ['one']],
    ['example.com/zone=x-1.y_2', ['none']],
  ])('with the selector %s contains the matching pods', async (selector, expected) => {
    const cluster = await freshCluster();
    cluster.pods.create({ name: 'one', labels: { app: 'a', tier: 'gold' } });
    cluster.pods.create({ name: 'two', labels: { app: 'a', tier: 'gold', spare: 'yes' } });
    cluster.pods.create({ name: 'three', labels: { app: 'b' } });
    cluster.pods.create({ name: 'none', labels: { 'example.com/zone': 'x-1.y_2' } });
    const { body } = await ask(cluster, 'GET', `${podsPath}?labelSelector=${encodeURIComponent(selector)}`);
    expect(names(body.items).sort()).toEqual(expected);
  });

  it('with a field selector contains the pod of that name; other fields are rejected', async () => {
    const cluster = await freshCluster();
    for (const name of ['a', 'b']) cluster.pods.create({ name });
    const { body } = await ask(cluster, 'GET', `${podsPath}?fieldSelector=metadata.name%3Db`);
    expect(names(body.items)).toEqual(['b']);
    expect((await ask(cluster, 'GET', `${podsPath}?fieldSelector=spec.x%3Db`)).status).toBe(400);
    expect((await ask(cluster, 'GET', `${podsPath}?labelSelector=a%3D%3D%3Db`)).status).toBe(400);
  });
});

describe('the pages of a list', () => {
  it('show one version of 5,000 pods while pods are created, changed and removed', async () => {
    const cluster = await freshCluster();
    for (let n = 0; n < 5000; n += 1) cluster.pods.create({ name: `agent-${n}` });
    const before = names(cluster.pods.list());
    const { items, versions, page } = await pages(cluster, 500, (after) => {
      cluster.pods.create({ name: `zz-late-${after}` });
      cluster.pods.remove(`agent-${4999 - after}`);
      cluster.pods.patch(`agent-${900 + after}`, { metadata: { labels: { changed: 'yes' } } });
    });
    expect(page).toBe(10);
    expect(versions.size).toBe(1);
    expect(names(items)).toEqual(before);
    expect(items.some(({ metadata }) => metadata.labels?.changed)).toBe(false);
    const now = await ask(cluster, 'GET', podsPath);
    expect(now.body.items.some((item: (typeof items)[number]) => item.metadata.labels?.changed)).toBe(true);
  });

  it('contain remainingItemCount, except with a selector', async () => {
    const cluster = await freshCluster();
    for (const name of ['a', 'b', 'c', 'd', 'e']) cluster.pods.create({ name });
    const { body } = await ask(cluster, 'GET', `${podsPath}?limit=2`);
    expect(body.metadata.remainingItemCount).toBe(3);
    const selected = await ask(cluster, 'GET', `${podsPath}?limit=2&labelSelector=app`);
    expect(selected.body.metadata.continue).toBeTruthy();
    expect(selected.body.metadata.remainingItemCount).toBeUndefined();
    const last = await ask(cluster, 'GET', `${podsPath}?limit=9&continue=${body.metadata.continue}`);
    expect(last.body.metadata).toEqual({ resourceVersion: body.metadata.resourceVersion });
  });

  it('have at most maxPage items', async () => {
    const cluster = await freshCluster({ maxPage: 2 });
    for (const name of ['a', 'b', 'c']) cluster.pods.create({ name });
    expect((await pages(cluster, 100)).page).toBe(2);
  });

  it('end with 410 when their version is expired, with a token for the rest at the latest version', async () => {
    const cluster = await freshCluster();
    for (const name of ['a', 'b', 'c']) cluster.pods.create({ name });
    const first = await ask(cluster, 'GET', `${podsPath}?limit=1`);
    cluster.faults.expireHistory();
    cluster.pods.remove('b');
    const next = await ask(cluster, 'GET', `${podsPath}?limit=1&continue=${first.body.metadata.continue}`);
    expect(next.status).toBe(410);
    expect(next.body).toMatchObject({ kind: 'Status', status: 'Failure', reason: 'Expired', code: 410 });
    const rest = await ask(cluster, 'GET', `${podsPath}?limit=5&continue=${next.body.metadata.continue}`);
    expect(names(rest.body.items)).toEqual(['c']);
  });

  it('expire when their version leaves the history', async () => {
    const cluster = await freshCluster({ historyLimit: 3 });
    for (const name of ['a', 'b', 'c']) cluster.pods.create({ name });
    const { body } = await ask(cluster, 'GET', `${podsPath}?limit=1`);
    const next = `${podsPath}?limit=1&continue=${body.metadata.continue}`;
    for (const step of ['1', '2', '3']) cluster.pods.patch('a', { metadata: { labels: { step } } });
    expect((await ask(cluster, 'GET', next)).status).toBe(200);
    cluster.pods.patch('a', { metadata: { labels: { step: '4' } } });
    expect((await ask(cluster, 'GET', next)).status).toBe(410);
  });

  it('are rejected with an invalid token', async () => {
    const cluster = await freshCluster();
    for (const name of ['a', 'b']) cluster.pods.create({ name });
    expect((await ask(cluster, 'GET', `${podsPath}?limit=1&continue=nonsense`)).status).toBe(400);
  });
});
