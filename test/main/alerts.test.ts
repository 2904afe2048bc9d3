/** Alerts and the weekly report of a router started as by `serve`, with receivers on loopback. */
import { createHmac } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { describeConfig } from '../../src/config/config.js';
import { Plane } from '../../src/main/records-plane.js';
import { migrateRecords } from '../../src/main/workflows.js';
import { type Received, type Receiver, startReceiver } from '../observe/alerts-receiver.js';
import { type Engine, startPreferred } from '../support/engines.js';
import { holdGhosts } from '../support/held-removals.js';
import { describeOnePostgres } from '../support/postgres.js';
import { jobsTable, recordsModule } from '../support/records-module.js';
import { impatient, startTestRouter, type TestRouter } from '../support/router.js';
import { SkippingClock } from '../support/skipping-clock.js';
import { until } from '../support/until.js';

let engine: Engine;
beforeAll(async () => {
  engine = await startPreferred();
});
afterAll(() => engine.stop());

let prefix = 0;
let clock: SkippingClock;
beforeEach(() => {
  prefix += 1;
  clock = new SkippingClock();
});

async function serve(env: Record<string, string> = {}): Promise<TestRouter> {
  const router = await startTestRouter(
    engine.url,
    // The leader runs only when a test asks for it: three lists in a row would confirm a removal.
    {
      REDIS_KEY_PREFIX: `alerting${prefix}:`,
      RECONCILE_INTERVAL: '1h',
      CLEANUP_INTERVAL: '20m',
      ALERT_INTERVAL: '100ms',
      ...env,
    },
    { clock, openRecords: Plane.create },
  );
  onTestFinished(() => router.stop());
  return router;
}

async function receiver(path?: string): Promise<Receiver> {
  const started = await startReceiver(path);
  onTestFinished(() => started.end());
  return started;
}

const sent = ({ received }: Receiver) =>
  received.map(({ body }) => `${body.event} ${body.condition} ${body.workflow ?? '-'} ${body.severity}`);

const loopsOf = async (router: TestRouter) =>
  (await router.get('/status')).body.loops as { name: string; rounds: number; last_error: string | null }[];
const loopOf = async (router: TestRouter, name: string) =>
  (await loopsOf(router)).find((loop) => loop.name === name);

/** Resolves when the state as of now has been checked and evaluated: each loop has finished two rounds since. */
async function settled({ context }: TestRouter): Promise<void> {
  for (const name of ['history', 'alerts']) {
    const rounds = () => context.loops().find((loop) => loop.name === name)?.rounds ?? 0;
    const goal = rounds() + 2;
    await until(() => {
      context.history.loop.nudge();
      return rounds() >= goal;
    }, `${name} has finished two rounds`);
  }
}

describe('a router without a database', () => {
  it('sends held removals once, signed, and their resolve once', async () => {
    const hook = await receiver();
    const router = await serve({ ALERT_WEBHOOK_URL: hook.url, ALERT_WEBHOOK_SECRET: 'the-alert-secret' });
    await settled(router);
    expect(sent(hook)).toEqual([]);
    await holdGhosts(router);
    await settled(router);
    await until(() => hook.received.length > 0, 'it is sent');
    await settled(router);
    expect(sent(hook)).toEqual(['trigger pool.removals_held - critical']);
    const { headers, text, body } = hook.received[0] as Received;
    expect(headers['user-agent']).toMatch(/^smart-router\/\d/);
    expect(body).toMatchObject({ source: 'router-under-test', details: { pods: 5 } });
    const [, seconds, hex] = /^t=(\d+),v1=(\w+)$/.exec(String(headers['smart-router-signature'])) ?? [];
    const hmac = createHmac('sha256', 'the-alert-secret').update(`${seconds}.${text}`);
    expect(hex).toBe(hmac.digest('hex'));

    await router.post('/removals/confirm', {});
    await until(async () => (await router.context.pools.removals()).held.length === 0, 'they are removed');
    await settled(router);
    clock.skip(121_000);
    await until(() => hook.received.length > 1, 'the resolve is sent');
    await settled(router);
    expect(sent(hook)).toEqual([
      'trigger pool.removals_held - critical',
      'resolve pool.removals_held - critical',
    ]);
  });

  it('neither fires nor resolves held removals while the store is down', async () => {
    const hook = await receiver();
    const router = await serve({ ALERT_WEBHOOK_URL: hook.url, ...impatient });
    await holdGhosts(router);
    await settled(router);
    await until(() => hook.received.length > 0, 'it is sent');
    await engine.pause();
    try {
      await settled(router);
      clock.skip(121_000);
      await settled(router);
    } finally {
      await engine.resume();
    }
    await settled(router);
    // store_down is another alert.
    const removals = sent(hook).filter((line) => line.includes('pool.'));
    expect(removals).toEqual(['trigger pool.removals_held - critical']);
    expect(await loopOf(router, 'history')).toMatchObject({ last_error: null, crashes: 0 });
  });

  it('sends calls without a pod and their resolve to both receivers', async () => {
    const hook = await receiver();
    const pagerDuty = await receiver('/v2/enqueue');
    const router = await serve({
      ALERT_WEBHOOK_URL: hook.url,
      PAGERDUTY_ROUTING_KEY: 'the-routing-key',
      PAGERDUTY_URL: pagerDuty.url,
      PAGERDUTY_LEAST_SEVERITY: 'page',
    });
    for (let i = 1; i <= 6; i += 1) await router.post('/allocate', { call_sid: `CA${i}` });
    clock.skip(10_000);
    await until(() => hook.received.length > 0 && pagerDuty.received.length > 0, 'it is sent');
    expect(sent(hook)).toEqual(['trigger calls.no_pods - page']);
    expect(hook.received[0]?.body).toMatchObject({
      source: 'router-under-test',
      details: { calls: 1 },
      runbook: 'docs/runbook.md#smartrouternocapacity',
    });
    const actions = () => pagerDuty.received.map(({ body }) => `${body.event_action} ${body.dedup_key}`);
    expect(actions()).toEqual(['trigger smart-router/calls.no_pods']);
    clock.skip(360_000);
    await until(() => {
      clock.skip(10_000);
      return hook.received.length > 1 && pagerDuty.received.length > 1;
    }, 'the resolve is sent');
    expect(sent(hook)[1]).toBe('resolve calls.no_pods - page');
    expect(actions()[1]).toBe('resolve smart-router/calls.no_pods');
  });

  it('sends that the store is down, and when it responds again', async () => {
    const hook = await receiver();
    const router = await serve({ ALERT_WEBHOOK_URL: hook.url, ...impatient });
    // On a busy machine loops crash during the pause: another alert.
    const sentOfStore = () => sent(hook).filter((line) => line.includes('store_down'));
    await settled(router);
    await engine.pause();
    try {
      await settled(router);
      clock.skip(10_000);
      await until(() => sentOfStore().length > 0, 'it is sent');
    } finally {
      await engine.resume();
    }
    expect(sentOfStore()).toEqual(['trigger calls.store_down - page']);
    // The store counts as up from the first check that it answers: not always the first one after the resume.
    await until(() => {
      clock.skip(10_000);
      return sentOfStore().length > 1;
    }, 'the resolve is sent');
    expect(sentOfStore()[1]).toBe('resolve calls.store_down - page');
  });

  it('sends PagerDuty only alerts of its minimum severity', async () => {
    const pagerDuty = await receiver('/v2/enqueue');
    const env = { PAGERDUTY_ROUTING_KEY: 'the-routing-key', PAGERDUTY_URL: pagerDuty.url };
    const router = await serve(env);
    const actions = () => pagerDuty.received.map(({ body }) => `${body.event_action} ${body.dedup_key}`);
    // Resolves at the start, in case the previous process could not send them.
    await until(() => pagerDuty.received.length > 1, 'the resolves are sent');
    expect(actions().sort()).toEqual([
      'resolve smart-router/calls.pool_unreadable',
      'resolve smart-router/pool.removals_held',
    ]);
    await holdGhosts(router);
    await settled(router);
    await until(() => pagerDuty.received.length > 2, 'it is sent');
    expect(actions()[2]).toBe('trigger smart-router/pool.removals_held');
    expect(pagerDuty.received[2]?.body).toMatchObject({
      routing_key: 'the-routing-key',
      payload: { severity: 'critical', source: 'router-under-test' },
    });

    const strict = await receiver();
    const other = await serve({ ...env, PAGERDUTY_URL: strict.url, PAGERDUTY_LEAST_SEVERITY: 'page' });
    await until(async () => (await other.get('/status')).body.removals_held === 5, 'it sees them too');
    await settled(other);
    expect(strict.received).toEqual([]);
  });

  it('with two replicas only the leader sends to the webhook', async () => {
    const hook = await receiver();
    const replica = (POD_NAME: string) =>
      serve({ ALERT_WEBHOOK_URL: hook.url, LEADER_ELECTION_ENABLED: 'true', POD_NAME });
    const leader = await replica('leader');
    const follower = await replica('follower');
    expect([leader.context.leadership.isLeader, follower.context.leadership.isLeader]).toEqual([true, false]);
    await holdGhosts(leader);
    await settled(leader);
    await until(() => hook.received.length > 0, 'it is sent');
    await Promise.all([settled(leader), settled(follower)]);
    expect(hook.received.map(({ body }) => body.source)).toEqual(['leader']);
    expect(follower.logText()).toContain('5 pods are missing');
  });

  it('without a receiver has no loop for alerts', async () => {
    const router = await serve();
    expect((await loopsOf(router)).map(({ name }) => name)).toEqual(expect.arrayContaining(['settings']));
    expect((await loopsOf(router)).filter(({ name }) => name.startsWith('alerts'))).toEqual([]);
  });
});

describe('secrets', () => {
  const secrets = {
    ALERT_WEBHOOK_SECRET: 'SeCrEt-of-the-alerts',
    PAGERDUTY_ROUTING_KEY: 'SeCrEt-routing-key',
    RECORDS_REPORT_WEBHOOK_URL: 'https://reports.example/SeCrEt',
    RECORDS_REPORT_WEBHOOK_SECRET: 'SeCrEt-of-the-report',
  };

  it('appear neither in the log, after any delivery error, nor in the shown configuration', async () => {
    const hook = await receiver('/SeCrEt/path');
    const pagerDuty = await receiver();
    // Closed connection, temporary error, permanent error, redirect.
    hook.answers = [{ status: 0 }, { status: 503 }, { status: 404 }];
    pagerDuty.answers = [
      { status: 302, headers: { location: 'http://127.0.0.1:1/SeCrEt' } },
      { status: 400 },
    ];
    const env = { ...secrets, ALERT_WEBHOOK_URL: hook.url, PAGERDUTY_URL: pagerDuty.url };
    const router = await serve(env);
    await holdGhosts(router);
    await settled(router);
    const refused = (to: string) =>
      router.logs().some(({ msg, to: at }) => at === to && String(msg).startsWith('alert rejected'));
    await until(() => {
      clock.skip(2000);
      return refused('webhook') && refused('pagerduty');
    }, 'both have rejected');
    await router.stop();
    expect(router.logText()).toContain('alert delivery failed; retrying');
    expect(router.logText()).not.toContain('SeCrEt');
    const rows = describeConfig(env);
    expect(JSON.stringify(rows)).not.toContain('SeCrEt');
    for (const name of [...Object.keys(secrets), 'ALERT_WEBHOOK_URL'])
      expect(rows.find((row) => row.name === name)).toMatchObject({
        value: '********',
        source: 'environment',
      });
  });
});

describeOnePostgres('a router with records', (postgres) => {
  it('sends more than ten stuck records once, and their resolve once', async () => {
    const pool = postgres.pool();
    await jobsTable(pool);
    const stick = (count: number) =>
      pool.query(
        "INSERT INTO jobs (what, status, updated_at) SELECT 'ok', 'Processing', now() - interval '30 min' FROM generate_series(1, $1)",
        [count],
      );
    await stick(10);
    const hook = await receiver();
    const router = await serve({
      DATABASE_URL: postgres.url,
      RECORDS_MODULE: recordsModule(),
      // They are counted once a minute, and stay. None is stuck for an hour, which would be an alert of its own.
      ZOMBIE_STUCK_THRESHOLD_MINUTES: '10',
      ZOMBIE_CLEANUP_ENABLED: 'false',
      RECORDS_REPORT_ENABLED: 'false',
      ALERT_WEBHOOK_URL: hook.url,
    });
    const counts = async () => (await loopOf(router, 'records-look'))?.rounds ?? 0;
    const stuck = async (count: number) => {
      await until(async () => {
        const before = await counts();
        clock.skip(60_000);
        // A count that was in progress ends now, with the old number: the next one is a minute later.
        await until(async () => (await counts()) > before, 'they are counted');
        return (await router.get('/status')).body.records.workflows[0].stuck === count;
      }, `${count} are counted`);
      await settled(router);
    };
    // Time that is left out before the database is open would count as time without it.
    await until(async () => (await router.get('/status')).body.records.error === null, 'it is open');
    await settled(router);
    await stuck(10);
    expect(sent(hook)).toEqual([]);
    await stick(1);
    await stuck(11);
    await until(() => hook.received.length > 0, 'it is sent');
    expect(sent(hook)).toEqual(['trigger records.stuck_warning jobs warning']);
    expect(hook.received[0]?.body.summary).toBe('jobs: 11 records are stuck in Processing (more than 10)');
    // Still more than four fifths.
    await pool.query('DELETE FROM jobs WHERE id IN (SELECT id FROM jobs LIMIT 2)');
    for (let minute = 0; minute < 3; minute += 1) await stuck(9);
    expect(hook.received).toHaveLength(1);
    await pool.query('DELETE FROM jobs');
    for (let minute = 0; minute < 4; minute += 1) await stuck(0);
    await until(() => hook.received.length > 1, 'the resolve is sent');
    expect(sent(hook)).toEqual([
      'trigger records.stuck_warning jobs warning',
      'resolve records.stuck_warning jobs warning',
    ]);
    expect((await loopsOf(router)).map(({ name }) => name)).not.toContain('records-report');
  });

  it('sends breaker_open for a database that was never reachable', async () => {
    const hook = await receiver();
    const router = await serve({
      DATABASE_URL: 'postgres://127.0.0.1:1/nowhere',
      RECORDS_WORKFLOWS: 'wf7',
      ALERT_WEBHOOK_URL: hook.url,
    });
    await settled(router);
    expect(sent(hook)).toEqual([]);
    clock.skip(31_000);
    await until(() => hook.received.length > 0, 'it is sent');
    expect(sent(hook)).toEqual(['trigger records.breaker_open - critical']);
    // What this process alone had to tell is over with it.
    await router.stop();
    expect(sent(hook)[1]).toBe('resolve records.breaker_open - critical');
  });

  it('writes the report of the last week and sends it, signed', async () => {
    const pool = postgres.pool();
    const hook = await receiver('/report');
    const folder = mkdtempSync(join(tmpdir(), 'smart-router-reports-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const env = {
      DATABASE_URL: postgres.url,
      RECORDS_WORKFLOWS: 'wf7',
      RECORDS_REPORT_FOLDER: join(folder, 'weekly'),
      RECORDS_REPORT_WEBHOOK_URL: hook.url,
      RECORDS_REPORT_WEBHOOK_SECRET: 'the-report-secret',
    };
    await migrateRecords(pool, { withWorkflows: true });
    const router = await serve(env);
    await until(async () => ((await loopOf(router, 'records-report'))?.rounds ?? 0) > 0, 'it looks');
    // Our schema is of today: there is no week to report.
    expect(existsSync(join(folder, 'weekly'))).toBe(false);
    await pool.query("UPDATE smart_router.migrations SET at = now() - interval '30 days'");
    clock.skip(300_000);
    await until(() => hook.received.length > 0, 'it is sent');
    await until(() => existsSync(folder) && readdirSync(join(folder, 'weekly')).length === 2, 'it is kept');
    const [markdown = ''] = readdirSync(join(folder, 'weekly')).filter((name) => name.endsWith('.md'));
    expect(readFileSync(join(folder, 'weekly', markdown), 'utf8')).toMatch(/^# Stuck records, /);
    expect(hook.received[0]?.body).toMatchObject({ event: 'weekly_report', report: { records: 0 } });
    expect(hook.received[0]?.headers['smart-router-signature']).toMatch(/^t=\d+,v1=\w{64}$/);
    await until(() => router.logText().includes('weekly report of stuck records'), 'it is logged');
  });
});
