/** Every action of an operator is one line of the log that says who, what, and what became of it. */
import { afterEach, describe, expect, it } from 'vitest';
import { Plane } from '../../src/main/records-plane.js';
import { describeOneEngine, startPreferred } from '../support/engines.js';
import { describeOnePostgres } from '../support/postgres.js';
import { addJob, jobsTable, recordsModule } from '../support/records-module.js';
import { type Answer, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const apiKey = 'api-key-0123456789';
const adminKey = 'admin-key-0123456789';
const keys = { SMART_ROUTER_API_KEY: apiKey, SMART_ROUTER_ADMIN_KEY: adminKey };
const quiet = { CLEANUP_INTERVAL: '20m', RECONCILE_INTERVAL: '1h' };
const admin = { authorization: `Bearer ${adminKey}`, 'content-type': 'application/json' };
type Ask = (router: TestRouter) => Promise<Answer>;

const lines = (router: TestRouter) => router.logs().filter(({ audit }) => audit === true);
/** A line is written after its answer. */
async function audited(router: TestRouter, requestId: unknown): Promise<Record<string, unknown>[]> {
  const of = () => lines(router).filter(({ request_id }) => request_id === requestId);
  await until(() => of().length > 0, `request ${requestId} is audited`);
  return of();
}

const send =
  (method: string, path: string, body?: unknown, headers: Record<string, string> = admin): Ask =>
  (router) =>
    router.ask(path, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });

describeOneEngine('the audit log', (engine) => {
  let router: TestRouter;
  afterEach(() => router.stop());

  it.each<[action: string, what: string | null, outcome: string, code: string | undefined, ask: Ask]>([
    ['pod.drain', 'gold-1', 'done', undefined, send('POST', '/drain', { pod_name: 'gold-1' })],
    ['pod.drain', 'ghost', 'refused', 'pod_not_found', send('POST', '/drain', { pod_name: 'ghost' })],
    ['pod.drain', null, 'refused', 'invalid_request', send('POST', '/drain', { pod_name: 5 })],
    ['pod.drain', null, 'refused', 'invalid_request', send('POST', '/drain', null)],
    ['pod.undrain', 'gold-1', 'done', undefined, send('POST', '/undrain', { pod_name: 'gold-1' })],
    ['tiers.replace', null, 'done', undefined, send('PUT', '/tiers', { gold: 3 })],
    ['tiers.replace', null, 'refused', 'invalid_request', send('PUT', '/tiers', { gold: -3 })],
    ['merchant.set', 'acme', 'done', undefined, send('PUT', '/merchants/acme', { tier: 'gold' })],
    ['merchant.set', 'acme', 'refused', 'invalid_request', send('PUT', '/merchants/acme', { tier: 7 })],
    ['merchant.delete', 'acme', 'refused', 'merchant_not_found', send('DELETE', '/merchants/acme')],
    ['removals.confirm', null, 'refused', 'nothing_held', send('POST', '/removals/confirm')],
    ['records.reset', 'jobs', 'refused', 'workflow_not_found', send('POST', '/records/jobs/reset', {})],
    [
      'records.retry',
      'jobs',
      'refused',
      'workflow_not_found',
      send('POST', '/records/jobs/retry', { ids: ['1'] }),
    ],
  ])('has %s of %s, %s', async (action, what, outcome, code, ask) => {
    router = await startTestRouter(engine.url, { ...quiet, ...keys, LOG_LEVEL: 'error' });
    const answer = await ask(router);
    const id = answer.headers['x-request-id'];
    expect(await audited(router, id)).toEqual([
      expect.objectContaining({
        level: 'info',
        audit: true,
        action,
        what,
        outcome,
        actor: 'admin@127.0.0.1',
        address: '127.0.0.1',
        request_id: id,
      }),
    ]);
    expect(lines(router)).toHaveLength(1);
    expect(lines(router)[0]?.code).toBe(code);
  });

  it('logs an invalid forwarded address as unknown', async () => {
    router = await startTestRouter(engine.url, { ...quiet, ...keys, TRUST_PROXY: '1' });
    const headers = { ...admin, 'x-forwarded-for': `<b>${'x'.repeat(8000)}` };
    const answer = await send('PUT', '/tiers', { gold: 3 }, headers)(router);
    const id = answer.headers['x-request-id'];
    expect(await audited(router, id)).toMatchObject([{ actor: 'admin@unknown', address: 'unknown' }]);
    expect(router.logText()).not.toContain('<b>');
    const { events } = (await router.get('/events/search?type=tiers_changed', admin)).body;
    expect(JSON.stringify(events)).not.toContain('<b>');
  });

  it('logs sign-in, the actions of the session under its name, and sign-out', async () => {
    router = await startTestRouter(engine.url, { ...quiet, ...keys });
    const wrong = await router.post('/session', { key: 'wrong-key' });
    const right = await router.post('/session', { key: adminKey });
    const cookie = (right.headers['set-cookie']?.[0] ?? '').split(';')[0] ?? '';
    const own = { cookie, 'x-console': '1', 'content-type': 'application/json' };
    const change = await send('PUT', '/tiers', { gold: 3 }, own)(router);
    for (const path of ['/drain', '/undrain']) await send('POST', path, { pod_name: 'gold-1' }, own)(router);
    const out = await router.ask('/session', { method: 'DELETE', headers: { cookie } });
    await audited(router, out.headers['x-request-id']);
    const actor = expect.stringMatching(/^console:[0-9a-f]{8}@127\.0\.0\.1$/);
    expect(lines(router)).toEqual([
      expect.objectContaining({
        action: 'session.sign_in',
        outcome: 'refused',
        code: 'unauthorized',
        actor: 'public@127.0.0.1',
        request_id: wrong.headers['x-request-id'],
      }),
      expect.objectContaining({ action: 'session.sign_in', outcome: 'done', actor }),
      expect.objectContaining({
        action: 'tiers.replace',
        outcome: 'done',
        actor,
        request_id: change.headers['x-request-id'],
      }),
      expect.objectContaining({ action: 'pod.drain', outcome: 'done', actor }),
      expect.objectContaining({ action: 'pod.undrain', outcome: 'done', actor }),
      expect.objectContaining({ action: 'session.sign_out', outcome: 'done', actor }),
    ]);
    expect(
      new Set(
        lines(router)
          .slice(1)
          .map((line) => line.actor),
      ).size,
    ).toBe(1);
    const events = await engine.redis.xrevrange('voice:events', '+', '-');
    for (const type of ['tiers_changed', 'pod_draining', 'pod_undrained']) {
      const told = events.map(([, fields]) => fields).find((fields) => fields.includes(type));
      expect(told).toEqual(expect.arrayContaining(['by', lines(router)[2]?.actor]));
    }
  });

  it('has those who were kept out', async () => {
    router = await startTestRouter(engine.url, { ...quiet, ...keys });
    const stranger = await router.post('/drain', { pod_name: 'gold-1' });
    const agent = await router.put('/tiers', { gold: 1 }, { authorization: `Bearer ${apiKey}` });
    expect([stranger.status, agent.status]).toEqual([401, 403]);
    await audited(router, agent.headers['x-request-id']);
    expect(lines(router)).toEqual([
      expect.objectContaining({ action: 'pod.drain', outcome: 'refused', code: 'unauthorized' }),
      expect.objectContaining({ action: 'tiers.replace', outcome: 'refused', code: 'forbidden' }),
    ]);
    expect(lines(router).map(({ actor }) => actor)).toEqual(['unknown@127.0.0.1', 'unknown@127.0.0.1']);
  });

  it('has calls that an operator begins and ends by hand, not those of voice agents', async () => {
    router = await startTestRouter(engine.url, { ...quiet, ...keys });
    const agent = { authorization: `Bearer ${apiKey}` };
    await router.post('/allocate', { call_sid: 'CA1' }, agent);
    await router.post('/release', { call_sid: 'CA1' }, agent);
    await router.post('/release', { call_sid: 'CA1' });
    await router.post('/allocate', { call_sid: 'CA2' }, admin);
    const signedIn = await router.post('/session', { key: adminKey });
    const cookie = (signedIn.headers['set-cookie']?.[0] ?? '').split(';')[0] ?? '';
    const release = () => router.post('/release', { call_sid: 'CA2' }, { cookie, 'x-console': '1' });
    await release();
    const last = await release();
    await audited(router, last.headers['x-request-id']);
    expect(
      lines(router).map(
        ({ action, what, outcome, actor }) =>
          `${action} ${what} ${outcome} ${String(actor).split(/[:@]/)[0]}`,
      ),
    ).toEqual([
      'call.allocate CA2 done admin',
      'session.sign_in null done console',
      'call.release CA2 done console',
      'call.release CA2 refused console',
    ]);
  });

  it('has the action of a caller that disconnected, once, like the log line and the metrics', async () => {
    // The drain is sent once: a busy machine must not make it fail.
    const patient = { REQUEST_TIMEOUT: '10s', REDIS_COMMAND_TIMEOUT: '5s' };
    router = await startTestRouter(engine.url, { ...quiet, ...keys, ...patient });
    const given = await router.post('/allocate', { call_sid: 'CA1' }, admin);
    const { pod_name } = given.body;
    const gone = new AbortController();
    const asked = router
      .ask('/drain', {
        method: 'POST',
        headers: { ...admin, 'x-request-id': 'left-early' },
        body: JSON.stringify({ pod_name, wait: '30s' }),
        signal: gone.signal,
      })
      .catch(() => undefined);
    await until(
      async () => (await router.get(`/pod/${pod_name}`, admin)).body.is_draining,
      'it drains, and is waited for',
    );
    gone.abort();
    await asked;
    await audited(router, 'left-early');
    // After the wait and the stop of the router no further line can follow.
    const metrics = (await router.get('//metrics')).text;
    await router.stop();
    expect(lines(router).filter(({ request_id }) => request_id === 'left-early')).toEqual([
      expect.objectContaining({
        action: 'pod.drain',
        what: pod_name,
        outcome: 'caller_gone',
        actor: 'admin@127.0.0.1',
      }),
    ]);
    const requests = router.logs().filter(({ reqId, msg }) => reqId === 'left-early' && msg === 'request');
    expect(requests).toEqual([
      expect.objectContaining({ status: '499', endpoint: '/api/v1/drain', pod_name }),
    ]);
    expect(metrics).toMatch(/http_requests_total\{[^}]*endpoint="\/api\/v1\/drain",status="499"[^}]*\} 1/);
  });

  it('has no reads and no calls', async () => {
    router = await startTestRouter(engine.url, quiet);
    await router.post('/allocate', { call_sid: 'CA1' });
    await router.post('/release', { call_sid: 'CA1' });
    await router.post('/pod/gold-1/report', { calls: [] });
    await router.post('/tiers/preview', { gold: 1 });
    await router.post('/explain', { call_sid: 'CA1' });
    for (const path of ['/status', '/pods', '/tiers', '/merchants', '/history', '/session'])
      await router.get(path);
    const last = await router.post('/drain', { pod_name: 'gold-1' });
    await audited(router, last.headers['x-request-id']);
    expect(lines(router)).toHaveLength(1);
  });
});

describe('the audit log of records', () => {
  describeOnePostgres('on a real database', (postgres) => {
    it('distinguishes a dry run from an executed action', async () => {
      const pool = postgres.pool();
      await jobsTable(pool);
      const engine = await startPreferred();
      const env = {
        DATABASE_URL: postgres.url,
        RECORDS_MODULE: recordsModule(),
        ZOMBIE_CLEANUP_ENABLED: 'false',
      };
      const router = await startTestRouter(engine.url, env, { openRecords: Plane.create });
      postgres.onEnd(() => engine.stop());
      postgres.onEnd(() => router.stop());
      await until(async () => (await router.get('/status')).body.records.error === null, 'it is open');
      const id = await addJob(pool, 'hold', { status: 'Processing', ago: '3 h' });
      const failed = await addJob(pool, 'hold', { status: 'Failed' });
      await router.ask('/records/jobs/reset', { method: 'POST' });
      await router.post('/records/jobs/reset', { ids: [id], dry_run: false });
      await router.post('/records/jobs/retry', { ids: [failed], dry_run: true });
      const last = await router.post('/records/jobs/retry', { ids: [failed] });
      await audited(router, last.headers['x-request-id']);
      expect(lines(router).map(({ action, what, outcome }) => `${action} ${what} ${outcome}`)).toEqual([
        'records.reset jobs dry_run',
        'records.reset jobs done',
        'records.retry jobs dry_run',
        'records.retry jobs done',
      ]);
    });
  });
});
