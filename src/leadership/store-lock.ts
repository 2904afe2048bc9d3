/**
 * The lock as one record in our own store (`{prefix}leader`), for routers whose pods do not come from Kubernetes.
 *
 * elect.lua compares and swaps; the version is the store's clock in microseconds, so that a record written after a
 * flush is never mistaken for the one before. The record has no TTL: when a holder is dead is for the observers to
 * say. It is as good as the store: a failover that loses the last write may give the lock to two, and the epoch
 * keeps them apart. After a restart without data the router that held the lock takes it at once. Should it have been cut
 * off before that, and another router have led, two lead for one retry period, and the epoch keeps those apart too.
 */
import { type StoreConnection, unlessWrongType } from '../calls/store/connection.js';
import { keysOf } from '../calls/store/keys.js';
import type { HeldRecord, LeaseLock, LockRecord } from './leadership.js';

export class StoreLock implements LeaseLock {
  readonly description: string;
  readonly forgets = true;
  readonly #connection: StoreConnection;
  readonly #key: string;

  constructor(connection: StoreConnection) {
    this.#connection = connection;
    this.#key = keysOf(connection.keyPrefix).leader;
    this.description = `the key ${this.#key}`;
  }

  async read(timeoutMs: number): Promise<HeldRecord | undefined> {
    const fields = await this.#within(
      timeoutMs,
      this.#connection.command('read_leader', (client) => unlessWrongType(client.hgetall(this.#key), {})),
    );
    if (fields.version === undefined) return undefined;
    return {
      version: fields.version,
      holder: fields.holder ?? '',
      writer: fields.writer ?? '',
      durationMs: wholeNumber(fields.duration_ms),
      acquiredAt: fields.acquired_at ?? '',
      renewedAt: fields.renewed_at ?? '',
      transitions: wholeNumber(fields.transitions),
    };
  }

  async write(
    record: LockRecord,
    version: string | undefined,
    timeoutMs: number,
  ): Promise<HeldRecord | undefined> {
    const { holder, writer, durationMs, acquiredAt, renewedAt, transitions } = record;
    const written = await this.#within(
      timeoutMs,
      this.#connection.run('elect', [
        version ?? '',
        holder,
        writer,
        durationMs,
        acquiredAt,
        renewedAt,
        transitions,
      ]),
    );
    return written === '' ? undefined : { ...record, version: String(written) };
  }

  /** The connection has a deadline of its own, which knows nothing of ours. */
  #within<T>(timeoutMs: number, work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const cancel = this.#connection.clock.after(timeoutMs, () =>
        reject(
          new Error(`the store did not answer within ${Math.round(timeoutMs)} ms (${this.description})`),
        ),
      );
      work.then(resolve, reject).finally(cancel);
    });
  }
}

/** Somebody may have written the field by hand. */
function wholeNumber(text: string | undefined): number {
  const number = Number(text);
  return Number.isSafeInteger(number) && number > 0 ? number : 0;
}
