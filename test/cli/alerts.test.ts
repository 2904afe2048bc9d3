/** Alerts of a real router: `alerts`, and the first lines of `status` and `top`. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RunningRouter } from '../../src/main/router.js';
import { until } from '../support/until.js';
import { allocateOn, documentOf, runner, startScripted, startTestRouter, useStore } from './support.js';

let router: RunningRouter;
const store = useStore();
const run = runner(() => router.url);

describe('alerts', () => {
  beforeAll(async () => {
    router = await startTestRouter(await store.emptied());
  });
  afterAll(() => router.stop());

  it('are reported as none for a healthy router', async () => {
    expect(await run('alerts')).toMatchObject({ code: 0, stdout: 'no alerts\n', stderr: '' });
    expect(documentOf(await run('alerts --json'))).toEqual({ success: true, alerts: [] });
    expect((await run('status')).stdout).toMatch(/^alerts +none$/m);
    expect(documentOf(await run('status --json'))).toMatchObject({ success: true, alerts: [] });
  });

  it('come first in status, with severity, age, sentence and page of the runbook', async () => {
    for (const sid of ['CA1', 'CA2', 'CA3', 'CA4', 'CA5']) await allocateOn(router, sid);
    expect(await run('allocate CA6')).toMatchObject({ code: 3 });
    await until(async () => {
      // By itself it looks every 10 s.
      router.context.history.loop.nudge();
      const answer = await fetch(`${router.url}/api/v1/alerts`);
      return ((await answer.json()) as { alerts: unknown[] }).alerts.length > 0;
    }, 'the router has noticed');
    const block =
      /^1 alert\ncritical {2}for \d+s {2}1 call got no pod in the last 5 minutes: .*\n {10}calls\.no_pods: see docs\/runbook\.md#smartrouternocapacity\n/;
    const { code, stdout, stderr } = await run('alerts');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(block);
    const status = await run('status');
    expect(status.code).toBe(0);
    expect(status.stdout).toMatch(block);
    expect(status.stdout).toMatch(/\n\nrouter +http/);
    expect(status.stdout).not.toMatch(/^alerts +/m);
    const alerts = [{ name: 'calls.no_pods', severity: 'page', workflow: null }];
    expect(documentOf(await run('alerts --json'))).toMatchObject({ success: true, alerts });
    expect(documentOf(await run('status --json'))).toMatchObject({ success: true, status: 'up', alerts });
    expect((await run('top --once')).stdout).toContain('docs/runbook.md#smartrouternocapacity');
  });

  it('that cannot be read are unknown in status, and an error of alerts', async () => {
    const body = await (await fetch(`${router.url}/api/v1/status`)).json();
    const busy = await startScripted(({ url = '' }) =>
      url.includes('/status')
        ? { json: body }
        : { status: 503, json: { error: 'the router is overloaded', code: 'overloaded' } },
    );
    expect((await run(['status', '--url', busy.url])).stdout).toMatch(
      /^alerts +unknown: the router did not answer$/m,
    );
    expect(documentOf(await run(['status', '--json', '--url', busy.url]))).toMatchObject({ alerts: null });
    expect(await run(['alerts', '--url', busy.url])).toMatchObject({
      code: 6,
      stderr: 'smart-router: the router is overloaded\n',
    });
    await busy.stop();
  });

  it('exit 6 without a router', async () => {
    expect(await run('alerts --url http://127.0.0.1:1')).toMatchObject({ code: 6, stdout: '' });
  });
});
