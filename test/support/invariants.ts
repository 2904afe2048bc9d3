/**
 * The invariant checker for tests: reads every key of the store at one moment and hands it to the product's own checks
 * (src/calls/audit), which say in which ways the calls and pods in it contradict each other or the contract (section 7
 * of the specification). An empty list is good.
 *
 * It blocks the store while it reads, as nothing in production may; the live audit there reads in small pieces.
 */
import type { Cluster, Redis } from 'ioredis';
import { type CheckOptions, violations } from '../../src/calls/audit/checks.js';
import type { Keyspace } from '../../src/calls/audit/keyspace.js';

export type { CheckOptions } from '../../src/calls/audit/checks.js';
export { violations } from '../../src/calls/audit/checks.js';
export type { KeyContent, Keyspace, PodState, PoolState, State } from '../../src/calls/audit/keyspace.js';
export { isMarkByHand, parseState } from '../../src/calls/audit/keyspace.js';
export { parseKind } from '../../src/calls/store/replies.js';

/** One script, so that it sees one moment even while routers work. */
export const dumpScript = `
local result, time = {}, redis.call('TIME')
local pattern = string.gsub(KEYS[1], '[%*%?%[%]\\\\]', '\\\\%0') .. '*'
for _, key in ipairs(redis.call('KEYS', pattern)) do
  local type, items = redis.call('TYPE', key).ok, {}
  if type == 'string' then items = { redis.call('GET', key) }
  elseif type == 'set' then items = redis.call('SMEMBERS', key)
  elseif type == 'hash' then items = redis.call('HGETALL', key)
  elseif type == 'zset' then items = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  result[#result + 1] = { key, type, redis.call('PTTL', key), items }
end
return { time[1] * 1000 + math.floor(time[2] / 1000), result }`;

export async function readKeyspace(redis: Redis | Cluster, prefix = 'voice:'): Promise<Keyspace> {
  return keyspaceOf(await redis.eval(dumpScript, 1, prefix), prefix);
}

export function keyspaceOf(dumped: unknown, prefix: string): Keyspace {
  const [nowMs, rows] = dumped as [number, [string, string, number, string[]][]];
  const keys = new Map(
    rows.map(([key, type, ttlMs, items]) => [key.slice(prefix.length), { type, ttlMs, items }]),
  );
  return { prefix, nowMs, keys };
}

export async function checkInvariants(redis: Redis | Cluster, options: CheckOptions = {}): Promise<string[]> {
  return violations(await readKeyspace(redis, options.prefix), options);
}
