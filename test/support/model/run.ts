/** A run: the same operations on the model and on the store, compared after each one. */
import type { Redis } from 'ioredis';
import { EpochRefused } from '../../../src/calls/store/pool-store.js';
import { list } from '../../../src/calls/store/replies.js';
import type { AllocateOutcome, HoldRules } from '../../../src/calls/store/store.js';
import type { PoolId } from '../../../src/config/tiers.js';
import { AppError } from '../../../src/errors.js';
import { promote } from '../engines.js';
import { parseKind, readKeyspace, violations } from '../invariants.js';
import { holdRules, openStore, registration, type TestStore, testTimes } from '../store.js';
import { differences } from './differences.js';
import { Model, type PodRequest } from './model.js';
import {
  askers,
  chains,
  type Fence,
  type Op,
  plainRegister,
  podNames,
  type Scenario,
  sids,
  tierConfigs,
} from './operations.js';
import { same } from './same.js';

/** `rewire` may change the store before the first operation: that is how broken scripts get in. */
export async function runScenario(
  engine: { url: string; redis: Redis },
  scenario: Scenario,
  rewire: (store: TestStore) => void = () => {},
): Promise<void> {
  await engine.redis.flushall();
  const first = tierConfigs[0];
  if (!first) throw new Error('no tiers');
  const times = { ...testTimes, noShowTimeoutMs: scenario.noShowTimeoutMs };
  const store = await openStore(engine.url, { virtualTime: true, tiers: first.input, times });
  try {
    rewire(store);
    const run = new Run(engine.redis, store, new Model(times));
    run.model.setTiers(first.kinds);
    const send = store.connection.run.bind(store.connection);
    store.connection.run = async (...args) => {
      const reply = await send(...args);
      await run.look();
      return reply;
    };
    await run.stamp();
    run.model.generationAt = store.nowMs();
    const homes: PoolId[] = ['pool:gold', 'pool:gold', 'pool:basic', 'pool:basic', 'merchant:vip'];
    for (const [i, pod] of podNames.entries()) {
      const pool = homes[i] ?? '';
      await run.step({ ...plainRegister, pod, pool, restarts: 0 });
    }
    for (const step of scenario.ops) await run.step(step);
    await run.finish();
  } finally {
    store.close();
  }
}

class Run {
  #tiers = tierConfigs[0] as (typeof tierConfigs)[number];
  #tampered = false;
  #maxLowered = false;
  readonly #fences = new Map<string, number[]>();

  constructor(
    readonly redis: Redis,
    readonly store: TestStore,
    readonly model: Model,
  ) {}

  async step(step: Op): Promise<void> {
    const problems = [...(await this.#do(step)), ...this.model.problems.splice(0)];
    this.#tick();
    const settled = step.op === 'sweep' && step.pool === 'all';
    if (settled) this.#tampered = false;
    const keyspace = await readKeyspace(this.redis);
    problems.push(
      ...differences(this.model, keyspace).map((text) => `model: ${text}`),
      ...violations(keyspace, {
        nowMs: this.model.now,
        settled,
        tampered: this.#tampered,
        maxLowered: this.#maxLowered,
      }).map((text) => `invariant: ${text}`),
    );
    if (problems.length > 0) throw new Error(`after ${JSON.stringify(step)}:\n  ${problems.join('\n  ')}`);
  }

  /** How many pods it marked. Without the stamp itself: the model has no outages. */
  async stamp(): Promise<number> {
    const reply = list(await this.store.connection.run('stampAlive', ['report']));
    await this.redis.del('voice:alive');
    return Number(reply[2]);
  }

  async failOver(): Promise<number> {
    await promote(this.redis);
    return this.stamp();
  }

  /** Liveness: a lease and a sweep later no call is left, and every unblocked pod is available. */
  async finish(): Promise<void> {
    await this.step({ op: 'sweep', pool: 'all' });
    await this.step({ op: 'advance', ms: this.model.times.leaseTtlMs });
    await this.step({ op: 'sweep', pool: 'all' });
    const { activeCalls } = await this.store.calls.snapshot();
    const busy = [...this.model.pods.values()].filter((pod) => pod.calls.size > 0);
    if (activeCalls > 0 || busy.length > 0)
      throw new Error(`8: ${activeCalls} calls outlived lease and sweep`);
  }

  /** Learns where the store has put calls: only it knows which of several free pods a waiting call got. */
  async look(): Promise<void> {
    const reads = this.redis.pipeline();
    for (const sid of sids) reads.hmget(`voice:call:${sid}`, 'pod_name', 'fence', 'hold');
    this.model.placed.clear();
    this.model.stillWaiting.clear();
    for (const [i, [, reply]] of ((await reads.exec()) ?? []).entries()) {
      const [[pod, fence, hold], sid = ''] = [reply as (string | null)[], sids[i]];
      if (pod) this.model.placed.set(sid, { pod, fence: Number(fence) });
      if (hold === 'waiting') this.model.stillWaiting.add(sid);
    }
  }

  #tick(): void {
    this.model.now = this.store.nowMs();
  }

  #fence(sid: string, which: Fence): number | undefined {
    const current = this.model.records.get(sid)?.fence;
    const past = this.#fences.get(sid) ?? [];
    if (which === 'none') return undefined;
    if (which === 'right') return current ?? past.at(-1) ?? 1;
    return past.filter((value) => value !== current).at(-1) ?? 7;
  }

  #remember(sid: string, value: number): void {
    this.#fences.set(sid, [...(this.#fences.get(sid) ?? []), value]);
  }

  #allocated(
    sid: string,
    chain: readonly PoolId[],
    asked: { merchant: string; hold: HoldRules | undefined },
    outcome: AllocateOutcome,
  ): string[] {
    const { allocation } = outcome;
    if (allocation && !allocation.wasExisting) this.#remember(sid, allocation.fence);
    return this.model.allocate(sid, chain, asked, outcome);
  }

  async #do(step: Op): Promise<string[]> {
    const { model, store } = this;
    const { calls, pools, epoch } = store;
    this.#tick();
    switch (step.op) {
      case 'allocate': {
        const chain = chains[step.chain] ?? [];
        const outcome = await store.ask(step.sid, chain);
        return this.#allocated(step.sid, chain, { merchant: '', hold: undefined }, outcome);
      }
      case 'ask': {
        const { sid } = step;
        const { merchant, chain: place, ...rules } = askers[step.asker] ?? { merchant: '', chain: 0 };
        const chain = chains[place] ?? [];
        // Its record was deleted while its pod has it: the sweep would end its wait as well.
        const isLeft =
          !model.records.has(sid) && [...model.pods.values()].some(({ calls }) => calls.has(sid));
        const hold = step.waits && !isLeft ? holdRules({ ...rules, maxWaiting: 3 }) : undefined;
        const outcome = await store.ask(sid, chain, { merchantId: merchant, hold });
        return this.#allocated(sid, chain, { merchant, hold }, outcome);
      }
      case 'serve': {
        const { queue = '', weight = 1 } = askers[step.changed ?? 0] ?? {};
        const chain = (chains[step.chain] ?? []).join(' ');
        const changed = step.changed === undefined ? [] : [{ queue, chain, priority: step.priority, weight }];
        const { expired, abandoned, recovered, waiting } = await store.waits.serve(changed);
        return same({ expired, abandoned, recovered, waiting }, model.serve(changed));
      }
      case 'refresh':
        return same(await store.waits.refresh([step.sid]), model.refresh([step.sid]));
      case 'limit': {
        const { merchant, max } = step;
        await store.connection.run('setMerchant', [merchant, '{}', 'test', max ?? '']);
        this.#maxLowered = true;
        model.setLimit(merchant, max);
        return [];
      }
      case 'release': {
        const value = this.#fence(step.sid, step.fence);
        const reason = step.failed ? 'connect_failed' : undefined;
        const answer = await code(calls.release(step.sid, value, { reason }));
        return same(answer, model.release(step.sid, value, step.failed ? 'refused' : 'ended'));
      }
      case 'failures': {
        const problems: string[] = [];
        for (let i = 0; i < 5; i++) {
          const failed = step.how === 'refused' || (step.how === 'some refused' && i % 2 === 1);
          problems.push(...(await this.#do({ op: 'allocate', sid: 'C7', chain: step.chain })));
          problems.push(...(await this.#do({ op: 'release', sid: 'C7', fence: 'none', failed })));
        }
        return problems;
      }
      case 'cool':
        return same(await pools.endFlapping(epoch, 100), model.endFlapping(), 'pods that have cooled off');
      case 'unclaimed': {
        const value = this.#fence(step.sid, step.fence) ?? 1;
        return same(await calls.releaseUnclaimed(step.sid, value), model.releaseUnclaimed(step.sid, value));
      }
      case 'renew': {
        const value = this.#fence(step.sid, step.fence);
        return same(await code(calls.renew(step.sid, value)), model.renew(step.sid, value));
      }
      case 'report': {
        const own = step.own ? (model.pods.get(step.pod)?.calls.keys() ?? []) : [];
        const reported = [...own, ...step.sids];
        const { uid, intervalMs, written } = step;
        const times = { now: store.nowMs() + 1, before: model.generationAt - 1 };
        const details = { uid, intervalMs, asOfMs: written && times[written] };
        const answer = await code(calls.report(step.pod, reported, details));
        if (typeof answer !== 'string') {
          for (const sid of answer.adopted) this.#remember(sid, answer.fences[sid] ?? 0);
        }
        return model.report(step.pod, reported, details, answer);
      }
      case 'failover':
        // Two routers notice it.
        return same([await this.failOver(), await this.stamp()], [model.failOver(), -1]);
      case 'silence': {
        const { pod } = step;
        const report: Op = {
          op: 'report',
          pod,
          own: true,
          sids: [],
          uid: '',
          intervalMs: 600_000,
          written: undefined,
        };
        const problems = await this.#do(report);
        store.advance(step.ms);
        problems.push(...(await this.#do(report)));
        const { blocked } = await pools.blockSilent(epoch, 0, 100);
        const names = blocked.map(({ podName }) => podName);
        return [...problems, ...same(names, model.blockSilent(), 'pods blocked for silence')];
      }
      case 'drain':
        return same(
          await code(calls.drain(step.pod, step.waitMs, { uid: step.uid })),
          model.drain(step.pod, step.waitMs, step.uid),
        );
      case 'undrain':
        return same(
          await code(calls.undrain(step.pod, undefined, { uid: step.uid })),
          model.undrain(step.pod, step.uid),
        );
      case 'register': {
        const { candidates, last } = this.#tiers;
        // A tier pool is requested only while the configuration has it.
        const exists = step.pool.startsWith('merchant:') || this.#tiers.kinds.has(step.pool as PoolId);
        const { runsForMs, pod: name, op: _, ...asks } = step;
        const startedAt = runsForMs === undefined ? undefined : new Date(model.now - runsForMs).toISOString();
        const request: PodRequest = { ...asks, name, startedAt, pool: exists ? step.pool : '' };
        const asked = registration(name, request.pool || undefined, {
          ...asks,
          startedAt,
          pool: request.pool || undefined,
        });
        const answer = await pools.register(epoch, [asked], { candidates, last });
        return same(answer, [model.register(request, candidates, last)]);
      }
      case 'suspend':
        return same(await pools.suspend(epoch, step.reason as 'unconfirmed', [step.pod]), [
          model.suspend(step.pod, step.reason),
        ]);
      case 'confirm':
        return same(await pools.confirmRemovals('test'), model.confirmRemovals());
      case 'remove': {
        const answer = await pools.remove(epoch, [step.pod], 'test');
        const wasKnown = model.pods.has(step.pod);
        return same(answer, [{ podName: step.pod, wasKnown, lostCalls: model.remove(step.pod) }]);
      }
      case 'sweep': {
        const all = (await calls.snapshot()).pools.map(({ pool }) => pool);
        const problems: string[] = [];
        for (const pool of step.pool === 'all' ? all : all.filter((id) => id === step.pool)) {
          problems.push(...(await this.#sweep(pool)));
        }
        return problems;
      }
      case 'tiers': {
        const tiers = tierConfigs[step.config] ?? this.#tiers;
        const args = [tiers.text, 'replace', '', 'test', ...[...tiers.kinds].flat()];
        const [result, , changed] = (await store.connection.run('setTiers', args)) as [
          string,
          unknown,
          number,
        ];
        const expected = model.setTiers(tiers.kinds);
        this.#maxLowered = true;
        if (result === 'ok') this.#tiers = tiers;
        return same(result === 'ok' ? changed : result, expected);
      }
      case 'advance':
        store.advance(step.ms);
        return [];
      case 'old leader':
        return this.#oldLeader(step.write, step.pod);
      case 'tamper':
        this.#tampered = true;
        await this.#tamper(step.how, step.pod, step.sid);
        return [];
    }
  }

  async #sweep(pool: PoolId): Promise<string[]> {
    const { model, store } = this;
    const batch = async (phase: 'calls' | 'pods' | 'available') => {
      this.#tick();
      return store.pools.sweep(store.epoch, pool, phase, '0', 1000);
    };
    const ended = (await batch('calls')).callsEnded;
    const problems = same(ended, model.sweepCalls(pool).callsEnded, `calls ended in ${pool}`);
    const pods = await batch('pods');
    const expected = model.sweepPods(pool);
    problems.push(...same(pods.callsEnded, expected.callsEnded, `calls ended on pods of ${pool}`));
    for (const [what, actual, least] of [
      ['put back', pods.podsPutBack, expected.putBack],
      ['taken out', pods.podsTakenOut, expected.takenOut],
    ] as const) {
      if (actual < least || actual > least + expected.unsure) {
        problems.push(
          `sweep of ${pool}: expected ${least} (+${expected.unsure}) pods ${what}, got ${actual}`,
        );
      }
    }
    await batch('available');
    return problems;
  }

  async #oldLeader(write: string, pod: string): Promise<string[]> {
    const { pools } = this.store;
    const old = '1700000000000000';
    const writes: Record<string, () => Promise<unknown>> = {
      register: () =>
        pools.register(old, [registration(pod, 'pool:gold')], { candidates: [], last: 'pool:gold' }),
      suspend: () => pools.suspend(old, 'not_ready', [pod]),
      silence: () => pools.blockSilent(old, 0, 100),
      remove: () => pools.remove(old, [pod], 'test'),
      sweep: () => pools.sweep(old, 'pool:gold', 'pods', '0', 100),
    };
    try {
      await writes[write]?.();
    } catch (error) {
      if (error instanceof EpochRefused) return [];
      throw error;
    }
    return [`9: the ${write} of an older leader was accepted`];
  }

  async #tamper(how: string, name: string, sid: string): Promise<void> {
    const { model, redis } = this;
    const pod = model.pods.get(name);
    const pool = pod?.pool ?? 'pool:basic';
    const { kind } = parseKind(model.pools.get(pool));
    const available = `voice:${pool}${pool.startsWith('merchant:') ? ':pods' : ':available'}`;
    // The sweep does not repair a queue or a limit: waiting.test.ts shows what does.
    if (how === 'del call' && (model.waits.has(sid) || model.records.get(sid)?.limited !== undefined)) return;
    if (how === 'del call') {
      await redis.del(`voice:call:${sid}`);
      model.records.delete(sid);
    } else if (how === 'del draining') {
      await redis.del(`voice:pod:draining:${name}`);
      if (pod) pod.drain = undefined;
    } else if (how === 'set draining' && pod) {
      await redis.set(`voice:pod:draining:${name}`, name < 'c' ? '1' : 'by hand');
      pod.drain = Number.POSITIVE_INFINITY;
    } else if (how === 'del available' && pod) {
      await redis.del(available);
      for (const other of model.podsOf(pool)) other.listed = 'no';
    } else if (how === 'put' && kind) {
      if (kind === 'shared') await redis.zadd(available, pod?.calls.size ?? 0, name);
      else await redis.sadd(available, name);
      if (pod) pod.listed = 'yes';
    } else if (how === 'score' && kind === 'shared') {
      await redis.zadd(available, 0, name);
      if (pod) pod.listed = 'maybe';
    }
  }
}

/** The answer, or the code of the error that a caller would see. */
async function code<T>(answer: Promise<T>): Promise<T | string> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof AppError) return error.code;
    throw error;
  }
}
