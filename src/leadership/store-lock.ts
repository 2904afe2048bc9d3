/**
 * The lock as one record in our store (`{prefix}leader`), for routers whose pods do not come from Kubernetes.
 *
 * elect.lua is the compare-and-swap; the version is the store's clock in microseconds, so that a record written after a
 * flush is never mistaken for an earlier one. The record has no TTL: observers decide when a holder is dead. The lock is
 * as safe as the store: a failover that loses the last write may give it to two replicas, and the epoch keeps them apart.
 * After a restart without data the last holder takes it at once. If that holder was cut off before, and another router
 * led, both lead for one retry period, and the epoch keeps them apart too.
 */
import { type StoreConnection, unlessWrongType } from '../calls/store/connection.js';
import { keysOf } from '../calls/store/keys.js';
import { within } from '../clock.js';
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

  /** The connection has its own, longer deadline. */
  #within<T>(timeoutMs: number, work: Promise<T>): Promise<T> {
    return within(this.#connection.clock, timeoutMs, work, () => {
      throw new Error(`no response from the store within ${Math.round(timeoutMs)} ms (${this.description})`);
    });
  }
}

/** The field may have been edited by hand. */
function wholeNumber(text: string | undefined): number {
  const number = Number(text);
  return Number.isSafeInteger(number) && number > 0 ? number : 0;
}
