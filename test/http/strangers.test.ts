/** Callers without a key or a signature: what they hold, how much of it, and that known callers are served all the time. */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it, vi } from 'vitest';
import { Metrics } from '../../src/calls/metrics.js';
import { systemClock } from '../../src/clock.js';
import { Admission } from '../../src/http/admission.js';
import { Connections } from '../../src/http/connections.js';
import type { App } from '../../src/http/context.js';
import { gatedServer, rejectionCounter } from '../../src/http/gate.js';
import { createLogger } from '../../src/observe/log.js';
import { describeOneEngine } from '../support/engines.js';
import { type RawConnection, rawConnection } from '../support/raw-http.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const key = 'an-api-key-of-sixteen';
const bearer = { authorization: `Bearer ${key}` };
const keyed = {
  SMART_ROUTER_API_KEY: key,
  SMART_ROUTER_ADMIN_KEY: 'an-admin-key-of-sixteen',
  TWILIO_AUTH_TOKEN: 'twilio-token',
  MAX_REQUESTS_IN_FLIGHT: '2',
};
/** More than the buffers on the way to a caller that does not read. */
const largeBytes = 8_000_000;

describeOneEngine('strangers', (engine) => {
  let router: TestRouter;
  const open: RawConnection[] = [];
  afterEach(async () => {
    for (const { socket } of open.splice(0)) socket.destroy();
    await router.stop();
  });

  const start = async (env: Record<string, string> = {}, extend?: (app: App) => Promise<void>) => {
    router = await startTestRouter(engine.url, { ...keyed, ...env }, extend ? { extend } : {});
  };
  async function connect(bytes = ''): Promise<RawConnection> {
    const connection = await rawConnection(router.port);
    open.push(connection);
    connection.socket.write(bytes);
    return connection;
  }
  /** A webhook of which 8 of 1,000 bytes arrive. */
  const slowBody = (headers = 'x-twilio-signature: guess\r\n') =>
    `POST /api/v1/twilio/status HTTP/1.1\r\nhost: 127.0.0.1\r\n${headers}content-type: application/x-www-form-urlencoded\r\ncontent-length: 1000\r\n\r\nCallSid=`;
  const served = async () => {
    const allocated = await router.post('/allocate', { call_sid: 'CA1' }, bearer);
    const released = await router.post('/release', { call_sid: 'CA1' }, bearer);
    return [allocated.status, released.status];
  };
  const shed = async () => {
    const { values } = await router.context.metrics.requestsShed.get();
    return Object.fromEntries(values.map(({ labels, value }) => [labels.kind, value]));
  };
  const closed = async (reason: string) => {
    const { values } = await router.context.metrics.connectionsClosed.get();
    return values.find(({ labels }) => labels.reason === reason)?.value;
  };

  it('bodies that do not arrive hold no place: calls are allocated and released', async () => {
    await start();
    for (let i = 0; i < 8; i++) await connect(slowBody());
    await router.get('/health');
    expect(await served()).toEqual([200, 200]);
  });

  it('answers that are not read hold no place, also behind a refused event stream', async () => {
    await start({}, async (app) => {
      app.get('/large', { config: { access: 'public' } }, async () => 'x'.repeat(largeBytes));
    });
    const large = 'GET /large HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n';
    for (let i = 0; i < 3; i++) {
      const { socket } = await connect();
      socket.pause();
      socket.write(`GET /api/v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n${large.repeat(15)}`);
    }
    await router.get('/health');
    expect(await served()).toEqual([200, 200]);
  });

  it('a webhook without a signature is refused before its body is read', async () => {
    await start({ PLIVO_AUTH_TOKEN: 'plivo-token', EXOTEL_WEBHOOK_TOKEN: 'exotel-token' });
    for (const provider of ['twilio', 'plivo', 'exotel']) {
      const { text } = await connect(slowBody('').replace('twilio', provider));
      await until(() => text().startsWith('HTTP/1.1 403 '), `${provider} is refused`);
    }
  });

  it('while the limit is lowered, requests without a valid key are rejected first, all but eight per sample', async () => {
    // Samples are off: the count never starts again.
    await start();
    vi.spyOn(router.context.admission, 'isLowered', 'get').mockReturnValue(true);
    const wrong = { authorization: 'Bearer wrong-key-of-sixteen' };
    const codes = [];
    for (let i = 0; i < 9; i++)
      codes.push((await router.post('/allocate', { call_sid: 'CA1' }, wrong)).body.code);
    expect(codes).toEqual([...Array(8).fill('unauthorized'), 'overloaded']);
    expect((await router.get('//')).status).toBe(503);
    expect((await router.get('/ready')).status).toBe(200);
    expect(await served()).toEqual([200, 200]);
    // Not as calls: strangers raise no alert.
    expect(await shed()).toEqual({ call: 0, other: 0, stranger: 2 });
  });

  it('rejects at most 16 of the requests in one packet, then closes the connection', async () => {
    await start();
    vi.spyOn(router.context.admission, 'isLowered', 'get').mockReturnValue(true);
    const { closed } = await connect('GET / HTTP/1.1\r\nHost:\r\n\r\n'.repeat(2000));
    await closed;
    const { stranger = 0 } = await shed();
    expect(stranger).toBeGreaterThan(0);
    expect(stranger).toBeLessThanOrEqual(16);
    const closedTotal = await router.context.metrics.registry.getSingleMetricAsString(
      'smart_router_connections_closed_total',
    );
    expect(closedTotal).toContain('{reason="pipelined"} 1');
    expect(await served()).toEqual([200, 200]);
  });

  it('while too many requests are in flight, the call of a stranger is rejected as one of a stranger', async () => {
    await start();
    vi.spyOn(router.context.admission, 'hasRoom').mockReturnValue(false);
    expect((await router.post('/allocate', { call_sid: 'CA1' })).body.code).toBe('overloaded');
    expect((await router.post('/allocate', { call_sid: 'CA1' }, bearer)).body.code).toBe('overloaded');
    expect(await shed()).toEqual({ call: 1, other: 0, stranger: 1 });
  });

  it('a connection ends with the first rejection, unless it has carried a valid key', async () => {
    await start();
    const request = (path: string, headers = '') =>
      `GET /api/v1${path} HTTP/1.1\r\nhost: 127.0.0.1\r\n${headers}\r\n`;
    const stranger = await connect(request('/status') + request('/status'));
    await until(() => stranger.socket.destroyed || stranger.socket.readableEnded, 'the connection ends');
    expect(stranger.text().match(/HTTP\/1\.1 401 /g)).toHaveLength(1);
    const known = await connect(request('/calls/CA1', 'authorization: Bearer an-admin-key-of-sixteen\r\n'));
    await until(() => known.text().includes('call_not_found'), 'the key is accepted');
    known.socket.write(request('/status') + request('/status'));
    await until(() => known.text().match(/HTTP\/1\.1 401 /g)?.length === 2, 'the connection stays open');
  });

  it('a connection without a key ends after 50 requests', async () => {
    await start();
    const stranger = await connect();
    for (let i = 1; i <= 50; i++) {
      stranger.socket.write('GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
      await until(() => stranger.text().match(/HTTP\/1\.1 200 /g)?.length === i, `response ${i}`);
    }
    await until(() => stranger.socket.destroyed || stranger.socket.readableEnded, 'the connection ends');
  });

  it('over MAX_CONNECTIONS strangers whose requests are being handled make room, too, then idle known callers', async () => {
    await start({ MAX_CONNECTIONS: '10' }, async (app) => {
      app.get('/waits', { config: { access: 'public' } }, () => new Promise(() => undefined));
    });
    for (let i = 0; i < 10; i++) await connect('GET /waits HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
    expect(await served()).toEqual([200, 200]);
    const known = `GET /api/v1/pod/gold-1 HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${key}\r\n\r\n`;
    const connections = [];
    for (let i = 0; i < 12; i++) {
      const connection = await connect(known);
      connections.push(connection);
      await until(() => connection.text().includes('"pod_name"'), 'each one is answered');
    }
    await connections[0]?.closed;
  });

  it('a path written in another way takes the place of its route', async () => {
    await start();
    const drain = JSON.stringify({ pod_name: 'gold-1', wait: '1m' });
    await router.post('/allocate', { call_sid: 'CA0' }, bearer);
    const { pod_name } = (await router.post('/allocate', { call_sid: 'CA0' }, bearer)).body;
    for (let i = 0; i < 4; i++) {
      await connect(
        `POST /api/v1/%64rain HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${drain.replace('gold-1', pod_name).length}\r\n\r\n${drain.replace('gold-1', pod_name)}`,
      );
    }
    const draining = async () => (await router.get(`/pod/${pod_name}`, bearer)).body.is_draining === true;
    await until(draining, 'the drains wait');
    expect(router.context.admission.inFlight).toBe(0);
  });

  it('requests behind the first one on the port of metrics are cut off', async () => {
    await start({ METRICS_PORT: '0' });
    const listening = router.logs().find(({ msg }) => msg === 'smart-router is listening');
    const { port } = new URL(String(listening?.metrics));
    const connection = await rawConnection(Number(port));
    open.push(connection);
    connection.socket.write('GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n'.repeat(1000));
    await connection.closed;
    const alone = await rawConnection(Number(port));
    open.push(alone);
    alone.socket.write('GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
    await alone.closed;
    expect(alone.text()).toContain('smart_router_leader_status');
  });

  it('over MAX_CONNECTIONS the oldest connection of a stranger is closed; a known caller gets in and stays', async () => {
    await start({ MAX_CONNECTIONS: '10' });
    const known = await connect(
      `GET /api/v1/pod/gold-1 HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${key}\r\n\r\n`,
    );
    await until(() => known.text().includes('"pod_name"'), 'it is answered');
    const oldest = await connect();
    for (let i = 0; i < 20; i++) await connect(i % 2 === 0 ? slowBody() : '');
    await oldest.closed;
    expect(await served()).toEqual([200, 200]);
    expect(known.socket.destroyed).toBe(false);
    expect(await closed('overall')).toBeGreaterThan(10);
    const told = () => router.logs().filter(({ msg }) => String(msg).startsWith('connections closed'));
    await until(() => told().length > 0, 'it is logged');
    expect(await closed('address')).toBe(0);
  });

  it('MAX_CONNECTIONS_PER_ADDRESS counts connections that have not carried a valid key', async () => {
    await start({ MAX_CONNECTIONS_PER_ADDRESS: '10' });
    const ask = `GET /api/v1/pod/gold-1 HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${key}\r\n\r\n`;
    for (let i = 0; i < 12; i++) {
      const { text } = await connect(ask);
      await until(() => text().includes('"pod_name"'), 'it is answered');
    }
    expect(await closed('address')).toBe(0);
    const strangers = [];
    for (let i = 0; i < 12; i++) strangers.push(await connect());
    await strangers[0]?.closed;
    await strangers[1]?.closed;
    expect(await closed('address')).toBe(2);
    expect(open.slice(0, 12).some(({ socket }) => socket.destroyed)).toBe(false);
  });

  it('behind a proxy, open requests are counted by forwarded address, and unfinished bodies make room', async () => {
    await start({ MAX_CONNECTIONS_PER_ADDRESS: '10', TRUST_PROXY: 'true' }, async (app) => {
      app.get('/waits', { config: { access: 'public' } }, () => new Promise(() => undefined));
    });
    const from = 'x-forwarded-for: 203.0.113.1\r\n';
    const unfinished = [];
    for (let i = 0; i < 10; i++)
      unfinished.push(await connect(slowBody(`x-twilio-signature: guess\r\n${from}`)));
    await router.get('/health');
    // A provider's webhook from that address is judged by its signature, not refused.
    const over = await connect(slowBody(from));
    await until(() => over.text().startsWith('HTTP/1.1 403 '), 'it is judged');
    await unfinished[0]?.closed;
    expect(await closed('address')).toBe(1);
    for (let i = 0; i < 10; i++) await connect(`GET /waits HTTP/1.1\r\nhost: 127.0.0.1\r\n${from}\r\n`);
    await unfinished[9]?.closed;
    const waiting = { 'x-forwarded-for': '203.0.113.1' };
    expect((await router.get('/session', waiting)).body.code).toBe('too_many_requests');
    const other = await router.get('/session', { 'x-forwarded-for': '203.0.113.2' });
    expect(other.status).toBe(200);
    for (const { socket } of open) socket.destroy();
    await until(async () => (await router.get('/session', waiting)).status === 200, 'the address is free');
    expect(await served()).toEqual([200, 200]);
  });
});

it('a connection that does not read is cut, one whose request is still being handled is not', async () => {
  const log = createLogger({ level: 'silent', format: 'json' });
  const admission = new Admission({ clock: systemClock, maxInFlight: 1000, delayMs: undefined });
  const reasons: string[] = [];
  const limits = { max: 100, maxPerAddress: 100, isBehindProxy: false, unreadMs: 90 };
  const connections = new Connections(systemClock, limits, (reason) => reasons.push(reason));
  const metrics = new Metrics();
  const countRejection = rejectionCounter({ admission, metrics, log, clock: systemClock });
  const waiting: ServerResponse[] = [];
  const handler = ({ url }: IncomingMessage, response: ServerResponse) => {
    if (url === '/waits') waiting.push(response);
    else response.end(url === '/large' ? 'x'.repeat(largeBytes) : 'no');
  };
  const server: Server = gatedServer(
    { admission, metrics, stopping: new AbortController().signal },
    { connections, countRejection, mayBeKnown: () => true },
    handler,
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const get = (path: string) => `GET ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n`;

  const handled = await rawConnection(port);
  handled.socket.write(get('/waits'));
  await until(() => waiting.length === 1, 'it is being handled');
  const unread = await rawConnection(port);
  unread.socket.pause();
  unread.socket.write(get('/api/v1/events') + get('/large'));
  await until(() => reasons.length > 0, 'it is cut');
  expect(reasons).toEqual(['unread']);
  waiting[0]?.end('answer');
  await until(() => handled.text().endsWith('answer'), 'the other has its answer');
  unread.socket.destroy();
  handled.socket.destroy();
  await new Promise((resolve) => server.close(resolve));
});
