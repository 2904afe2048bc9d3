/** The sidecar in front of a real router: calls, drain, and the faults of router, agent and sidecar. */
import { exec } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { describeOneEngine, findOnPath } from '../support/engines.js';
import { onOwnPort } from '../support/ports.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { SkippingClock } from '../support/skipping-clock.js';
import { type TcpProxy, tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { type Sidecar, startSidecar } from './support.js';

const twoCalls = JSON.stringify({ gold: { type: 'shared', target: 1, max_concurrent: 2 } });
/** An ended call is remembered for the grace: longer than the process may be paused before the next report. */
const env = { STATIC_PODS: 'gold-1=gold', TIER_CONFIG: twoCalls, REPORT_GRACE: '5s' };

describeOneEngine('the sidecar', (engine) => {
  let router: TestRouter;
  let proxy: TcpProxy;
  beforeEach(async () => {
    router = await startTestRouter(engine.url, env);
    proxy = await tcpProxy(router.port);
  });
  afterEach(() => router.stop());

  const allocate = async (call_sid: string) => {
    const { body } = await router.post('/allocate', { call_sid });
    expect(body).toMatchObject({ success: true, pod_name: 'gold-1' });
    return body.fence as number;
  };
  const liveCalls = async () => ((await router.get('/pod/gold-1')).body.calls as string[]).sort();
  const untilLive = (...callSids: string[]) =>
    until(async () => String(await liveCalls()) === String(callSids), `live calls: ${callSids}`);
  const leaseOf = async () => (await router.get('/pod/gold-1')).body.leases[0].lease_expires_at as string;
  const untilReady = (sidecar: Sidecar) =>
    until(async () => {
      sidecar.skip(1000);
      return (await sidecar.ask('GET', '/ready')).status === 200;
    }, 'the sidecar is ready');

  it('reports a call, renews its lease, and releases it with its fence', async () => {
    const fence = await allocate('CA1');
    const sidecar = await startSidecar(proxy.port);
    expect((await sidecar.ask('PUT', '/calls/CA1', { body: JSON.stringify({ fence }) })).body).toEqual({
      success: true,
      call_sid: 'CA1',
      confirmed: true,
    });
    expect((await sidecar.ask('GET', '/calls')).body).toEqual({
      success: true,
      pod_name: 'gold-1',
      is_draining: false,
      calls: [{ call_sid: 'CA1', fence, confirmed: true }],
    });
    const lease = await leaseOf();
    await until(async () => (await leaseOf()) > lease, 'the lease is renewed');
    expect((await sidecar.ask('DELETE', '/calls/CA1')).body).toEqual({
      success: true,
      call_sid: 'CA1',
      released: true,
    });
    expect(await liveCalls()).toEqual([]);
    const again = await sidecar.ask('DELETE', '/calls/CA1');
    expect([again.status, again.body.code]).toEqual([404, 'call_not_found']);
  });

  it('reports, renews and releases with a wall clock that is wrong by years, and jumps', async () => {
    const wallClock = vi.spyOn(SkippingClock.prototype, 'now').mockReturnValue(0);
    onTestFinished(() => wallClock.mockRestore());
    await allocate('CA1');
    const sidecar = await startSidecar(proxy.port);
    expect((await sidecar.ask('PUT', '/calls/CA1')).body).toMatchObject({ confirmed: true });
    for (const nowMs of [Date.parse('2100-01-01'), Date.parse('1990-01-01')]) {
      wallClock.mockReturnValue(nowMs);
      const lease = await leaseOf();
      await until(async () => (await leaseOf()) > lease, 'the lease is renewed');
    }
    expect((await sidecar.ask('DELETE', '/calls/CA1')).body).toMatchObject({ released: true });
    expect(await liveCalls()).toEqual([]);
  });

  it('releases with the fence of the router, not with a wrong one of the agent', async () => {
    await allocate('CA1');
    const sidecar = await startSidecar(proxy.port);
    await sidecar.ask('PUT', '/calls/CA1', { body: JSON.stringify({ fence: Number.MAX_SAFE_INTEGER }) });
    expect((await sidecar.ask('DELETE', '/calls/CA1')).body).toMatchObject({ released: true });
    expect(await liveCalls()).toEqual([]);
  });

  it('learns the fence of a call from the router, and takes a SID with any characters', async () => {
    const sid = 'call/ä 1?';
    const fence = await allocate(sid);
    const sidecar = await startSidecar(proxy.port);
    await sidecar.ask('PUT', `/calls/${encodeURIComponent(sid)}`);
    expect((await sidecar.ask('GET', '/calls')).body.calls).toEqual([
      { call_sid: sid, fence, confirmed: true },
    ]);
    // A later claim of the same SID, after this pod lost the call: its end here must not end that claim.
    await router.post('/release', { call_sid: sid });
    await until(async () => (await sidecar.calls()).length === 0, 'the sidecar has dropped the call');
    await allocate(sid);
    expect((await sidecar.ask('DELETE', `/calls/${encodeURIComponent(sid)}`)).status).toBe(404);
    expect(await liveCalls()).toEqual([sid]);
  });

  it('answers 409 call_lost for a call that has ended, and drops a call that ends elsewhere', async () => {
    await allocate('CA1');
    await router.post('/release', { call_sid: 'CA1' });
    const sidecar = await startSidecar(proxy.port);
    const { status, body } = await sidecar.ask('PUT', '/calls/CA1');
    expect([status, body.code]).toEqual([409, 'call_lost']);
    await sidecar.ask('PUT', '/calls/CA2');
    await untilLive('CA2');
    await router.post('/release', { call_sid: 'CA2' });
    await until(async () => (await sidecar.calls()).length === 0, 'the sidecar has dropped the call');
    expect(sidecar.logged('call lost; the agent must stop serving it')).toMatchObject([
      { call_sid: 'CA1' },
      { call_sid: 'CA2' },
    ]);
  });

  it('keeps calls while the router is down, and catches up when it answers', async () => {
    await allocate('CA1');
    const sidecar = await startSidecar(proxy.port);
    await untilReady(sidecar);
    await sidecar.ask('PUT', '/calls/CA1');
    await proxy.down();
    expect((await sidecar.ask('PUT', '/calls/CA2')).body).toMatchObject({ success: true, confirmed: false });
    expect((await sidecar.ask('DELETE', '/calls/CA1')).body).toMatchObject({
      success: true,
      released: false,
    });
    await until(
      async () => (await sidecar.ask('GET', '/ready')).body.code === 'router_unavailable',
      'not ready',
    );
    expect((await sidecar.ask('GET', '/health')).body).toEqual({ status: 'ok' });
    expect(await sidecar.calls()).toEqual(['CA2']);
    await proxy.up();
    await untilReady(sidecar);
    await untilLive('CA2');
    // One line for each kind of failure, however often it was retried.
    expect(sidecar.logged('request to the router failed; retrying')).toHaveLength(1);
    expect(sidecar.logged('router accepts reports').at(-1)).toMatchObject({ calls: 1 });
  });

  it('restores calls after a restart, with their fences; not one that the agent ended before that', async () => {
    const first = await startSidecar(proxy.port);
    for (const sid of ['CA1', 'CA2']) await first.ask('PUT', `/calls/${sid}`);
    const { calls } = (await first.ask('GET', '/calls')).body;
    await proxy.down();
    await first.stop();
    const second = await startSidecar(proxy.port);
    expect((await second.ask('DELETE', '/calls/CA2')).body).toMatchObject({ success: true, released: false });
    await proxy.up();
    await untilReady(second);
    expect((await second.ask('GET', '/calls')).body.calls).toEqual([calls[0]]);
    await untilLive('CA1');
    expect((await second.ask('DELETE', '/calls/CA1')).body).toMatchObject({ released: true });
  });

  it('restores no calls of an earlier pod of the same name', async () => {
    await router.stop();
    router = await startTestRouter(engine.url, { ...env, POD_SOURCE: 'registered' }, { ready: false });
    const first = await startSidecar(router.port, { POD_UID: 'uid-1' });
    await until(async () => (await first.ask('PUT', '/calls/CA1')).body.confirmed, 'the call is reported');
    await first.stop();
    const same = await startSidecar(router.port, { POD_UID: 'uid-1' });
    await until(async () => (await same.calls()).length === 1, 'the call is restored');
    await same.stop();
    const other = await startSidecar(router.port, { POD_UID: 'uid-2' });
    await untilReady(other);
    expect(await other.calls()).toEqual([]);
    expect(other.logged('calls restored from the router')).toEqual([]);
    await untilLive();
  });

  it('drops a restored call that the agent has not named for four hours, and keeps a named one', async () => {
    for (const sid of ['CA1', 'CA2']) await allocate(sid);
    const sidecar = await startSidecar(proxy.port);
    await until(async () => (await sidecar.calls()).length === 2, 'the calls are restored');
    await sidecar.ask('PUT', '/calls/CA1');
    sidecar.skip(4 * 60 * 60 * 1000);
    await until(async () => (await sidecar.calls()).length === 1, 'a call is dropped');
    expect(await sidecar.calls()).toEqual(['CA1']);
    await untilLive('CA1');
  });

  it('reads a changed key from its file', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'smart-router-key-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, 'api-key');
    writeFileSync(file, 'wrong-key-0123456\n');
    await router.stop();
    router = await startTestRouter(engine.url, { ...env, SMART_ROUTER_API_KEY: 'right-key-0123456' });
    const sidecar = await startSidecar(router.port, { SMART_ROUTER_API_KEY_FILE: file });
    await until(
      async () => (await sidecar.ask('GET', '/ready')).body.error?.includes('unauthorized'),
      'the wrong key is refused',
    );
    writeFileSync(file, 'right-key-0123456\n');
    await untilReady(sidecar);
  });

  it('answers the curl lines of docs/agents.md as the page shows', async ({ skip }) => {
    if (findOnPath('curl') === undefined) return skip('curl is not on PATH');
    const page = readFileSync(new URL('../../docs/agents.md', import.meta.url), 'utf8');
    const lines = (/```sh\n(.*?)```/s.exec(page)?.[1] ?? '').split('\n');
    const commands = lines.flatMap((line, i) =>
      line.startsWith('curl ') ? [[line, lines[i + 1] ?? '']] : [],
    );
    expect(commands).toHaveLength(4);
    const { url } = await startSidecar(proxy.port);
    const masked = (text: string) =>
      text
        .replace(/"fence":\d+/, '"fence":0')
        .replace('voice-agent-0', 'gold-1')
        .trim();
    for (const [command = '', answer = ''] of commands) {
      const { stdout } = await promisify(exec)(command.replace('http://127.0.0.1:9357', url));
      expect(masked(stdout)).toBe(masked(answer));
    }
  });

  describe('drain', () => {
    it('stops new calls and answers when the last call has ended', async () => {
      await allocate('CA1');
      const sidecar = await startSidecar(proxy.port);
      await sidecar.ask('PUT', '/calls/CA1');
      let isOver = false;
      const drains = [sidecar.ask('POST', '/drain'), sidecar.ask('POST', '/drain')];
      void Promise.race(drains).then(() => {
        isOver = true;
      });
      await until(async () => (await router.get('/pod/gold-1')).body.is_draining, 'the pod drains');
      expect((await sidecar.ask('GET', '/ready')).body.code).toBe('shutting_down');
      const lease = await leaseOf();
      await until(async () => (await leaseOf()) > lease, 'the call is still renewed');
      expect(isOver).toBe(false);
      await sidecar.ask('DELETE', '/calls/CA1');
      for (const { body } of await Promise.all(drains))
        expect(body).toEqual({ success: true, pod_name: 'gold-1', active_calls: 0 });
    });

    it('waits for a call of the agent that the router has lost', async () => {
      const sidecar = await startSidecar(proxy.port);
      await untilReady(sidecar);
      await proxy.down();
      await sidecar.ask('PUT', '/calls/CA1');
      const stopping = sidecar.drainAndStop();
      expect(await sidecar.calls()).toEqual(['CA1']);
      await proxy.up();
      await until(async () => (await router.get('/pod/gold-1')).body.is_draining, 'the pod drains');
      await untilLive('CA1');
      await sidecar.ask('DELETE', '/calls/CA1');
      await stopping;
      expect(await liveCalls()).toEqual([]);
    });

    it('ends without calls when the router does not answer for 25 s', async () => {
      const sidecar = await startSidecar(proxy.port);
      await untilReady(sidecar);
      await proxy.down();
      let isOver = false;
      const drained = sidecar.ask('POST', '/drain').finally(() => {
        isOver = true;
      });
      await until(() => {
        sidecar.skip(1000);
        return isOver;
      }, 'the drain is over');
      expect((await drained).body).toMatchObject({ success: true, active_calls: 0 });
    });
  });

  describe('the health address of the agent', () => {
    let agent: Server;
    const listen = (port: number) =>
      new Promise<void>((resolve, reject) => {
        agent.once('error', reject).listen(port, '127.0.0.1', resolve);
      });
    const die = () => {
      agent.close();
      agent.closeAllConnections();
    };
    beforeEach(async () => {
      agent = createServer((_, response) => response.writeHead(503).end());
      await onOwnPort(listen);
    });
    afterEach(die);
    const healthUrl = () => `http://127.0.0.1:${(agent.address() as AddressInfo).port}/health`;

    it('ends the calls of an agent that is dead, and keeps those of one that is unhealthy', async () => {
      const fence = await allocate('CA1');
      const sidecar = await startSidecar(proxy.port, { AGENT_HEALTH_URL: healthUrl() });
      await sidecar.ask('PUT', '/calls/CA1', { body: JSON.stringify({ fence }) });
      let checks = 0;
      agent.on('request', () => {
        checks += 1;
      });
      await until(() => {
        sidecar.skip(1000);
        return checks > 3;
      }, 'the agent was checked');
      expect(await sidecar.calls()).toEqual(['CA1']);
      die();
      await until(async () => {
        sidecar.skip(1000);
        return (await liveCalls()).length === 0;
      }, 'the call has ended');
      expect(sidecar.logged('voice agent is dead; ending its calls')).toHaveLength(1);
    });

    it('ends the calls of an agent that listens and has not answered for 30 s', async () => {
      let isHung = false;
      let [answers, failures] = [0, 0];
      agent.prependListener('request', ({ socket }) => {
        if (isHung) {
          socket.destroy();
          failures += 1;
        } else answers += 1;
      });
      const sidecar = await startSidecar(proxy.port, { AGENT_HEALTH_URL: healthUrl() });
      await sidecar.ask('PUT', '/calls/CA1');
      await until(() => answers > 0, 'the agent has answered');
      isHung = true;
      for (const count of [1, 2, 3]) {
        await until(() => failures >= count, 'the agent has not answered');
        sidecar.skip(1000);
      }
      expect(await liveCalls()).toEqual(['CA1']);
      sidecar.skip(30_000);
      await untilLive();
    });

    it('ends no call if the address has never answered', async () => {
      const address = healthUrl();
      die();
      const sidecar = await startSidecar(proxy.port, { AGENT_HEALTH_URL: address });
      await sidecar.ask('PUT', '/calls/CA1');
      for (let round = 0; round < 40; round++) {
        sidecar.skip(1000);
        await sidecar.ask('GET', '/health');
      }
      expect(await sidecar.calls()).toEqual(['CA1']);
    });
  });
});
