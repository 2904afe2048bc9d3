import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../support/manual-clock.js';
import { until } from '../../support/until.js';
import { ask, freshCluster, lease, leasesPath, podsPath, sees, setsPath, watch } from './support.js';

describe('a lease', () => {
  it('can be created once; the second attempt gets AlreadyExists', async () => {
    const cluster = await freshCluster();
    const first = await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    expect(first.status).toBe(201);
    expect(first.body).toMatchObject({
      kind: 'Lease',
      metadata: { name: 'leader', namespace: 'default' },
      spec: { holderIdentity: 'me' },
    });
    const second = await ask(cluster, 'POST', leasesPath, lease('leader', 'you'));
    expect([second.status, second.body.reason]).toEqual([409, 'AlreadyExists']);
    expect((await ask(cluster, 'GET', `${leasesPath}/leader`)).body.spec.holderIdentity).toBe('me');
  });

  it('can be updated only with its latest version', async () => {
    const cluster = await freshCluster();
    const { body } = await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    const version = body.metadata.resourceVersion;
    const won = await ask(cluster, 'PUT', `${leasesPath}/leader`, lease('leader', 'you', {}, version));
    expect(won.status).toBe(200);
    expect(Number(won.body.metadata.resourceVersion)).toBeGreaterThan(Number(version));
    expect(won.body.metadata.uid).toBe(body.metadata.uid);
    const lost = await ask(cluster, 'PUT', `${leasesPath}/leader`, lease('leader', 'third', {}, version));
    expect([lost.status, lost.body.reason]).toEqual([409, 'Conflict']);
    expect((await ask(cluster, 'GET', `${leasesPath}/leader`)).body.spec.holderIdentity).toBe('you');
  });

  it('accepts exactly one of twenty concurrent updates of the same version', async () => {
    const cluster = await freshCluster();
    const { body } = await ask(cluster, 'POST', leasesPath, lease('leader', ''));
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        ask(
          cluster,
          'PUT',
          `${leasesPath}/leader`,
          lease('leader', `r${n}`, {}, body.metadata.resourceVersion),
        ),
      ),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(19);
  });

  it('rejects an update without a version', async () => {
    const cluster = await freshCluster();
    await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    const blind = await ask(cluster, 'PUT', `${leasesPath}/leader`, lease('leader', 'you'));
    expect([blind.status, blind.body.reason]).toEqual([422, 'Invalid']);
  });

  it('is created by a PUT if it does not exist', async () => {
    const cluster = await freshCluster();
    expect((await ask(cluster, 'PUT', `${leasesPath}/leader`, lease('leader', 'me'))).status).toBe(201);
  });

  it('keeps its version when an update changes nothing', async () => {
    const cluster = await freshCluster();
    const { body } = await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    const again = await ask(
      cluster,
      'PUT',
      `${leasesPath}/leader`,
      lease('leader', 'me', {}, body.metadata.resourceVersion),
    );
    expect(again.body.metadata.resourceVersion).toBe(body.metadata.resourceVersion);
  });

  it.each([
    ['a duration of zero', { leaseDurationSeconds: 0 }, 422],
    ['a negative number of transitions', { leaseTransitions: -1 }, 422],
    ['a fractional duration', { leaseDurationSeconds: 1.5 }, 400],
    ['a time in milliseconds, as JavaScript writes it', { renewTime: '2026-01-02T03:04:05.000Z' }, 400],
    ['an invalid time', { acquireTime: 'yesterday' }, 400],
    ['a holder that is not a string', { holderIdentity: 7 }, 400],
  ])('with %s is rejected', async (_, extra, status) => {
    const cluster = await freshCluster();
    expect((await ask(cluster, 'POST', leasesPath, lease('leader', 'me', extra))).status).toBe(status);
    const { body } = await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    const update = lease('leader', 'me', extra, body.metadata.resourceVersion);
    expect((await ask(cluster, 'PUT', `${leasesPath}/leader`, update)).status).toBe(status);
  });

  it('is not found after its deletion', async () => {
    const cluster = await freshCluster();
    await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    const gone = await ask(cluster, 'DELETE', `${leasesPath}/leader`);
    expect([gone.status, gone.body.status]).toEqual([200, 'Success']);
    const read = await ask(cluster, 'GET', `${leasesPath}/leader`);
    expect([read.status, read.body.reason, read.body.details.name]).toEqual([404, 'NotFound', 'leader']);
  });
});

describe('a write', () => {
  it('with another name, namespace or UID than the object has is rejected', async () => {
    const cluster = await freshCluster();
    const { body } = await ask(cluster, 'POST', leasesPath, lease('a', 'me'));
    const put = async (metadata: object) =>
      (await ask(cluster, 'PUT', `${leasesPath}/a`, { ...body, metadata: { ...body.metadata, ...metadata } }))
        .status;
    expect(await put({ name: 'b' })).toBe(400);
    expect(await put({ namespace: 'other' })).toBe(400);
    expect(await put({ uid: 'x' })).toBe(409);
    expect(await put({})).toBe(200);
  });

  it('cannot change the fields of the server: UID, creation, deletion', async () => {
    const cluster = await freshCluster();
    const { body } = await ask(cluster, 'POST', leasesPath, lease('a', 'me'));
    const { metadata } = (
      await ask(cluster, 'PUT', `${leasesPath}/a`, {
        ...body,
        metadata: {
          ...body.metadata,
          creationTimestamp: '2026-01-01T00:00:00Z',
          deletionTimestamp: '2026-01-01T00:00:00Z',
          labels: { new: 'yes' },
        },
      })
    ).body;
    expect(metadata).toEqual({
      ...body.metadata,
      resourceVersion: metadata.resourceVersion,
      labels: { new: 'yes' },
    });
  });

  it.each([
    ['invalid JSON', 'POST', leasesPath, '{"metadata":', 400],
    ['JSON that is not an object', 'POST', leasesPath, '[]', 400],
    ['another kind', 'POST', leasesPath, { ...lease('a', 'me'), kind: 'Pod', apiVersion: 'v1' }, 400],
    ['no name', 'POST', leasesPath, lease('', 'me'), 422],
    ['an invalid name', 'POST', leasesPath, lease('Not_A_Name', 'me'), 422],
    ['a POST to an object', 'POST', `${leasesPath}/a`, lease('a', 'me'), 405],
    ['a PUT to a collection', 'PUT', leasesPath, lease('a', 'me'), 405],
    ['a PATCH', 'PATCH', `${leasesPath}/a`, {}, 405],
    ['a pod', 'POST', podsPath, { metadata: { name: 'a' } }, 405],
    ['a StatefulSet to delete', 'DELETE', `${setsPath}/a`, undefined, 405],
    ['an unknown resource', 'GET', '/api/v1/namespaces/default/secrets', undefined, 404],
    ['a subresource', 'GET', `${podsPath}/a/log`, undefined, 404],
    ['a wrong group', 'GET', '/apis/apps/v1/namespaces/default/pods', undefined, 404],
    ['an unknown path', 'GET', '/nowhere', undefined, 404],
    ['a body beyond 3 MB', 'POST', leasesPath, `"${'x'.repeat(3 * 1024 * 1024)}"`, 413],
  ])('with %s gets a Status', async (_, method, path, body, code) => {
    const cluster = await freshCluster();
    const answer = await ask(cluster, method, path, body);
    expect(answer.status).toBe(code);
    expect(answer.body).toMatchObject({ kind: 'Status', apiVersion: 'v1', status: 'Failure', code });
  });
});

describe('the deletion of a pod', () => {
  it('with a grace period sets a deadline first and removes the pod then', async () => {
    const clock = new ManualClock();
    const cluster = await freshCluster({ clock });
    cluster.pods.create({ name: 'a' });
    const open = await watch(cluster);
    const { status, body } = await ask(cluster, 'DELETE', `${podsPath}/a?gracePeriodSeconds=5`);
    expect(status).toBe(200);
    expect(body.metadata.deletionGracePeriodSeconds).toBe(5);
    expect(Date.parse(body.metadata.deletionTimestamp)).toBe(clock.now() + 5000);
    clock.advance(4999);
    expect(cluster.pods.get('a')).toBeDefined();
    clock.advance(1);
    expect(cluster.pods.get('a')).toBeUndefined();
    await sees(open, 'ADDED a', 'MODIFIED a', 'DELETED a');
    const [, marked, removed] = open.events;
    expect(marked?.object.metadata.deletionTimestamp).toBe(body.metadata.deletionTimestamp);
    expect(Number(removed?.object.metadata.resourceVersion)).toBeGreaterThan(
      Number(marked?.object.metadata.resourceVersion),
    );
  });

  it('uses the grace period of the body, else of the pod; a second deletion can only shorten it', async () => {
    const clock = new ManualClock();
    const cluster = await freshCluster({ clock });
    cluster.pods.create({ name: 'a', graceSeconds: 20 });
    const own = await ask(cluster, 'DELETE', `${podsPath}/a`);
    expect(own.body.metadata.deletionGracePeriodSeconds).toBe(20);
    const longer = await ask(cluster, 'DELETE', `${podsPath}/a`, { gracePeriodSeconds: 60 });
    expect(longer.body.metadata.deletionGracePeriodSeconds).toBe(20);
    const shorter = await ask(cluster, 'DELETE', `${podsPath}/a`, { gracePeriodSeconds: 2 });
    expect(shorter.body.metadata.deletionGracePeriodSeconds).toBe(2);
    clock.advance(2000);
    expect(cluster.pods.get('a')).toBeUndefined();
  });

  it('without a grace period or of a finished pod removes it at once', async () => {
    const cluster = await freshCluster();
    cluster.pods.create({ name: 'forced' });
    cluster.pods.create({ name: 'over' });
    cluster.pods.finish('over', 'Succeeded');
    await ask(cluster, 'DELETE', `${podsPath}/forced?gracePeriodSeconds=0`);
    await ask(cluster, 'DELETE', `${podsPath}/over`);
    expect(cluster.pods.list()).toEqual([]);
  });
});

describe('access', () => {
  it('needs a known token when one is set', async () => {
    const cluster = await freshCluster({ token: 'secret' });
    const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
    const refused = await ask(cluster, 'GET', podsPath, undefined, bearer('wrong'));
    expect([refused.status, refused.body.reason]).toEqual([401, 'Unauthorized']);
    expect((await ask(cluster, 'GET', podsPath)).status).toBe(401);
    expect((await ask(cluster, 'GET', podsPath, undefined, bearer('secret'))).status).toBe(200);
    const config = JSON.parse(cluster.kubeconfigFor('router-1')) as { users: [{ user: { token: string } }] };
    const own = await ask(cluster, 'GET', podsPath, undefined, bearer(config.users[0].user.token));
    expect(own.status).toBe(200);
    expect(cluster.requests.list().map(({ client }) => client)).toEqual(['default', 'router-1']);
  });

  it('is limited by the rules of a Role', async () => {
    const cluster = await freshCluster({
      rules: [
        { apiGroups: [''], resources: ['pods'], verbs: ['list'] },
        {
          apiGroups: ['coordination.k8s.io'],
          resources: ['leases'],
          verbs: ['get'],
          resourceNames: ['leader'],
        },
      ],
    });
    expect((await ask(cluster, 'GET', podsPath)).status).toBe(200);
    const refused = await ask(cluster, 'GET', `${podsPath}?watch=1`);
    expect([refused.status, refused.body.reason]).toEqual([403, 'Forbidden']);
    expect(refused.body.message).toContain(
      'cannot watch resource "pods" in API group "" in the namespace "default"',
    );
    expect((await ask(cluster, 'GET', `${leasesPath}/leader`)).status).toBe(404);
    expect((await ask(cluster, 'GET', `${leasesPath}/other`)).status).toBe(403);
  });

  it('is logged with verb and resource', async () => {
    const cluster = await freshCluster();
    await ask(cluster, 'GET', podsPath);
    await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    await ask(cluster, 'GET', `${leasesPath}/leader`);
    await ask(cluster, 'GET', `${leasesPath}/leader`);
    await ask(cluster, 'DELETE', `${podsPath}/unknown`);
    expect(cluster.requests.used()).toEqual(['create leases', 'delete pods', 'get leases', 'list pods']);
    expect(cluster.requests.count({ verb: 'get', resource: 'leases', name: 'leader' })).toBe(2);
  });
});

it('the server has health, version and discovery endpoints', async () => {
  const cluster = await freshCluster();
  expect((await ask(cluster, 'GET', '/healthz')).body).toBe('ok');
  expect((await ask(cluster, 'GET', '/readyz')).body).toBe('ok');
  expect((await ask(cluster, 'GET', '/version')).body.major).toBe('1');
  expect((await ask(cluster, 'GET', '/apis')).body.groups).toHaveLength(2);
  const { body } = await ask(cluster, 'GET', '/apis/apps/v1');
  expect(body.resources[0]).toMatchObject({ name: 'statefulsets', kind: 'StatefulSet', namespaced: true });
  expect((await ask(cluster, 'GET', setsPath)).body.items).toEqual([]);
});

it('a test can move a pod through all its states', async () => {
  const cluster = await freshCluster();
  cluster.pods.create({ name: 'a', phase: 'Pending' });
  expect(cluster.pods.get('a')?.status).toMatchObject({ phase: 'Pending' });
  expect(cluster.pods.get('a')?.status.podIP).toBeUndefined();
  cluster.pods.start('a');
  expect(cluster.pods.get('a')?.status).toMatchObject({
    phase: 'Running',
    podIP: expect.stringMatching(/^10\./),
  });
  const isReady = () =>
    cluster.pods.get('a')?.status.conditions?.find(({ type }) => type === 'Ready')?.status;
  expect(isReady()).toBe('False');
  cluster.pods.setReady('a', true);
  expect(isReady()).toBe('True');
  cluster.pods.stopContainer('a');
  expect(isReady()).toBe('False');
  const container = () => cluster.pods.get('a')?.status.containerStatuses?.[0];
  expect(container()).toMatchObject({ restartCount: 0, state: { terminated: { exitCode: 137 } } });
  const { terminated } = container()?.state ?? {};
  cluster.pods.backOff('a');
  expect(container()).toMatchObject({
    restartCount: 0,
    state: { waiting: { reason: 'CrashLoopBackOff' } },
    lastState: { terminated },
  });
  cluster.pods.start('a');
  cluster.pods.setReady('a', true);
  expect(container()).toMatchObject({ restartCount: 1, state: { running: {} }, lastState: { terminated } });
  cluster.pods.restartContainer('a', { ready: false });
  expect(isReady()).toBe('False');
  expect(cluster.pods.get('a')?.status.containerStatuses?.[0]).toMatchObject({
    restartCount: 2,
    ready: false,
    state: { running: {} },
    lastState: { terminated: { exitCode: 137 } },
  });
  cluster.pods.patch('a', { metadata: { annotations: { x: 'y' } } });
  expect(cluster.pods.get('a')?.metadata.annotations).toEqual({ x: 'y' });
  cluster.pods.remove('a', { graceMs: 20 });
  expect(cluster.pods.get('a')?.metadata.deletionTimestamp).toBeDefined();
  await until(() => cluster.pods.get('a') === undefined, 'the pod is removed');
});

it('a condition has the time of its last change, not of its last write', async () => {
  const clock = new ManualClock();
  const cluster = await freshCluster({ clock });
  cluster.pods.create({ name: 'a' });
  const since = () =>
    cluster.pods.get('a')?.status.conditions?.find(({ type }) => type === 'Ready')?.lastTransitionTime;
  const first = since();
  clock.advance(5000);
  cluster.pods.setReady('a', true);
  expect(since()).toBe(first);
  cluster.pods.setReady('a', false);
  expect(Date.parse(since() ?? '') - Date.parse(first ?? '')).toBe(5000);
});
