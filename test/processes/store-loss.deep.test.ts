/** The store goes away, stalls, forgets everything; the network in between breaks. Guarantee 11. */
import { expect, it } from 'vitest';
import { describeEngines } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import {
  type Answer,
  allocate,
  isIdle,
  pause,
  quickTimes,
  type RouterEnv,
  type RouterProcess,
  release,
  renew,
  runRouter,
  startRouter,
  until,
  untilServing,
} from '../support/processes.js';
import { type TcpProxy, tcpProxy } from '../support/tcp-proxy.js';

const podCount = 6;
const requestTimeoutMs = 3000;
/** LEASE_TTL of `quickTimes`. */
const leaseMs = 2000;
/** Long enough for several processes on two busy cores. */
const slackMs = 10_000;
const env = {
  ...quickTimes,
  // Longer than a busy machine delays a store that is not down.
  REQUEST_TIMEOUT: `${requestTimeoutMs}ms`,
  REDIS_COMMAND_TIMEOUT: '2s',
  TIER_CONFIG: JSON.stringify({ gold: 4, silver: 2 }),
  STATIC_PODS: Array.from({ length: podCount }, (_, i) => `agent-${i}`).join(','),
};

/** Every operation that needs the store, on a call and a pod that exist. */
const operations: Record<string, (router: RouterProcess) => Promise<Answer>> = {
  'a new allocate': (router) => allocate(router, 'new'),
  'an allocate of a live call': (router) => allocate(router, 'live'),
  release: (router) => release(router, 'live'),
  renew: (router) => renew(router, 'live'),
  report: (router) => router.post('/api/v1/pod/agent-0/report', { calls: ['live'] }),
  drain: (router) => router.post('/api/v1/drain', { pod_name: 'agent-0' }),
  undrain: (router) => router.post('/api/v1/undrain', { pod_name: 'agent-0' }),
  'one pod': (router) => router.get('/api/v1/pod/agent-0'),
  pods: (router) => router.get('/api/v1/pods'),
  'one call': (router) => router.get('/api/v1/calls/live'),
  calls: (router) => router.get('/api/v1/calls'),
  tiers: (router) => router.get('/api/v1/tiers'),
  ready: (router) => router.get('/ready'),
};

async function expectUnavailable(router: RouterProcess): Promise<void> {
  // Asked together with the others: one after the other would make a stall longer than the 5 s after which leases are extended.
  const status = router.get('/api/v1/status');
  await Promise.all(
    Object.entries(operations).map(async ([name, operation]) => {
      const { status, body, ms, retryAfter } = await operation(router);
      expect({ name, status, code: body.code }).toEqual({ name, status: 503, code: 'store_unavailable' });
      expect(retryAfter, name).toBeGreaterThan(0);
      expect(ms, name).toBeLessThan(requestTimeoutMs + slackMs);
    }),
  );
  expect((await router.get('/health')).status).toBe(200);
  expect((await status).body).toMatchObject({ status: 'down', active_calls: null });
}

describeEngines('losing the store', (engine) => {
  const start = async (extra: RouterEnv = {}) => {
    const router = await startRouter({ ...env, REDIS_URL: engine.url, ...extra });
    await untilServing(router, podCount);
    return router;
  };
  const startBehind = async (proxy: TcpProxy, extra: RouterEnv = {}) =>
    start({ REDIS_URL: `redis://127.0.0.1:${proxy.port}`, ...extra });

  const storeMs = async () => {
    const [seconds = 0, micros = 0] = (await engine.redis.time()).map(Number);
    return seconds * 1000 + micros / 1000;
  };

  it('an unreachable store is a 503 in time for every operation, never a 404, and a short one heals', async () => {
    const proxy = await tcpProxy(engine.port);
    const router = await startBehind(proxy, { LEASE_TTL: '1m', CALL_INFO_TTL: '5m' });
    const given = await allocate(router, 'live');
    await proxy.down();
    await expectUnavailable(router);
    await proxy.up();
    await until('the store is found again', async () => (await router.get('/ready')).status === 200);
    const { pod_name, fence } = given.body;
    expect((await allocate(router, 'live')).body).toMatchObject({ pod_name, fence, was_existing: true });
    expect((await release(router, 'live')).status).toBe(200);
    expect(await checkInvariants(engine.redis)).toEqual([]);
  });

  it('live calls keep their pods through an outage longer than their lease', async () => {
    const proxy = await tcpProxy(engine.port);
    const router = await startBehind(proxy, { LEASE_TTL: '10s', CALL_INFO_TTL: '5m' });
    const live = Array.from({ length: podCount }, (_, i) => `live-${i}`);
    for (const sid of live) expect((await allocate(router, sid)).status).toBe(200);
    await until('the router has stamped', async () => (await engine.redis.exists('voice:alive')) === 1);
    await proxy.down();
    const stampMs = Number((await engine.redis.get('voice:alive'))?.split(' ')[0]);
    await until('the outage counts', async () => (await storeMs()) > stampMs + 12_000);
    let stopped = false;
    const answers = new Set<string | undefined>();
    const newCalls = (async () => {
      for (let i = 0; !stopped; i += 1) answers.add((await allocate(router, `new-${i}`)).body.code);
    })();
    await proxy.up();
    await until('new calls are answered', () => answers.has('no_pods'));
    for (const sid of live) expect((await renew(router, sid)).status, sid).toBe(200);
    stopped = true;
    await newCalls;
    expect([...answers].filter((code) => code !== 'store_unavailable')).toEqual(['no_pods']);
    const kept = await engine.redis.xrange('voice:journal', '-', '+');
    expect(kept.filter(([, fields]) => fields.includes('leases_extended'))).toHaveLength(1);
  });

  it('a store that restarts empty under load has all its pods again', async () => {
    const router = await start();
    const load = new Load(router);
    const callers = Promise.all(Array.from({ length: 8 }, (_, i) => load.run(`caller-${i}`)));
    await until('the load runs', () => load.served >= 20);
    load.lossMs = performance.now();
    await engine.restart();
    await untilServing(router, podCount);
    // A connection that was silent for so long may be replaced first: from the first answers on, all must be good.
    const before = load.served;
    await until('calls are served again', () => load.served >= before + 20);
    load.backMs = performance.now();
    await until('calls are served again', () => load.served >= before + 100);
    load.ending = true;
    await callers;
    expect(load.problems).toEqual([]);
    await until('no pod is lost', () => isIdle(router));
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
  });

  it('a stalled store is a 503 in time, and leaves nothing behind once it resumes', {
    timeout: 150_000,
  }, async () => {
    const router = await start();
    expect((await allocate(router, 'live')).status).toBe(200);
    const load = new Load(router);
    const callers = Promise.all(Array.from({ length: 8 }, (_, i) => load.run(`caller-${i}`)));
    await until('the load runs', () => load.served >= 20);
    await engine.pause();
    const resumeMs = performance.now() + 3000;
    try {
      load.lossMs = performance.now();
      await expectUnavailable(router);
      await pause(resumeMs - performance.now());
    } finally {
      await engine.resume();
    }
    // A connection that was silent for so long may be replaced first: from the first answers on, all must be good.
    const before = load.served;
    await until('calls are served again', () => load.served >= before + 20);
    load.backMs = performance.now();
    await until('calls are served again', () => load.served >= before + 100);
    load.ending = true;
    await callers;
    expect(load.problems).toEqual([]);
    expect(load.slowestMs).toBeLessThan(requestTimeoutMs + slackMs);
    // A stall of more than 5 s extends leases by a minute.
    await until('no pod is leaked', () => isIdle(router), 100_000);
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
  });

  it('an allocate that reaches the store too late takes no pod', async () => {
    const proxy = await tcpProxy(engine.port);
    const router = await startBehind(proxy, { LEASE_TTL: '1m', CALL_INFO_TTL: '5m' });
    // The router knows the store's clock from the first answer on.
    await release(router, (await allocate(router, 'first')).status === 200 ? 'first' : '');
    proxy.blackHole();
    const answers = await Promise.all([1, 2, 3].map((i) => allocate(router, `late-${i}`)));
    for (const { status, body } of answers) {
      expect({ status, code: body.code }).toEqual({ status: 503, code: 'store_unavailable' });
    }
    // The delayed request arrives later than the router's patience, by the store's clock.
    const answeredMs = await storeMs();
    await until('it is too late', async () => (await storeMs()) > answeredMs + 200);
    proxy.pass();
    await until('the store answers', async () => (await router.get('/ready')).status === 200);
    expect(await engine.redis.keys('voice:call:*')).toEqual([]);
    expect(await isIdle(router)).toBe(true);
  });

  it('a reply lost after the work was done: the same call gets the same pod', async () => {
    const proxy = await tcpProxy(engine.port);
    const router = await startBehind(proxy, { LEASE_TTL: '1m', CALL_INFO_TTL: '5m' });
    const direct = await start({ LEASE_TTL: '1m', CALL_INFO_TTL: '5m' });
    for (const sid of ['one', 'two', 'three']) {
      proxy.loseReplies();
      const lost = allocate(router, sid);
      await until(
        'the store has done it',
        async () => (await engine.redis.exists(`voice:call:${sid}`)) === 1,
      );
      proxy.reset();
      expect((await lost).body).toMatchObject({ code: 'store_unavailable' });
      const pod = await engine.redis.hget(`voice:call:${sid}`, 'pod_name');
      const retried = await insist(() => allocate(router, sid));
      expect(retried.body).toMatchObject({ pod_name: pod, was_existing: true });
      expect((await allocate(direct, sid)).body).toMatchObject({ pod_name: pod, fence: retried.body.fence });
    }
    // A release whose answer was lost: the second finds nothing and frees nothing.
    proxy.loseReplies();
    const lost = release(router, 'one');
    await until('the store has done it', async () => (await engine.redis.exists('voice:call:one')) === 0);
    proxy.reset();
    expect((await lost).status).toBe(503);
    expect((await insist(() => release(router, 'one'))).body).toMatchObject({ code: 'call_not_found' });
    expect((await direct.get('/api/v1/status')).body.active_calls).toBe(2);
    expect(await checkInvariants(engine.redis)).toEqual([]);
  });

  it('connections reset again and again under load cost answers, never pods', async () => {
    const proxy = await tcpProxy(engine.port);
    const router = await startBehind(proxy);
    const load = new Load(router);
    load.lossMs = performance.now();
    const callers = Promise.all(Array.from({ length: 8 }, (_, i) => load.run(`caller-${i}`)));
    for (let i = 0; i < 8; i++) {
      const before = load.served;
      await until('calls are served', () => load.served >= before + 5);
      if (i % 2 === 0) proxy.delay(5);
      proxy.reset();
      proxy.pass();
    }
    load.ending = true;
    await callers;
    load.backMs = performance.now();
    expect(load.problems).toEqual([]);
    await until('no pod is lost', () => isIdle(router));
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
  });

  it('a connection that died without a reset is replaced', async () => {
    const proxy = await tcpProxy(engine.port);
    const router = await startBehind(proxy);
    proxy.strand();
    await until(
      'calls are served over a new one',
      async () => (await allocate(router, 'one')).status === 200,
    );
  });

  it('a router started without a store listens, is not ready, and serves once there is one', async () => {
    const proxy = await tcpProxy(engine.port);
    await proxy.down();
    const router = await startRouter({ ...env, REDIS_URL: `redis://127.0.0.1:${proxy.port}` });
    expect((await router.get('/health')).body).toEqual({ status: 'ok' });
    await expectUnavailable(router);
    await proxy.up();
    await until('it is ready', async () => (await router.get('/ready')).status === 200);
    await untilServing(router, podCount);
    expect((await allocate(router, 'one')).status).toBe(200);
    expect(await checkInvariants(engine.redis)).toEqual([]);
  });

  it('a router started without a store answers no call before it has imported the calls of the store', async () => {
    const proxy = await tcpProxy(engine.port);
    await proxy.down();
    const router = await startRouter({ ...env, REDIS_URL: `redis://127.0.0.1:${proxy.port}` });
    // What an earlier (Go) router leaves: a call on agent-3, without any of our indexes.
    const record = { pod_name: 'agent-3', source_pool: 'pool:gold', merchant_id: '' };
    await engine.redis.hset('voice:call:old', { ...record, allocated_at: new Date().toISOString() });
    await engine.redis.set('voice:pod:tier:agent-3', 'gold');
    await engine.redis.sadd('voice:pool:gold:assigned', 'agent-3');
    await engine.redis.set('voice:lease:agent-3', 'old', 'EX', 60);
    await proxy.up();
    const answer = await insist(() => allocate(router, 'old'));
    expect(answer.body).toMatchObject({ pod_name: 'agent-3', was_existing: true });
  });

  it('a router started without a store can be stopped at once', async () => {
    const proxy = await tcpProxy(engine.port);
    await proxy.down();
    const router = await startRouter({
      ...env,
      REDIS_URL: `redis://127.0.0.1:${proxy.port}`,
      SHUTDOWN_TIMEOUT: '1h',
    });
    expect(await router.stop()).toBe(0);
  });

  it('a taken port ends the start although there is no store', async () => {
    const proxy = await tcpProxy(engine.port);
    const taken = await start();
    await proxy.down();
    const { code, output } = await runRouter({
      ...env,
      REDIS_URL: `redis://127.0.0.1:${proxy.port}`,
      HTTP_PORT: new URL(taken.url).port,
    });
    expect(code).not.toBe(0);
    expect(output).toContain('is in use');
    expect(output).not.toMatch(/^\s+at .*:\d+:\d+/m);
  });

  it('epochs and fences never go backwards, not over a flush, a restart of the store or of the router', async () => {
    const epochs: number[] = [];
    const fences: number[] = [];
    const look = async (router: RouterProcess) => {
      await untilServing(router, podCount);
      const sid = `call-${fences.length}`;
      const { body } = await insist(() => allocate(router, sid));
      fences.push(body.fence ?? 0);
      await release(router, sid);
      epochs.push(Number(await insist(() => engine.redis.get('voice:leader:epoch'))));
    };
    // A restart of the store may take longer than a short term lasts.
    const first = await start({
      LEADER_ELECTION_DURATION: '60s',
      LEADER_ELECTION_RENEW_DEADLINE: '40s',
    });
    await look(first);
    await engine.redis.flushall();
    await look(first);
    await engine.restart();
    await look(first);
    await first.signal('SIGKILL');
    await engine.restart();
    const second = await start();
    await look(second);
    expect(fences).toEqual(fences.toSorted((a, b) => a - b));
    expect(new Set(fences).size).toBe(fences.length);
    // The same term keeps its epoch through the loss of the store; a new one takes a higher one.
    expect(epochs.slice(1, 3)).toEqual([epochs[0], epochs[0]]);
    expect(epochs[3]).toBeGreaterThan(epochs[0] ?? 0);
  });
});

/** Retries until the reply is not store_unavailable. */
async function insist<T extends Answer | string | null>(ask: () => Promise<T>): Promise<T> {
  let last: T | undefined;
  await until('the store answers', async () => {
    last = await ask().catch(() => undefined);
    return last !== undefined && last !== null && (typeof last === 'string' || last.status !== 503);
  });
  return last as T;
}

/** Callers that hold a call for a moment, and the replies they got. */
class Load {
  readonly problems: string[] = [];
  ending = false;
  served = 0;
  slowestMs = 0;
  /** Between the two times the store may be unreachable; earlier calls may be lost. */
  lossMs = Number.POSITIVE_INFINITY;
  backMs = Number.POSITIVE_INFINITY;
  readonly #router: RouterProcess;

  constructor(router: RouterProcess) {
    this.#router = router;
  }

  async run(name: string): Promise<void> {
    for (let i = 0; !this.ending; i++) {
      const sid = `${name}-${i}`;
      const startMs = performance.now();
      const given = this.#note(startMs, await allocate(this.#router, sid));
      if (given.status === 200) {
        this.served += 1;
        await pause(20);
        const releaseMs = performance.now();
        const { status, text } = this.#note(releaseMs, await release(this.#router, sid, given.body.fence));
        // Lost with the store, released by a request whose reply was lost, or later than the lease on a busy machine.
        const nowMs = performance.now();
        const lost = (startMs < this.backMs && nowMs > this.lossMs) || nowMs > startMs + leaseMs;
        if (status === 404 && !lost) this.problems.push(`${sid}: ${text}`);
      } else await pause(20);
    }
  }

  #note(startMs: number, answer: Answer): Answer {
    const { status, body, text, ms } = answer;
    this.slowestMs = Math.max(this.slowestMs, ms);
    const away = startMs < this.backMs && performance.now() > this.lossMs;
    const fine = [200, 404].includes(status) || body.code === 'no_pods';
    const excused = away && status === 503 && body.code === 'store_unavailable';
    if (!fine && !excused) this.problems.push(`${status} ${text}`);
    return answer;
  }
}
