/**
 * What the Go router writes, by the table of keys and the flows in its documents: the commands of each operation in
 * their order, on a real store. It knows none of our own keys.
 */
import type { Redis } from 'ioredis';

export class GoRouter {
  readonly #redis: Redis;
  readonly #leaseMs: number;
  readonly #sharedTiers: readonly string[];

  constructor(redis: Redis, { leaseMs = 600_000, sharedTiers = ['basic'] } = {}) {
    this.#redis = redis;
    this.#leaseMs = leaseMs;
    this.#sharedTiers = sharedTiers;
  }

  async addPod(pod: string, tier: string): Promise<void> {
    await this.#redis.set(`voice:pod:tier:${pod}`, tier);
    await this.#redis.sadd(`${baseOf(tier)}:assigned`, pod);
    if (this.#isShared(tier)) await this.#redis.zadd(availableOf(tier), 0, pod);
    else await this.#redis.sadd(availableOf(tier), pod);
    await this.#redis.hset(`voice:pod:${pod}`, { status: 'available' });
    await this.#redis.hset('voice:pod:metadata', pod, '{}');
  }

  /** Kubernetes no longer has it. Of several calls on a shared pod only the latest is found. */
  async removePod(pod: string): Promise<void> {
    const tier = (await this.#redis.get(`voice:pod:tier:${pod}`)) ?? '';
    await this.#redis.srem(`${baseOf(tier)}:assigned`, pod);
    if (this.#isShared(tier)) await this.#redis.zrem(availableOf(tier), pod);
    else await this.#redis.srem(availableOf(tier), pod);
    const sid = await this.#redis.hget(`voice:pod:${pod}`, 'allocated_call_sid');
    if (sid) await this.#redis.del(`voice:call:${sid}`);
    await this.#redis.hdel('voice:pod:metadata', pod);
    const keys = ['pod:tier', 'pod', 'lease', 'pod:draining'].map((name) => `voice:${name}:${pod}`);
    await this.#redis.del(...keys);
  }

  /** The reconciler, after a tier was taken out of its configuration. */
  async movePod(pod: string, tier: string): Promise<void> {
    const before = (await this.#redis.get(`voice:pod:tier:${pod}`)) ?? '';
    await this.#redis.srem(`${baseOf(before)}:assigned`, pod);
    await this.#redis.set(`voice:pod:tier:${pod}`, tier);
    await this.#redis.sadd(`${baseOf(tier)}:assigned`, pod);
  }

  async allocate(sid: string, pod: string): Promise<void> {
    const tier = (await this.#redis.get(`voice:pod:tier:${pod}`)) ?? '';
    if (this.#isShared(tier)) await this.#redis.zincrby(availableOf(tier), 1, pod);
    else await this.#redis.srem(availableOf(tier), pod);
    const source_pool = tier.startsWith('merchant:') ? tier : `pool:${tier}`;
    const allocated_at = '2026-02-01T10:00:00Z';
    await this.#redis.hset(`voice:call:${sid}`, {
      pod_name: pod,
      source_pool,
      merchant_id: 'acme',
      allocated_at,
    });
    await this.#redis.pexpire(`voice:call:${sid}`, 3_600_000);
    await this.#redis.set(`voice:lease:${pod}`, sid, 'PX', this.#leaseMs);
    await this.#redis.hset(`voice:pod:${pod}`, { status: 'allocated', allocated_call_sid: sid, source_pool });
  }

  async release(sid: string): Promise<void> {
    const pod = (await this.#redis.hget(`voice:call:${sid}`, 'pod_name')) ?? '';
    const tier = (await this.#redis.get(`voice:pod:tier:${pod}`)) ?? '';
    let left = 0;
    if (this.#isShared(tier)) left = Number(await this.#redis.zincrby(availableOf(tier), -1, pod));
    else await this.#redis.sadd(availableOf(tier), pod);
    // The lease of a shared pod is deleted with its last call, even if it names another one.
    if (left <= 0) await this.#redis.del(`voice:lease:${pod}`);
    await this.#redis.hset(`voice:pod:${pod}`, { status: 'available', allocated_call_sid: '' });
    await this.#redis.del(`voice:call:${sid}`);
  }

  /** A lease has run out: the pod of an exclusive tier is a zombie and goes back; the record of its call stays. */
  async recover(pod: string): Promise<void> {
    const tier = (await this.#redis.get(`voice:pod:tier:${pod}`)) ?? '';
    await this.#redis.del(`voice:lease:${pod}`);
    if (!this.#isShared(tier)) await this.#redis.sadd(availableOf(tier), pod);
  }

  #isShared(tier: string): boolean {
    return this.#sharedTiers.includes(tier);
  }
}

const baseOf = (tier: string) => (tier.startsWith('merchant:') ? `voice:${tier}` : `voice:pool:${tier}`);
const availableOf = (tier: string) =>
  `${baseOf(tier)}:${tier.startsWith('merchant:') ? 'pods' : 'available'}`;
