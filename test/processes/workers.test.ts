/** `WORKERS`: several routers as processes of one `serve`, that share the ports. */
import { createServer } from 'node:net';
import { expect, it } from 'vitest';
import { recordHistory } from '../history/recording.js';
import { describeOneEngine } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import { allocate, pause, release, runRouter, until } from '../support/processes.js';
import {
  connectTo,
  isAlive,
  pidsOf,
  podCount,
  scrape,
  startWorkers,
  workersEnv,
} from '../support/workers.js';

const quickElection = {
  LEADER_ELECTION_DURATION: '1500ms',
  LEADER_ELECTION_RENEW_DEADLINE: '1s',
  LEADER_ELECTION_RETRY_PERIOD: '200ms',
};
/** Replies of a busy machine: the caller retries. */
const busy = ['overloaded', 'timeout', 'store_unavailable'];
const successes = 'smart_router_allocations_total{pool="pool:gold",status="success"}';

describeOneEngine('workers', (engine) => {
  it('serve calls together, with one leader and one set of metrics, and stop cleanly', async () => {
    const group = await startWorkers({ REDIS_URL: engine.url });
    const workers = [await connectTo(group, 1), await connectTo(group, 2)];
    const sids = Array.from({ length: podCount }, (_, i) => `call-${i}`);
    const given = sids.map((sid, i) => workers[i % 2]?.('/api/v1/allocate', { call_sid: sid }));
    const pods = (await Promise.all(given)).map(({ pod_name }) => pod_name);
    expect(new Set(pods).size).toBe(podCount);
    const statuses = await Promise.all(workers.map((ask) => ask('/api/v1/status')));
    expect(statuses.map(({ is_leader }) => is_leader).sort()).toEqual([false, true]);
    const leaders = statuses.map(({ leader }) => leader);
    expect(leaders).toEqual([leaders[0], leaders[0]]);
    expect(leaders[0]).toMatch(/^box\/[12]$/);
    expect(group.logged('leader: managing the pools')).toHaveLength(1);

    const value = await scrape(group);
    // Sums.
    expect(value(successes)).toBe(podCount);
    expect(value('smart_router_allocate_duration_seconds_count{status="success"}')).toBe(podCount);
    expect(value('smart_router_leader_status')).toBe(1);
    expect(value('smart_router_requests_limit')).toBe(2000);
    // The same on every worker.
    expect(value('smart_router_active_calls')).toBe(podCount);
    expect(value('smart_router_pool_assigned_pods{tier="gold"}')).toBe(podCount);
    expect(value('smart_router_store_up')).toBe(1);
    expect(value('smart_router_loop_last_round_timestamp_seconds{loop="alive-stamp"}')).toBeLessThan(
      Date.now(),
    );
    expect(value('process_start_time_seconds')).toBeLessThan(Date.now() / 1000);
    // The port of the API, too.
    expect((await group.get('/metrics')).text).toContain(`${successes} ${podCount}\n`);

    expect(await group.stop()).toBe(0);
    expect(pidsOf(group).filter(isAlive)).toEqual([]);
    // Two workers and the primary.
    expect(group.logged('stopped')).toHaveLength(3);
  });

  it('one that is killed under load is replaced; no pod is given twice, no counter decreases', async () => {
    const group = await startWorkers({ ...quickElection, REDIS_URL: engine.url });
    const history = recordHistory({ pools: { 'pool:gold': { kind: 'exclusive' } }, lease_ms: 900_000 });
    const recorded = history.of(group);
    let isEnding = false;
    let served = 0;
    const insist = async (ask: () => ReturnType<typeof allocate>) => {
      for (;;) {
        const answer = await ask();
        if (answer.status !== 0 && !busy.includes(answer.body.code ?? '')) return answer;
      }
    };
    const call = async (name: string) => {
      for (let i = 0; !isEnding; i++) {
        const sid = `${name}-${i}`;
        const { status, body } = await insist(() => allocate(recorded, sid));
        expect(status, JSON.stringify(body)).toBe(200);
        served += 1;
        await pause(5);
        await insist(() => release(recorded, sid, body.fence));
      }
    };
    const callers = Promise.all(Array.from({ length: podCount / 2 }, (_, i) => call(`caller-${i}`)));
    await until('calls are served', () => served > 20);
    const before = (await scrape(group))(successes) ?? 0;
    expect(before).toBeGreaterThan(20);

    const leader = Number(group.logged('leader: managing the pools')[0]?.worker);
    const victim = group.logged('worker started').find(({ worker }) => worker === leader)?.pid;
    process.kill(Number(victim), 'SIGKILL');
    await until('its end is logged', () => group.logged('worker ended; starting it again').length === 1);
    expect(group.logged('worker ended; starting it again')[0]).toMatchObject({
      worker: leader,
      reason: 'ended with SIGKILL',
    });
    const servedThen = served;
    await until('calls go on', () => served > servedThen + 20);
    expect((await scrape(group))(successes)).toBeGreaterThan(before);
    await until('it is replaced', () => group.logged('smart-router is listening').length === 3);
    await until('a worker leads', () => group.logged('leader: managing the pools').length > 1);
    isEnding = true;
    await callers;

    expect((await history.verdict()).violations).toEqual([]);
    expect(await checkInvariants(engine.redis)).toEqual([]);
    const value = await scrape(group);
    expect(value(successes)).toBeLessThanOrEqual(served);
    expect(value('smart_router_loop_restarts_total{loop="worker"}')).toBe(1);
    await until('one leads', async () => (await scrape(group))('smart_router_leader_status') === 1);
  });

  it('stop cleanly when the primary is killed', async () => {
    const group = await startWorkers({ REDIS_URL: engine.url });
    const pids = pidsOf(group);
    await group.signal('SIGKILL');
    await until('no worker is left', () => !pids.some(isAlive));
    expect(group.logged('stopping; finishing requests in flight')).toMatchObject([
      { reason: 'primary ended' },
      { reason: 'primary ended' },
    ]);
    expect(group.logged('stopped')).toHaveLength(2);
    expect(await engine.redis.hget('voice:leader', 'holder')).toBe('');
  });

  it('a worker that cannot start ends the group with its error, once', async () => {
    const blocker = createServer();
    await new Promise<void>((resolve) => blocker.listen(0, '127.0.0.1', resolve));
    const { port } = blocker.address() as { port: number };
    const { code, output } = await runRouter({
      ...workersEnv,
      REDIS_URL: engine.url,
      HTTP_PORT: String(port),
    });
    blocker.close();
    expect(code).toBe(2);
    const problem = `HTTP_PORT ${port} on 127.0.0.1 is in use`;
    expect(output.split(problem)).toHaveLength(2);
    expect(output).toMatch(new RegExp(`^smart-router: ${problem}`, 'm'));
    expect(output).not.toContain('starting it again');
  });

  it.each([
    ['cannot be forked', 'throws', 'no second worker'],
    ['dies as it starts', 'dies', 'worker 2 ended with SIGKILL during its start'],
  ])('one of the first workers that %s ends the group', async (_, how, problem) => {
    const preload = new URL(`../support/failing-worker.mjs?${how}`, import.meta.url);
    // It reads the output until its end: no worker is left that could write.
    const { code, output } = await runRouter({
      ...workersEnv,
      REDIS_URL: engine.url,
      NODE_OPTIONS: `--import=${preload}`,
    });
    expect(code).toBe(1);
    expect(output).toContain(problem);
    expect(output).not.toContain('all workers are listening');
  });
});
