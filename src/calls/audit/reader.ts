/**
 * Reads the store for an audit while calls are served: names page by page with cursors, which miss or repeat what
 * changes meanwhile, and then what they stand for in one short script, which sees one moment. Nothing is written, and
 * no command takes the store longer than a sweep's does.
 */
import { AppError } from '../../errors.js';
import type { Client, Reply, StoreConnection } from '../store/connection.js';
import { availableKey, globOf, keysOf } from '../store/keys.js';
import { pairs } from '../store/replies.js';
import { list } from '../store/store.js';
import { type KeyContent, type KeyFacts, type Keyspace, parseKind } from './keyspace.js';

/** Of names: a page of them takes the store about 0.2 ms. */
const namesPerPage = 200;
/** Of all keys of the server: many of them may not be ours. */
const keysPerPage = 250;

/** A part of the keys at one moment, cut down to what was asked about. */
export interface Part {
  keyspace: Keyspace;
  /** Since when surely nobody has changed the limit of a pool; undefined if nothing in this part depends on it. */
  limitsSinceMs: number | undefined;
}

export class AuditReader {
  readonly #connection: StoreConnection;
  readonly #keys: ReturnType<typeof keysOf>;

  constructor(connection: StoreConnection) {
    this.#connection = connection;
    this.#keys = keysOf(connection.keyPrefix);
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

  /** Every pool that the store knows, and how many calls a pod of it may have. */
  async pools(): Promise<Map<string, number>> {
    const limits = new Map<string, number>();
    for await (const page of this.#pages(this.#keys.pools)) {
      for (const [pool, value] of page) limits.set(pool, parseKind(value).max);
    }
    return limits;
  }

  assigned(pool: string): AsyncGenerator<string[]> {
    return this.#members(this.#keys.assigned(pool));
  }

  available(pool: string): AsyncGenerator<string[]> {
    return this.#members(availableKey(this.#keys, pool));
  }

  /** The calls that the index of a pool has. */
  indexed(pool: string): AsyncGenerator<string[]> {
    return this.#members(this.#keys.poolCalls(pool));
  }

  withMetadata(): AsyncGenerator<string[]> {
    return this.#members(this.#keys.podMetadata);
  }

  /** Everything about these pods and calls, which were found in a set of this pool (empty = in none). */
  async look(pool: string, pods: readonly string[], calls: readonly string[]): Promise<Part> {
    const args = [pool, pods.length, ...pods, ...calls];
    const [now, since, ...rows] = list(await this.#connection.run('audit', args));
    const keys = new Map<string, KeyContent>();
    for (const row of rows) {
      const [key, type, items] = list(row);
      // What is looked at here is what the keys hold; their time was looked at with their names.
      keys.set(String(key), { type: String(type), ttlMs: -1, items: strings(items ?? []) });
    }
    return {
      keyspace: { prefix: this.#connection.keyPrefix, nowMs: Number(now), keys },
      limitsSinceMs: since === '' ? undefined : Number(since),
    };
  }

  async *#members(key: string): AsyncGenerator<string[]> {
    for await (const page of this.#pages(key)) yield page.map(([member]) => member);
  }

  /** Members of a set, of a sorted set with their scores, fields of a hash with their values; nothing of anything else. */
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
        // It was converted meanwhile: the next audit reads it as what it is then.
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

function strings(reply: Reply): string[] {
  return list(reply).map(String);
}
