import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../support/manual-clock.js';
import { until } from '../../support/until.js';
import { ask, freshCluster, lease, leasesPath, podsPath, sees, setsPath, watch } from './support.js';

const pod = (name: string) => ({
  metadata: { name, labels: { app: 'x' } },
  spec: { containers: [{ name: 'c', image: 'i' }] },
});

describe('a lease', () => {
  it('is created once; a second time it already exists', async () => {
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

  it('is updated with the version that was read, and with no other', async () => {
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

  it('is won by exactly one of twenty that write the same version', async () => {
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

  it('is not overwritten without a version, as the rules of leases have it', async () => {
    const cluster = await freshCluster();
    await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    const blind = await ask(cluster, 'PUT', `${leasesPath}/leader`, lease('leader', 'you'));
    expect([blind.status, blind.body.reason]).toEqual([422, 'Invalid']);
    const patched = await ask(cluster, 'PATCH', `${leasesPath}/leader`, { spec: { holderIdentity: 'you' } });
    expect([patched.status, patched.body.spec.holderIdentity]).toEqual([200, 'you']);
  });

  it('that does not exist is created by a PUT', async () => {
    const cluster = await freshCluster();
    expect((await ask(cluster, 'PUT', `${leasesPath}/leader`, lease('leader', 'me'))).status).toBe(201);
  });

  it('that is written as it is keeps its version', async () => {
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
    ['a duration that is no whole number', { leaseDurationSeconds: 1.5 }, 400],
    ['a time in milliseconds, as JavaScript writes it', { renewTime: '2026-01-02T03:04:05.000Z' }, 400],
    ['a time that is none', { acquireTime: 'yesterday' }, 400],
    ['a holder that is no text', { holderIdentity: 7 }, 400],
  ])('with %s is refused', async (_, extra, status) => {
    const cluster = await freshCluster();
    expect((await ask(cluster, 'POST', leasesPath, lease('leader', 'me', extra))).status).toBe(status);
    await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    expect((await ask(cluster, 'PATCH', `${leasesPath}/leader`, { spec: extra })).status).toBe(status);
  });

  it('is deleted, and then not found', async () => {
    const cluster = await freshCluster();
    await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    const gone = await ask(cluster, 'DELETE', `${leasesPath}/leader`);
    expect([gone.status, gone.body.status]).toEqual([200, 'Success']);
    const read = await ask(cluster, 'GET', `${leasesPath}/leader`);
    expect([read.status, read.body.reason, read.body.details.name]).toEqual([404, 'NotFound', 'leader']);
  });
});

describe('a write', () => {
  it('to another name, another namespace or another UID than the object has is refused', async () => {
    const cluster = await freshCluster();
    await ask(cluster, 'POST', podsPath, pod('a'));
    expect((await ask(cluster, 'PUT', `${podsPath}/a`, pod('b'))).status).toBe(400);
    const elsewhere = { ...pod('a'), metadata: { name: 'a', namespace: 'other' } };
    expect((await ask(cluster, 'PUT', `${podsPath}/a`, elsewhere)).status).toBe(400);
    const foreign = { ...pod('a'), metadata: { name: 'a', uid: 'x' } };
    expect((await ask(cluster, 'PUT', `${podsPath}/a`, foreign)).status).toBe(409);
  });

  it('of the object leaves its status alone, and a write of the status leaves the rest alone', async () => {
    const cluster = await freshCluster();
    const made = await ask(cluster, 'POST', podsPath, { ...pod('a'), status: { phase: 'Running' } });
    expect(made.body.status.phase).toBe('Pending');
    await ask(cluster, 'PATCH', `${podsPath}/a`, { status: { phase: 'Failed' }, spec: { nodeName: 'n' } });
    await ask(cluster, 'PATCH', `${podsPath}/a/status`, {
      status: { phase: 'Running' },
      spec: { nodeName: 'm' },
    });
    const { body } = await ask(cluster, 'GET', `${podsPath}/a`);
    expect([body.status.phase, body.spec.nodeName]).toEqual(['Running', 'n']);
    await ask(cluster, 'PUT', `${podsPath}/a/status`, { ...body, status: { phase: 'Succeeded' } });
    expect(cluster.pods.get('a')?.status.phase).toBe('Succeeded');
  });

  it('of a pod without a version overwrites it; with an old one it conflicts, also as a patch', async () => {
    const cluster = await freshCluster();
    const { body } = await ask(cluster, 'POST', podsPath, pod('a'));
    const { resourceVersion } = body.metadata;
    expect(
      (await ask(cluster, 'PUT', `${podsPath}/a`, { ...pod('a'), metadata: { name: 'a' } })).status,
    ).toBe(200);
    const patch = { metadata: { resourceVersion, labels: { late: 'yes' } } };
    expect((await ask(cluster, 'PATCH', `${podsPath}/a`, patch)).body.reason).toBe('Conflict');
    expect((await ask(cluster, 'PUT', `${podsPath}/a`, body)).body.reason).toBe('Conflict');
  });

  it('cannot change what is the server’s: UID, creation, deletion', async () => {
    const cluster = await freshCluster();
    const { body } = await ask(cluster, 'POST', podsPath, pod('a'));
    await ask(cluster, 'PATCH', `${podsPath}/a`, {
      metadata: {
        creationTimestamp: null,
        deletionTimestamp: '2026-01-01T00:00:00Z',
        labels: { app: null, new: 'yes' },
      },
    });
    const { metadata } = (await ask(cluster, 'GET', `${podsPath}/a`)).body;
    expect(metadata).toEqual({
      ...body.metadata,
      resourceVersion: metadata.resourceVersion,
      labels: { new: 'yes' },
    });
  });

  it('gives a name from generateName', async () => {
    const cluster = await freshCluster();
    const { body } = await ask(cluster, 'POST', podsPath, {
      ...pod(''),
      metadata: { generateName: 'agent-' },
    });
    expect(body.metadata.name).toMatch(/^agent-[a-z0-9]{5}$/);
  });

  it.each([
    ['not JSON', 'POST', podsPath, '{"metadata":', 400],
    ['JSON that is no object', 'POST', podsPath, '[]', 400],
    ['another kind', 'POST', podsPath, { ...pod('a'), kind: 'Lease', apiVersion: 'v1' }, 400],
    ['no name', 'POST', podsPath, { spec: pod('').spec }, 422],
    ['a name that is none', 'POST', podsPath, pod('Not_A_Name'), 422],
    ['no container', 'POST', podsPath, { metadata: { name: 'a' }, spec: {} }, 422],
    ['a POST to an object', 'POST', `${podsPath}/a`, pod('a'), 405],
    ['a PUT to a collection', 'PUT', podsPath, pod('a'), 405],
    ['an object that does not exist', 'PUT', `${podsPath}/a`, pod('a'), 404],
    ['an unknown resource', 'GET', '/api/v1/namespaces/default/secrets', undefined, 404],
    ['an unknown subresource', 'GET', `${podsPath}/a/log`, undefined, 404],
    ['a wrong group', 'GET', '/apis/apps/v1/namespaces/default/pods', undefined, 404],
    ['an unknown path', 'GET', '/nowhere', undefined, 404],
    ['a body beyond 3 MB', 'POST', podsPath, `"${'x'.repeat(3 * 1024 * 1024)}"`, 413],
  ])('with %s is answered with a Status', async (_, method, path, body, code) => {
    const cluster = await freshCluster();
    const answer = await ask(cluster, method, path, body);
    expect(answer.status).toBe(code);
    expect(answer.body).toMatchObject({ kind: 'Status', apiVersion: 'v1', status: 'Failure', code });
  });

  it('as JSON patch is not understood, as strategic merge only without lists', async () => {
    const cluster = await freshCluster();
    await ask(cluster, 'POST', podsPath, pod('a'));
    const patch = (type: string, body: unknown) =>
      ask(cluster, 'PATCH', `${podsPath}/a`, body, { 'content-type': `application/${type}+json` });
    expect((await patch('json-patch', {})).status).toBe(415);
    expect((await patch('strategic-merge-patch', { spec: { x: [1] } })).status).toBe(415);
    expect((await patch('strategic-merge-patch', { metadata: { labels: { a: 'b' } } })).status).toBe(200);
  });
});

describe('the deletion of a pod', () => {
  it('with a grace period marks it first and removes it at the deadline', async () => {
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

  it('takes its grace period from the body, else from the pod; a second one only shortens it', async () => {
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

  it('without one, or of a pod that is on no node or over, is at once', async () => {
    const cluster = await freshCluster();
    cluster.pods.create({ name: 'forced' });
    cluster.pods.create({ name: 'over' });
    cluster.pods.finish('over', 'Succeeded');
    await ask(cluster, 'POST', podsPath, pod('unscheduled'));
    await ask(cluster, 'DELETE', `${podsPath}/forced?gracePeriodSeconds=0`);
    await ask(cluster, 'DELETE', `${podsPath}/over`);
    await ask(cluster, 'DELETE', `${podsPath}/unscheduled`);
    expect(cluster.pods.count()).toBe(0);
  });

  it('is refused when it is meant for another UID', async () => {
    const cluster = await freshCluster();
    const old = cluster.pods.create({ name: 'a' }).metadata.uid;
    cluster.pods.remove('a');
    const { uid } = cluster.pods.create({ name: 'a' }).metadata;
    expect(uid).not.toBe(old);
    const wrong = await ask(cluster, 'DELETE', `${podsPath}/a`, { preconditions: { uid: old } });
    expect([wrong.status, wrong.body.reason]).toEqual([409, 'Conflict']);
  });
});

describe('access', () => {
  it('needs a token that was given out, when one is set', async () => {
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

  it('is limited to what the rules of a Role allow', async () => {
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

  it('is recorded: which verb on which resource by whom', async () => {
    const cluster = await freshCluster();
    await ask(cluster, 'GET', podsPath);
    await ask(cluster, 'POST', leasesPath, lease('leader', 'me'));
    await ask(cluster, 'GET', `${leasesPath}/leader`);
    await ask(cluster, 'GET', `${leasesPath}/leader`);
    await ask(cluster, 'PATCH', `${podsPath}/nobody/status`, {});
    expect(cluster.requests.used()).toEqual([
      'create leases',
      'get leases',
      'list pods',
      'patch pods/status',
    ]);
    expect(cluster.requests.count({ verb: 'get', resource: 'leases', name: 'leader' })).toBe(2);
    cluster.requests.clear();
    expect(cluster.requests.used()).toEqual([]);
  });
});

it('the server says what it is and that it is well', async () => {
  const cluster = await freshCluster();
  expect((await ask(cluster, 'GET', '/healthz')).body).toBe('ok');
  expect((await ask(cluster, 'GET', '/readyz')).body).toBe('ok');
  expect((await ask(cluster, 'GET', '/version')).body.major).toBe('1');
  expect((await ask(cluster, 'GET', '/apis')).body.groups).toHaveLength(2);
  const { body } = await ask(cluster, 'GET', '/apis/apps/v1');
  expect(body.resources[0]).toMatchObject({ name: 'statefulsets', kind: 'StatefulSet', namespaced: true });
  expect((await ask(cluster, 'GET', setsPath)).body.items).toEqual([]);
});

it('pods can be moved about by hand', async () => {
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
  await until(() => cluster.pods.get('a') === undefined, 'the pod is gone');
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
