/** When an alert fires, how often receivers are notified, and when it is resolved. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { pagerDutySink, webhookSink } from '../../src/observe/alert-delivery.js';
import { Alerts, type AlertsOptions } from '../../src/observe/alerts.js';
import { silentLogger } from '../../src/observe/log.js';
import { ManualClock } from '../support/manual-clock.js';
import { until } from '../support/until.js';
import { type Receiver, startReceiver } from './alerts-receiver.js';

const minute = 60_000;
let clock: ManualClock;
let receiver: Receiver;
let alerts: Alerts;

beforeEach(async () => {
  clock = new ManualClock();
  receiver = await startReceiver();
  alerts = newAlerts();
});

afterEach(async () => {
  await alerts.stop();
  await receiver.end();
});

function newAlerts(more: Partial<AlertsOptions> = {}): Alerts {
  const sinks = [webhookSink({ url: receiver.url, clock })];
  return new Alerts({
    sinks,
    source: 'router-0',
    clock,
    log: silentLogger,
    intervalMs: 15_000,
    isActive: () => true,
    stallsAfterMs: new Map(),
    onCrash: () => {},
    ...more,
  });
}

const stuck = (records: number, workflow = 'pages', oldestSeconds = 400) =>
  alerts.records.observer.stuck(workflow, records, oldestSeconds);

function sessions(ok: number, failed: number) {
  for (let i = 0; i < ok; i += 1) alerts.records.observer.session('ok');
  for (let i = 0; i < failed; i += 1) alerts.records.observer.session('failed');
}

const held = (removalsHeld: number) =>
  alerts.calls.update(
    { storeError: undefined, noPods: 0, shed: 0, full: 0, removalsHeld, leader: 'a', loops: [] },
    clock.monotonic(),
  );

/** Evaluates, and waits until everything is delivered. */
async function round() {
  const counts = await alerts.runOnce();
  await until(async () => (await alerts.runOnce()).undelivered === 0, 'everything is delivered');
  return counts;
}

/** Reports the number every minute, as the fast sweep does. */
async function pass(minutes: number, records: number, workflow = 'pages') {
  for (let i = 0; i < minutes; i += 1) {
    clock.advance(minute);
    stuck(records, workflow);
    await round();
  }
}

const sent = () =>
  receiver.received.map(
    ({ body }) => `${body.event} ${body.condition}${body.workflow ? ` ${body.workflow}` : ''}`,
  );

describe('stuck records', () => {
  it('does not fire for ten', async () => {
    stuck(10);
    await round();
    expect(sent()).toEqual([]);
    expect(alerts.active).toEqual([]);
  });

  it('eleven are a warning, sent once with all fields', async () => {
    stuck(11);
    expect(await round()).toMatchObject({ triggered: 1, active: 1 });
    stuck(12);
    await round();
    expect(sent()).toEqual(['trigger records.stuck_warning pages']);
    expect(receiver.received[0]?.body).toEqual({
      event: 'trigger',
      dedup_key: 'smart-router/records.stuck_warning/pages',
      condition: 'records.stuck_warning',
      workflow: 'pages',
      severity: 'warning',
      text: '[warning] pages: 11 records are stuck in Processing (more than 10)',
      summary: 'pages: 11 records are stuck in Processing (more than 10)',
      source: 'router-0',
      started_at: new Date(clock.now()).toISOString(),
      at: new Date(clock.now()).toISOString(),
      details: { records: 11, oldest_seconds: 400, lowest_of_last_hour: 11 },
      runbook: 'docs/runbook.md#smartrouterrecordsstuck',
    });
  });

  it('fifty-one at once are critical without a warning; 39 left are a warning', async () => {
    stuck(51);
    await round();
    expect(sent()).toEqual(['trigger records.stuck_critical pages']);
    await pass(3, 39);
    expect(sent().slice(1)).toEqual([
      'trigger records.stuck_warning pages',
      'resolve records.stuck_critical pages',
    ]);
  });

  it('fifty are not critical', async () => {
    stuck(50);
    await round();
    expect(sent()).toEqual(['trigger records.stuck_warning pages']);
  });

  it('each workflow has its own alert', async () => {
    stuck(11, 'pages');
    stuck(11, 'sitemaps');
    stuck(3, 'others');
    await round();
    expect(sent()).toEqual(['trigger records.stuck_warning pages', 'trigger records.stuck_warning sitemaps']);
  });

  it('a number around the threshold does not flap', async () => {
    stuck(11);
    await round();
    for (const records of [10, 11, 9, 12, 9, 9, 9, 9, 11]) await pass(1, records);
    expect(sent()).toEqual(['trigger records.stuck_warning pages']);
  });

  it('is resolved once, after two minutes below the threshold', async () => {
    stuck(11);
    await round();
    await pass(2, 0);
    expect(sent()).toHaveLength(1);
    await pass(5, 0);
    expect(sent()).toEqual(['trigger records.stuck_warning pages', 'resolve records.stuck_warning pages']);
    expect(receiver.received[1]?.body).toMatchObject({
      started_at: new Date(1_700_000_000_000).toISOString(),
      text: expect.stringMatching(/^\[resolved\] pages: 0 /),
    });
    expect(alerts.active).toEqual([]);
  });

  it('a low minute does not resolve it, and it is not sent again', async () => {
    stuck(11);
    await round();
    await pass(1, 0);
    await pass(1, 11);
    await pass(1, 0);
    expect(alerts.active.map(({ name }) => name)).toContain('records.stuck_warning');
    expect(sent().filter((line) => line.includes('warning'))).toHaveLength(1);
  });

  it('without new samples nothing fires and nothing is resolved', async () => {
    stuck(11);
    await round();
    clock.advance(30 * minute);
    await round();
    clock.advance(30 * minute);
    await round();
    expect(sent()).toEqual(['trigger records.stuck_warning pages']);
    expect(alerts.active).toHaveLength(1);
  });

  it('sends a reminder after four hours', async () => {
    stuck(11);
    await round();
    await pass(239, 11);
    const before = sent().filter((line) => line.includes('warning'));
    expect(before).toHaveLength(1);
    await pass(1, 11);
    expect(sent().filter((line) => line.includes('stuck_warning'))).toHaveLength(2);
  });

  it('a record stuck for an hour is a warning', async () => {
    stuck(1, 'pages', 3599);
    await round();
    expect(sent()).toEqual([]);
    stuck(1, 'pages', 3600);
    await round();
    expect(sent()).toEqual(['trigger records.stuck_for_an_hour pages']);
    await pass(4, 0);
    expect(sent()[1]).toBe('resolve records.stuck_for_an_hour pages');
  });

  it('records requeued within the hour do not fire stuck_for_an_hour', async () => {
    stuck(1);
    await pass(70, 1);
    expect(sent()).toEqual([]);
  });
});

describe('doubled within an hour', () => {
  it('pages above ten', async () => {
    stuck(6);
    await pass(10, 6);
    await pass(1, 11);
    expect(sent()).toEqual(['trigger records.stuck_warning pages']);
    await pass(1, 12);
    expect(sent()[1]).toBe('trigger records.stuck_doubled pages');
    expect(receiver.received[1]?.body).toMatchObject({
      severity: 'page',
      summary: 'pages: stuck records doubled within an hour, from 6 to 12',
    });
  });

  it('does not page while there are ten or fewer', async () => {
    stuck(2);
    await pass(1, 10);
    expect(sent()).toEqual([]);
  });

  it('does not page for a change from 0 to 11: that is a warning', async () => {
    stuck(0);
    await pass(1, 11);
    expect(sent()).toEqual(['trigger records.stuck_warning pages']);
  });

  it('does not page when the doubling took longer than an hour', async () => {
    stuck(20);
    for (let records = 20; records < 45; records += 1) await pass(4, records);
    expect(sent().filter((line) => line.includes('doubled'))).toEqual([]);
  });

  it('does not page for the records of the first sample', async () => {
    stuck(40);
    await round();
    expect(sent()).toEqual(['trigger records.stuck_warning pages']);
  });

  it('is resolved after an hour without growth', async () => {
    stuck(20);
    await pass(1, 40);
    expect(sent()).toContain('trigger records.stuck_doubled pages');
    await pass(58, 40);
    expect(sent()).not.toContain('resolve records.stuck_doubled pages');
    await pass(6, 40);
    expect(sent()).toContain('resolve records.stuck_doubled pages');
    expect(sent()).not.toContain('resolve records.stuck_warning pages');
  });
});

describe('sessions, zombies, breaker, mass stall, removals', () => {
  it('more than one failed session in a hundred is critical, exactly one is not', async () => {
    sessions(495, 5);
    await round();
    expect(sent()).toEqual([]);
    alerts.records.observer.session('failed');
    await round();
    expect(sent()).toEqual(['trigger records.session_failures']);
    expect(receiver.received[0]?.body).toMatchObject({
      severity: 'critical',
      details: { failed: 6, attempts: 501 },
      summary: '1.2 % of the database sessions failed in the last 15 minutes (more than 1 %)',
    });
    clock.advance(20 * minute);
    alerts.records.observer.session('ok');
    await round();
    clock.advance(3 * minute);
    await round();
    expect(sent()).toEqual(['trigger records.session_failures', 'resolve records.session_failures']);
  });

  it('two failures of a process with few sessions do not fire', async () => {
    sessions(10, 2);
    await round();
    expect(sent()).toEqual([]);
  });

  it('a zombie record fires at once, and is resolved 15 minutes after the last', async () => {
    alerts.records.observer.zombie('pages');
    await round();
    expect(sent()).toEqual(['trigger records.zombie pages']);
    clock.advance(10 * minute);
    alerts.records.observer.zombie('pages');
    clock.advance(13 * minute);
    await round();
    expect(sent()).toHaveLength(1);
    clock.advance(3 * minute);
    await round();
    clock.advance(3 * minute);
    await round();
    expect(sent()).toEqual(['trigger records.zombie pages', 'resolve records.zombie pages']);
  });

  it('a breaker fires when it stays open for 30 s', async () => {
    alerts.records.observer.breaker(true);
    await round();
    clock.advance(20_000);
    alerts.records.observer.breaker(false);
    await round();
    alerts.records.observer.breaker(true);
    await round();
    clock.advance(29_000);
    await round();
    expect(sent()).toEqual([]);
    clock.advance(1000);
    await round();
    expect(sent()).toEqual(['trigger records.breaker_open']);
  });

  it('shows a clearing alert with its last values, not with 0', async () => {
    held(3);
    await round();
    held(0);
    await round();
    expect(alerts.active.map(({ summary }) => summary)).toEqual([
      expect.stringMatching(/^3 pods are missing/),
    ]);
    clock.advance(2 * minute);
    held(0);
    await round();
    expect(alerts.active).toEqual([]);
  });

  it('mass stall and held removals fire and are resolved', async () => {
    alerts.records.observer.massStall(true);
    held(7);
    await round();
    expect(sent().sort()).toEqual(['trigger pool.removals_held', 'trigger records.mass_stall']);
    const found = receiver.received.find(({ body }) => body.condition === 'pool.removals_held');
    expect(found?.body.runbook).toBe('docs/runbook.md#smartrouterremovalsheld');
    for (let i = 0; i < 3; i += 1) {
      alerts.records.observer.massStall(false);
      held(0);
      await round();
      clock.advance(minute);
    }
    expect(sent().slice(2).sort()).toEqual(['resolve pool.removals_held', 'resolve records.mass_stall']);
  });
});

describe('a condition that must last', () => {
  it('needs two failed checks of the store, for any number of evaluations between them', async () => {
    const check = (isStoreUp: boolean) =>
      alerts.calls.update(
        {
          storeError: isStoreUp ? undefined : 'cannot reach the store',
          noPods: 0,
          shed: 0,
          full: 0,
          leader: 'a',
          loops: [],
        },
        clock.monotonic(),
      );
    check(false);
    for (let i = 0; i < 9; i += 1) {
      await round();
      clock.advance(1000);
    }
    expect(sent()).toEqual([]);
    check(false);
    await round();
    expect(sent()).toEqual(['trigger calls.store_down']);
  });
});

describe('several replicas', () => {
  it('only the active one sends shared conditions to a webhook; each sends its own conditions', async () => {
    let isActive = false;
    alerts = newAlerts({ isActive: () => isActive });
    stuck(11);
    alerts.records.observer.zombie('pages');
    await round();
    expect(sent()).toEqual(['trigger records.zombie pages']);
    isActive = true;
    await round();
    await round();
    expect(sent()).toEqual(['trigger records.zombie pages', 'trigger records.stuck_warning pages']);
    isActive = false;
    await pass(4, 0);
    expect(sent()).toHaveLength(2);
  });

  it('a replica that becomes active sends the resolve', async () => {
    let isActive = false;
    alerts = newAlerts({ isActive: () => isActive });
    stuck(11);
    await round();
    isActive = true;
    await pass(4, 0);
    expect(sent().at(-1)).toBe('resolve records.stuck_warning pages');
  });

  it('send PagerDuty the same key', async () => {
    const sinks = [pagerDutySink({ routingKey: 'k', url: receiver.url, minSeverity: 'critical', clock })];
    for (const source of ['router-0', 'router-1']) {
      alerts = newAlerts({ sinks, source, isActive: () => source === 'router-0' });
      stuck(51);
      await round();
    }
    const triggers = receiver.received.filter(({ body }) => body.event_action === 'trigger');
    expect(triggers.map(({ body }) => body.payload.source)).toEqual(['router-0', 'router-1']);
    expect(new Set(triggers.map(({ body }) => body.dedup_key)).size).toBe(1);
  });
});

describe('the loop', () => {
  it('evaluates every interval, and resolves the conditions of this process at stop', async () => {
    alerts.start();
    alerts.records.observer.zombie('pages');
    stuck(11);
    await until(() => clock.sleepsMs.includes(15_000), 'it waits');
    clock.advance(15_000);
    await until(() => sent().length === 2, 'both are sent');
    expect(alerts.loops).toMatchObject([{ name: 'alerts', rounds: 1, counts: { active: 2, triggered: 2 } }]);
    await alerts.stop();
    expect(sent().slice(2)).toEqual(['resolve records.zombie pages']);
  });

  it('keeps at most 1,000 workflows', async () => {
    for (let i = 0; i < 5000; i += 1) stuck(11, `workflow-${i}`);
    for (let i = 0; i < 200; i += 1) {
      clock.advance(minute);
      sessions(1000, 0);
    }
    expect((await alerts.runOnce()).conditions).toBeLessThan(4100);
  });
});
