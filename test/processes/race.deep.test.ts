/**
 * Three routers, one store, 1,000 callers, fewer slots than callers. Guarantees 1 to 4 and 7. Every answer is
 * accounted for: by the callers, by the event stream, and by what the routers counted.
 */
import { expect, it } from 'vitest';
import { recordHistory } from '../history/recording.js';
import { describeEngines, describeOneEngine, type SuiteEngine } from '../support/engines.js';
import { checkInvariants } from '../support/invariants.js';
import {
  type Answer,
  allocate,
  pause,
  type RouterProcess,
  release,
  renew,
  startRouter,
  until,
  untilServing,
} from '../support/processes.js';
import { followEvents, replay, seeded } from './history.js';

const callers = 1000;
const pods = { gold: 60, basic: 12, acme: 30 };
const podCount = pods.gold + pods.basic + pods.acme;
const limits = { 'pool:gold': 1, 'pool:basic': 5, 'merchant:acme': 1 };
const slots = pods.gold + pods.basic * limits['pool:basic'] + pods.acme;
const env = {
  TIER_CONFIG: JSON.stringify({
    tiers: {
      gold: { type: 'exclusive', target: pods.gold },
      basic: { type: 'shared', target: pods.basic, max_concurrent: 5 },
      acme: { type: 'exclusive', target: pods.acme },
    },
    default_chain: ['gold', 'basic'],
  }),
  STATIC_PODS: Array.from({ length: podCount }, (_, i) => `agent-${i}`).join(','),
  CLEANUP_INTERVAL: '500ms',
  RECONCILE_INTERVAL: '1s',
  // 1,000 requests at once on two cores wait for each other longer than they would for a store.
  REQUEST_TIMEOUT: '30s',
  REDIS_COMMAND_TIMEOUT: '30s',
  // No overload protection: the store must answer every request.
  MAX_REQUESTS_IN_FLIGHT: '10000',
};

describeEngines('three routers on one store', (engine) => {
  it('serve each of 1,000 racing callers, give every slot once at a time and lose none', {
    timeout: 120_000,
  }, async () => {
    const { answers } = await race(engine, { attempts: Number.POSITIVE_INFINITY, visits: 1 });
    expect(answers.allocated).toBe(callers);
  });
});

describeOneEngine('three routers on one store, for long', (engine) => {
  it('answer each of 100,000 racing attempts of 1,000 callers, give every slot once at a time and lose none', {
    timeout: 300_000,
  }, async () => {
    const crowd = await race(engine, { attempts: 100_000, visits: Number.POSITIVE_INFINITY });
    expect(crowd.attempts).toBe(100_000);
    expect(crowd.answers.allocated).toBeGreaterThan(callers);
  });
});

interface Plan {
  /** Of all callers together. */
  attempts: number;
  /** How often a caller comes, with another call each time. */
  visits: number;
}

/** Checks every guarantee, and returns how much was done. */
async function race(engine: SuiteEngine, plan: Plan): Promise<Crowd> {
  const seed = Math.floor(Math.random() * 2 ** 32);
  const recorded = recordHistory({
    pools: {
      'pool:gold': { kind: 'exclusive' },
      'pool:basic': { kind: 'shared', max: 5 },
      'merchant:acme': { kind: 'exclusive' },
    },
    lease_ms: 900_000,
  });
  const routers = (await startThree(engine.url)).map(recorded.of);
  const events = followEvents(engine.url);
  const crowd = new Crowd(routers, seed, plan);

  // All at once, without a release: exactly the free slots are allocated.
  await crowd.each((caller) => crowd.ask(caller));
  expect(crowd.holding, `seed ${seed}`).toBe(slots);
  for (const router of routers) {
    const { body } = await router.get('/api/v1/status');
    expect(body.active_calls).toBe(slots);
    expect(Object.values(body.pools ?? {}).map(({ available }) => available)).toEqual([0, 0, 0]);
  }
  expect(await checkInvariants(engine.redis)).toEqual([]);

  // Each caller allocates, holds, releases and repeats until all attempts are used.
  await crowd.each((caller) => crowd.comeAndGo(caller));
  expect(crowd.problems.slice(0, 20), `seed ${seed}`).toEqual([]);
  const { allocated, existing, no_pods } = crowd.answers;
  expect(allocated + existing + no_pods, `seed ${seed}`).toBe(crowd.attempts);
  expect(await recorded.verdict(), `seed ${seed}`).toMatchObject({ violations: [], holds: allocated });
  const history = replay(await events.all(), limits);
  expect(history, `seed ${seed}`).toEqual({ violations: [], allocated, ended: allocated, live: 0 });

  for (const router of routers) {
    const { body } = await router.get('/api/v1/status');
    expect(body.active_calls).toBe(0);
    expect(body.pools).toMatchObject({
      gold: { assigned: pods.gold, available: pods.gold, active_calls: 0 },
      basic: { assigned: pods.basic, available: pods.basic, active_calls: 0 },
      'merchant:acme': { assigned: pods.acme, available: pods.acme, active_calls: 0 },
    });
  }
  expect(await checkInvariants(engine.redis, { settled: true })).toEqual([]);

  // What the routers counted themselves agrees with what the callers saw.
  const metrics = (await Promise.all(routers.map((router) => router.get('/metrics')))).map(
    ({ text }) => text,
  );
  const counted = (name: string, status: string) =>
    sum(metrics, new RegExp(`^smart_router_${name}_total\\{.*status="${status}"\\} (\\d+)$`, 'gm'));
  expect({
    allocated: counted('allocations', 'success'),
    existing: counted('allocations', 'existing'),
    no_pods: counted('allocations', 'no_pods'),
  }).toEqual(crowd.answers);
  expect(counted('allocations', 'error')).toBe(0);
  expect(counted('releases', 'success')).toBe(allocated);
  expect(sum(metrics, /^smart_router_requests_shed_total\{.*\} (\d+)$/gm)).toBe(0);
  expect(sum(metrics, /^smart_router_panics_recovered_total (\d+)$/gm)).toBe(0);
  return crowd;
}

async function startThree(redisUrl: string): Promise<RouterProcess[]> {
  const routers = await Promise.all([1, 2, 3].map(() => startRouter({ ...env, REDIS_URL: redisUrl })));
  for (const router of routers) await untilServing(router, podCount);
  await routers[0]?.put('/api/v1/merchants/acme', { pool: 'acme' });
  for (const router of routers) {
    await until('every router knows the merchant', async () => {
      const { chain } = (await router.get('/api/v1/merchants/acme')).body;
      return chain?.[0] === 'merchant:acme';
    });
  }
  return routers;
}

interface Caller {
  /** Another one each time it comes. */
  sid: string;
  merchant: string | undefined;
  got: { pod: string; fence: number } | undefined;
}

class Crowd {
  readonly problems: string[] = [];
  readonly answers = { allocated: 0, existing: 0, no_pods: 0 };
  readonly #routers: RouterProcess[];
  readonly #random: () => number;
  readonly #callers: Caller[];
  readonly #plan: Plan;
  /** Made so far. */
  attempts = 0;

  constructor(routers: RouterProcess[], seed: number, plan: Plan) {
    this.#plan = plan;
    this.#routers = routers;
    this.#random = seeded(seed);
    this.#callers = Array.from({ length: callers }, (_, i) => ({
      sid: `CA-${i}-0`,
      merchant: i % 3 === 0 ? 'acme' : undefined,
      got: undefined,
    }));
  }

  get #attemptsLeft(): number {
    return this.#plan.attempts - this.attempts;
  }

  get holding(): number {
    return this.#callers.filter(({ got }) => got !== undefined).length;
  }

  async each(work: (caller: Caller) => Promise<void>): Promise<void> {
    await Promise.all(this.#callers.map(work));
  }

  /** One try: a third of the callers ask two or three routers for the same call at the same moment. */
  async ask(caller: Caller): Promise<void> {
    const wanted = this.#random() < 1 / 3 ? 2 + this.#below(2) : 1;
    const answers = await Promise.all(
      this.#some(Math.min(wanted, this.#attemptsLeft)).map((router) => this.#attempt(router, caller)),
    );
    const given = answers.filter(({ status }) => status === 200).map(({ body }) => body);
    const [first] = given;
    if (first === undefined) return;
    if (given.some(({ fence, pod_name }) => fence !== first.fence || pod_name !== first.pod_name)) {
      this.#say(caller, 'two answers', JSON.stringify(given));
    }
    if (given.filter(({ was_existing }) => !was_existing).length !== 1) {
      this.#say(caller, 'not exactly one was new', JSON.stringify(given));
    }
    caller.got = { pod: first.pod_name ?? '', fence: first.fence ?? 0 };
  }

  /** Exactly one of three answers, and each is counted. */
  async #attempt(router: RouterProcess, caller: Caller): Promise<Answer> {
    this.attempts += 1;
    const answer = await allocate(router, caller.sid, caller.merchant);
    const { status, body, text } = answer;
    if (status === 200 && body.was_existing === true) this.answers.existing += 1;
    else if (status === 200 && body.was_existing === false) this.answers.allocated += 1;
    else if (status === 503 && body.code === 'no_pods') this.answers.no_pods += 1;
    else this.#say(caller, status, text);
    return answer;
  }

  async comeAndGo(caller: Caller): Promise<void> {
    for (let visit = 1; visit <= this.#plan.visits; visit++) {
      while (caller.got === undefined && this.#attemptsLeft > 0) {
        await pause(this.#below(50));
        await this.ask(caller);
      }
      if (caller.got === undefined) return;
      await this.#serve(caller, caller.got.fence);
      caller.got = undefined;
      caller.sid = caller.sid.replace(/\d+$/, String(visit));
    }
  }

  async #serve(caller: Caller, fence: number): Promise<void> {
    const { sid } = caller;
    await pause(this.#below(50));
    if (this.#random() < 0.3 && this.#attemptsLeft > 0) await this.#holdOn(caller, fence);
    // A renewed call is a served one: a pod whose calls all end at once would be set back.
    else await renew(this.#any(), sid, fence);
    await this.#letGo(caller, fence);
    // A late release, when the pod probably serves another call.
    if (this.#random() < 0.25) {
      await pause(this.#below(100));
      const late = await release(this.#any(), sid, this.#random() < 0.5 ? fence : undefined);
      if (late.status !== 404) this.#say(caller, 'a late release', late.text);
    }
  }

  /** The same call asked for again, somewhere else, and renewed: still the same pod. */
  async #holdOn(caller: Caller, fence: number): Promise<void> {
    const { sid, got } = caller;
    const [again, renewed] = await Promise.all([
      this.#attempt(this.#any(), caller),
      renew(this.#any(), sid, fence),
    ]);
    const { fence: same, pod_name, was_existing } = again.body;
    if (same !== fence || pod_name !== got?.pod || !was_existing) this.problems.push(`${sid}: ${again.text}`);
    if (renewed.status !== 200) this.problems.push(`${sid}: ${renewed.text}`);
  }

  async #letGo(caller: Caller, fence: number): Promise<void> {
    const answers = await Promise.all(
      this.#some(this.#random() < 1 / 3 ? 2 : 1).map((router) =>
        release(router, caller.sid, this.#random() < 0.5 ? fence : undefined),
      ),
    );
    const statuses = answers.map(({ status }) => status).sort();
    if (statuses[0] !== 200 || (statuses[1] ?? 404) !== 404) {
      this.#say(caller, 'releases', answers.map(({ text }) => text).join(' '));
    }
  }

  #say({ sid }: Caller, what: string | number, text: string): void {
    this.problems.push(`${sid}: ${what}: ${text}`);
  }

  #below(count: number): number {
    return Math.floor(this.#random() * count);
  }

  #any(): RouterProcess {
    return this.#routers[this.#below(this.#routers.length)] as RouterProcess;
  }

  /** Different routers, in any order. */
  #some(count: number): RouterProcess[] {
    const first = this.#below(this.#routers.length);
    return [...this.#routers.slice(first), ...this.#routers.slice(0, first)].slice(0, count);
  }
}

function sum(texts: readonly string[], pattern: RegExp): number {
  return texts
    .flatMap((text) => [...text.matchAll(pattern)])
    .reduce((total, [, value]) => total + Number(value), 0);
}
