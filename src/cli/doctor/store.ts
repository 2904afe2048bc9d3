/** Checks of the store: reachable, version, persistence, speed, data. Only reads. */
import { isDeepStrictEqual } from 'node:util';
import { dataVersion } from '../../calls/import.js';
import { checkStore, type StoreFacts, storeFacts } from '../../calls/store/check.js';
import { StoreConnection } from '../../calls/store/connection.js';
import { keysOf } from '../../calls/store/keys.js';
import { checkRights } from '../../calls/store/rights.js';
import type { Clock } from '../../clock.js';
import type { Config } from '../../config/config.js';
import { hidePassword } from '../../config/fields.js';
import { parseStoredHold } from '../../config/hold.js';
import { parseTierConfigJson, serializeTierConfig, type TierConfig } from '../../config/tiers.js';
import { startEmbeddedValkey } from '../../embedded/valkey.js';
import { ConfigError } from '../../errors.js';
import { type Check, fail, failIf, ok, warn, warnUnless } from '../commands/doctor.js';
import { oneLine, toFailure } from '../failure.js';

const rounds = 5;
/** A round trip inside a data centre takes less than 1 ms. */
const slowRoundTripMs = 10;
const slowScriptMs = 50;
const minTimeoutMs = 4000;
const clockWarningMs = 2000;
/** Share of `maxmemory`. */
const memoryWarningShare = 0.9;

/** Starts the embedded store if it is configured. */
export async function checkStoreAt(config: Config, clock: Clock): Promise<Check[]> {
  if (config.redisUrl !== 'embedded') return checkStoreAtUrl(config.redisUrl, config, clock);
  try {
    const engine = await startEmbeddedValkey();
    try {
      return await checkStoreAtUrl(engine.url, config, clock);
    } finally {
      await engine.stop();
    }
  } catch (error) {
    return [fail('store', oneLine(toFailure(error).message), 'Set REDIS_URL to a Redis or Valkey server.')];
  }
}

async function checkStoreAtUrl(url: string, config: Config, clock: Clock): Promise<Check[]> {
  const connection = new StoreConnection({
    url,
    keyPrefix: config.redisKeyPrefix,
    // A slow store is reported by its own check.
    commandTimeoutMs: Math.max(minTimeoutMs, config.redisCommandTimeoutMs),
    clock,
  });
  const shown = config.redisUrl === 'embedded' ? 'embedded Valkey' : hidePassword(url);
  try {
    const checks = [await checkRoundTrip(connection, clock, shown)];
    checks.push(await checkAccess(connection));
    const facts = await storeFacts(connection);
    checks.push(await checkVersion(connection, facts), await checkCluster(connection, facts, config));
    checks.push(checkEviction(facts), checkMemory(facts), await checkPersistence(connection, facts, config));
    checks.push(...(await checkReplication(connection, facts, config)));
    checks.push(await checkClock(connection, clock), await checkScript(connection, clock));
    checks.push(await checkDataVersion(connection), await checkTiers(connection, config));
    return checks;
  } catch (error) {
    const reason = oneLine(toFailure(error).message)
      .replace(/^(?:the store did not answer \(\w+\)|cannot reach the store): /, '')
      .replace(/^connect ECONNREFUSED /, 'connection refused by ')
      .replace(/^getaddrinfo ENOTFOUND /, 'no such host ');
    return [fail('store', `cannot use ${shown}: ${reason}`, hintFor(reason))];
  } finally {
    connection.close();
  }
}

function hintFor(reason: string): string {
  if (/password/.test(reason)) return 'Then run doctor again.';
  if (/NOPERM/.test(reason)) return 'Grant it to the user of REDIS_URL (ACL SETUSER).';
  return 'Start it, or set REDIS_URL; REDIS_URL=embedded runs one inside the router.';
}

async function timed(clock: Clock, work: () => Promise<unknown>): Promise<{ middle: number; worst: number }> {
  const times: number[] = [];
  for (let i = 0; i < rounds; i++) {
    const start = clock.monotonic();
    await work();
    times.push(clock.monotonic() - start);
  }
  times.sort((a, b) => a - b);
  return { middle: times[Math.floor(rounds / 2)] ?? 0, worst: times[rounds - 1] ?? 0 };
}

const ms = (value: number) => `${value.toFixed(value < 10 ? 1 : 0)} ms`;

async function checkRoundTrip(connection: StoreConnection, clock: Clock, shown: string): Promise<Check> {
  // The first one connects.
  await connection.command('ping', (client) => client.ping());
  const { middle } = await timed(clock, () => connection.command('ping', (client) => client.ping()));
  const text = `${shown} answers in ${ms(middle)}`;
  return warnUnless(middle <= slowRoundTripMs, 'store', text, 'Run the router closer to the store.');
}

async function checkAccess(connection: StoreConnection): Promise<Check> {
  const problem = await configProblem(() => checkRights(connection));
  const text = 'the user may run every command that the router uses';
  return failIf(problem, 'store access', text, 'Then run doctor again.');
}

async function checkVersion(connection: StoreConnection, { engine, version }: StoreFacts): Promise<Check> {
  // An address that fits every setup: only the version can fail.
  const problem = await configProblem(() =>
    checkStore(connection, { redisUrl: 'redis+cluster://', redisKeyPrefix: '{any}:' }),
  );
  return failIf(problem, 'store version', `${engine} ${version}`, 'Upgrade it.');
}

async function checkCluster(
  connection: StoreConnection,
  { clusterEnabled }: StoreFacts,
  config: Config,
): Promise<Check> {
  const prefix = config.redisKeyPrefix;
  if (!clusterEnabled) return ok('store cluster', `not a Cluster; keys begin with ${prefix}`);
  const problem = await configProblem(() => checkStore(connection, config));
  const text = `a Cluster, and all keys share the slot of ${prefix}`;
  return failIf(problem, 'store cluster', text, 'See docs/configuration.md.');
}

async function configProblem(work: () => Promise<void>): Promise<string | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    if (error instanceof ConfigError) return error.problems.join('; ');
    throw error;
  }
}

function checkEviction({ evictionPolicy }: StoreFacts): Check {
  const name = 'store eviction';
  if (evictionPolicy === 'noeviction') return ok(name, evictionPolicy);
  const hint = 'Set `maxmemory-policy noeviction`, or calls are lost when memory runs out.';
  return evictionPolicy === ''
    ? warn(name, 'the policy is unknown', hint)
    : fail(name, `the policy is ${evictionPolicy}`, hint);
}

function checkMemory({ usedMemoryBytes, maxMemoryBytes }: StoreFacts): Check {
  const name = 'store memory';
  const mebibytes = (bytes: number) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
  if (maxMemoryBytes === 0) return ok(name, `${mebibytes(usedMemoryBytes)} used, no limit`);
  const share = usedMemoryBytes / maxMemoryBytes;
  const text = `${mebibytes(usedMemoryBytes)} used of ${mebibytes(maxMemoryBytes)} (${Math.floor(100 * share)} %)`;
  const hint = 'Raise `maxmemory`, or delete other data: a full store rejects new calls (docs/runbook.md).';
  return share >= 1 ? fail(name, text, hint) : warnUnless(share < memoryWarningShare, name, text, hint);
}

async function checkPersistence(
  connection: StoreConnection,
  facts: StoreFacts,
  config: Config,
): Promise<Check> {
  const name = 'store persistence';
  const persistence = (await configuredPersistence(connection)) ?? facts.persistence;
  if (persistence === 'append-only file') return ok(name, persistence);
  if (config.redisUrl === 'embedded') {
    return warn(name, 'the embedded store is not persistent', 'Set REDIS_URL for production.');
  }
  const hint = 'Set `appendonly yes`, or a restart of the store loses live calls.';
  return warn(name, persistence === 'none' ? 'none' : `${persistence} only`, hint);
}

/** No check for a single server, whose writes are not replicated. */
async function checkReplication(
  connection: StoreConnection,
  { connectedReplicas: connected }: StoreFacts,
  { redisUrl, redisWaitReplicas: wanted }: Config,
): Promise<Check[]> {
  const name = 'store replication';
  const text = `${connected} connected ${connected === 1 ? 'replica' : 'replicas'}`;
  if (wanted > connected) {
    const hint = 'Add replicas, or lower REDIS_WAIT_REPLICAS: until then no write is confirmed.';
    return [warn(name, `${text}, but REDIS_WAIT_REPLICAS is ${wanted}`, hint)];
  }
  if (connected === 0 && !redisUrl.startsWith('redis+sentinel:')) return [];
  const [least, lag] = await configured(connection, 'min-replicas-to-write', 'min-replicas-max-lag');
  const hint =
    'Set `min-replicas-to-write 1` and `min-replicas-max-lag 10`, or a master that is cut off from its replicas accepts writes that are lost.';
  if (least === undefined) return [warn(name, `${text}; min-replicas-to-write is unknown`, hint)];
  const settings = `${text}, min-replicas-to-write ${least}, min-replicas-max-lag ${lag}`;
  // Redis ignores both while one of them is 0.
  return [warnUnless(Number(least) >= 1 && Number(lag) >= 1, name, settings, hint)];
}

/** The values of these settings, or nothing if the store rejects CONFIG. */
async function configured(connection: StoreConnection, ...names: string[]): Promise<string[]> {
  try {
    const replies = await connection.command('config', (client) =>
      Promise.all(names.map((name) => client.config('GET', name))),
    );
    return replies.map((reply) => (Array.isArray(reply) ? String(reply[1] ?? '') : ''));
  } catch {
    return [];
  }
}

/** Managed stores often reject CONFIG; INFO does not tell snapshots from no persistence. */
async function configuredPersistence(connection: StoreConnection): Promise<string | undefined> {
  const [appendonly, save] = await configured(connection, 'appendonly', 'save');
  if (appendonly === undefined) return undefined;
  if (appendonly === 'yes') return 'append-only file';
  return save === '' ? 'none' : 'snapshots';
}

async function checkClock(connection: StoreConnection, clock: Clock): Promise<Check> {
  const before = clock.now();
  const [seconds, micros] = await connection.command('time', (client) => client.time());
  const here = (before + clock.now()) / 2;
  const offMs = Number(seconds) * 1000 + Number(micros) / 1000 - here;
  const text = `${ms(Math.abs(offMs))} ${offMs >= 0 ? 'ahead of' : 'behind'} this machine`;
  const hint = 'Leases use the clock of the store; times in logs will not match. Run NTP on both.';
  return warnUnless(Math.abs(offMs) < clockWarningMs, 'store clock', text, hint);
}

async function checkScript(connection: StoreConnection, clock: Clock): Promise<Check> {
  const { middle, worst } = await timed(clock, () => connection.run('snapshot', []));
  const text = `a script takes ${ms(middle)}, at worst ${ms(worst)}`;
  return warnUnless(worst < slowScriptMs, 'store scripts', text, 'Check its slow log, load and swap.');
}

async function checkDataVersion(connection: StoreConnection): Promise<Check> {
  const name = 'store data';
  const { dataVersion: key } = keysOf(connection.keyPrefix);
  const found = await connection.command('data_version', (client) => client.get(key));
  if (found === null) return ok(name, `none yet under ${connection.keyPrefix}; the first router writes it`);
  if (Math.abs(Number(found) - dataVersion) <= 1) return ok(name, `version ${found}, supported`);
  return fail(
    name,
    `version ${found}; this router supports version ${dataVersion}`,
    'Use a router of a version between the two, or another REDIS_KEY_PREFIX.',
  );
}

async function checkTiers(connection: StoreConnection, { tierConfig }: Config): Promise<Check> {
  const name = 'store tiers';
  const { tierConfig: key, tierHold } = keysOf(connection.keyPrefix);
  const [text, holdText] = await connection.command('tiers', (client) =>
    Promise.all([client.get(key), client.get(tierHold)]),
  );
  if (text === null) return ok(name, 'none yet; the first router writes TIER_CONFIG or its default');
  const { config, problems } = parseTierConfigJson(text, `${key}: `);
  const set = 'Change it with `smart-router tiers set`.';
  if (!config) return fail(name, problems.join('; '), set);
  const { hold, problem } = parseStoredHold(holdText);
  if (problem) return fail(name, `${tierHold}: ${problem}; calls do not wait`, set);
  const isSame = (given: TierConfig) =>
    serializeTierConfig(given) === serializeTierConfig(config) && isDeepStrictEqual(given.hold, hold);
  return tierConfig && !isSame(tierConfig)
    ? warn(name, 'TIER_CONFIG differs from the store; the store applies', set)
    : ok(name, `chain ${config.defaultChain.join(' > ')}`);
}
