/** The examples of docs/python.md, with stand-ins for the frameworks, against a real router on a real store. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startFaultProxy } from '../conformance/fault-proxy.js';
import { describeOneEngine, type SuiteEngine } from '../support/engines.js';
import { pythonClient, pythonMissing, startPython } from '../support/python.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { isDeep } from '../support/sets.js';
import { until } from '../support/until.js';

const runner = fileURLToPath(new URL('run_example.py', import.meta.url));
const pod = 'voice-agent-0';
const apiKey = 'key-of-the-examples';

/** A router behind a proxy, so that it can restart under the same address. */
async function startRouter(engine: SuiteEngine, env: Record<string, string>) {
  const proxy = await startFaultProxy();
  const routers: TestRouter[] = [];
  const start = async (more: Record<string, string>) => {
    const router = await startTestRouter(engine.url, {
      STATIC_PODS: `${pod}=gold`,
      TIER_CONFIG: JSON.stringify({ gold: { type: 'shared', target: 1, max_concurrent: 3 } }),
      SMART_ROUTER_ADMIN_KEY: apiKey,
      SMART_ROUTER_API_KEY: `${apiKey}-2`,
      CALL_INFO_TTL: '1h',
      ...more,
    });
    proxy.target = router.port;
    routers.push(router);
  };
  /** Stops all but the last one, or all. */
  const stop = async (kept: number) => {
    while (routers.length > kept) await routers.shift()?.stop();
  };
  await start(env);
  onTestFinished(async () => {
    await proxy.close();
    await stop(0);
  });
  const last = () => routers.at(-1) as TestRouter;
  const headers = { authorization: `Bearer ${apiKey}` };
  const podState = async () => {
    const { body } = await last().get(`/pod/${pod}`, headers);
    return body as { calls: string[]; is_draining: boolean; leases: { lease_expires_at: string }[] };
  };
  return {
    url: proxy.url,
    /** Another router, to which all requests go from now on. */
    async replace(more: Record<string, string>) {
      await start(more);
      await stop(1);
    },
    async restart(more: Record<string, string>) {
      await stop(0);
      await start(more);
    },
    post: (path: string, body: object) => last().post(path, body, headers),
    podState,
    leaseEnd: async () => Date.parse((await podState()).leases[0]?.lease_expires_at ?? ''),
  };
}

function startExample(name: string, url: string, env: Record<string, string> = {}) {
  const example = startPython([runner, join(pythonClient, 'examples', name)], {
    SMART_ROUTER_URL: url,
    SMART_ROUTER_API_KEY: apiKey,
    POD_NAME: pod,
    ...env,
  });
  onTestFinished(async () => {
    example.kill('SIGKILL');
    await example.exited;
  });
  const events: Record<string, unknown>[] = [];
  example.onLine((line) => events.push(JSON.parse(line)));
  return {
    ...example,
    events,
    /** As the telephony provider. */
    act: (command: Record<string, string>) => example.send(JSON.stringify(command)),
    untilEvent: (event: Record<string, unknown>) =>
      until(
        () => {
          expect(events, example.log).toContainEqual(expect.objectContaining(event));
          return true;
        },
        `the example says ${JSON.stringify(event)}`,
      ),
  };
}

const missing = pythonMissing();
const suite = missing === undefined ? describeOneEngine : skipped;

function skipped(title: string, declare: (engine: SuiteEngine) => void): void {
  describe.skip(`${title} [${missing}]`, () => declare({} as SuiteEngine));
}

suite('the examples of the Python client', (engine) => {
  // A lease outlasts a stalled machine; five of them are too long for the quick set.
  const leaseMs = 4000;
  const keptMs = (isDeep ? 5 : 1) * leaseMs;

  it('the Pipecat bot keeps a call beyond its lease, over a restart of the router and its own SIGTERM', {
    timeout: 240_000,
  }, async () => {
    const router = await startRouter(engine, { LEASE_TTL: `${leaseMs}ms` });
    const bot = startExample('pipecat_bot.py', router.url, { REPORT_SECONDS: '0.1' });
    await bot.untilEvent({ event: 'started' });
    await router.post('/allocate', { call_sid: 'CA1' });
    bot.act({ connect: 'CA1' });
    await bot.untilEvent({ event: 'talking', call: 'CA1' });

    const firstEnd = await router.leaseEnd();
    await until(async () => {
      const end = await router.leaseEnd();
      if (Number.isNaN(end)) throw new Error('the call was cut');
      return end - firstEnd > keptMs;
    }, `the lease has moved by ${keptMs} ms`);

    // A longer lease for the restart: the call must outlive the router.
    const known = await router.leaseEnd();
    await router.replace({ LEASE_TTL: '60s' });
    await until(async () => (await router.leaseEnd()) > known + 30_000, 'the bot reports to the new router');
    await router.restart({ LEASE_TTL: '60s' });
    const restarted = await router.leaseEnd();
    await until(async () => (await router.leaseEnd()) > restarted, 'the bot reports after the restart');

    bot.kill('SIGTERM');
    await until(async () => (await router.podState()).is_draining, 'the pod drains');
    const draining = await router.leaseEnd();
    await until(async () => (await router.leaseEnd()) > draining, 'the bot still reports');
    expect(bot.events).not.toContainEqual(expect.objectContaining({ event: 'stopped' }));
    expect((await router.podState()).calls).toEqual(['CA1']);

    bot.act({ hang_up: 'CA1' });
    await bot.untilEvent({ event: 'ended', call: 'CA1' });
    await bot.untilEvent({ event: 'stopped' });
    expect(await bot.exited).toBe('SIGTERM');
    expect((await router.podState()).calls).toEqual([]);
    expect(bot.events.filter(({ event }) => event === 'failed')).toEqual([]);
  });

  it('the Pipecat bot stops a call that the router has ended', async () => {
    const router = await startRouter(engine, {});
    const bot = startExample('pipecat_bot.py', router.url, { REPORT_SECONDS: '0.1' });
    await bot.untilEvent({ event: 'started' });
    await router.post('/allocate', { call_sid: 'CA2' });
    bot.act({ connect: 'CA2' });
    await bot.untilEvent({ event: 'talking', call: 'CA2' });
    await router.post('/release', { call_sid: 'CA2' });
    await bot.untilEvent({ event: 'ended', call: 'CA2' });
  });

  it('the LiveKit worker serves the call on the pod that the router chose, and releases it at hang-up', async () => {
    const router = await startRouter(engine, {});
    const worker = startExample('livekit_worker.py', router.url);
    await worker.untilEvent({ event: 'started' });
    worker.act({ connect: 'CA3' });
    await worker.untilEvent({ event: 'talking', call: 'CA3' });
    expect((await router.podState()).calls).toEqual(['CA3']);
    worker.act({ hang_up: 'CA3' });
    await worker.untilEvent({ event: 'ended', call: 'CA3' });
    expect((await router.podState()).calls).toEqual([]);
    expect(worker.log).toBe('');
  });
});
