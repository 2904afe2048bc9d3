/**
 * Prepares a store for first use: checks its data version and imports the live calls of an earlier router.
 *
 * The Go router kept calls and leases in the same keys, without our indexes. Its live calls are imported once, before this
 * replica serves its first request; the data version marks that as done. It is a cut-over: the two routers must not run at
 * the same time. After a return to the Go router, our keys still describe calls and pods that have ended since: the same
 * scripts correct them.
 */

import { parseTierConfigJson, poolsOf, type TierConfig } from '../config/tiers.js';
import { ConfigError } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { StoreConnection } from './store/connection.js';
import { globOf, keysOf } from './store/keys.js';
import type { LeaseTimes } from './store/store.js';

/** Adjacent versions run together during a rolling update; a larger difference is rejected. */
export const dataVersion = 1;

export interface PrepareOptions {
  connection: StoreConnection;
  times: LeaseTimes;
  log: Logger;
  /** Used if the store has no tier configuration. */
  tiers: TierConfig;
}

export async function prepareStore({ connection, times, log, tiers }: PrepareOptions): Promise<number> {
  const keys = keysOf(connection.keyPrefix);
  const found = await connection.command('data_version', (client) => client.get(keys.dataVersion));
  if (found !== null) {
    if (Math.abs(Number(found) - dataVersion) <= 1) return 0;
    throw new ConfigError([
      `the store has data version ${found}, this router supports ${dataVersion}: upgrade through a version in between, or use another REDIS_KEY_PREFIX`,
    ]);
  }
  // Read the shared pools before they are converted: only there one lease stands for several calls.
  const text = await connection.command('settings', (client) => client.get(keys.tierConfig));
  const config = (text === null ? undefined : parseTierConfigJson(text).config) ?? tiers;
  const shared = poolsOf(config).flatMap(({ id, kind }) => (kind === 'shared' ? [id] : []));
  const { leaseTtlMs, callInfoTtlMs, reportGraceMs } = times;
  let imported = 0;
  for await (const { pods, sids } of foundPages(connection)) {
    const args = [leaseTtlMs, callInfoTtlMs, reportGraceMs, JSON.stringify(shared), pods.length];
    imported += Number(await connection.run('importCalls', [...args, ...pods, ...sids], 'import'));
  }
  for (const pool of await connection.command('pools', (client) => client.hkeys(keys.pools))) {
    let cursor = '0';
    do cursor = String(await connection.run('importIndex', [pool, cursor, perPage], 'import'));
    while (cursor !== '0');
  }
  await connection.command('data_version', (client) => client.set(keys.dataVersion, String(dataVersion)));
  if (imported > 0) log.info({ calls: imported }, 'imported live calls of an earlier router');
  return imported;
}

/** Names per page: one page takes a script about 10 ms. */
const perPage = 500;

/** Pages of pods with keys that only this router writes, and of calls of either router. */
async function* foundPages(connection: StoreConnection): AsyncGenerator<{ pods: string[]; sids: string[] }> {
  const keys = keysOf(connection.keyPrefix);
  let cursor = '0';
  do {
    const [next, found] = await connection.scan(cursor, globOf(connection.keyPrefix), perPage);
    cursor = next;
    const valuesOf = (keyOf: (value: string) => string) =>
      found.filter((key) => key.startsWith(keyOf(''))).map((key) => key.slice(keyOf('').length));
    const pods = new Set([...valuesOf(keys.podCalls), ...valuesOf(keys.podSuspended)]);
    const sids = valuesOf(keys.call);
    if (pods.size + sids.length > 0) yield { pods: [...pods], sids };
  } while (cursor !== '0');
}
