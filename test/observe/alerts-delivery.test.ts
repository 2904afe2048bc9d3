/** The delivery of alerts: formats, signatures, retries, and no secrets in the log. */
import { createHmac } from 'node:crypto';
import { type AddressInfo, createServer } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type AlertSink, pagerDutySink, webhookSink } from '../../src/observe/alert-delivery.js';
import { Alerts } from '../../src/observe/alerts.js';
import { createLogger } from '../../src/observe/log.js';
import { ManualClock } from '../support/manual-clock.js';
import { until } from '../support/until.js';
import { type Receiver, startReceiver } from './alerts-receiver.js';

const secret = 'hush-hush-hush';
const routingKey = '0123456789abcdef0123456789abcdef';
const secretPath = '/services/T00/B00/very-secret-path';
let clock: ManualClock;
let receiver: Receiver;
let alerts: Alerts;
let lines: Record<string, unknown>[];

beforeEach(async () => {
  clock = new ManualClock();
  receiver = await startReceiver(secretPath);
  lines = [];
});

afterEach(async () => {
  let isStopped = false;
  void alerts.stop().then(() => {
    isStopped = true;
  });
  // Retries are given up after a while.
  await until(() => {
    clock.advance(1000);
    return isStopped;
  }, 'it has stopped');
  await receiver.end();
});

function start(...sinks: AlertSink[]): void {
  const destination = { write: (text: string) => void lines.push(JSON.parse(text)) };
  const log = createLogger({ level: 'debug', format: 'json', destination });
  alerts = new Alerts({
    sinks,
    source: 'router-0',
    clock,
    log,
    intervalMs: 15_000,
    isActive: () => true,
    stallsAfterMs: new Map(),
    onCrash: () => {},
  });
}

const webhook = (more = {}) => webhookSink({ url: receiver.url, secret, clock, ...more });
const pagerDuty = (more = {}) =>
  pagerDutySink({ url: receiver.url, routingKey, minSeverity: 'critical', clock, ...more });
const stuck = (records: number) => alerts.records.observer.stuck('pages', records, 60);
const delivered = () =>
  until(async () => (await alerts.runOnce()).undelivered === 0, 'everything is delivered');
const arrived = (count: number) => until(() => receiver.received.length >= count, `${count} have arrived`);

describe('the webhook', () => {
  it('is signed over time and body', async () => {
    start(webhook());
    stuck(11);
    await alerts.runOnce();
    await arrived(1);
    const [message] = receiver.received;
    if (!message) throw new Error('it has arrived');
    const { headers, text, path } = message;
    expect(path).toBe(secretPath);
    expect(headers['content-type']).toBe('application/json');
    const seconds = Math.floor(clock.now() / 1000);
    const expected = createHmac('sha256', secret).update(`${seconds}.${text}`).digest('hex');
    expect(headers['smart-router-signature']).toBe(`t=${seconds},v1=${expected}`);
  });

  it('has no signature without a secret', async () => {
    start(webhook({ secret: undefined }));
    stuck(11);
    await alerts.runOnce();
    await arrived(1);
    expect(receiver.received[0]?.headers).not.toHaveProperty('smart-router-signature');
  });

  it.each(['ftp://example.com', 'nonsense', 'https://user:pass@example.com/', ''])(
    'rejects the address %j without repeating it',
    (url) => {
      start();
      expect(() => webhook({ url })).toThrow(
        'the address of the alert webhook must be an http or https address, without a user in it',
      );
    },
  );
});

describe('PagerDuty', () => {
  it('gets a trigger in the format of the Events API v2, and a resolve with the same key', async () => {
    start(pagerDuty());
    stuck(51);
    await alerts.runOnce();
    await arrived(1);
    expect(receiver.received[0]?.body).toEqual({
      routing_key: routingKey,
      event_action: 'trigger',
      dedup_key: 'smart-router/records.stuck_critical/pages',
      client: 'Smart Router',
      payload: {
        summary: 'pages: 51 records are stuck in Processing (more than 50)',
        source: 'router-0',
        severity: 'critical',
        timestamp: new Date(clock.now()).toISOString(),
        component: 'pages',
        class: 'records.stuck_critical',
        custom_details: {
          records: 51,
          oldest_seconds: 60,
          lowest_of_last_hour: 51,
          runbook: 'docs/runbook.md#smartrouterrecordsstuckmany',
        },
      },
    });
    for (let i = 0; i < 4; i += 1) {
      await delivered();
      clock.advance(60_000);
      stuck(0);
      await alerts.runOnce();
    }
    const isResolve = ({ body }: { body: { event_action: string; dedup_key: string } }) =>
      body.event_action === 'resolve' && body.dedup_key.includes('critical');
    await until(() => receiver.received.some(isResolve), 'it is over');
    expect(receiver.received.find(isResolve)?.body).toEqual({
      routing_key: routingKey,
      event_action: 'resolve',
      dedup_key: 'smart-router/records.stuck_critical/pages',
    });
  });

  it('gets no warnings unless configured', async () => {
    start(pagerDuty(), pagerDuty({ minSeverity: 'warning' }));
    stuck(11);
    await alerts.runOnce();
    await arrived(1);
    await delivered();
    const triggers = receiver.received.filter(({ body }) => body.event_action === 'trigger');
    expect(triggers).toHaveLength(1);
    expect(triggers[0]?.body.payload.severity).toBe('warning');
  });

  it('gets a resolve at the start for every shared condition that does not hold', async () => {
    start(pagerDuty(), webhook());
    stuck(0);
    await alerts.runOnce();
    await delivered();
    const sent = receiver.received.map(({ body }) => `${body.event_action} ${body.dedup_key}`).sort();
    expect(sent).toEqual([
      'resolve smart-router/records.stuck_critical/pages',
      'resolve smart-router/records.stuck_doubled/pages',
    ]);
  });

  it('gets no resolve of a page from a process without an hour of samples', async () => {
    start(pagerDuty());
    stuck(40);
    await alerts.runOnce();
    await delivered();
    expect(receiver.received.map(({ body }) => body.dedup_key)).not.toContain(
      'smart-router/records.stuck_doubled/pages',
    );
  });
});

describe('a receiver that fails', () => {
  it('is retried with growing pauses, and gets the message when it responds', async () => {
    start(webhook());
    receiver.answers = [{ status: 500 }, { status: 0 }, { status: 503 }];
    stuck(11);
    expect(await alerts.runOnce()).toMatchObject({ triggered: 1, undelivered: 1 });
    for (const pauseMs of [1000, 2000, 4000]) {
      await until(() => clock.sleepsMs.includes(pauseMs), `it waits ${pauseMs} ms`);
      clock.advance(pauseMs);
    }
    await arrived(4);
    await delivered();
    expect(new Set(receiver.received.map(({ body }) => body.dedup_key)).size).toBe(1);
  });

  it('is retried after its Retry-After', async () => {
    start(webhook());
    receiver.answers = [{ status: 429, headers: { 'retry-after': '30' } }];
    stuck(11);
    await alerts.runOnce();
    await until(() => clock.sleepsMs.includes(30_000), 'it waits 30 s');
  });

  it('is retried after a timeout of ten seconds', async () => {
    const silent = createServer(() => {});
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    const { port } = silent.address() as AddressInfo;
    start(webhookSink({ url: `http://127.0.0.1:${port}/`, clock }));
    stuck(11);
    await alerts.runOnce();
    await until(() => clock.timersMs.includes(10_000), 'it waits for the answer');
    clock.advance(10_000);
    await until(() => clock.sleepsMs.includes(1000), 'it waits before the next try');
    expect(lines.some(({ reason }) => reason === 'no response within 10000 ms')).toBe(true);
    silent.close();
  });

  it('has only the last message of a condition in its queue', async () => {
    start(webhook());
    await receiver.end();
    stuck(11);
    for (let i = 0; i < 5; i += 1) {
      await alerts.runOnce();
      clock.advance(60_000);
      stuck(0);
    }
    expect(await alerts.runOnce()).toMatchObject({ active: 0, undelivered: 1 });
  });

  it('drops a message that it rejects permanently, and sends the others', async () => {
    start(webhook());
    receiver.answers = [{ status: 404 }];
    stuck(11);
    alerts.records.observer.zombie('pages');
    await alerts.runOnce();
    await arrived(2);
    await delivered();
    expect(lines.filter(({ msg }) => String(msg).startsWith('alert rejected'))).toHaveLength(1);
  });

  it('does not follow a redirect', async () => {
    start(webhook());
    receiver.answers = [{ status: 307, headers: { location: receiver.url } }];
    stuck(11);
    await alerts.runOnce();
    await until(() => lines.some(({ reason }) => reason === 'response status 307'), 'it is refused');
    expect(receiver.received).toHaveLength(1);
  });

  it('does not delay the other receiver', async () => {
    const broken = webhookSink({ url: 'http://127.0.0.1:1/', clock });
    start(broken, webhook());
    stuck(11);
    await alerts.runOnce();
    await arrived(1);
  });

  it('never appears in the log with its secret, routing key or path', async () => {
    start(webhook(), pagerDuty({ minSeverity: 'warning' }));
    receiver.answers = [{ status: 500 }, { status: 400 }, { status: 0 }];
    stuck(51);
    for (let i = 0; i < 6; i += 1) {
      await alerts.runOnce();
      clock.advance(60_000);
      stuck(0);
    }
    await until(
      async () => (await alerts.runOnce()).undelivered === 0 || clock.advance(60_000),
      'all delivered',
    );
    expect(lines.length).toBeGreaterThan(3);
    const text = JSON.stringify(lines);
    for (const hidden of [secret, routingKey, 'very-secret-path']) expect(text).not.toContain(hidden);
  });
});
