import { Redis } from 'ioredis';

/** A connection for a few commands, closed afterwards. */
export async function redisAt<T>(url: string, work: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url);
  try {
    return await work(redis);
  } finally {
    redis.disconnect();
  }
}
