/**
 * Three router processes, a simulated API server, a real Redis: who leads, when leaders die, stop, freeze or are cut
 * off. Guarantee 9. The other replicas keep serving calls. How soon is a matter of the simulation, where
 * the time is not the machine's.
 */
import { expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { type Fleet, openFleet } from '../support/fleet.js';
import { checkInvariants } from '../support/invariants.js';
import { allocate, pause, type RouterProcess, release, until, untilServing } from '../support/processes.js';
import { tcpProxy } from '../support/tcp-proxy.js';

const podNames = Array.from({ length: 6 }, (_, i) => `agent-${i}`);

describeOneEngine('leadership among three routers', (engine) => {
  const three = async (env?: Record<string, string>): Promise<[Fleet, RouterProcess[]]> => {
    const fleet = await openFleet(engine.url);
    fleet.pods(...podNames);
    const routers = await Promise.all(['r-0', 'r-1', 'r-2'].map((name) => fleet.start(name, env)));
    await fleet.leader(routers);
    for (const router of routers) await untilServing(router, podNames.length);
    return [fleet, routers];
  };

  /** Allocates and releases on `routers` until stopped; every answer must be a success, but for calls of lost pods. */
  const traffic = (routers: readonly RouterProcess[], lostPods: readonly string[] = []) => {
    let stopped = false;
    const problems: string[] = [];
    let served = 0;
    const run = async (name: string) => {
      for (let i = 0; !stopped; i++) {
        const router = routers[i % routers.length];
        if (!router) return;
        const sid = `${name}-${i}`;
        const given = await allocate(router, sid);
        const back = await release(router, sid, given.body.fence);
        const isLost = back.status === 404 && lostPods.includes(given.body.pod_name ?? '');
        if (given.status !== 200 || (back.status !== 200 && !isLost))
          problems.push(`${sid}: ${given.status} ${given.text}, ${back.status} ${back.text}`);
        else served += 1;
      }
    };
    const ended = Promise.all([run('a'), run('b')]);
    return {
      async stop() {
        stopped = true;
        await ended;
        expect(problems).toEqual([]);
        expect(served).toBeGreaterThan(0);
      },
    };
  };
  const others = (routers: readonly RouterProcess[], one: RouterProcess) =>
    routers.filter((router) => router !== one);
  const epoch = async () => Number(await engine.redis.get('voice:leader:epoch'));

  it('a killed leader is replaced, and calls are served', async () => {
    const [fleet, routers] = await three();
    const first = await fleet.leader(routers);
    const rest = others(routers, first);
    const before = await epoch();
    const calls = traffic(rest);
    await first.signal('SIGKILL');
    await fleet.leader(rest);
    await until('the new leader writes with an epoch of its own', async () => (await epoch()) > before);
    await calls.stop();
    // It does the work: a pod that appears now is taken into use.
    fleet.pods('agent-late');
    for (const router of rest) await untilServing(router, podNames.length + 1);
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
  });

  it('a leader that only loses the store is replaced, and leads no more until the store answers', async () => {
    const fleet = await openFleet(engine.url);
    fleet.pods(...podNames);
    const proxy = await tcpProxy(engine.port);
    const cut = await fleet.start('r-0', { REDIS_URL: `redis://127.0.0.1:${proxy.port}` });
    await fleet.leader([cut]);
    const other = await fleet.start('r-1');
    await untilServing(other, podNames.length);
    await proxy.down();
    fleet.cluster.pods.remove('agent-0', { graceMs: 0 });
    await fleet.leader([other]);
    await untilServing(other, podNames.length - 1);
    expect(cut.running).toBe(true);
    // The store is down for all: the routers wait, and one of them leads when it answers.
    await engine.pause();
    await until('no router leads', async () => (await other.get('/api/v1/status')).body.is_leader === false);
    await engine.resume();
    await proxy.up();
    await fleet.leader([cut, other]);
    fleet.pods('agent-late');
    for (const router of [cut, other]) await untilServing(router, podNames.length);
    expect(cut.running && other.running).toBe(true);
  });

  it('a leader that stops cleanly is replaced at once, before its lease ends', async () => {
    const [fleet, routers] = await three({
      LEADER_ELECTION_DURATION: '1h',
      LEADER_ELECTION_RENEW_DEADLINE: '30m',
    });
    const first = await fleet.leader(routers);
    const rest = others(routers, first);
    const calls = traffic(rest);
    expect(await first.stop()).toBe(0);
    await fleet.leader(rest);
    await calls.stop();
  });

  it('a leader that froze past its lease writes nothing afterwards, so that the state of the new one remains', async () => {
    const [fleet, routers] = await three({ LEADER_LOSS: 'follow' });
    const frozen = await fleet.leader(routers);
    const rest = others(routers, frozen);
    const calls = traffic(rest, ['agent-0']);
    await frozen.signal('SIGSTOP');
    const next = await fleet.leader(rest);
    await until(
      'the new leader has taken its epoch',
      () => next.logged('leader: managing the pools').length > 0,
    );
    const before = await epoch();
    // While it sleeps the cluster changes: a pod comes, another goes.
    fleet.pods('agent-new');
    fleet.cluster.pods.remove('agent-0', { graceMs: 0 });
    const known = async () => (await engine.redis.smembers('voice:pool:gold:assigned')).sort();
    const wanted = [...podNames.slice(1), 'agent-new'];
    await until('the new leader has seen it', async () => `${await known()}` === `${wanted}`);
    await frozen.signal('SIGCONT');
    await until('the old one follows', async () => {
      const { body } = await frozen.get('/api/v1/status');
      return body.is_leader === false && body.leader !== null;
    });
    await pause(1500); // two rounds of everything that it would do if it still believed
    expect(await known()).toEqual(wanted);
    expect(await epoch()).toBe(before);
    expect((await fleet.leader(routers)).url).toBe(next.url);
    await calls.stop();
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
  });

  it('a leader cut off from the API server alone steps down in time, ends itself, and is replaced', async () => {
    const [fleet, routers] = await three();
    const cut = await fleet.leader(routers);
    const rest = others(routers, cut);
    const calls = traffic(rest);
    const name = String((await cut.get('/api/v1/status')).body.leader);
    fleet.cluster.faults.isolate(name, 'hang');
    // It stops before another replica may lead: there are never two leaders.
    await until('it no longer leads', async () => {
      if (!cut.running) return true;
      // Ask the others first: another leader then started before this one was asked.
      const others = await Promise.all(rest.map((router) => router.get('/api/v1/status')));
      const { status, body } = await cut.get('/api/v1/status');
      if (others.some((answer) => answer.body.is_leader)) expect(body.is_leader).not.toBe(true);
      return status === 200 && body.is_leader === false;
    });
    await fleet.leader(rest);
    await until('its process has ended', () => !cut.running);
    expect(cut.output).toContain('lost leadership');
    await calls.stop();
  });

  it('with LEADER_LOSS=follow it keeps serving calls, and may lead again', async () => {
    const [fleet, routers] = await three({ LEADER_LOSS: 'follow' });
    const cut = await fleet.leader(routers);
    const name = String((await cut.get('/api/v1/status')).body.leader);
    const heal = fleet.cluster.faults.isolate(name, 'reset');
    await fleet.leader(others(routers, cut));
    expect((await allocate(cut, 'while-cut')).status).toBe(200);
    heal();
    for (const other of others(routers, cut)) await other.signal('SIGKILL');
    expect((await fleet.leader([cut])).url).toBe(cut.url);
    expect((await release(cut, 'while-cut')).status).toBe(200);
  });

  it('without Kubernetes the store elects: a killed leader is replaced, a frozen one stays behind', async () => {
    const fleet = await openFleet(engine.url);
    const env = { POD_SOURCE: 'static', STATIC_PODS: podNames.join(',') };
    const routers = await Promise.all(['s-0', 's-1', 's-2'].map((name) => fleet.start(name, env)));
    const first = await fleet.leader(routers);
    for (const router of routers) await untilServing(router, podNames.length);
    const rest = others(routers, first);
    const calls = traffic(rest);
    await first.signal('SIGKILL');
    const second = await fleet.leader(rest);
    await calls.stop();
    await second.signal('SIGSTOP');
    const [last] = others(rest, second);
    if (!last) throw new Error('three routers were started');
    expect((await fleet.leader([last])).url).toBe(last.url);
    const before = await epoch();
    await second.signal('SIGCONT');
    await until('the frozen one follows, and keeps running', async () => {
      const { body } = await second.get('/api/v1/status');
      return body.is_leader === false && body.leader === (await last.get('/api/v1/status')).body.leader;
    });
    expect(await epoch()).toBe(before);
    expect(fleet.cluster.requests.count()).toBe(0);
    expect((await allocate(second, 'served')).status).toBe(200);
  });

  it('a lock of a wrong type is replaced: the router leads, serves and stops', async () => {
    const fleet = await openFleet(engine.url);
    await engine.redis.set('voice:leader', 'written by hand');
    const router = await fleet.start('s-0', { POD_SOURCE: 'static', STATIC_PODS: 'agent-0' });
    await until('it leads', async () => (await router.get('/api/v1/status')).body.is_leader === true);
    await until('it serves', async () => (await allocate(router, 'by-hand')).status === 200);
    expect(await router.stop()).toBe(0);
  });

  it('routers start and serve calls with the API server down, and manage the pools when it is back', async () => {
    const [fleet, routers] = await three();
    for (const router of routers) await router.stop();
    await fleet.cluster.down();
    const late = await fleet.start('r-late');
    await until('it is ready', async () => (await late.get('/ready')).status === 200);
    const given = await allocate(late, 'in-the-dark');
    expect(given).toMatchObject({ status: 200, body: { success: true } });
    expect((await release(late, 'in-the-dark', given.body.fence)).status).toBe(200);
    expect((await late.get('/api/v1/status')).body).toMatchObject({ is_leader: false });
    await fleet.cluster.up();
    await fleet.leader([late]);
    fleet.pods('agent-late');
    await untilServing(late, podNames.length + 1);
  });
});
