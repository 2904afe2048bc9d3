/** Calls rejected for overload are in the history, in an alert and in a metric. */
import { afterEach, expect, it } from 'vitest';
import type { Point } from '../../src/calls/history/points.js';
import type { ActiveAlert } from '../../src/observe/alerts.js';
import { describeEngines } from '../support/engines.js';
import { looked } from '../support/history-round.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

describeEngines('an overloaded router', (engine) => {
  let router: TestRouter;
  afterEach(() => router.stop());

  it('counts rejected calls, also of providers, apart from other rejected requests', async () => {
    const proxy = await tcpProxy(engine.port);
    const url = new URL(engine.url);
    url.port = String(proxy.port);
    router = await startTestRouter(url.href.replace(/\/$/, ''), {
      REQUEST_TIMEOUT: '20s',
      REDIS_COMMAND_TIMEOUT: '20s',
      MAX_REQUESTS_IN_FLIGHT: '1',
    });
    const inFlight = (count: number) =>
      until(() => router.context.admission.inFlight === count, `${count} requests are in flight`);
    proxy.blackHole();
    const waiting = router.post('/allocate', { call_sid: 'CA1' });
    await inFlight(1);
    const refused = [await router.post('/allocate', { call_sid: 'CA2' })];
    // The call of a provider is recognised only after admission.
    refused.push(await router.form('/twilio/allocate', { CallSid: 'CA3' }));
    const renewing = router.post('/renew', { call_sid: 'CA1' });
    await inFlight(2);
    // Now there is no place for other requests either.
    refused.push(await router.form('/twilio/allocate', { CallSid: 'CA4' }));
    refused.push(await router.ask('/exotel/allocate?CallSid=CA5'));
    refused.push(await router.form('/twilio/status', { CallSid: 'CA1', CallStatus: 'completed' }));
    refused.push(await router.post('/renew', { call_sid: 'CA1' }));
    expect(refused.map(({ status, body }) => [status, body.code])).toEqual(
      refused.map(() => [503, 'overloaded']),
    );
    proxy.pass();
    expect((await waiting).status).toBe(200);
    await renewing;

    await looked(router);
    const metrics = (await router.get('/metrics')).text;
    expect(metrics).toContain('smart_router_requests_shed_total{kind="call"} 4\n');
    expect(metrics).toContain('smart_router_requests_shed_total{kind="other"} 2\n');
    const points = (await router.get('/history')).body.points as Point[];
    expect(points.some(({ shed }) => shed > 0)).toBe(true);
    expect(points.every(({ errors, no_pods }) => errors === 0 && no_pods === 0)).toBe(true);
    const alerts = (await router.get('/alerts')).body.alerts as ActiveAlert[];
    expect(alerts).toEqual([
      expect.objectContaining({
        name: 'calls.overloaded',
        severity: 'page',
        summary: '4 calls were rejected in the last 5 minutes because a router was overloaded',
        runbook: 'docs/runbook.md#smartrouteroverloaded',
      }),
    ]);
  });
});
