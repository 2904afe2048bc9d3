/**
 * The first contact with a store: which data version it holds, and what an earlier router left in it.
 *
 * The Go router kept calls and leases in the same keys but has none of our indexes. Its live calls are taken
 * over once, before this replica answers its first request; the data version marks that it is done. It is a
 * cut-over: the two must not run side by side.
 *
 * Whoever goes back to the Go router and comes here again finds our own keys as they were left: calls that have ended
 * since, pods that are gone. They are put right in the same scripts that take calls over.
 */

import { parseTierConfigJson, poolsOf, type TierConfig } from '../config/tiers.js';
import { ConfigError } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { StoreConnection } from './store/connection.js';
import { keysOf } from './store/keys.js';
import type { LeaseTimes } from './store/store.js';

/** Neighbouring versions run side by side during a roll; anything further apart is refused. */
export const dataVersion = 1;

export interface AdoptOptions {
  connection: StoreConnection;
  times: LeaseTimes;
  log: Logger;
  /** What counts if the store has no tier configuration of its own. */
  tiers: TierConfig;
}

export async function adoptStore({ connection, times, log, tiers }: AdoptOptions): Promise<number> {
  const keys = keysOf(connection.keyPrefix);
  const found = await connection.command('data_version', (client) => client.get(keys.dataVersion));
  if (found !== null) {
    if (Math.abs(Number(found) - dataVersion) <= 1) return 0;
    throw new ConfigError([
      `the store holds data of version ${found}, this router knows version ${dataVersion}: use a router between the two, or another REDIS_KEY_PREFIX`,
    ]);
  }
  // Which pools are shared is asked before they are converted: only there does one lease stand for several calls.
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
  if (imported > 0) log.info({ calls: imported }, 'live calls of an earlier router were taken over');
  return imported;
}

/** Of names: what a script does with a page of them takes the store some 10 ms. */
const perPage = 500;

/** Pods of which there are keys that only we write, and calls of whichever router. */
async function* foundPages(connection: StoreConnection): AsyncGenerator<{ pods: string[]; sids: string[] }> {
  const { keyPrefix } = connection;
  const { pattern, callPrefix } = keysOf(keyPrefix);
  let cursor = '0';
  do {
    const [next, found] = await connection.scan(cursor, pattern, perPage);
    cursor = next;
    const after = (prefix: string) =>
      found.filter((key) => key.startsWith(prefix)).map((key) => key.slice(prefix.length));
    const pods = new Set([...after(`${keyPrefix}pod:calls:`), ...after(`${keyPrefix}pod:suspended:`)]);
    const sids = after(callPrefix);
    if (pods.size + sids.length > 0) yield { pods: [...pods], sids };
  } while (cursor !== '0');
}
