import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { afterEach, describe, expect, it } from 'vitest';
import {
  describeEngines,
  nativeAvailable,
  nativeRedisTls,
  redisCluster,
  redisSentinel,
  tlsAvailable,
} from './engines.js';

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

function client(port: number, options: Omit<RedisOptions, 'replyMapping'> = {}): Redis {
  const redis = new Redis(port, '127.0.0.1', options);
  redis.on('error', () => {});
  cleanups.push(() => redis.disconnect());
  return redis;
}

describeEngines('an engine', (engine) => {
  it('answers a script', async () => {
    const script =
      "redis.call('SET', KEYS[1], ARGV[1]); return {redis.call('GET', KEYS[1]), cjson.encode({1, 2})}";
    expect(await engine.redis.eval(script, 1, 'key', 'value')).toEqual(['value', '[1,2]']);
  });

  it('begins every test empty', async () => {
    expect(await engine.redis.dbsize()).toBe(0);
  });

  it('answers nothing while paused, and everything once resumed', async () => {
    const redis = client(engine.port);
    await redis.ping();
    await engine.pause();
    const answer = redis.set('key', 'late').then(() => 'answered');
    const silence = new Promise((resolve) => setTimeout(resolve, 300, 'silent'));
    expect(await Promise.race([answer, silence])).toBe('silent');
    await engine.resume();
    expect(await answer).toBe('answered');
  });

  it('restarts empty on the same port', async () => {
    const before = engine.pid;
    await engine.redis.set('key', 'value');
    await engine.restart();
    const redis = client(engine.port);
    expect(await redis.get('key')).toBeNull();
    if (before !== undefined) expect(engine.pid).not.toBe(before);
  });
});

const native = nativeAvailable();
const tls = tlsAvailable();

describe('native set-ups', () => {
  it('TLS answers a client that trusts its certificate, and no other', async (test) => {
    if (tls !== true) return test.skip(tls);
    const engine = await nativeRedisTls();
    cleanups.push(engine.stop);
    const { port, ca } = engine;
    expect(await client(port, { tls: { ca } }).ping()).toBe('PONG');
    const stranger = client(port, { tls: {}, maxRetriesPerRequest: 0 });
    await expect(stranger.ping()).rejects.toThrow();
    await engine.restart();
    expect(await client(port, { tls: { ca } }).ping()).toBe('PONG');
  });

  it('Sentinel moves to the replica when the master dies', async (test) => {
    if (native !== true) return test.skip(native);
    const group = await redisSentinel();
    cleanups.push(group.stop);
    const redis = client(group.sentinel.port, {
      sentinels: [group.sentinel],
      name: group.name,
      sentinelRetryStrategy: () => 100,
    });
    expect(await redis.set('key', 'value')).toBe('OK');
    expect(await redis.wait(1, 5_000)).toBe(1);
    await group.master.stop();
    await expect.poll(() => redis.set('key', 'again').catch(() => 'not yet'), { timeout: 40_000 }).toBe('OK');
    expect(redis.stream.remotePort).toBe(group.replica.port);
  });

  it.for([1, 3] as const)('Cluster of %i covers every slot', async (size, test) => {
    if (native !== true) return test.skip(native);
    const cluster = await redisCluster(size);
    cleanups.push(cluster.stop);
    const redis = new Cluster(cluster.nodes.map((node) => ({ host: '127.0.0.1', port: node.port })));
    cleanups.push(() => redis.disconnect());
    const keys = Array.from({ length: 50 }, (_, index) => `key-${index}`);
    for (const key of keys) expect(await redis.set(key, key)).toBe('OK');
    const sizes = await Promise.all(redis.nodes('master').map((node) => node.dbsize()));
    expect(sizes.reduce((sum, count) => sum + count, 0)).toBe(keys.length);
    expect(sizes.filter((count) => count > 0)).toHaveLength(size);
  });
});
