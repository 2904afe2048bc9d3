/**
 * Checks that the user of REDIS_URL may run every command that the scripts use. Redis checks a right only when a script reaches
 * the command: a script with a missing one would stop half-way, after its first writes.
 */
import { ConfigError } from '../../errors.js';
import type { StoreConnection } from './connection.js';
import { strings } from './replies.js';

/**
 * Each in a form that changes nothing: on a missing key, or with an argument that Redis refuses after it has checked the right.
 * `key` is one of our keys. A test compares them with the scripts.
 */
const harmless = [
  ...['DEL key', 'EXISTS key', 'GET key', 'HDEL key a', 'HEXISTS key a', 'HGET key a', 'HGETALL key'],
  ...['HKEYS key', 'HLEN key', 'HMGET key a', 'HSCAN key 0', 'HSET key a b c', 'INFO server', 'MGET key'],
  ...['PERSIST key', 'PEXPIRE key 1', 'PING', 'PTTL key', 'SCAN 0 COUNT 1', 'SCARD key', 'SET key a ?'],
  ...['SINTER key', 'SISMEMBER key a', 'SMEMBERS key', 'SPOP key -1', 'SRANDMEMBER key', 'SREM key a'],
  ...['SSCAN key 0', 'SUNIONSTORE key key', 'TIME', 'TYPE key', 'XADD key ? a b', 'XRANGE key - +'],
  ...[
    'XREAD STREAMS key 0',
    'XREVRANGE key + -',
    'ZADD key ? a',
    'ZCARD key',
    'ZCOUNT key 0 1',
    'ZDIFF 1 key',
  ],
  ...[
    'ZINTER 1 key',
    'ZRANGE key 0 1',
    'ZRANK key a',
    'ZRANGEBYSCORE key 0 1',
    'ZREM key a',
    'ZREVRANGEBYSCORE key 1 0',
  ],
  ...['ZSCAN key 0', 'ZSCORE key a', 'ZUNIONSTORE key 1 key'],
];
/** Without such a form: run if all others may be, and the script deletes the key. */
const writing = ['HSETNX key a b', 'SADD key a'];

export const usedCommands = [...harmless, ...writing].map((line) => line.split(' ')[0] ?? '');

/**
 * Tries the commands instead of asking for the rights: `ACL DRYRUN` needs rights of its own, Redis 6.2 has neither that nor
 * `redis.acl_check_cmd`, and the latter ends the embedded Valkey.
 */
const script = `
local key, missing = KEYS[1] .. 'check', {}
local function try(line)
  local words = {}
  for word in string.gmatch(line, '%S+') do table.insert(words, word == 'key' and key or word) end
  local reply = redis.pcall(unpack(words))
  local err = type(reply) == 'table' and reply.err or ''
  if string.find(err, 'NOPERM') or string.find(err, 'ACL failure') or string.find(err, 'user executing the script') then
    table.insert(missing, words[1])
  end
end
local first = tonumber(ARGV[1])
for i = 2, first + 1 do try(ARGV[i]) end
for i = first + 2, #missing == 0 and #ARGV or 0 do
  try(ARGV[i])
  redis.call('DEL', key)
end
return missing`;

/** The commands that the user may not run on our keys. */
async function missingRights(connection: StoreConnection): Promise<string[]> {
  return connection.command('rights', async (client) => {
    try {
      const args = [harmless.length, ...harmless, ...writing];
      return strings((await client.eval(script, 1, connection.keyPrefix, ...args)) as string[]);
    } catch (error) {
      const { message } = error as Error;
      if (message.startsWith('NOPERM')) return ['EVAL'];
      // A Cluster, addressed as a single server: checkStore explains it.
      if (message.startsWith('MOVED')) return [];
      throw error;
    }
  });
}

export async function checkRights(connection: StoreConnection): Promise<void> {
  const missing = await missingRights(connection);
  if (missing.length === 0) return;
  const grant = missing.map((name) => `+${name.toLowerCase()}`).join(' ');
  throw new ConfigError([
    `the user of REDIS_URL may not run ${missing.join(', ')} on keys that begin with ${connection.keyPrefix}: grant it with ACL SETUSER (~${connection.keyPrefix}* ${grant})`,
  ]);
}
