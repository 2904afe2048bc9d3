/** Active alerts over HTTP: each condition, from any replica, the most severe first. */
import { afterEach, beforeEach, expect, it, onTestFinished } from 'vitest';
import type { ActiveAlert } from '../../src/observe/alerts.js';
import { describeOneEngine } from '../support/engines.js';
import { holdGhosts } from '../support/held-removals.js';
import { looked } from '../support/history-round.js';
import { impatient, startTestRouter, type TestRouter } from '../support/router.js';
import { SkippingClock } from '../support/skipping-clock.js';
import { until } from '../support/until.js';

const quiet = { CLEANUP_INTERVAL: '20m', RECONCILE_INTERVAL: '1h', AUDIT_INTERVAL: 'off' };

describeOneEngine('alerts', (engine) => {
  let clock: SkippingClock;
  const routers: TestRouter[] = [];
  beforeEach(() => {
    clock = new SkippingClock();
  });
  afterEach(async () => {
    await engine.resume();
    await Promise.all(routers.splice(0).map((router) => router.stop()));
  });
  const start = async (env: Record<string, string> = {}, options: { ready?: boolean } = {}) => {
    const router = await startTestRouter(engine.url, { ...quiet, ...env }, { clock, ...options });
    routers.push(router);
    return router;
  };
  const alerts = async (router: TestRouter) => (await router.get('/alerts')).body.alerts as ActiveAlert[];
  const names = async (router: TestRouter) => (await alerts(router)).map(({ name }) => name);
  /** Two checks with time between them, for conditions that must last. */
  const lasted = async (router: TestRouter, ms: number) => {
    await looked(router);
    clock.skip(ms);
    await looked(router);
  };

  it('are empty on a healthy router', async () => {
    const router = await start();
    await lasted(router, 60_000);
    expect(await alerts(router)).toEqual([]);
  });

  it('report calls without a pod, on every replica, until all calls got one for minutes', async () => {
    const router = await start();
    const other = await start({ POD_NAME: 'other' });
    for (let i = 1; i <= 7; i += 1) await router.post('/allocate', { call_sid: `CA${i}` });
    await looked(router);
    const told = {
      name: 'calls.no_pods',
      severity: 'page',
      summary: '2 calls got no pod in the last 5 minutes: nothing in their chain was free',
      since: expect.stringMatching(/^\d{4}-.*Z$/),
      workflow: null,
      runbook: 'docs/runbook.md#smartrouternocapacity',
    };
    expect(await alerts(router)).toEqual([told]);
    // A row holds the result of the check before it.
    await looked(router);
    expect(await alerts(other)).toEqual([told]);
    await lasted(router, 360_000);
    await lasted(router, 121_000);
    expect(await alerts(router)).toEqual([]);
  });

  it('report from any replica how many calls all replicas rejected', async () => {
    const both = [await start(), await start({ POD_NAME: 'other' }), await start({ POD_NAME: 'idle' })];
    const [router, other, idle] = both as [TestRouter, TestRouter, TestRouter];
    for (let i = 1; i <= 5; i += 1) await router.post('/allocate', { call_sid: `CA${i}` });
    await other.post('/allocate', { call_sid: 'CA6' });
    const summaries = () =>
      Promise.all(both.map(async (one) => (await alerts(one)).map((told) => told.summary)));
    const all = (words: string) => both.map(() => [words]);
    await looked(other);
    expect(await summaries()).toEqual(
      all('1 call got no pod in the last 5 minutes: nothing in its chain was free'),
    );
    for (let i = 7; i <= 8; i += 1) await router.post('/allocate', { call_sid: `CA${i}` });
    await looked(router);
    expect(await summaries()).toEqual(
      all('3 calls got no pod in the last 5 minutes: nothing in their chain was free'),
    );
    // Notifications have the same number, and come only from replicas that rejected calls.
    await looked(other);
    const sent = [router, other, idle].map(({ context }) =>
      context.history.own.calls.conditions().find(({ name }) => name === 'calls.no_pods'),
    );
    expect(sent.map((one) => one?.holds(false))).toEqual([true, true, false]);
    expect(sent.slice(0, 2).map((one) => one?.details.calls)).toEqual([3, 3]);
  });

  it('report an unreachable store while it is unreachable', async () => {
    const router = await start(impatient);
    await engine.pause();
    await lasted(router, 6_000);
    expect(await alerts(router)).toEqual([
      expect.objectContaining({ name: 'calls.store_down', severity: 'page' }),
    ]);
    await engine.resume();
    // The router connects again first, and on a busy machine a check may still fail.
    await until(async () => {
      await lasted(router, 121_000);
      return (await alerts(router)).length === 0;
    }, 'the alert is over');
  });

  it('report an unreachable store also on a router that has never reached it, which writes nothing', async () => {
    await engine.pause();
    const router = await start(impatient, { ready: false });
    await lasted(router, 6_000);
    expect(await names(router)).toEqual(['calls.store_down']);
  });

  it('name REDIS_URL if the store rejects its user or password', async () => {
    const url = engine.url.replace('redis://', 'redis://stranger:wrong@');
    const router = await startTestRouter(url, { ...quiet, ...impatient }, { clock, ready: false });
    routers.push(router);
    // On a busy machine the first check may fail before Redis has replied.
    await until(async () => {
      await lasted(router, 6_000);
      return (await alerts(router))[0]?.summary.includes('WRONGPASS');
    }, 'the alert names the reason');
    const [alert] = await alerts(router);
    expect(alert?.summary).toMatch(/^calls get 503: store authentication failed .* in REDIS_URL/);
    expect(alert?.summary).not.toMatch(/stranger|:wrong/);
  });

  it('report a missing leader, unless a replica says that it leads', async () => {
    // A lock that it may not write: elect.lua and the leader's own scripts alone use PERSIST.
    // The check at the start passes: it asks for another key.
    const rules = ['on', '>secret', '~*', '&*', '+@all', '-persist', '(+persist ~voice:check)'];
    await engine.redis.call('ACL', 'SETUSER', 'follower', ...rules);
    const env = {
      POD_NAME: 'follower',
      LEADER_ELECTION_ENABLED: 'true',
      REDIS_URL: engine.url.replace('redis://', 'redis://follower:secret@'),
    };
    let isStarted = false;
    const starting = start(env, { ready: false });
    void starting.then(() => {
      isStarted = true;
    });
    // It waits a while for its first sync.
    await until(() => {
      clock.skip(1000);
      return isStarted;
    }, 'the router has started');
    const router = await starting;
    await lasted(router, 31_000);
    expect(await names(router)).toContain('calls.no_leader');
    const other = await start({ POD_NAME: 'leads alone' });
    await looked(other);
    expect(await names(router)).not.toContain('calls.no_leader');
    expect(await names(other)).not.toContain('calls.no_leader');
  });

  it('tell that the removal brake holds pods', async () => {
    const router = await start();
    await holdGhosts(router);
    await looked(router);
    expect(await alerts(router)).toEqual([
      expect.objectContaining({
        name: 'pool.removals_held',
        severity: 'critical',
        runbook: 'docs/runbook.md#smartrouterremovalsheld',
      }),
    ]);
  });

  it('beside them: status names replicas with other pods or other times', async () => {
    const one = await start({ POD_NAME: 'one', STATIC_PODS: 'pod-a=gold' });
    const others = [
      await start({ POD_NAME: 'pods', STATIC_PODS: 'pod-b=gold' }),
      await start({ POD_NAME: 'lease', STATIC_PODS: 'pod-a=gold', LEASE_TTL: '20m' }),
      await start({ POD_NAME: 'no-show', STATIC_PODS: 'pod-a=gold', NO_SHOW_TIMEOUT: '1m' }),
      await start({ POD_NAME: 'grace', STATIC_PODS: 'pod-a=gold', REPORT_GRACE: '40s' }),
      await start({ POD_NAME: 'same', STATIC_PODS: 'pod-a=gold' }),
    ];
    for (const router of [...others, one]) await looked(router);
    expect((await one.get('/status')).body.replicas_differ).toEqual(['grace', 'lease', 'no-show', 'pods']);
  });

  it('tell which pool cannot be read, and never that the store is down', async () => {
    const router = await start();
    const key = 'voice:pool:basic:assigned';
    await engine.redis.del(key);
    await engine.redis.set(key, 'x');
    await lasted(router, 31_000);
    expect(await alerts(router)).toEqual([
      expect.objectContaining({
        name: 'calls.pool_unreadable',
        severity: 'critical',
        summary: expect.stringContaining(key),
        runbook: 'docs/runbook.md#smartrouterpoolunreadable',
      }),
    ]);
    const { body } = await router.get('/status');
    expect(body).toMatchObject({ status: 'up', store_error: null });
    expect(body.pools.basic).toMatchObject({ unreadable_key: key });
    expect(body.pools.gold).not.toHaveProperty('unreadable_key');
    expect((await router.get('/pods')).status).toBe(200);
    const metrics = (await router.get('/metrics')).text;
    expect(metrics).toContain('smart_router_pools_unreadable 1');
    expect(metrics).toMatch(/smart_router_pool_assigned_pods\{tier="gold"\}/);
    expect(metrics).not.toMatch(/smart_router_pool_assigned_pods\{tier="basic"\}/);

    await engine.redis.del('voice:pools');
    await engine.redis.set('voice:pools', 'x');
    await lasted(router, 31_000);
    expect((await router.get('/status')).body).toMatchObject({ status: 'up' });
    expect(await names(router)).not.toContain('calls.store_down');
    expect(await names(router)).toContain('calls.pool_unreadable');
  });

  it('name the pods that are set back, on every replica, until calls last on them', async () => {
    const STATIC_PODS = Array.from({ length: 24 }, (_, i) => `pod-${String(i + 10)}=gold`).join(',');
    const router = await start({ STATIC_PODS });
    const other = await start({ STATIC_PODS, POD_NAME: 'other' });
    const pods: string[] = [];
    for (let i = 0; i < 12; i += 1) {
      const call_sid = `CA${i}`;
      const { pod_name } = (await router.post('/allocate', { call_sid })).body;
      pods.push(pod_name);
      // As if two calls on it had failed already, and it had been set back so often that it lasts five minutes.
      await engine.redis.hset(`voice:pod:${pod_name}`, { failures: 2, set_backs: 5 });
    }
    const [first = '', ...rest] = pods;
    await router.post('/release', { call_sid: 'CA0', reason: 'connect_failed' });
    await looked(router);
    const told = {
      name: 'calls.pods_set_back',
      severity: 'warning',
      summary: `calls fail again and again on ${first}: set back behind the other pods`,
      since: expect.stringMatching(/^\d{4}-.*Z$/),
      workflow: null,
      runbook: 'docs/runbook.md#smartrouterpodsetback',
    };
    expect(await alerts(router)).toEqual([told]);
    await looked(router);
    expect(await alerts(other)).toEqual([told]);
    for (const [i] of rest.entries())
      await router.post('/release', { call_sid: `CA${i + 1}`, reason: 'connect_failed' });
    await looked(router);
    const [{ summary = '' } = {}] = await alerts(router);
    expect((await router.get('/metrics')).text).toContain(`smart_router_pod_set_back{pod_name="${first}"} 1`);
    expect(summary).toContain(`${pods.sort().slice(0, 10).join(', ')} and 2 more`);

    // The set-back is over.
    for (const pod of pods) await engine.redis.zadd('voice:flapping', 1, pod);
    await until(async () => {
      clock.skip(5000);
      return (await engine.redis.exists('voice:flapping')) === 0;
    }, 'they take calls again');
    await looked(router);
    await looked(other);
    for (const replica of [router, other]) await lasted(replica, 121_000);
    await looked(router);
    expect(await names(router)).toEqual([]);
  });

  it('tell that a loop keeps crashing, and that nothing is swept; the worst first', async () => {
    const router = await start({ CLEANUP_INTERVAL: '200ms' });
    // What only the sweep does, as long as there are pods.
    await engine.redis.call('ACL', 'SETUSER', 'default', '-zrangebyscore');
    onTestFinished(async () => {
      await engine.redis.call('ACL', 'SETUSER', 'default', '+zrangebyscore');
    });
    await looked(router);
    const crashes = () => router.context.loops().find(({ name }) => name === 'sweep')?.crashes ?? 0;
    await until(async () => {
      clock.skip(5_000);
      await looked(router);
      return crashes() >= 5;
    }, 'the sweep has crashed five times');
    await lasted(router, 70_000);
    expect(await alerts(router)).toEqual([
      expect.objectContaining({
        name: 'calls.sweeps_stalled',
        severity: 'critical',
        runbook: 'docs/runbook.md#smartroutersweepstalled',
      }),
      expect.objectContaining({
        name: 'calls.loop_crashes',
        severity: 'warning',
        summary: expect.stringMatching(/: .*\bsweep\b.*;/),
      }),
    ]);
    await engine.redis.call('ACL', 'SETUSER', 'default', '+zrangebyscore');
    await until(async () => {
      clock.skip(31_000);
      await looked(router);
      return !(await names(router)).includes('calls.sweeps_stalled');
    }, 'it is swept again');
  });

  it('report the violations of an audit until they are repaired', async () => {
    const router = await start({ AUDIT_INTERVAL: '100ms' });
    await engine.redis.sadd('voice:pool:gold:assigned', 'ghost-1', 'ghost-2');
    const found = (count: number) =>
      until(
        () => router.context.loops().find(({ name }) => name === 'audit')?.counts.violations === count,
        `an audit has found ${count}`,
      );
    await found(2);
    await looked(router);
    expect(await alerts(router)).toEqual([
      expect.objectContaining({
        name: 'calls.invariant_violations',
        severity: 'critical',
        summary: expect.stringContaining('2 invariant violations'),
        runbook: 'docs/runbook.md#smartrouterinvariantviolations',
      }),
    ]);
    await engine.redis.srem('voice:pool:gold:assigned', 'ghost-1', 'ghost-2');
    await found(0);
    await looked(router);
    // It clears after two minutes; until then it reads as it last held, not with a count of 0.
    expect(await alerts(router)).toEqual([
      expect.objectContaining({ summary: expect.stringContaining('2 invariant violations') }),
    ]);
    await lasted(router, 121_000);
    expect(await names(router)).toEqual([]);
  });

  it('report an unreachable database of the records', async () => {
    const router = await start({ DATABASE_URL: 'postgres://127.0.0.1:1/nowhere', RECORDS_WORKFLOWS: 'wf7' });
    await lasted(router, 31_000);
    expect(await alerts(router)).toEqual([
      expect.objectContaining({
        name: 'records.breaker_open',
        severity: 'critical',
        runbook: 'docs/runbook.md#smartrouterrecordsbreakeropen',
      }),
    ]);
  });

  it('of a replica end with it', async () => {
    const router = await start();
    const other = await start({ POD_NAME: 'other' });
    for (let i = 1; i <= 6; i += 1) await other.post('/allocate', { call_sid: `CA${i}` });
    await looked(other);
    await looked(other);
    expect(await names(router)).toEqual(['calls.no_pods']);
    // As if it had written them a minute ago and died; a look that is still under way may write one more.
    await until(async () => {
      const rows = await engine.redis.xrange('voice:history', '-', '+');
      const told = rows.filter(([, fields]) => fields.includes('other'));
      if (told.length > 0) await engine.redis.xdel('voice:history', ...told.map(([id]) => id));
      return (await names(router)).length === 0;
    }, 'no replica reports it any more');
  });
});
