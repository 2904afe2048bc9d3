/**
 * The configuration of merchants as this replica last read it.
 *
 * Large hashes are read in pages, and only changed entries are parsed: with 10,000 merchants, one read of everything blocked
 * the event loop for 75 to 135 ms at every refresh. A digest by the store would take it longer (9 to 22 ms) than the read (4 ms).
 */
import { isName, showValue } from '../config/tiers.js';
import { type MerchantConfig, parseStoredMerchant } from './chain.js';
import type { Client, StoreConnection } from './store/connection.js';

export type Warn = (fields: object, message: string) => void;

/** A merchant as stored, and what was made of it. */
interface MerchantEntry {
  text: string;
  config: MerchantConfig;
  problem?: string;
}

export class Merchants {
  #entries: ReadonlyMap<string, MerchantEntry> = new Map();
  #configs: ReadonlyMap<string, MerchantConfig> = new Map();

  constructor(private readonly connection: StoreConnection) {}

  get configs(): ReadonlyMap<string, MerchantConfig> {
    return this.#configs;
  }

  /** Parses an entry, unless its text is the known one. */
  read(id: string, text: string): MerchantEntry {
    const known = this.#entries.get(id);
    return known?.text === text ? known : { text, ...parseStoredMerchant(text) };
  }

  /** Returns the merchants that have changed. */
  replace(entries: ReadonlyMap<string, MerchantEntry>, warn: Warn): string[] {
    const configs = new Map<string, MerchantConfig>();
    const changed: string[] = [];
    for (const [id, entry] of entries) {
      // An empty id would apply to all calls without a merchant.
      if (!isName(id)) {
        warn({ merchant: showValue(id) }, 'merchant entry with an invalid id ignored');
        continue;
      }
      const { config, problem } = entry;
      if (problem) warn({ merchant: id, problem }, 'malformed merchant entry; default chain used');
      configs.set(id, config);
      if (this.#entries.get(id) !== entry) changed.push(id);
    }
    for (const id of this.#configs.keys()) if (!configs.has(id)) changed.push(id);
    this.#entries = entries;
    this.#configs = configs;
    return changed;
  }

  /** Applies limits that were written by hand, or by a replica of a version without limits. */
  async applyLimits(limits: ReadonlyMap<string, string>): Promise<void> {
    const limitOf = (id: string) => String(this.#configs.get(id)?.max_calls ?? '');
    const limited = [...this.#configs].flatMap(([id, { max_calls }]) =>
      max_calls === undefined ? [] : [id],
    );
    for (const id of new Set([...limited, ...limits.keys()])) {
      if (limitOf(id) === (limits.get(id) ?? '')) continue;
      const args = [id, this.#entries.get(id)?.text ?? '', '', limitOf(id)];
      await this.connection.run('setMerchant', args, 'set_merchant');
    }
  }
}

/** Of a hash that is read. */
const pageSize = 500;

/** Reads a hash in pages, so that neither the store nor this process is busy with all of it at once. */
export async function readHash<T>(
  client: Client,
  key: string,
  read: (field: string, value: string) => T,
): Promise<Map<string, T>> {
  const found = new Map<string, T>();
  let cursor = '0';
  do {
    const [next, page] = await client.hscan(key, cursor, 'COUNT', pageSize);
    for (let i = 0; i + 1 < page.length; i += 2) {
      const field = page[i] as string;
      found.set(field, read(field, page[i + 1] as string));
    }
    cursor = next;
  } while (cursor !== '0');
  return found;
}
