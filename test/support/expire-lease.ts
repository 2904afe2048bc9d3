import type { Redis } from 'ioredis';

/** Ends the lease of a live call at once: the next sweep ends the call. */
export async function expireLease(redis: Redis, callSid: string): Promise<void> {
  const [pod, pool] = await redis.hmget(`voice:call:${callSid}`, 'pod_name', 'source_pool');
  // Together: a sweep between the two would repair the index of the pool.
  await redis
    .multi()
    .zadd(`voice:pod:calls:${pod}`, 1, callSid)
    .zadd(`voice:${pool}:calls`, 1, callSid)
    .exec();
}
