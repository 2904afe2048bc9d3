/**
 * The first contact with a store: which data version it holds, and what an earlier router left in it.
 *
 * The Go router kept calls and leases in the same keys but has none of our indexes. Its live calls are taken
 * over once, before this replica answers its first request; the data version marks that it is done. It is a
 * cut-over: the two must not run side by side.
 */
import { ConfigError } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { StoreConnection } from './store/connection.js';
import { keysOf } from './store/keys.js';
import type { LeaseTimes } from './store/store.js';
import { parseTierConfigJson, poolsOf, type TierConfig } from './tiers.js';

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
  let imported = 0;
  for await (const sids of callSids(connection)) {
    imported += Number(
      await connection.run(
        'importCalls',
        [times.leaseTtlMs, times.callInfoTtlMs, JSON.stringify(shared), ...sids],
        'import',
      ),
    );
  }
  await connection.command('data_version', (client) => client.set(keys.dataVersion, String(dataVersion)));
  if (imported > 0) log.info({ calls: imported }, 'live calls of an earlier router were taken over');
  return imported;
}

async function* callSids(connection: StoreConnection): AsyncGenerator<string[]> {
  const { callPattern, callPrefix } = keysOf(connection.keyPrefix);
  let cursor = '0';
  do {
    const [next, found] = await connection.scan(cursor, callPattern, 500);
    cursor = next;
    if (found.length > 0) yield found.map((key) => key.slice(callPrefix.length));
  } while (cursor !== '0');
}
