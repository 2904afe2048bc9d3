import { describe, expect, it } from 'vitest';
import type { Cluster } from '../../support/cluster.js';
import { until } from '../../support/until.js';
import { ask, freshCluster, lease, leasesPath, podsPath, sees, watch } from './support.js';

function as(cluster: Cluster, client: string): Record<string, string> {
  const { users } = JSON.parse(cluster.kubeconfigFor(client)) as { users: [{ user: { token: string } }] };
  return { authorization: `Bearer ${users[0].user.token}` };
}

describe('failing requests', () => {
  it.each([
    [403, 'Forbidden'],
    [410, 'Expired'],
    [429, 'TooManyRequests'],
    [500, 'InternalError'],
    [503, 'ServiceUnavailable'],
  ])('get %i with its Status, as often as configured', async (status, reason) => {
    const cluster = await freshCluster();
    cluster.faults.failRequests({ status, times: 2, retryAfterSeconds: 7 });
    for (let n = 0; n < 2; n += 1) {
      const answer = await ask(cluster, 'GET', podsPath);
      expect([answer.status, answer.body.reason, answer.headers.get('retry-after')]).toEqual([
        status,
        reason,
        '7',
      ]);
    }
    expect((await ask(cluster, 'GET', podsPath)).status).toBe(200);
  });

  it('are limited to the filter, until the fault ends', async () => {
    const cluster = await freshCluster();
    const end = cluster.faults.failRequests({
      status: 500,
      verb: 'create',
      match: ({ resource }) => resource === 'leases',
    });
    expect((await ask(cluster, 'POST', leasesPath, lease('a', 'me'))).status).toBe(500);
    expect((await ask(cluster, 'GET', leasesPath)).status).toBe(200);
    end();
    expect((await ask(cluster, 'POST', leasesPath, lease('a', 'me'))).status).toBe(201);
  });

  it('break without effect (reset)', async () => {
    const cluster = await freshCluster();
    cluster.faults.failRequests({ reset: true, times: 1 });
    await expect(ask(cluster, 'POST', leasesPath, lease('a', 'me'))).rejects.toThrow();
    expect((await ask(cluster, 'GET', `${leasesPath}/a`)).status).toBe(404);
  });

  it('take effect but lose their answer (lost)', async () => {
    const cluster = await freshCluster();
    cluster.faults.failRequests({ lost: true, times: 1 });
    await expect(ask(cluster, 'POST', leasesPath, lease('a', 'me'))).rejects.toThrow();
    expect((await ask(cluster, 'GET', `${leasesPath}/a`)).body.spec.holderIdentity).toBe('me');
  });

  it('get no answer while the fault lasts, then break (hang)', async () => {
    const cluster = await freshCluster();
    const end = cluster.faults.failRequests({ hang: true, times: 1 });
    let outcome = 'waiting';
    const hanging = ask(cluster, 'POST', leasesPath, lease('a', 'me')).then(
      () => (outcome = 'answered'),
      () => (outcome = 'broken'),
    );
    await until(() => cluster.requests.count({ verb: 'create' }) === 1, 'the request has come');
    expect((await ask(cluster, 'GET', `${leasesPath}/a`)).status).toBe(404);
    expect(outcome).toBe('waiting');
    end();
    await hanging;
    expect(outcome).toBe('broken');
    expect((await ask(cluster, 'GET', `${leasesPath}/a`)).status).toBe(404);
  });

  it('are delayed (delay)', async () => {
    const cluster = await freshCluster();
    cluster.faults.failRequests({ delayMs: 60, times: 1 });
    const start = performance.now();
    expect((await ask(cluster, 'GET', podsPath)).status).toBe(200);
    expect(performance.now() - start).toBeGreaterThan(50);
  });

  it('can be watches', async () => {
    const cluster = await freshCluster();
    cluster.faults.failRequests({ status: 410, verb: 'watch', times: 1 });
    await expect(watch(cluster)).rejects.toThrow('410');
    await watch(cluster);
  });
});

describe('faults of watches', () => {
  it('break the connection', async () => {
    const cluster = await freshCluster();
    const open = await watch(cluster);
    expect(cluster.faults.cutWatches()).toBe(1);
    await until(() => open.ended() === 'broken', 'the client sees a broken connection');
  });

  it('end the watch cleanly', async () => {
    const cluster = await freshCluster();
    const open = await watch(cluster);
    expect(cluster.faults.endWatches()).toBe(1);
    await until(() => open.ended() === 'clean', 'the client sees the end');
  });

  it('stop all events and bookmarks, and resume at the same position', async () => {
    const cluster = await freshCluster({ bookmarkIntervalMs: 5 });
    const open = await watch(cluster, 'allowWatchBookmarks=true');
    await until(() => open.events.length > 0, 'a bookmark');
    const resume = cluster.faults.silenceWatches();
    const later = await watch(cluster);
    const heard = open.events.length;
    cluster.pods.create({ name: 'a' });
    await sees(later, 'ADDED a');
    expect(open.events).toHaveLength(heard);
    expect(open.ended()).toBe('open');
    resume();
    await sees(open, 'ADDED a');
  });

  it('give 410 to a watch that was silent for longer than the history', async () => {
    const cluster = await freshCluster({ historyLimit: 2 });
    const open = await watch(cluster);
    const resume = cluster.faults.silenceWatches();
    for (const name of ['a', 'b', 'c']) cluster.pods.create({ name });
    resume();
    await sees(open, 'ERROR Expired');
  });

  it('affect one client only', async () => {
    const cluster = await freshCluster();
    const mine = await watch(cluster, '', podsPath, as(cluster, 'one'));
    const other = await watch(cluster, '', podsPath, as(cluster, 'two'));
    expect(cluster.faults.cutWatches({ client: 'one' })).toBe(1);
    await until(() => mine.ended() === 'broken', 'the one is cut');
    cluster.pods.create({ name: 'a' });
    await sees(other, 'ADDED a');
  });
});

describe('an expired history', () => {
  it('expires every version that a client holds, and does not end open watches', async () => {
    const cluster = await freshCluster();
    cluster.pods.create({ name: 'a' });
    const version = cluster.resourceVersion;
    const open = await watch(cluster, `resourceVersion=${version}`);
    cluster.faults.expireHistory();
    await sees(await watch(cluster, `resourceVersion=${version}`), 'ERROR Expired');
    cluster.pods.create({ name: 'b' });
    await sees(open, 'ADDED b');
    const { body } = await ask(cluster, 'GET', podsPath);
    const fresh = await watch(cluster, `resourceVersion=${body.metadata.resourceVersion}`);
    cluster.pods.create({ name: 'c' });
    await sees(fresh, 'ADDED c');
  });

  it('ends open watches with tellWatches', async () => {
    const cluster = await freshCluster();
    const open = await watch(cluster);
    cluster.faults.expireHistory({ tellWatches: true });
    await sees(open, 'ERROR Expired');
    await until(() => open.ended() === 'clean', 'the watch ends');
  });
});

describe('one client', () => {
  it.each(['reset', 'hang'] as const)(
    'is isolated (%s) while another is not, and reconnects',
    async (how) => {
      const cluster = await freshCluster();
      const [one, two] = [as(cluster, 'one'), as(cluster, 'two')];
      const open = await watch(cluster, '', podsPath, one);
      const rejoin = cluster.faults.isolate('one', how);
      let outcome = 'waiting';
      const cut = ask(cluster, 'GET', podsPath, undefined, one).then(
        () => (outcome = 'answered'),
        () => (outcome = 'broken'),
      );
      expect((await ask(cluster, 'GET', podsPath, undefined, two)).status).toBe(200);
      cluster.pods.create({ name: 'a' });
      if (how === 'reset') await cut;
      expect(outcome).toBe(how === 'reset' ? 'broken' : 'waiting');
      expect(open.events).toEqual([]);
      rejoin();
      await cut;
      await until(() => open.ended() === 'broken', 'the old watch is dead');
      expect((await ask(cluster, 'GET', podsPath, undefined, one)).body.items).toHaveLength(1);
    },
  );
});

describe('the whole server', () => {
  it('stops with every connection and starts again on the same port, with its objects', async () => {
    const cluster = await freshCluster();
    cluster.pods.create({ name: 'a' });
    const open = await watch(cluster);
    await cluster.down();
    await until(() => open.ended() === 'broken', 'the watch is cut');
    await expect(ask(cluster, 'GET', podsPath)).rejects.toThrow();
    cluster.pods.create({ name: 'b' });
    await cluster.up();
    expect((await ask(cluster, 'GET', podsPath)).body.items).toHaveLength(2);
  });

  it('stops with requests and watches open', async () => {
    const cluster = await freshCluster();
    const open = await watch(cluster);
    cluster.faults.failRequests({ hang: true });
    const hanging = expect(ask(cluster, 'GET', podsPath)).rejects.toThrow();
    await until(() => cluster.requests.count({ verb: 'list' }) === 1, 'the request has come');
    await cluster.stop();
    await hanging;
    await until(() => open.ended() === 'broken', 'the watch is cut');
  });
});
