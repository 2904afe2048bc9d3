/** The removal brake over HTTP: held pods, and an operator's confirmation. */
import { afterEach, expect, it } from 'vitest';
import { describeEngines } from '../support/engines.js';
import { ghosts, holdGhosts } from '../support/held-removals.js';
import { dump, impatient, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

// Only requested rounds: two more lists would remove the pods without a confirmation.
const quiet = { RECONCILE_INTERVAL: '1h', CLEANUP_INTERVAL: '20m' };

describeEngines('removals', (engine) => {
  let router: TestRouter;
  let other: TestRouter | undefined;
  afterEach(async () => {
    await engine.resume();
    await other?.stop();
    other = undefined;
    await router.stop();
  });
  const held = async (from = router) => (await from.get('/removals')).body;
  const gauge = async () =>
    /^smart_router_removals_held (\S+)$/m.exec((await router.get('/metrics')).text)?.[1];

  it('are empty on a healthy router, and a confirmation is 404 nothing_held and changes nothing', async () => {
    router = await startTestRouter(engine.url, quiet);
    expect(await held()).toEqual({ held: [], confirmed: [] });
    const before = await dump(engine.redis);
    const answer = await router.post('/removals/confirm', {});
    expect([answer.status, answer.body.success, answer.body.code]).toEqual([404, false, 'nothing_held']);
    expect(await dump(engine.redis)).toEqual(before);
    expect((await router.get('/status')).body.removals_held).toBe(0);
    expect(await gauge()).toBe('0');
    expect(router.logText()).not.toContain('held removals confirmed');
  });

  it('are listed while the brake holds them, in the status and in the metrics too', async () => {
    router = await startTestRouter(engine.url, quiet);
    await holdGhosts(router);
    expect(await held()).toEqual({ held: ghosts, confirmed: [] });
    expect((await router.get('/status')).body.removals_held).toBe(5);
    expect(await gauge()).toBe('5');
    expect((await router.get('/pod/ghost-1')).body.blocked_by).toBe('unconfirmed');
  });

  it('are done at once by the leader after a confirmation, and the log and an event name the operator', async () => {
    router = await startTestRouter(engine.url, quiet);
    await holdGhosts(router);
    const answer = await router.post('/removals/confirm', {});
    expect([answer.status, answer.body]).toEqual([200, { success: true, confirmed: 5 }]);
    await until(async () => (await held()).held.length === 0, 'the leader has removed them');
    expect((await router.get('/pod/ghost-1')).status).toBe(404);
    expect((await router.get('/pod/gold-1')).status).toBe(200);
    const by = expect.stringMatching(/^anonymous@.*127\.0\.0\.1$/);
    const lines = router.logs().filter(({ msg }) => msg === 'held removals confirmed');
    expect(lines).toEqual([expect.objectContaining({ by, pods: 5 })]);
    const events = await engine.redis.xrevrange('voice:events', '+', '-');
    const told = events.map(([, fields]) => fields).find((fields) => fields.includes('removals_confirmed'));
    expect(told).toEqual(expect.arrayContaining(['pods', '5', 'by', by]));
  });

  it('may be confirmed on a replica that follows: the mark waits in the store for the next round of the leader', async () => {
    const elected = { ...quiet, LEADER_ELECTION_ENABLED: 'true' };
    router = await startTestRouter(engine.url, { ...elected, POD_NAME: 'leader' });
    other = await startTestRouter(engine.url, { ...elected, POD_NAME: 'follower' });
    await holdGhosts(router);
    expect((await other.get('/status')).body).toMatchObject({ is_leader: false, leader: 'leader' });
    expect((await other.post('/removals/confirm', {})).body).toEqual({ success: true, confirmed: 5 });
    expect(await held(other)).toEqual({ held: ghosts, confirmed: ghosts });
    router.context.leadership.nudge();
    await until(async () => (await held(other)).held.length === 0, 'the leader has removed them');
  });

  it.each([
    ['no body', {}],
    ['an empty body that is called JSON', { headers: { 'content-type': 'application/json' } }],
    ['an empty object', { headers: { 'content-type': 'application/json' }, body: '{}' }],
  ])('may be confirmed with %s', async (_, asking) => {
    router = await startTestRouter(engine.url, quiet);
    await holdGhosts(router);
    const { status, body } = await router.ask('/removals/confirm', { method: 'POST', ...asking });
    expect([status, body]).toEqual([200, { success: true, confirmed: 5 }]);
  });

  it('are not confirmed by a body that is something else', async () => {
    router = await startTestRouter(engine.url, quiet);
    await holdGhosts(router);
    for (const body of [[], 'yes', 1, null]) {
      const answer = await router.post('/removals/confirm', body);
      expect([answer.status, answer.body.code]).toEqual([400, 'invalid_request']);
    }
    expect(await held()).toEqual({ held: ghosts, confirmed: [] });
  });

  it('are unknown, not empty, while the store is unreachable', async () => {
    router = await startTestRouter(engine.url, { ...quiet, ...impatient });
    await engine.pause();
    const [status, list, confirmation, text] = await Promise.all([
      router.get('/status'),
      router.get('/removals'),
      router.post('/removals/confirm', {}),
      gauge(),
    ]);
    expect(status.body.removals_held).toBeNull();
    expect([list.status, confirmation.status]).toEqual([503, 503]);
    expect(text).toBeUndefined();
  });
});
