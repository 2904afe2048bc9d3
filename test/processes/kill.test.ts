/** Routers are killed under load. Guarantees 5, 8 and 9. */
import { expect, it } from 'vitest';
import { recordHistory } from '../history/recording.js';
import { describeOneEngine } from '../support/engines.js';
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
  startRouter,
  until,
  untilServing,
} from '../support/processes.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { followEvents, replay, seeded } from './history.js';

const limits = { 'pool:gold': 1, 'pool:basic': 3 };
const podCount = 12;
const env = {
  ...quickTimes,
  TIER_CONFIG: JSON.stringify({
    tiers: {
      gold: { type: 'exclusive', target: 8 },
      basic: { type: 'shared', target: 4, max_concurrent: 3 },
    },
    default_chain: ['gold', 'basic'],
  }),
  STATIC_PODS: Array.from({ length: podCount }, (_, i) => `agent-${i}`).join(','),
};
/** For calls that must outlive the test on a busy machine. */
const patient = {
  LEASE_TTL: '1m',
  CALL_INFO_TTL: '5m',
  REQUEST_TIMEOUT: '20s',
  REDIS_COMMAND_TIMEOUT: '20s',
};
const leaseMs = 2000;
const loadMs = 10_000;

describeOneEngine('killing routers', (engine) => {
  const start = async (extra: RouterEnv = {}) => {
    const router = await startRouter({ ...env, ...extra, REDIS_URL: engine.url });
    await untilServing(router, podCount);
    return router;
  };

  it('under load loses no acknowledged call and no pod', { timeout: 180_000 }, async () => {
    const seed = Math.floor(Math.random() * 2 ** 32);
    const random = seeded(seed);
    const history = recordHistory({
      pools: { 'pool:gold': { kind: 'exclusive' }, 'pool:basic': { kind: 'shared', max: 3 } },
      lease_ms: leaseMs,
    });
    const routers = [history.of(await start()), history.of(await start())];
    const events = followEvents(engine.url);
    const load = new Load(routers, random);
    const callers = Promise.all(Array.from({ length: 24 }, (_, i) => load.run(`caller-${i}`)));

    // One of two dies at a random moment, whether it leads or not, and is started again at once.
    const startMs = performance.now();
    for (let kills = 0; kills < 3 || performance.now() < startMs + loadMs; kills++) {
      await pause(300 + random() * 1200);
      const victim = kills % 2;
      await routers[victim]?.signal('SIGKILL');
      routers[victim] = history.of(await startRouter({ ...env, REDIS_URL: engine.url }));
    }
    load.ending = true;
    await callers;
    expect(load.problems, `seed ${seed}`).toEqual([]);
    expect((await history.verdict()).violations, `seed ${seed}`).toEqual([]);
    expect(load.served).toBeGreaterThan(100);
    expect(load.abandoned).toBeGreaterThan(0);
    expect(load.checkedElsewhere).toBeGreaterThan(0);

    // Only unreleased calls are left; a lease and a sweep later all have ended.
    for (const router of routers) await until('no pod is lost', () => isIdle(router));
    expect(replay(await events.all(), limits), `seed ${seed}`).toMatchObject({ violations: [], live: 0 });
    expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);
  });

  it('leaves its calls with the survivor: same call, same pod, same fence', async () => {
    const [survivor, victim] = [await start(patient), await start(patient)];
    const sids = Array.from({ length: 15 }, (_, i) => `call-${i}`);
    const given = await Promise.all(sids.map((sid) => allocate(victim, sid)));
    await victim.signal('SIGKILL');
    for (const [i, sid] of sids.entries()) {
      const { pod_name, fence } = given[i]?.body ?? {};
      const again = await allocate(survivor, sid);
      expect(again.body).toMatchObject({ success: true, pod_name, fence, was_existing: true });
      expect((await release(survivor, sid, fence)).body).toMatchObject({ success: true, pod_name });
    }
    expect(await isIdle(survivor)).toBe(true);
  });

  it('a killed leader is replaced, with a new epoch, and calls that are not renewed end', async () => {
    // The calls are allocated and then renewed within it, and one must end by it.
    const lease = {
      ...{ ...patient, LEASE_TTL: '6s' },
      // The start of the second router may delay the first one's renewal of its term.
      LEADER_ELECTION_DURATION: '6s',
      LEADER_ELECTION_RENEW_DEADLINE: '4s',
    };
    const first = await start(lease);
    const second = await start(lease);
    expect(await leads(first)).toBe(true);
    expect(await leads(second)).toBe(false);
    const epoch = Number(await engine.redis.get('voice:leader:epoch'));

    expect((await allocate(first, 'abandoned')).status).toBe(200);
    expect((await allocate(second, 'live')).status).toBe(200);
    await first.signal('SIGKILL');
    await until('the sweep continues', async () => {
      expect((await renew(second, 'live')).status).toBe(200);
      return (await second.get('/api/v1/calls/abandoned')).status === 404 && leads(second);
    });
    expect(second.logged('leader: managing the pools')).toHaveLength(1);
    expect(Number(await engine.redis.get('voice:leader:epoch'))).toBeGreaterThan(epoch);
    expect((await second.get('/api/v1/calls/live')).status).toBe(200);
    expect(await checkInvariants(engine.redis)).toEqual([]);
  });

  it('a clean stop answers requests in flight, and does not wait for idle connections', async () => {
    const survivor = await start(patient);
    const proxy = await tcpProxy(engine.port);
    const leaver = await startRouter({
      ...env,
      ...patient,
      REDIS_URL: `redis://127.0.0.1:${proxy.port}`,
      SHUTDOWN_TIMEOUT: '1h',
    });
    await untilServing(leaver, podCount);
    proxy.delay(300);
    const inFlight = Promise.all(Array.from({ length: 8 }, (_, i) => allocate(leaver, `call-${i}`)));
    await until('the store has them', async () => (await engine.redis.keys('voice:call:*')).length === 8);
    expect(await leaver.stop()).toBe(0);
    for (const [i, { status, body }] of (await inFlight).entries()) {
      expect(status).toBe(200);
      expect((await allocate(survivor, `call-${i}`)).body).toMatchObject({
        fence: body.fence,
        was_existing: true,
      });
    }
    expect(leaver.logged('stopped')).toHaveLength(1);
    expect(leaver.logged(/shutdown timeout/)).toEqual([]);
  });
});

async function leads(router: RouterProcess): Promise<boolean> {
  return (await router.get('/api/v1/status')).body.is_leader === true;
}

/** Replies of a busy machine: nothing was acknowledged, and the client retries. */
const busy = ['overloaded', 'timeout', 'store_unavailable'];

/** Callers that try another router when one does not answer, as the client library does. */
class Load {
  readonly problems: string[] = [];
  ending = false;
  served = 0;
  abandoned = 0;
  checkedElsewhere = 0;
  readonly #routers: RouterProcess[];
  readonly #random: () => number;

  constructor(routers: RouterProcess[], random: () => number) {
    this.#routers = routers;
    this.#random = random;
  }

  async run(name: string): Promise<void> {
    for (let i = 0; !this.ending; i++) await this.#call(`${name}-${i}`);
  }

  async #call(sid: string): Promise<void> {
    const { answer, router } = await this.#insist((one) => allocate(one, sid));
    if (answer.status === 503 && answer.body.code === 'no_pods') return pause(50);
    if (answer.status !== 200) return this.#say(sid, 'allocate', answer);
    const ownedUntilMs = performance.now() - answer.ms + leaseMs;
    const { pod_name, fence } = answer.body;
    const number = ++this.served;

    // Acknowledged by one router, known to the other, even if the first was killed.
    if (number % 3 === 0) {
      const other = this.#routers.find((one) => one !== router);
      const again = other && (await allocate(other, sid));
      if (again?.status === 200 && performance.now() < ownedUntilMs) {
        this.checkedElsewhere += 1;
        const { body } = again;
        if (body.pod_name !== pod_name || body.fence !== fence || !body.was_existing) {
          this.#say(sid, `had ${pod_name} with fence ${fence}`, again);
        }
      } else if (again?.status && again.status !== 200 && !busy.includes(again.body.code ?? '')) {
        // After the lease another call may have the pod.
        const isOver = again.body.code === 'no_pods' && performance.now() > ownedUntilMs;
        if (!isOver) this.#say(sid, 'again', again);
      }
    }
    await pause(this.#random() * 200);
    if (number % 20 === 0) {
      this.abandoned += 1;
      return;
    }
    let lost = false;
    const released = await this.#insist(
      (one) => release(one, sid, fence),
      () => {
        lost = true;
      },
    );
    // 404 is right after a release whose answer was lost, and after the lease.
    const fine = released.answer.status === 200 || lost || performance.now() > ownedUntilMs;
    if (!fine) this.#say(sid, 'release', released.answer);
  }

  /** Retries until a router answers. */
  async #insist(
    ask: (router: RouterProcess) => Promise<Answer>,
    onLost?: () => void,
  ): Promise<{ answer: Answer; router: RouterProcess }> {
    for (;;) {
      const router = this.#routers[Math.floor(this.#random() * this.#routers.length)] as RouterProcess;
      const answer = await ask(router);
      if (answer.status !== 0 && !busy.includes(answer.body.code ?? '')) return { answer, router };
      onLost?.();
      await pause(10);
    }
  }

  #say(sid: string, what: string, { status, text }: Answer): void {
    this.problems.push(`${sid}: ${what}: ${status} ${text}`);
  }
}
