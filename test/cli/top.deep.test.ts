import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { RunningRouter } from '../../src/main/router.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { describeTerminal, startOnTerminal } from './pty.js';
import {
  allocateOn,
  documentOf,
  processRunner,
  start,
  startScripted,
  startTestRouter,
  useBinary,
  useStore,
} from './support.js';

const binary = useBinary();
const store = useStore();
let router: RunningRouter;
beforeEach(async () => {
  router = await startTestRouter(await store.emptied());
});
afterEach(() => router.stop());

const run = processRunner(binary, () => router.url);
const allocate = (sid: string) => allocateOn(router, sid);
const env = () => ({ SMART_ROUTER_URL: router.url });
const portOf = ({ url }: RunningRouter) => Number(new URL(url).port);

describeTerminal('top on a terminal', () => {
  it('shows pools, pods, calls and events, and restores the terminal after q', async () => {
    await allocate('CA-first');
    const top = await startOnTerminal(binary, ['top', '--interval', '200ms'], { env: env() });
    await top.shows('[1 pods 4]');
    await top.shows(/CA-first/);
    await top.shows('leader');
    expect(top.isAlternate()).toBe(true);
    expect(top.hasCursor()).toBe(false);
    await allocate('CA-second');
    await top.shows(/call_allocated +CA-second/);
    top.type('2');
    await top.shows('[2 calls 2]');
    top.type('q');
    expect(await top.ended).toBe(0);
    expect(top.isAlternate()).toBe(false);
    expect(top.hasCursor()).toBe(true);
    expect(top.raw().lastIndexOf('\u001b[?7h')).toBeGreaterThan(top.raw().lastIndexOf('\u001b[?7l'));
    // Once when it begins, and once for the first picture: after that only lines that changed.
    expect(top.raw().split('\u001b[2J')).toHaveLength(3);
  });

  it('drains and undrains the selected pod by keys, and only after a yes', async () => {
    const top = await startOnTerminal(binary, ['top', '--interval', '200ms'], { env: env() });
    await top.shows('> pod-c');
    top.type('\u001b[B');
    await top.shows('> pod-a');
    top.type('d');
    await top.shows('Drain pod-a: no new calls');
    top.type('n');
    await top.shows('pod-a not changed');
    expect((await router.context.store.pod('pod-a'))?.blockedBy).toBe('');
    top.type('d');
    await top.shows('Drain pod-a: no new calls');
    top.type('y');
    await top.shows(/> pod-a +gold +draining/);
    expect((await router.context.store.pod('pod-a'))?.blockedBy).toBe('draining');
    top.type('u');
    await top.shows('End the drain of pod-a');
    top.type('y');
    await top.shows(/> pod-a +gold +free/);
    top.type('\u0003');
    expect(await top.ended).toBe(0);
  });

  it.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)('restores the terminal after %s', async (signal) => {
    const top = await startOnTerminal(binary, ['top'], { env: env() });
    await top.shows('[1 pods 4]');
    process.kill(top.pid, signal);
    expect(await top.ended).toBe(0);
    expect([top.isAlternate(), top.hasCursor()]).toEqual([false, true]);
  });

  it('restores the terminal after a crash, and prints the error afterwards', async () => {
    const code = 'process.on("SIGUSR2",()=>{throw new Error("boom")})';
    const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(code)}`;
    const top = await startOnTerminal(binary, ['top'], { env: { ...env(), NODE_OPTIONS } });
    await top.shows('[1 pods 4]');
    process.kill(top.pid, 'SIGUSR2');
    expect(await top.ended).toBe(1);
    expect([top.isAlternate(), top.hasCursor()]).toEqual([false, true]);
    expect(top.screen().join('\n')).toContain('unexpected error: boom');
  });

  it('follows the size of the terminal, down to a tiny one', async () => {
    const top = await startOnTerminal(binary, ['top', '--interval', '200ms'], { env: env() });
    await top.shows('last events');
    for (const [columns, rows] of [
      [40, 12],
      [20, 5],
      [100, 30],
    ] as const) {
      top.resize(columns, rows);
      const fits = () => {
        const lines = top.screen();
        return lines.length === rows && lines.every((line) => line.length <= columns);
      };
      await until(fits, `it fits into ${columns}x${rows}: ${top.screen().join('\n')}`);
    }
    await top.shows('last events');
    top.type('q');
    expect(await top.ended).toBe(0);
  });

  it('shows since when it is stale while the router is unreachable, and recovers', async () => {
    const proxy = await tcpProxy(portOf(router));
    const url = `http://127.0.0.1:${proxy.port}`;
    const top = await startOnTerminal(binary, ['top', '--interval', '200ms', '--url', url]);
    await top.shows('[1 pods 4]');
    await proxy.down();
    await top.shows(/stale since \d\d:\d\d:\d\d \(\d+s\), retrying: cannot reach the router/);
    await allocate('CA-between');
    await proxy.up();
    await until(() => !top.screen().join('\n').includes('stale'), 'it is no longer stale');
    // Also events of the time without a connection.
    await top.shows(/call_allocated +CA-between/);
    top.type('q');
    expect(await top.ended).toBe(0);
  });

  it('quits at once while the router does not answer', async () => {
    const proxy = await tcpProxy(portOf(router));
    const url = `http://127.0.0.1:${proxy.port}`;
    const args = ['top', '--interval', '200ms', '--timeout', '1h', '--url', url];
    const top = await startOnTerminal(binary, args);
    await top.shows('[1 pods 4]');
    proxy.blackHole();
    await top.shows('the router is slow to answer');
    top.type('q');
    expect(await top.ended).toBe(0);
  });

  it('has no colours with NO_COLOR, and is one plain frame with TERM=dumb', async () => {
    const bare = await startOnTerminal(binary, ['top'], { env: { ...env(), NO_COLOR: '1' } });
    await bare.shows('[1 pods 4]');
    bare.type('q');
    expect(await bare.ended).toBe(0);
    expect(bare.raw()).not.toMatch(/\u001b\[\d*m/);
    const dumb = await startOnTerminal(binary, ['top'], { env: { ...env(), TERM: 'dumb' } });
    expect(await dumb.ended).toBe(0);
    expect(dumb.raw()).toContain('POD ');
    expect(dumb.raw()).not.toContain('\u001b');
  });

  it('prints one line without a router, and does not open the full screen', async () => {
    const top = await startOnTerminal(binary, ['top', '--url', 'http://127.0.0.1:1']);
    expect(await top.ended).toBe(6);
    expect(top.raw()).toContain('cannot reach the router');
    expect(top.raw()).not.toContain('\u001b[?1049h');
  });
});

describe('top without a terminal', () => {
  it('prints everything once, as with --once', async () => {
    await allocate('CA1');
    for (const args of ['top', 'top --once']) {
      const { code, stdout, stderr } = await run(args);
      expect([code, stderr]).toEqual([0, '']);
      expect(stdout).toMatch(/^Smart Router \S+ {2}up {2}http/);
      expect(stdout).toMatch(/^gold +\[#+-+\] 1\/2 calls +1 busy 1 free of 2$/m);
      expect(stdout).toMatch(/^POD +POOL +STATE/m);
      expect(stdout).toMatch(/call_allocated +CA1 pod-/);
      expect(stdout).not.toContain('\u001b');
    }
  });

  it('is one JSON document with --once --json', async () => {
    const { podName } = await allocate('CA1');
    const document = documentOf(await run('top --once --json'));
    expect(document).toMatchObject({ success: true, status: 'up', active_calls: 1, stale_since: null });
    expect(document.pools).toContainEqual({
      name: 'gold',
      type: 'exclusive',
      assigned: 2,
      active_calls: 1,
      capacity: 2,
      free: 1,
      busy: 1,
      draining: 0,
      blocked: 0,
    });
    expect(document.pods).toContainEqual(expect.objectContaining({ pod_name: podName, state: 'busy' }));
    expect(document.events).toContainEqual(expect.objectContaining({ type: 'call_allocated', call: 'CA1' }));
  });

  it('prints a JSON document per line with --json, also while the router is unreachable, until Ctrl-C', async () => {
    const proxy = await tcpProxy(portOf(router));
    const url = `http://127.0.0.1:${proxy.port}`;
    const top = start(binary, ['top', '--json', '--interval', '200ms', '--url', url]);
    await top.shows('"success":true');
    await proxy.down();
    await top.shows('"success":false');
    await proxy.up();
    top.child.kill('SIGINT');
    const { code, stdout } = await top.ended;
    expect(code).toBe(0);
    const documents = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(documents[0]).toMatchObject({ success: true, stale_since: null });
    const failed = documents.find(({ success }) => !success);
    expect(failed).toMatchObject({ code: 'unreachable', stale_since: expect.stringMatching(/Z$/) });
  });

  it('exits with 6 without a router, with 1 for a wrong key, with 2 for a wrong interval', async () => {
    expect((await run('top --url http://127.0.0.1:1')).code).toBe(6);
    expect((await run('top --interval 1ms')).code).toBe(2);
    const refusing = await startScripted(() => ({
      status: 401,
      json: { success: false, error: 'send a valid key', code: 'unauthorized' },
    }));
    expect((await run(['top', '--url', refusing.url])).code).toBe(1);
    await refusing.stop();
  });

  it('shows load, replicas and alerts of the router', async () => {
    const { body } = { body: await (await fetch(`${router.url}/api/v1/status`)).json() };
    const alert = {
      name: 'no_leader',
      severity: 'critical',
      summary: 'no leader',
      since: '2026-01-01T00:00:00Z',
    };
    // As just after Redis has lost its content, and the rows of the replicas with it.
    let isForgotten = false;
    const telling = await startScripted(({ url = '' }) => {
      if (isForgotten && url.includes('/history'))
        return { json: { step_seconds: 10, replicas: [], points: [] } };
      if (url.includes('/status')) return { json: body };
      if (url.includes('/pods')) return { json: { pods: [], cursor: null } };
      if (url.includes('/calls')) return { json: { calls: [], cursor: null } };
      if (url.includes('/history'))
        return {
          json: {
            step_seconds: 10,
            replicas: [{}, {}, {}],
            points: [
              { allocated: 9, no_pods: 9, p99_ms: 9 },
              { allocated: 2.5, no_pods: 0.5, p99_ms: 12.3 },
            ],
          },
        };
      if (url.includes('/alerts')) return { json: { alerts: [{ ...alert, workflow: null, runbook: '' }] } };
      return { json: { events: [], before: null, kept_since: null } };
    });
    const { stdout } = await run(['top', '--once', '--url', telling.url]);
    expect(stdout).toContain('2.5 calls/s   0.5 no-pods/s   p99 12 ms');
    expect(stdout).toContain('replicas 3');
    expect(stdout).toContain('critical: no leader');
    isForgotten = true;
    const after = await run(['top', '--once', '--url', telling.url]);
    expect(after.stdout).toMatch(/- calls\/s {3}- no-pods\/s {3}p99 - .*replicas -$/m);
    await telling.stop();
  });
});
