/** Traces over real HTTP to a collector of ours that keeps what it is sent. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Engine, startPreferred } from '../support/engines.js';
import { describeOnePostgres } from '../support/postgres.js';
import { addJob, jobsTable, recordsModule } from '../support/records-module.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

interface SentSpan {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes: { key: string; value: Record<string, unknown> }[];
  status: { code?: number };
}

let engine: Engine;
let collector: Server;
let address: string;
let spans: SentSpan[];
let resources: string[];
let headers: Record<string, unknown>[];
/** What the collector answers. */
let answer: number;
const routers: TestRouter[] = [];

beforeAll(async () => {
  engine = await startPreferred();
});
afterAll(() => engine.stop());

beforeEach(async () => {
  spans = [];
  resources = [];
  headers = [];
  answer = 200;
  collector = createServer((request, response) => {
    let text = '';
    request.on('data', (chunk) => {
      text += chunk;
    });
    request.on('end', () => {
      headers.push({ ...request.headers, path: request.url });
      for (const { resource, scopeSpans } of JSON.parse(text).resourceSpans) {
        resources.push(JSON.stringify(resource));
        for (const scope of scopeSpans) spans.push(...scope.spans);
      }
      response.writeHead(answer, { 'content-type': 'application/json' }).end('{}');
    });
  });
  await new Promise<void>((resolve) => collector.listen(0, '127.0.0.1', resolve));
  address = `http://127.0.0.1:${(collector.address() as AddressInfo).port}`;
});
afterEach(async () => {
  for (const router of routers.splice(0)) await router.stop();
  collector.closeAllConnections();
  await new Promise((resolve) => collector.close(resolve));
});

async function start(env: Record<string, string> = {}): Promise<TestRouter> {
  const router = await startTestRouter(engine.url, { OTEL_EXPORTER_OTLP_ENDPOINT: address, ...env });
  routers.push(router);
  return router;
}
const find = (name: string) =>
  until(() => spans.find((span) => span.name === name), `there is a span ${name}`);
const attributesOf = ({ attributes }: SentSpan) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));

describe('traces', () => {
  it('show a request and its command of the store, as part of what the caller traces', async () => {
    const router = await start({ OTEL_SERVICE_NAME: 'calls', OTEL_EXPORTER_OTLP_HEADERS: 'x-token=s3cret' });
    const traceId = '0af7651916cd43dd8448eb211c80319c';
    const { body } = await router.post(
      '/allocate',
      { call_sid: 'CA1' },
      { traceparent: `00-${traceId}-b7ad6b7169203331-01`, 'x-request-id': 'asked-1' },
    );
    const request = await find('POST /api/v1/allocate');
    expect(request).toMatchObject({ traceId, parentSpanId: 'b7ad6b7169203331' });
    expect(attributesOf(request)).toMatchObject({
      'http.request.method': 'POST',
      'http.route': '/api/v1/allocate',
      'http.response.status_code': 200,
      'smart_router.request_id': 'asked-1',
    });
    expect(JSON.stringify(attributesOf(request))).toContain(body.pod_name);
    const command = await find('store allocate');
    expect(command).toMatchObject({ traceId, parentSpanId: request.spanId });
    expect(BigInt(command.startTimeUnixNano)).toBeLessThanOrEqual(BigInt(command.endTimeUnixNano));
    expect(headers[0]).toMatchObject({ path: '/v1/traces', 'x-token': 's3cret' });
    expect(resources[0]).toContain('router-under-test');
    expect(resources[0]).toContain('"calls"');
    const line = router.logs().find(({ reqId, msg }) => reqId === 'asked-1' && msg === 'request');
    expect(line).toMatchObject({ trace_id: traceId });
    expect(router.logText()).not.toContain('s3cret');
  });

  it('tell a request that failed, and leave out probes and the commands of the loops', async () => {
    const router = await start();
    await router.get('/health');
    for (const call_sid of ['1', '2', '3', '4', '5', '6']) await router.post('/allocate', { call_sid });
    await until(
      () => spans.find(({ name, status }) => name === 'POST /api/v1/allocate' && status.code === 2),
      'one that got no pod is an error',
    );
    await router.stop();
    routers.length = 0;
    expect(spans.filter(({ name }) => name.includes('health'))).toEqual([]);
    const known = new Set(spans.map(({ spanId }) => spanId));
    for (const span of spans) if (span.name.startsWith('store ')) expect(known).toContain(span.parentSpanId);
  });

  it('show a request that was kept out', async () => {
    const router = await start({ SMART_ROUTER_API_KEY: 'api-key-0123456789' });
    expect((await router.post('/allocate', { call_sid: 'CA1' })).status).toBe(401);
    expect(attributesOf(await find('POST /api/v1/allocate'))).toMatchObject({
      'http.response.status_code': 401,
      'smart_router.code': 'unauthorized',
    });
  });

  it('show a request whose caller went away before it was answered', async () => {
    // One drain only: it must not fail on a busy machine.
    const router = await start({ REQUEST_TIMEOUT: '10s', REDIS_COMMAND_TIMEOUT: '5s' });
    await router.post('/allocate', { call_sid: 'CA1' });
    await router.post('/allocate', { call_sid: 'CA2' });
    const gone = new AbortController();
    const body = JSON.stringify({ pod_name: 'gold-1', wait: '10m' });
    const asking = { method: 'POST', headers: { 'content-type': 'application/json' }, body };
    const asked = router.ask('/drain', { ...asking, signal: gone.signal }).catch(() => undefined);
    await until(async () => (await router.get('/pod/gold-1')).body.is_draining, 'it drains');
    gone.abort();
    await asked;
    expect(attributesOf(await find('POST /api/v1/drain'))).toMatchObject({
      'smart_router.pod_name': 'gold-1',
    });
  });

  it('are taken of a share of the requests only, unless the caller traces', async () => {
    const router = await start({ OTEL_TRACES_SAMPLER_ARG: '0' });
    await router.get('/status');
    await router.get('/status', { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' });
    await find('GET /api/v1/status');
    await router.stop();
    routers.length = 0;
    expect(spans.filter(({ name }) => name === 'GET /api/v1/status')).toHaveLength(1);
  });

  it('are sent to the last one when the router stops', async () => {
    const router = await start();
    await router.get('/status');
    await router.stop();
    routers.length = 0;
    expect(spans.map(({ name }) => name)).toContain('GET /api/v1/status');
  });

  it('that the collector rejects delay nothing, and are logged once', async () => {
    answer = 400;
    const router = await start();
    for (let i = 0; i < 3; i += 1) {
      const before = headers.length;
      expect((await router.get('/status')).status).toBe(200);
      await until(() => headers.length > before, 'the collector was asked');
    }
    await until(() => router.logs().find(({ msg }) => String(msg).startsWith('traces lost')), 'it is logged');
    expect(router.logs().filter(({ msg }) => String(msg).startsWith('traces lost'))).toHaveLength(1);
  });

  it('are off without an endpoint: a request carries no trace', async () => {
    const router = await startTestRouter(engine.url);
    routers.push(router);
    await router.get('/status', { traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' });
    expect(router.context.tracing).toBeUndefined();
    expect(router.logText()).not.toContain('trace_id');
  });
});

describeOnePostgres('traces of records', (postgres) => {
  it('show how long each was processed', async () => {
    const pool = postgres.pool();
    await jobsTable(pool);
    const router = await startTestRouter(engine.url, {
      OTEL_EXPORTER_OTLP_ENDPOINT: address,
      DATABASE_URL: postgres.url,
      RECORDS_MODULE: recordsModule(),
    });
    postgres.onEnd(() => router.stop());
    await addJob(pool, 'ok');
    const span = await find('process jobs');
    expect(attributesOf(span)).toEqual({ 'smart_router.workflow': 'jobs' });
  });
});
