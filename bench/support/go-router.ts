/**
 * Allocate and release as the Go router does them: single commands, each awaited before the next, on the happy path
 * of an exclusive pool (a new call, a free pod in the first pool, no drain). The description of the Go router names
 * the steps, not every command. Where it leaves a choice, the cheaper command is used, in favour of the Go router:
 *
 * allocate, nine round trips          | release, seven
 *  1 EVALSHA check-and-lock (HGET,    |  1 HGETALL voice:call:{sid}
 *    then a 30 s placeholder)         |  2 EXISTS voice:pod:draining:{pod}
 *  2 HGET voice:merchant:config       |  3 GET voice:pod:tier:{pod}
 *  3 SPOP voice:pool:gold:available   |  4 SADD voice:pool:gold:available
 *  4 EXISTS voice:pod:draining:{pod}  |  5 DEL voice:lease:{pod}
 *  5 SET voice:lease:{pod} EX 900     |  6 HSET voice:pod:{pod}
 *  6 HSET voice:pod:{pod}             |  7 DEL voice:call:{sid}
 *  7 HSET voice:call:{sid}            |
 *  8 EXPIRE voice:call:{sid} 3600     |
 *  9 GET voice:pod:tier:{pod}         |
 *
 * Only our scripts have fences, events, tombstones, the index of calls by deadline and the check of the candidate,
 * and only they are atomic.
 */
import { createHash } from 'node:crypto';
import type { Cluster, Redis } from 'ioredis';

const checkAndLock = `
local pod = redis.call('HGET', KEYS[1], 'pod_name')
if pod then return pod end
redis.call('HSET', KEYS[1], 'pod_name', '')
redis.call('EXPIRE', KEYS[1], 30)
return false`;
const checkAndLockSha = createHash('sha1').update(checkAndLock).digest('hex');

export class GoRouter {
  constructor(
    readonly client: Redis | Cluster,
    readonly prefix: string,
  ) {}

  async prepare(pods: readonly string[]): Promise<void> {
    const { client, prefix } = this;
    await client.script('LOAD', checkAndLock);
    for (let i = 0; i < pods.length; i += 1000) {
      const batch = pods.slice(i, i + 1000);
      await client.sadd(`${prefix}pool:gold:assigned`, ...batch);
      await client.sadd(`${prefix}pool:gold:available`, ...batch);
      await client.mset(batch.flatMap((pod) => [`${prefix}pod:tier:${pod}`, 'gold']));
    }
  }

  async allocate(sid: string): Promise<string> {
    const { client, prefix } = this;
    const callKey = `${prefix}call:${sid}`;
    const existing = await client.evalsha(checkAndLockSha, 1, callKey);
    if (existing) return String(existing);
    await client.hget(`${prefix}merchant:config`, 'acme');
    const pod = await client.spop(`${prefix}pool:gold:available`);
    if (pod === null) throw new Error('no pod is free in the pool of the Go router');
    await client.exists(`${prefix}pod:draining:${pod}`);
    await client.set(`${prefix}lease:${pod}`, sid, 'EX', 900);
    const at = new Date().toISOString();
    await client.hset(
      `${prefix}pod:${pod}`,
      ...['status', 'allocated', 'allocated_call_sid', sid, 'allocated_at', at, 'source_pool', 'pool:gold'],
    );
    await client.hset(
      callKey,
      ...['pod_name', pod, 'source_pool', 'pool:gold', 'merchant_id', 'acme', 'allocated_at', at],
    );
    await client.expire(callKey, 3600);
    await client.get(`${prefix}pod:tier:${pod}`);
    return pod;
  }

  async release(sid: string): Promise<void> {
    const { client, prefix } = this;
    const { pod_name: pod } = await client.hgetall(`${prefix}call:${sid}`);
    if (!pod) throw new Error(`call ${sid} of the Go router not found`);
    await client.exists(`${prefix}pod:draining:${pod}`);
    const tier = await client.get(`${prefix}pod:tier:${pod}`);
    await client.sadd(`${prefix}pool:${tier}:available`, pod);
    await client.del(`${prefix}lease:${pod}`);
    await client.hset(
      `${prefix}pod:${pod}`,
      ...['status', 'available', 'allocated_call_sid', '', 'released_at', new Date().toISOString()],
    );
    await client.del(`${prefix}call:${sid}`);
  }
}
