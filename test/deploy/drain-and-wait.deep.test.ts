/** The shipped preStop hooks against a real router. */
import { rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { type Engine, engines, findOnPath } from '../support/engines.js';
import { onOwnPort } from '../support/ports.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';
import { root } from './manifests.js';
import { type ShippedProgram, startShipped } from './shipped-program.js';

const apiKey = 'the-agents-own-key';
const bearer = { authorization: `Bearer ${apiKey}` };
const routerEnv = {
  STATIC_PODS: 'gold-1=gold',
  SMART_ROUTER_API_KEY: apiKey,
  SMART_ROUTER_ADMIN_KEY: 'the-operators-own-key',
};

const hooks = [
  { name: 'drain-and-wait.mjs', program: process.execPath },
  { name: 'drain-and-wait.sh', program: findOnPath('curl') && findOnPath('sh') },
];

describe.each(hooks)('$name', ({ name, program }) => {
  const runs = it.skipIf(program === undefined);
  const missing = program === undefined ? ' [curl is not on PATH]' : '';
  let engine: Engine;
  let router: TestRouter;
  let port: number;
  const hookEnds: (() => Promise<void>)[] = [];

  beforeAll(async () => {
    const kind = engines.find((one) => one.available() === true);
    if (!kind) throw new Error('no engine can run here');
    engine = await kind.start();
  });
  afterAll(() => engine.stop());

  beforeEach(async () => {
    router = await onOwnPort(startRouter);
    port = router.port;
  });
  afterEach(async () => {
    for (const end of hookEnds.splice(0)) await end();
    await router.post('/release', { call_sid: 'CA1' }, bearer);
    await router.post('/undrain', { pod_name: 'gold-1' }, bearer);
    await router.stop();
  });

  const startRouter = (ownPort: number) =>
    startTestRouter(engine.url, { ...routerEnv, HTTP_PORT: String(ownPort) });

  /** Short waits, for several requests within a test. */
  function startHook(env: Record<string, string> = {}): ShippedProgram {
    const hook = startShipped(program ?? '', [`${root}deploy/examples/${name}`], {
      PATH: process.env.PATH,
      SMART_ROUTER_URL: `http://127.0.0.1:${port}`,
      SMART_ROUTER_API_KEY: apiKey,
      POD_NAME: 'gold-1',
      DRAIN_TIMEOUT_SECONDS: '60',
      DRAIN_WAIT_SECONDS: '1',
      ...env,
    });
    hookEnds.push(hook.end);
    return hook;
  }

  const allocate = () => router.post('/allocate', { call_sid: 'CA1' }, bearer);
  const draining = () =>
    until(async () => (await router.get('/pod/gold-1', bearer)).body.is_draining, 'the pod drains');

  runs(`drains a pod without calls, and ends at once${missing}`, async () => {
    const hook = startHook();
    expect(await hook.ended).toBe(0);
    expect(hook.output).toBe('no calls left on gold-1\n');
    expect((await router.get('/pod/gold-1', bearer)).body.is_draining).toBe(true);
    expect((await allocate()).status).toBe(503);
  });

  runs(`ends only after the last call has ended, after several requests${missing}`, async () => {
    await allocate();
    const hook = startHook();
    await draining();
    const drains = () => router.logs().filter(({ endpoint }) => endpoint === '/api/v1/drain').length;
    await until(() => drains() >= 2, 'it has asked twice');
    expect(hook.running).toBe(true);
    await router.post('/release', { call_sid: 'CA1' }, bearer);
    expect(await hook.ended).toBe(0);
    expect(hook.output).toBe('1 live calls on gold-1\nno calls left on gold-1\n');
  });

  runs(`keeps waiting for the call while the router restarts${missing}`, async () => {
    await allocate();
    const hook = startHook({ DRAIN_WAIT_SECONDS: '30' });
    await draining();
    await router.stop();
    await until(() => hook.output.includes('did not answer'), 'a request without a router');
    router = await startRouter(port);
    await until(() => router.context.feed.listeners === 1, 'it asks again');
    expect(hook.running).toBe(true);
    await router.post('/release', { call_sid: 'CA1' }, bearer);
    expect(await hook.ended).toBe(0);
  });

  runs(`ends after its timeout, and prints the number of live calls${missing}`, async () => {
    await allocate();
    const hook = startHook({ DRAIN_TIMEOUT_SECONDS: '1', DRAIN_WAIT_SECONDS: '30' });
    expect(await hook.ended).toBe(1);
    expect(hook.output).toMatch(/time is up: 1 live calls on gold-1\n$/);
  });

  runs(`ends after its timeout without a router${missing}`, async () => {
    const hook = startHook({ DRAIN_TIMEOUT_SECONDS: '1', SMART_ROUTER_URL: 'http://127.0.0.1:1' });
    expect(await hook.ended).toBe(1);
    expect(hook.output).toMatch(/time is up: an unknown number of live calls on gold-1\n$/);
  });

  runs(`ends if the router does not know the pod${missing}`, async () => {
    const hook = startHook({ POD_NAME: 'stranger-1', DRAIN_UNKNOWN_SECONDS: '1' });
    expect(await hook.ended).toBe(0);
    expect(hook.output).toMatch(
      /^the router answered.*the router does not know stranger-1: nothing to wait for\n$/s,
    );
    expect(hook.output).not.toContain('did not answer');
  });

  runs(`does not drain the pod that replaced this one${missing}`, async () => {
    const redis = new Redis(engine.url);
    onTestFinished(() => redis.hdel('voice:pod:gold-1', 'uid').then(() => redis.disconnect()));
    await redis.hset('voice:pod:gold-1', 'uid', 'new');
    const hook = startHook({ POD_UID: 'old', DRAIN_UNKNOWN_SECONDS: '1' });
    expect(await hook.ended).toBe(0);
    expect(hook.output).toMatch(/the router knows another pod as gold-1: nothing to wait for\n$/);
    expect((await router.get('/pod/gold-1', bearer)).body.is_draining).toBe(false);
    expect(await startHook({ POD_UID: 'new' }).ended).toBe(0);
    expect((await router.get('/pod/gold-1', bearer)).body.is_draining).toBe(true);
  });

  runs(`keeps waiting for the call after the store lost its data${missing}`, async () => {
    const redis = new Redis(engine.url);
    onTestFinished(() => redis.disconnect());
    await router.post('/allocate', { call_sid: 'CA1' }, bearer);
    const hook = startHook({ DRAIN_UNKNOWN_SECONDS: '5' });
    await until(() => hook.output.includes('1 live calls'), 'it waits');
    await redis.flushall();
    // The next reconcile registers the pod, its next report restores the call.
    await until(async () => (await redis.exists('voice:pod:tier:gold-1')) === 1, 'the pod is back');
    const report = await router.post('/pod/gold-1/report', { calls: ['CA1'] }, bearer);
    expect(report.body.adopted).toEqual(['CA1']);
    await until(() => hook.output.endsWith('1 live calls on gold-1\n'), 'it sees the call again');
    expect(hook.running).toBe(true);
    await router.post('/release', { call_sid: 'CA1' }, bearer);
    expect(await hook.ended).toBe(0);
  });

  runs(`ignores a 404 that is not the router’s${missing}`, async () => {
    const stranger = await listen(404, '<h1>default backend</h1>');
    const hook = startHook({ SMART_ROUTER_URL: stranger, DRAIN_TIMEOUT_SECONDS: '1' });
    expect(await hook.ended).toBe(1);
    expect(hook.output).toContain('time is up');
  });

  runs(`does not repeat an invalid request${missing}`, async () => {
    const hook = startHook({ POD_NAME: 'Not_A_Pod' });
    expect(await hook.ended).toBe(1);
    expect(hook.output).toContain('pod_name');
  });

  runs(`reads a key file for every request, so that a new key works during a wait${missing}`, async () => {
    await allocate();
    const file = join(tmpdir(), `smart-router-key-${process.pid}-${name}`);
    onTestFinished(() => rmSync(file, { force: true }));
    writeFileSync(file, 'a-key-of-yesterday\n');
    const hook = startHook({ SMART_ROUTER_API_KEY: '', SMART_ROUTER_API_KEY_FILE: file });
    await until(() => /401|unauthorized/.test(hook.output), 'it was refused');
    expect(hook.running).toBe(true);
    writeFileSync(file, `${apiKey}\n`);
    await draining();
    await router.post('/release', { call_sid: 'CA1' }, bearer);
    expect(await hook.ended).toBe(0);
    expect(hook.output).not.toContain(apiKey);
  });

  it.skipIf(program === undefined).each([
    ['DRAIN_TIMEOUT_SECONDS', 'an hour', 3600],
    ['DRAIN_TIMEOUT_SECONDS', '1h', 3600],
    ['DRAIN_WAIT_SECONDS', '08', 50],
    ['DRAIN_WAIT_SECONDS', '-1', 50],
    ['DRAIN_UNKNOWN_SECONDS', 'NaN', 75],
    ['DRAIN_UNKNOWN_SECONDS', '1.5', 75],
    ['DRAIN_UNKNOWN_SECONDS', '86401', 75],
    ['DRAIN_UNKNOWN_SECONDS', '99999999999999999999', 75],
  ])(`%s=%s: prints one line, drains with %i, and fails${missing}`, async (setting, value, fallback) => {
    const hook = startHook({ [setting]: value });
    expect(await hook.ended).toBe(1);
    expect(hook.output).toBe(
      `${setting} must be a whole number of seconds from 0 to 86400: ${fallback} is used instead\nno calls left on gold-1\n`,
    );
  });

  runs(`waits for the call although a number is invalid${missing}`, async () => {
    await allocate();
    const hook = startHook({ DRAIN_TIMEOUT_SECONDS: '6O' });
    await draining();
    await until(() => hook.output.endsWith('1 live calls on gold-1\n'), 'it waits');
    expect(hook.running).toBe(true);
    await router.post('/release', { call_sid: 'CA1' }, bearer);
    expect(await hook.ended).toBe(1);
    expect(hook.output).toMatch(/no calls left on gold-1\n$/);
  });

  runs(`accepts the smallest and the largest number${missing}`, async () => {
    const hook = startHook({ DRAIN_UNKNOWN_SECONDS: '0', DRAIN_TIMEOUT_SECONDS: '86400' });
    expect(await hook.ended).toBe(0);
    expect(hook.output).toBe('no calls left on gold-1\n');
  });

  runs(`names missing settings${missing}`, async () => {
    const hook = startHook({ POD_NAME: '' });
    expect(await hook.ended).toBe(1);
    expect(hook.output).toContain('SMART_ROUTER_URL and POD_NAME must be set');
  });
});

async function listen(status: number, body: string): Promise<string> {
  const server: Server = createServer((_, response) => response.writeHead(status).end(body));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const address = server.address();
  return `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
}
