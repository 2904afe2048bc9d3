/** When somebody is told, how often, and when it is over. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Alerts, type AlertsOptions, pagerDutySink, webhookSink } from '../../src/observe/alerts.js';
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
  return new Alerts({ sinks, source: 'router-0', clock, log: silentLogger, ...more });
}

const stuck = (records: number, workflow = 'pages', oldestSeconds = 400) =>
  alerts.observer.stuck?.(workflow, records, oldestSeconds);

/** Judges, and waits until everything has arrived. */
async function round() {
  const counts = await alerts.runOnce();
  await until(async () => (await alerts.runOnce()).undelivered === 0, 'everything is delivered');
  return counts;
}

/** Time goes by, and the number is told every minute as the fast sweep would. */
async function pass(minutes: number, records: number, workflow = 'pages') {
  for (let i = 0; i < minutes; i += 1) {
    clock.advance(minute);
    stuck(records, workflow);
    await round();
  }
}

const told = () =>
  receiver.received.map(
    ({ body }) => `${body.event} ${body.condition}${body.workflow ? ` ${body.workflow}` : ''}`,
  );

describe('stuck records', () => {
  it('ten are no reason to tell anybody', async () => {
    stuck(10);
    await round();
    expect(told()).toEqual([]);
    expect(alerts.active).toEqual([]);
  });

  it('eleven are a warning, told once with everything that is known', async () => {
    stuck(11);
    expect(await round()).toMatchObject({ triggered: 1, active: 1 });
    stuck(12);
    await round();
    expect(told()).toEqual(['trigger records.stuck_warning pages']);
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
      runbook: 'docs/runbook-records.md#stuck-records',
    });
  });

  it('fifty-one at once are critical, without a warning beside it; what is left of them is a warning', async () => {
    stuck(51);
    await round();
    expect(told()).toEqual(['trigger records.stuck_critical pages']);
    await pass(3, 39);
    expect(told().slice(1)).toEqual([
      'trigger records.stuck_warning pages',
      'resolve records.stuck_critical pages',
    ]);
  });

  it('fifty are not critical', async () => {
    stuck(50);
    await round();
    expect(told()).toEqual(['trigger records.stuck_warning pages']);
  });

  it('each workflow is told by itself', async () => {
    stuck(11, 'pages');
    stuck(11, 'sitemaps');
    stuck(3, 'others');
    await round();
    expect(told()).toEqual(['trigger records.stuck_warning pages', 'trigger records.stuck_warning sitemaps']);
  });

  it('a number that trembles around the threshold does not flap', async () => {
    stuck(11);
    await round();
    for (const records of [10, 11, 9, 12, 9, 9, 9, 9, 11]) await pass(1, records);
    expect(told()).toEqual(['trigger records.stuck_warning pages']);
  });

  it('it is over when the number has been low for two minutes, told once', async () => {
    stuck(11);
    await round();
    await pass(2, 0);
    expect(told()).toHaveLength(1);
    await pass(5, 0);
    expect(told()).toEqual(['trigger records.stuck_warning pages', 'resolve records.stuck_warning pages']);
    expect(receiver.received[1]?.body).toMatchObject({
      started_at: new Date(1_700_000_000_000).toISOString(),
      text: expect.stringMatching(/^\[resolved\] pages: 0 /),
    });
    expect(alerts.active).toEqual([]);
  });

  it('a low minute in between does not end it, and it is not told again', async () => {
    stuck(11);
    await round();
    await pass(1, 0);
    await pass(1, 11);
    await pass(1, 0);
    expect(alerts.active.map(({ condition }) => condition)).toContain('records.stuck_warning');
    expect(told().filter((line) => line.includes('warning'))).toHaveLength(1);
  });

  it('silence is no all-clear: while nobody looks, nothing begins and nothing ends', async () => {
    stuck(11);
    await round();
    clock.advance(30 * minute);
    await round();
    clock.advance(30 * minute);
    await round();
    expect(told()).toEqual(['trigger records.stuck_warning pages']);
    expect(alerts.active).toHaveLength(1);
  });

  it('a condition that lasts is told again after four hours', async () => {
    stuck(11);
    await round();
    await pass(239, 11);
    const before = told().filter((line) => line.includes('warning'));
    expect(before).toHaveLength(1);
    await pass(1, 11);
    expect(told().filter((line) => line.includes('stuck_warning'))).toHaveLength(2);
  });

  it('one that is stuck for an hour is a warning, as soon as it is', async () => {
    stuck(1, 'pages', 3599);
    await round();
    expect(told()).toEqual([]);
    stuck(1, 'pages', 3600);
    await round();
    expect(told()).toEqual(['trigger records.stuck_for_an_hour pages']);
    await pass(4, 0);
    expect(told()[1]).toBe('resolve records.stuck_for_an_hour pages');
  });

  it('records that are brought back within the hour are none, however long others follow', async () => {
    stuck(1);
    await pass(70, 1);
    expect(told()).toEqual([]);
  });
});

describe('doubled within an hour', () => {
  it('pages, when it is above ten', async () => {
    stuck(6);
    await pass(10, 6);
    await pass(1, 11);
    expect(told()).toEqual(['trigger records.stuck_warning pages']);
    await pass(1, 12);
    expect(told()[1]).toBe('trigger records.stuck_doubled pages');
    expect(receiver.received[1]?.body).toMatchObject({
      severity: 'page',
      summary: 'pages: stuck records doubled within an hour, from 6 to 12',
    });
  });

  it('does not page while there are ten or fewer', async () => {
    stuck(2);
    await pass(1, 10);
    expect(told()).toEqual([]);
  });

  it('does not page from none to eleven: that is a warning', async () => {
    stuck(0);
    await pass(1, 11);
    expect(told()).toEqual(['trigger records.stuck_warning pages']);
  });

  it('does not page when the doubling took longer than an hour', async () => {
    stuck(20);
    for (let records = 20; records < 45; records += 1) await pass(4, records);
    expect(told().filter((line) => line.includes('doubled'))).toEqual([]);
  });

  it('does not page for what was there at the first look', async () => {
    stuck(40);
    await round();
    expect(told()).toEqual(['trigger records.stuck_warning pages']);
  });

  it('is over when the hour has passed without more', async () => {
    stuck(20);
    await pass(1, 40);
    expect(told()).toContain('trigger records.stuck_doubled pages');
    await pass(58, 40);
    expect(told()).not.toContain('resolve records.stuck_doubled pages');
    await pass(6, 40);
    expect(told()).toContain('resolve records.stuck_doubled pages');
    expect(told()).not.toContain('resolve records.stuck_warning pages');
  });
});

describe('sessions, zombies, brakes', () => {
  it('more than one failed session in a hundred is critical, exactly one is not', async () => {
    alerts.observe({ kind: 'sessions', ok: 495, failed: 5 });
    await round();
    expect(told()).toEqual([]);
    alerts.observer.session?.('failed');
    await round();
    expect(told()).toEqual(['trigger records.session_failures']);
    expect(receiver.received[0]?.body).toMatchObject({
      severity: 'critical',
      details: { failed: 6, attempts: 501 },
      summary: '1.2 % of the database sessions failed in the last 15 minutes (more than 1 %)',
    });
    clock.advance(20 * minute);
    alerts.observer.session?.('ok');
    await round();
    clock.advance(3 * minute);
    await round();
    expect(told()).toEqual(['trigger records.session_failures', 'resolve records.session_failures']);
  });

  it('two failures of a process with few sessions are bad luck', async () => {
    alerts.observe({ kind: 'sessions', ok: 10, failed: 2 });
    await round();
    expect(told()).toEqual([]);
  });

  it('a zombie record is told at once, and over a quarter of an hour after the last', async () => {
    alerts.observer.zombie?.('pages');
    await round();
    expect(told()).toEqual(['trigger records.zombie pages']);
    clock.advance(10 * minute);
    alerts.observer.zombie?.('pages');
    clock.advance(13 * minute);
    await round();
    expect(told()).toHaveLength(1);
    clock.advance(3 * minute);
    await round();
    clock.advance(3 * minute);
    await round();
    expect(told()).toEqual(['trigger records.zombie pages', 'resolve records.zombie pages']);
  });

  it('a breaker that closes again soon is nobody’s business, one that stays open is', async () => {
    alerts.observer.breaker?.(true);
    await round();
    clock.advance(20_000);
    alerts.observer.breaker?.(false);
    await round();
    alerts.observer.breaker?.(true);
    await round();
    clock.advance(29_000);
    await round();
    expect(told()).toEqual([]);
    clock.advance(1000);
    await round();
    expect(told()).toEqual(['trigger records.breaker_open']);
  });

  it('an alert that clears reads as it last held, never as 0', async () => {
    alerts.observe({ kind: 'removals', held: 3 });
    await round();
    alerts.observe({ kind: 'removals', held: 0 });
    await round();
    expect(alerts.active.map(({ summary }) => summary)).toEqual([
      expect.stringMatching(/^3 pods are missing/),
    ]);
    clock.advance(2 * minute);
    await round();
    expect(alerts.active).toEqual([]);
  });

  it('the mass-stall brake and held removals are told and ended', async () => {
    alerts.observer.massStall?.(true);
    alerts.observe({ kind: 'removals', held: 7 });
    await round();
    expect(told().sort()).toEqual(['trigger pool.removals_held', 'trigger records.mass_stall']);
    const held = receiver.received.find(({ body }) => body.condition === 'pool.removals_held');
    expect(held?.body.runbook).toBe('docs/operations.md#the-removal-brake');
    for (let i = 0; i < 3; i += 1) {
      alerts.observer.massStall?.(false);
      alerts.observe({ kind: 'removals', held: 0 });
      await round();
      clock.advance(minute);
    }
    expect(told().slice(2).sort()).toEqual(['resolve pool.removals_held', 'resolve records.mass_stall']);
  });
});

describe('several replicas', () => {
  it('what all see only the active one sends to a webhook; what it alone suffers each sends itself', async () => {
    let isActive = false;
    alerts = newAlerts({ isActive: () => isActive });
    stuck(11);
    alerts.observer.zombie?.('pages');
    await round();
    expect(told()).toEqual(['trigger records.zombie pages']);
    isActive = true;
    await round();
    await round();
    expect(told()).toEqual(['trigger records.zombie pages', 'trigger records.stuck_warning pages']);
    isActive = false;
    await pass(4, 0);
    expect(told()).toHaveLength(2);
  });

  it('one that becomes active after another told it sends the end', async () => {
    let isActive = false;
    alerts = newAlerts({ isActive: () => isActive });
    stuck(11);
    await round();
    isActive = true;
    await pass(4, 0);
    expect(told().at(-1)).toBe('resolve records.stuck_warning pages');
  });

  it('PagerDuty gets the same key from each', async () => {
    const sinks = [pagerDutySink({ routingKey: 'k', url: receiver.url, clock })];
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
  it('judges every interval, and ends what was about this process when it stops', async () => {
    alerts.start();
    alerts.observer.zombie?.('pages');
    stuck(11);
    await until(() => clock.sleepsMs.includes(15_000), 'it waits');
    clock.advance(15_000);
    await until(() => told().length === 2, 'both are told');
    expect(alerts.loops).toMatchObject([{ name: 'alerts', rounds: 1, counts: { active: 2, triggered: 2 } }]);
    await alerts.stop();
    expect(told().slice(2)).toEqual(['resolve records.zombie pages']);
  });

  it('thousands of workflows and of samples need no more memory than their bound', async () => {
    for (let i = 0; i < 5000; i += 1) stuck(11, `workflow-${i}`);
    for (let i = 0; i < 200; i += 1) {
      clock.advance(minute);
      alerts.observe({ kind: 'sessions', ok: 1000, failed: 0 });
    }
    expect((await alerts.runOnce()).conditions).toBeLessThan(4100);
  });
});
