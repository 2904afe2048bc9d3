/**
 * Three replicas at once. Every operation is one atomic step of the store, and the event stream written by the
 * same steps is their order; so it is replayed, and each answer must be one that this order explains.
 *
 * Checked on the stream: invariants 1, 2, 3, 6 and 7, growing fences, and that `no_pods` was true when it was
 * said. It checks every reply, and after each batch all invariants of the keys (invariants.ts).
 */
import fc from 'fast-check';
import { it } from 'vitest';
import type { Allocation } from '../../../src/calls/store/store.js';
import type { PoolId } from '../../../src/config/tiers.js';
import { AppError } from '../../../src/errors.js';
import { describeEngines, type SuiteEngine } from '../../support/engines.js';
import { parseState, readKeyspace, violations } from '../../support/invariants.js';
import { propertyRuns } from '../../support/property-runs.js';
import { openStore, registration, type TestStore } from '../../support/store.js';

const runs = propertyRuns(60);
const timeout = 60_000 + runs * 1000;

const pools: Record<string, { pods: string[]; max: number }> = {
  'pool:gold': { pods: ['a', 'b'], max: 1 },
  'pool:basic': { pods: ['c', 'd'], max: 3 },
  'merchant:vip': { pods: ['e'], max: 1 },
};
const podNames = Object.values(pools).flatMap(({ pods }) => pods);
const homeOf = (pod: string) =>
  (Object.keys(pools) as PoolId[]).find((id) => pools[id]?.pods.includes(pod)) ?? 'pool:gold';
const chains: PoolId[][] = [
  ['pool:gold', 'pool:basic'],
  ['pool:gold'],
  ['merchant:vip', 'pool:gold'],
  ['pool:basic'],
];

// --- Operations and their answers ---

const one = <T>(...values: T[]) => fc.constantFrom(...values);
const sid = one('C1', 'C2', 'C3', 'C4', 'C5', 'C6');
const pod = one(...podNames);
const record = <T>(fields: { [K in keyof T]: fc.Arbitrary<T[K]> }) =>
  fc.record(fields, { noNullPrototype: true }) as unknown as fc.Arbitrary<T>;
const fence = one<'none' | 'latest' | 'first'>('none', 'latest', 'latest', 'first');
const leaderOps = ['suspend', 'register', 'remove', 'sweep calls', 'sweep pods', 'sweep available'] as const;

interface Op {
  op: 'allocate' | 'release' | 'renew' | 'report' | 'drain' | 'undrain' | (typeof leaderOps)[number];
  sid: string;
  pod: string;
  fence: 'none' | 'latest' | 'first';
  chain: number;
  replica: number;
}

const anyOp = record<Op>({
  op: fc.oneof(
    { weight: 8, arbitrary: one<Op['op']>('allocate') },
    { weight: 5, arbitrary: one<Op['op']>('release') },
    { weight: 2, arbitrary: one<Op['op']>('renew', 'report') },
    { weight: 2, arbitrary: one<Op['op']>('drain', 'undrain') },
    { weight: 3, arbitrary: one<Op['op']>(...leaderOps) },
  ),
  sid,
  pod,
  fence,
  chain: fc.nat(chains.length - 1),
  replica: fc.nat(2),
});

type Answer =
  | { kind: 'allocate'; sid: string; given: Allocation | undefined }
  | { kind: 'release' | 'renew'; sid: string; fence: number | undefined; pod: string; code: string };

/** Three connections on one virtual time, and their replies. */
class Replicas {
  answers: Answer[] = [];
  readonly fences = new Map<string, number[]>();
  /** Pods that were registered again since the last look: that ends a suspension and leaves no event. */
  readonly registered = new Set<string>();

  private constructor(
    readonly stores: TestStore[],
    readonly epoch: string,
  ) {}

  static async open(engine: SuiteEngine): Promise<Replicas> {
    await engine.redis.flushall();
    const stores: TestStore[] = [];
    for (let i = 0; i < 3; i++) stores.push(await openStore(engine.url, { virtualTime: true }));
    const replicas = new Replicas(stores, stores[2]?.epoch ?? '');
    for (const name of podNames) await replicas.register(2, name);
    return replicas;
  }

  at(replica: number): TestStore {
    return this.stores[replica] as TestStore;
  }

  get nowMs(): number {
    return Math.max(...this.stores.map((store) => store.nowMs()));
  }

  advance(ms: number): void {
    for (const store of this.stores) store.advance(ms);
  }

  close(): void {
    for (const store of this.stores) store.close();
  }

  async register(replica: number, name: string): Promise<void> {
    this.registered.add(name);
    const pool = homeOf(name);
    await this.at(replica).pools.register(this.epoch, [registration(name, pool)], {
      candidates: [],
      last: pool,
    });
  }

  async allocate(
    replica: number,
    callSid: string,
    chain: readonly PoolId[],
  ): Promise<Allocation | undefined> {
    const given = await this.at(replica).allocate(callSid, chain);
    this.answers.push({ kind: 'allocate', sid: callSid, given });
    if (given) this.fences.set(callSid, [...(this.fences.get(callSid) ?? []), given.fence]);
    return given;
  }

  async release(replica: number, callSid: string, value?: number): Promise<string> {
    return this.#answer('release', callSid, value, this.at(replica).calls.release(callSid, value));
  }

  async renew(replica: number, callSid: string, value?: number): Promise<string> {
    return this.#answer('renew', callSid, value, this.at(replica).calls.renew(callSid, value));
  }

  async #answer(
    kind: 'release' | 'renew',
    callSid: string,
    value: number | undefined,
    reply: Promise<{ podName: string | null }>,
  ): Promise<string> {
    const [code, podName] = await reply.then(
      (result) => ['ok', result.podName ?? ''] as const,
      (error: unknown) => [codeOf(error), ''] as const,
    );
    this.answers.push({ kind, sid: callSid, fence: value, pod: podName, code });
    return code;
  }

  async run(op: Op): Promise<void> {
    const { calls, pools: leader } = this.at(op.replica);
    const known = this.fences.get(op.sid) ?? [];
    const value = op.fence === 'none' ? undefined : ((op.fence === 'first' ? known[0] : known.at(-1)) ?? 1);
    const pool = homeOf(op.pod);
    switch (op.op) {
      case 'allocate':
        await this.allocate(op.replica, op.sid, chains[op.chain] ?? []);
        return;
      case 'release':
        await this.release(op.replica, op.sid, value);
        return;
      case 'renew':
        await this.renew(op.replica, op.sid, value);
        return;
      case 'report':
        await calls.report(op.pod, op.fence === 'none' ? [] : [op.sid]).catch(codeOf);
        return;
      case 'drain':
        await calls.drain(op.pod).catch(codeOf);
        return;
      case 'undrain':
        await calls.undrain(op.pod).catch(codeOf);
        return;
      case 'suspend':
        await leader.suspend(this.epoch, 'not_ready', [op.pod]);
        return;
      case 'register':
        await this.register(op.replica, op.pod);
        return;
      case 'remove':
        await leader.remove(this.epoch, [op.pod], 'test');
        return;
      default:
        await leader.sweep(this.epoch, pool, op.op.slice(6) as 'calls' | 'pods' | 'available', '0', 100);
    }
  }
}

function codeOf(error: unknown): string {
  if (error instanceof AppError) return error.code;
  throw error;
}

// --- The replay ---

interface Live {
  pod: string;
  fence: number;
}

class Replay {
  readonly #live = new Map<string, Live>();
  readonly #registered = new Set<string>();
  readonly #draining = new Map<string, number>();
  readonly #suspended = new Set<string>();
  /** Its block ended without an event: it may or may not be available already. */
  readonly #unsure = new Set<string>();
  /** Registered again and suspended with no order between the two: it may still be suspended. */
  readonly #perhapsSuspended = new Set<string>();
  #lastId = '-';
  #lastFence = 0;

  constructor(
    readonly engine: SuiteEngine,
    readonly replicas: Replicas,
  ) {}

  #callsOf(name: string): string[] {
    return [...this.#live].filter(([, live]) => live.pod === name).map(([callSid]) => callSid);
  }

  /** Everything since the last look, against the answers and the keys. */
  async verify(): Promise<void> {
    const problems = await this.#batch();
    const keyspace = await readKeyspace(this.engine.redis);
    const nowMs = this.replicas.nowMs;
    problems.push(...violations(keyspace, { nowMs }));
    for (const [callSid, fields] of parseState(keyspace, nowMs).records) {
      const live = this.#live.get(callSid);
      if (live?.pod !== fields.get('pod_name') || String(live?.fence) !== fields.get('fence')) {
        problems.push(`${callSid} is ${JSON.stringify([...fields])}, by the stream ${JSON.stringify(live)}`);
      }
    }
    if (problems.length > 0) throw new Error(problems.join('\n'));
  }

  async #batch(): Promise<string[]> {
    const { replicas, engine } = this;
    for (const [name, until] of this.#draining) {
      if (until > replicas.nowMs) continue;
      this.#draining.delete(name);
      this.#unsure.add(name);
    }
    for (const name of replicas.registered) {
      if (this.#suspended.delete(name)) this.#perhapsSuspended.add(name);
    }
    const rows = await engine.redis.xrange('voice:events', this.#lastId, '+');
    const problems: string[] = [];
    const seen = new Map<string, (Live | undefined)[]>();
    const counts = new Map<string, number>();
    const count = (key: string, by = 1) => counts.set(key, (counts.get(key) ?? 0) + by);
    for (const name of this.#live.keys()) seen.set(name, [this.#live.get(name)]);
    for (const [id, flat] of rows) {
      this.#lastId = `(${id}`;
      const event = Object.fromEntries(
        flat.flatMap((key, i) => (i % 2 === 0 ? [[key, flat[i + 1] ?? '']] : [])),
      );
      const call = event.call ?? '';
      if (!seen.has(call)) seen.set(call, [this.#live.get(call)]);
      const was = this.#live.get(call);
      problems.push(...this.#apply(event).map((text) => `${text} at ${JSON.stringify(event)}`));
      seen.get(call)?.push(this.#live.get(call));
      if (event.type === 'call_released') count(`release ${call} ${was?.fence}`);
      if (event.type === 'call_released') count(`release ${call}`);
      if (event.type === 'call_allocated') count(`allocate ${call} ${event.fence}`);
      if (event.type === 'no_pods') count(`allocate ${call} nothing`);
    }
    // A suspension that ended in this batch may have ended before or after anything in it.
    for (const name of replicas.registered)
      if (this.#suspended.delete(name)) this.#perhapsSuspended.add(name);
    replicas.registered.clear();

    for (const answer of replicas.answers) {
      const states = seen.get(answer.sid) ?? [undefined];
      const some = (test: (live: Live | undefined) => boolean) => {
        if (!states.some(test)) problems.push(`no order explains ${JSON.stringify(answer)}`);
      };
      if (answer.kind === 'allocate') {
        const { given } = answer;
        if (!given) count(`allocate ${answer.sid} nothing`, -1);
        else if (!given.wasExisting) count(`allocate ${answer.sid} ${given.fence}`, -1);
        if (given) some((live) => live?.fence === given.fence && live.pod === given.podName);
      } else if (answer.code === 'ok') {
        const { fence: value, pod: name } = answer;
        some((live) => live?.pod === name && (value === undefined || live.fence === value));
        if (answer.kind === 'release') count(`release ${answer.sid}`, -1);
        if (answer.kind === 'release' && value !== undefined) {
          count(`release ${answer.sid} ${value}`, -1);
          if ((counts.get(`release ${answer.sid} ${value}`) ?? 0) < 0) {
            problems.push(`7: ${answer.sid} was released twice with fence ${value}`);
          }
        }
      } else if (answer.code === 'stale_fence')
        some((live) => live !== undefined && live.fence !== answer.fence);
      else if (answer.code === 'call_not_found') some((live) => live === undefined);
      else problems.push(`unexpected reply ${JSON.stringify(answer)}`);
    }
    replicas.answers = [];
    for (const [key, left] of counts) {
      const twoWords = key.startsWith('release') && key.split(' ').length === 3;
      if (left !== 0 && !twoWords) problems.push(`${key}: ${left} more in the stream than in the answers`);
    }
    return problems;
  }

  #apply(event: Record<string, string>): string[] {
    const { type, call = '', pod: name = '' } = event;
    const was = this.#live.get(call);
    const load = this.#callsOf(name).length;
    const max = pools[homeOf(name)]?.max ?? 0;
    const found: string[] = [];
    const begin = () => {
      if (was) found.push(`2: ${call} is on ${was.pod}`);
      if (load >= max) found.push(`${max === 1 ? 1 : 3}: ${name} has ${this.#callsOf(name)}`);
      if (!this.#registered.has(name)) found.push(`${name} is not registered`);
      if (Number(event.fence) <= this.#lastFence) found.push(`fence after ${this.#lastFence}`);
      this.#lastFence = Number(event.fence);
      this.#live.set(call, { pod: name, fence: this.#lastFence });
    };
    switch (type) {
      case 'call_allocated':
        if (this.#draining.has(name)) found.push(`6: ${name} is draining`);
        if (this.#suspended.has(name) && !this.replicas.registered.has(name)) {
          found.push(`6: ${name} is suspended`);
        }
        begin();
        break;
      case 'call_adopted':
        begin();
        break;
      case 'call_released':
      case 'call_recovered':
      case 'call_lost':
        if (was?.pod !== name) found.push(`7: ${call} is on ${was?.pod ?? 'nothing'}`);
        this.#live.delete(call);
        break;
      case 'no_pods':
        for (const pool of (event.chain ?? '').split(' ')) found.push(...this.#free(pool));
        break;
      case 'pod_draining':
        this.#draining.set(name, Number(event.until));
        break;
      case 'pod_undrained':
        this.#draining.delete(name);
        this.#unsure.delete(name);
        break;
      case 'pod_suspended':
        // A pod that is set back still takes a call that would be refused.
        if (event.reason !== 'flapping') this.#suspended.add(name);
        break;
      case 'pod_registered':
        this.#registered.add(name);
        this.#suspended.delete(name);
        this.#perhapsSuspended.delete(name);
        this.#unsure.delete(name);
        break;
      case 'pod_removed':
        if (load > 0) found.push(`${name} still has ${this.#callsOf(name)}`);
        this.#registered.delete(name);
        this.#draining.delete(name);
        this.#suspended.delete(name);
        break;
    }
    return found;
  }

  /** Pods of a pool that surely could have taken the call that was refused. */
  #free(pool: string): string[] {
    return (pools[pool]?.pods ?? []).flatMap((name) => {
      const unsure = this.#unsure.has(name) || this.#perhapsSuspended.has(name);
      const blocked = this.#draining.has(name) || this.#suspended.has(name) || unsure;
      if (blocked || !this.#registered.has(name) || this.replicas.registered.has(name)) return [];
      return this.#callsOf(name).length < (pools[pool]?.max ?? 0) ? [`${name} of ${pool} was free`] : [];
    });
  }
}

// --- The properties ---

interface Batch {
  ops: Op[];
  advanceMs: number;
}

const batches = fc.array(
  record<Batch>({
    ops: fc.array(anyOp, { minLength: 1, maxLength: 24, size: 'max' }),
    advanceMs: one(0, 0, 1000, 30_000, 360_000, 900_000),
  }),
  { minLength: 1, maxLength: 5 },
);

async function withReplicas(
  engine: SuiteEngine,
  use: (replicas: Replicas, replay: Replay) => Promise<void>,
): Promise<void> {
  const replicas = await Replicas.open(engine);
  const replay = new Replay(engine, replicas);
  try {
    await replay.verify();
    await use(replicas, replay);
  } finally {
    replicas.close();
  }
}

describeEngines('three replicas at once', (engine) => {
  it('give replies consistent with the order of the event stream', { timeout }, async () => {
    const property = fc.asyncProperty(batches, (history) =>
      withReplicas(engine, async (replicas, replay) => {
        for (const { ops, advanceMs } of history) {
          await Promise.all(ops.map((op) => replicas.run(op)));
          await replay.verify();
          replicas.advance(advanceMs);
        }
      }),
    );
    await fc.assert(property, { numRuns: runs });
  });

  /** A caller that allocates twice, renews, releases twice, and allocates the same SID again. */
  const callers = fc.array(
    record<{ sid: string; chain: number; ends: 'release' | 'late release' | 'nothing' }>({
      sid,
      chain: fc.nat(chains.length - 1),
      ends: one('release', 'late release', 'nothing'),
    }),
    { minLength: 2, maxLength: 8, size: 'max' },
  );
  const disturbances = fc.array(anyOp, { maxLength: 8 });

  it('keep calls of different callers apart in any order', { timeout }, async () => {
    const property = fc.asyncProperty(fc.scheduler(), callers, disturbances, (s, sessions, others) =>
      withReplicas(engine, async (replicas, replay) => {
        const turn = (label: string) => s.schedule(Promise.resolve(), label);
        const session = async (
          { sid: callSid, chain: index, ends }: (typeof sessions)[number],
          i: number,
        ) => {
          const chain = chains[index] ?? [];
          const ask = async (replica: number) => {
            await turn(`${i}: allocate ${callSid} at ${replica}`);
            return replicas.allocate(replica, callSid, chain);
          };
          const [given] = await Promise.all([ask(i % 3), ask((i + 1) % 3)]);
          if (!given || ends === 'nothing') return;
          await turn(`${i}: renew ${callSid}`);
          await replicas.renew(i % 3, callSid, given.fence);
          const hangUp = async (replica: number) => {
            await turn(`${i}: release ${callSid} at ${replica}`);
            await replicas.release(replica, callSid, given.fence);
          };
          await Promise.all([hangUp(i % 3), hangUp((i + 2) % 3)]);
          await ask((i + 1) % 3);
          if (ends === 'late release') await hangUp(i % 3);
        };
        const other = async (op: Op) => {
          await turn(`${op.op} ${op.pod}`);
          await replicas.run(op);
        };
        await s.waitFor(Promise.all([...sessions.map(session), ...others.map(other)]));
        await replay.verify();
      }),
    );
    await fc.assert(property, { numRuns: runs });
  });
});
