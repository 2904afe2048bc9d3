/** Runs the cases of cases.json on one driver: a router, a store and a proxy for all of its cases. See format.ts. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeOneEngine, promote, type SuiteEngine } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';
import { type FaultProxy, startFaultProxy } from './fault-proxy.js';
import {
  type Case,
  type Driver,
  type Fields,
  operationsOf,
  type RouterStep,
  type Session,
  type Step,
  type UntilStep,
} from './format.js';

export const cases = JSON.parse(readFileSync(new URL('cases.json', import.meta.url), 'utf8')) as Case[];

const apiKey = 'conformance-key-0123';
const adminKey = 'conformance-admin-0123';
const pod = 'voice-agent-0';
/** One pod that takes three calls; others can wait. Leases outlast a slow test; the tombstones of ended calls outlast a report. */
const routerEnv = {
  STATIC_PODS: `${pod}=gold`,
  TIER_CONFIG: JSON.stringify({
    tiers: { gold: { type: 'shared', target: 1, max_concurrent: 3 } },
    hold: { max_wait: '60s' },
  }),
  SMART_ROUTER_API_KEY: apiKey,
  SMART_ROUTER_ADMIN_KEY: adminKey,
  RECONCILE_INTERVAL: '100ms',
  LEASE_TTL: '15s',
  REPORT_GRACE: '10s',
};
/** A busy machine is not a router that does not answer: only cases with a time limit of their own time out. */
const patientClient = { timeout_ms: 20_000 };

/** Declares a test per case, and one that checks which cases run. `missing` says why the driver cannot run here. */
export function conformance(driver: Driver, missing?: string): void {
  const title = driver.title ?? driver.name;
  const supported = cases.filter((one) => operationsOf(one).every((op) => driver.operations.includes(op)));

  it(`the ${title} driver runs exactly the cases that name it`, () => {
    const named = cases.filter((one) => one.drivers.includes(driver.name));
    expect(supported.map(({ name }) => name)).toEqual(named.map(({ name }) => name));
    expect(named.length).toBeGreaterThan(0);
  });

  if (missing !== undefined) {
    describe.skip(`a client of the router, ${title} [${missing}]`, () => {
      it.each(supported.map(({ name }) => name))('%s', () => {});
    });
    return;
  }

  describeOneEngine(`a client of the router, ${title}`, (engine) => {
    const world = new World(engine);
    beforeAll(() => world.start());
    afterAll(async () => {
      await driver.stop?.();
      await world.stop();
    });
    it.each(supported.map((one) => [one.name, one] as const))('%s', (_, one) => world.run(driver, one));
  });
}

/** The router, the proxy, and what the steps of a case refer to. */
class World {
  #router: TestRouter | undefined;
  #proxy: FaultProxy | undefined;
  #saved = new Map<string, Fields>();
  #reportsBefore = 0;
  #background = new Map<string, { outcome: Promise<Fields>; isDone: boolean }>();

  constructor(private readonly engine: SuiteEngine) {}

  get #direct(): TestRouter {
    if (this.#router === undefined) throw new Error('the router has not started');
    return this.#router;
  }

  get #reports(): number {
    return this.#between.received.filter(({ on }) => on === 'report').length;
  }

  get #between(): FaultProxy {
    if (this.#proxy === undefined) throw new Error('the proxy has not started');
    return this.#proxy;
  }

  async start(): Promise<void> {
    this.#proxy = await startFaultProxy();
    await this.#startRouter();
  }

  async stop(): Promise<void> {
    await this.#proxy?.close();
    await this.#router?.stop();
  }

  async run(driver: Driver, one: Case): Promise<void> {
    // The store was emptied before this test: wait until the leader has registered the pod again.
    await this.#tidy();
    const target = {
      url: this.#between.url,
      apiKey,
      client: { ...patientClient, ...one.client },
      agent: one.agent,
    };
    const session = await driver.open(target);
    try {
      for (const [index, step] of one.steps.entries()) {
        await this.#step(session, step).catch((error: unknown) => {
          throw new Error(`step ${index + 1}: ${JSON.stringify(step)}`, { cause: error });
        });
      }
    } finally {
      await this.#between.inject({ fault: 'none' });
      await session.close();
    }
  }

  async #step(session: Session, step: Step): Promise<void> {
    if ('op' in step) {
      const outcome = session.run(step.op, this.#resolved(step.args ?? {}));
      if (step.background !== undefined) {
        const entry = { outcome, isDone: false };
        const done = () => {
          entry.isDone = true;
        };
        outcome.then(done, done);
        this.#background.set(step.background, entry);
        return;
      }
      this.#check(await outcome, step.expect);
      if (step.save !== undefined) this.#saved.set(step.save, await outcome);
    } else if ('until_op' in step) {
      await until(
        async () => {
          expect(await session.run(step.until_op, {})).toMatchObject(step.expect);
          return true;
        },
        `${step.until_op} gives ${JSON.stringify(step.expect)}`,
      );
    } else if ('pending' in step) {
      expect(this.#background.get(step.pending)?.isDone).toBe(false);
    } else if ('join' in step) {
      this.#check(await this.#background.get(step.join)?.outcome, step.expect);
    } else if ('fault' in step) {
      await this.#between.inject(step);
    } else if ('router' in step) {
      await this.#act(step);
    } else if ('until' in step) {
      await this.#until(step.until);
    } else {
      this.#checkRequests(step.requests);
    }
  }

  #check(outcome: Fields | undefined, expected: Fields = {}): void {
    // No error text, log field or result may show the key.
    expect(JSON.stringify(outcome)).not.toContain(apiKey);
    expect(String(outcome?.message)).not.toContain('\n');
    if (expected.error === undefined) expect(outcome).not.toHaveProperty('error');
    expect(outcome).toMatchObject(this.#resolved(expected));
  }

  /** Replaces `$name.field` by that field of the outcome saved as `name`. */
  #resolved(fields: Fields): Fields {
    return Object.fromEntries(
      Object.entries(fields).map(([key, value]) => {
        const [, name = '', field = ''] = /^\$(\w+)\.(\w+)$/.exec(String(value)) ?? [];
        if (name === '') return [key, value];
        const saved = this.#saved.get(name);
        expect(saved, `${name} is saved`).toHaveProperty(field);
        return [key, saved?.[field]];
      }),
    );
  }

  async #act(step: RouterStep): Promise<void> {
    if (step.router === 'restart') {
      await this.#router?.stop();
      await this.#startRouter();
      return;
    }
    if (step.router === 'fail_over') {
      const generation = async () =>
        (await this.#post('/renew', { call_sid: step.call })).generation as number;
      // The store was emptied before the case.
      await until(() => this.engine.redis.exists('voice:generation'), 'the store has a generation');
      const before = await generation();
      await promote(this.engine.redis);
      await until(async () => (await generation()) > before, 'the router has noticed the failover');
      this.#reportsBefore = this.#reports;
      return;
    }
    const answer = await this.#post(`/${step.router}`, { call_sid: step.call });
    expect(answer).toMatchObject({ success: true });
    if (step.router === 'allocate' && step.save !== undefined) this.#saved.set(step.save, answer);
  }

  async #until(wanted: UntilStep['until']): Promise<void> {
    const { live, draining, renewals, reports } = wanted;
    if (reports !== undefined)
      await until(
        () => this.#reports - this.#reportsBefore >= reports,
        `${reports} reports since the failover`,
      );
    if (live) await this.#untilState((state) => same(Object.keys(state.leases), live), `live calls: ${live}`);
    if (draining !== undefined)
      await this.#untilState((state) => state.draining === draining, `draining is ${draining}`);
    for (let round = 0; round < (renewals ?? 0); round++) {
      const { leases } = await this.#state();
      const calls = Object.keys(leases);
      expect(calls).not.toEqual([]);
      await this.#untilState((state) => {
        // A call that ended is a failure, not a reason to wait longer.
        if (!same(Object.keys(state.leases), calls)) return 'the calls changed';
        return calls.every((sid) => (state.leases[sid] ?? '') > (leases[sid] ?? ''));
      }, `${calls} are renewed`);
    }
  }

  async #untilState(condition: (state: State) => boolean | string, what: string): Promise<void> {
    const problem = await until(async () => {
      const held = condition(await this.#state());
      return typeof held === 'string' ? held : held && 'ok';
    }, what);
    if (problem !== 'ok') throw new Error(`${problem} while waiting until ${what}`);
  }

  async #state(): Promise<State> {
    const { body } = await this.#direct.get(`/pod/${pod}`, { authorization: `Bearer ${adminKey}` });
    const leases = (body.leases ?? []) as { call_sid: string; lease_expires_at: string }[];
    return {
      draining: body.is_draining === true,
      leases: Object.fromEntries(leases.map((lease) => [lease.call_sid, lease.lease_expires_at])),
    };
  }

  #checkRequests({ on, count, at_least, body, has }: Extract<Step, { requests: unknown }>['requests']): void {
    const matching = this.#between.received.filter((request) => request.on === on);
    if (count !== undefined) expect(matching.length, `requests to ${on}`).toBe(count);
    if (at_least !== undefined) expect(matching.length).toBeGreaterThanOrEqual(at_least);
    if (body) expect(matching.at(-1)?.body).toMatchObject(this.#resolved(body));
    for (const field of has ?? []) expect(matching.at(-1)?.body).toHaveProperty(field);
  }

  async #startRouter(): Promise<void> {
    this.#router = await startTestRouter(this.engine.url, routerEnv);
    this.#between.target = this.#router.port;
  }

  async #post(path: string, body: Fields): Promise<Fields> {
    const { body: answer } = await this.#direct.post(path, body, { authorization: `Bearer ${adminKey}` });
    return answer as Fields;
  }

  async #tidy(): Promise<void> {
    this.#saved.clear();
    this.#background.clear();
    await this.#between.reset();
    await until(async () => {
      const { body } = await this.#direct.get('/status', { authorization: `Bearer ${adminKey}` });
      return body.pools?.gold?.available === 1 && body.active_calls === 0;
    }, `${pod} is available and idle`);
  }
}

interface State {
  draining: boolean;
  /** Lease end by SID. */
  leases: Record<string, string>;
}

function same(left: readonly string[], right: readonly string[]): boolean {
  return JSON.stringify([...left].sort()) === JSON.stringify([...right].sort());
}
