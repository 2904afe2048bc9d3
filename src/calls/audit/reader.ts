/**
 * Reads the store for an audit while calls are served: names in pages with cursors, which may miss or repeat changing
 * members, and then their content in one short script, at one moment. It writes nothing, and no command takes longer than
 * that of a sweep.
 */
import { AppError } from '../../errors.js';
import type { Client, StoreConnection } from '../store/connection.js';
import { globOf, type Keys, keysOf } from '../store/keys.js';
import { list, pairs, parseKind, strings } from '../store/replies.js';
import type { KeyContent, KeyFacts, Keyspace } from './keyspace.js';

/** A page of names takes the store about 0.2 ms. */
const namesPerPage = 200;
/** Of all keys of the server: many may belong to others. */
const keysPerPage = 250;

/** A part of the keys at one moment. */
export interface Part {
  keyspace: Keyspace;
  /** The limits of pools, or that of the merchant, have not changed since then; undefined if no check needs it. */
  limitsSinceMs: number | undefined;
}

export class AuditReader {
  readonly #connection: StoreConnection;
  readonly keyNames: Keys;

  constructor(connection: StoreConnection) {
    this.#connection = connection;
    this.keyNames = keysOf(connection.keyPrefix);
  }

  /** Pages of all keys under the prefix, without it. */
  async *keys(): AsyncGenerator<[key: string, facts: KeyFacts][]> {
    let cursor = '0';
    do {
      const args = [cursor, keysPerPage, globOf(this.#connection.keyPrefix)];
      const [next, ...rows] = list(await this.#connection.run('auditKeys', args, 'audit'));
      cursor = String(next);
      yield rows.map((row) => {
        const [key, type, ttl] = list(row);
        return [String(key), { type: String(type), ttlMs: Number(ttl) }];
      });
    } while (cursor !== '0');
  }

  /** Every pool with its maximum number of calls per pod. */
  async pools(): Promise<Map<string, number>> {
    const limits = new Map<string, number>();
    for await (const page of this.#pages(this.keyNames.pools)) {
      for (const [pool, value] of page) limits.set(pool, parseKind(value).max);
    }
    return limits;
  }

  /** Everything about pods and calls that were found in a set of this pool (empty = in none). */
  async read(pool: string, pods: readonly string[], calls: readonly string[]): Promise<Part> {
    return this.#part('audit', [pool, pods.length, ...pods, ...calls]);
  }

  /** The queue and the limit of a merchant, with the pools that list the queue, and some calls of them. */
  async readWaiting(merchant: string, pools: readonly string[], calls: readonly string[]): Promise<Part> {
    return this.#part('auditWaiting', [merchant, pools.length, ...pools, ...calls]);
  }

  async #part(script: 'audit' | 'auditWaiting', args: (string | number)[]): Promise<Part> {
    const [now, since, ...rows] = list(await this.#connection.run(script, args, 'audit'));
    const keys = new Map<string, KeyContent>();
    for (const row of rows) {
      const [key, type, items] = list(row);
      // TTLs were checked with the names of the keys.
      keys.set(String(key), { type: String(type), ttlMs: -1, items: strings(items ?? null) });
    }
    return {
      keyspace: { prefix: this.#connection.keyPrefix, nowMs: Number(now), keys },
      limitsSinceMs: since === '' ? undefined : Number(since),
    };
  }

  /** Pages of the members of a set or sorted set, or of the fields of a hash. */
  async *members(key: string): AsyncGenerator<string[]> {
    for await (const page of this.#pages(key)) yield page.map(([member]) => member);
  }

  /** Members of a set, of a sorted set with scores, fields of a hash with values; nothing for other types. */
  async *#pages(key: string): AsyncGenerator<(readonly [member: string, value: string])[]> {
    const type = await this.#connection.command('audit', (client) => client.type(key));
    const scan = scans[type];
    let cursor = '0';
    do {
      if (!scan) return;
      let page: [string, string[]];
      try {
        page = await this.#connection.command('audit', (client) => scan(client, key, cursor));
      } catch (error) {
        // Its type was just converted: the next audit reads it.
        if (error instanceof AppError && /WRONGTYPE/.test(error.message)) return;
        throw error;
      }
      cursor = page[0];
      yield type === 'set' ? page[1].map((member) => [member, ''] as const) : pairs(page[1]);
    } while (cursor !== '0');
  }
}

type Scan = (client: Client, key: string, cursor: string) => Promise<[string, string[]]>;
const scans: Readonly<Record<string, Scan>> = {
  set: (client, key, cursor) => client.sscan(key, cursor, 'COUNT', namesPerPage),
  zset: (client, key, cursor) => client.zscan(key, cursor, 'COUNT', namesPerPage),
  hash: (client, key, cursor) => client.hscan(key, cursor, 'COUNT', namesPerPage),
};
