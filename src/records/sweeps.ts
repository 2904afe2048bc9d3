/**
 * The two sweeps over one workflow, in bounded batches. A row that the database refuses to change (a constraint that
 * was added after the row, a trigger) must keep nobody from coming back: its batch is taken one by one, and that row is
 * held for a person. A batch that another replica is at is left to it.
 */
import type { Logger } from '../observe/log.js';
import { isRowFault } from './sessions.js';
import type { Bounds, Only, RecordStore, Recovered } from './store.js';

export interface SweepOptions {
  workflow: string;
  store: RecordStore;
  bounds: Bounds;
  batchSize: number;
  log: Logger;
  onRecovered(recovered: readonly Recovered[]): Promise<void>;
}

type Take = (most: number, only: Only) => Promise<Recovered[] | undefined>;

/** What of the list of stuck records a sweep is for. */
type Which = { unclaimed: boolean; judges: boolean };
const slow: Which = { unclaimed: true, judges: true };

/** About 8 MB of the table at a time: a few milliseconds to read. */
const blocksAtOnce = 1000;

export class Sweeps {
  readonly #options: SweepOptions;

  constructor(options: SweepOptions) {
    this.#options = options;
  }

  /** Claims without an owner; with `judges` false only those past their timeout. */
  async claims(judges: boolean, signal: AbortSignal): Promise<void> {
    const { store, bounds, batchSize } = this.#options;
    const deadMs = judges ? bounds.deadMs : null;
    await this.#all(() => store.forget(batchSize, deadMs, bounds.graceMs), signal);
    const take: Take = (most, only) => store.recoverClaims(most, deadMs, bounds.graceMs, only);
    await this.#drain(take, { unclaimed: false, judges }, signal);
  }

  /** Rows in Processing that carry no claim of ours. */
  async unclaimed(signal: AbortSignal): Promise<void> {
    const { store, bounds, batchSize } = this.#options;
    await this.#all(() => store.forget(batchSize, bounds.deadMs, bounds.graceMs), signal);
    await this.#all(() => store.sightUntimed(batchSize), signal);
    const take: Take = (most, only) => store.recoverUnclaimed(most, bounds.afterMs, only);
    if (store.table.isIndexed || !store.table.hasBlocks) return await this.#drain(take, slow, signal);
    // Without an index every query would read the table from its beginning: so it is read once, piece by piece.
    const end = await this.#countBlocks();
    for (let from = 0; from < end; from += blocksAtOnce) {
      const blocks = { from, to: from + blocksAtOnce };
      const takeSome: Take = (most, only) =>
        only.ids ? take(most, only) : store.recoverUnclaimed(most, bounds.afterMs, { blocks });
      await this.#drain(takeSome, slow, signal);
    }
  }

  /** Batch by batch, until one is not full. */
  async #all(some: () => Promise<number>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await some()) >= this.#options.batchSize);
  }

  async #drain(take: Take, which: Which, signal: AbortSignal): Promise<void> {
    const { batchSize, onRecovered } = this.#options;
    while (!signal.aborted) {
      let recovered: Recovered[] | undefined;
      try {
        recovered = await take(batchSize, {});
      } catch (error) {
        if (!isRowFault(error)) throw error;
        // Nothing refused is left once all have been looked at.
        if ((await this.#oneByOne(take, which, signal)) === 0) throw error;
        continue;
      }
      if (!recovered) return;
      await onRecovered(recovered);
      if (recovered.length < batchSize) return;
    }
  }

  /** Resolves to how many were brought back or held. */
  async #oneByOne(take: Take, which: Which, signal: AbortSignal): Promise<number> {
    const { store, bounds, batchSize, log, workflow, onRecovered } = this.#options;
    const { records } = await store.stuck(batchSize, bounds, which);
    let done = 0;
    for (const { id, isHeld } of records) {
      if (isHeld) continue;
      if (signal.aborted) return done;
      try {
        const recovered = (await take(1, { ids: [id] })) ?? [];
        done += recovered.length;
        await onRecovered(recovered);
      } catch (error) {
        if (!isRowFault(error)) throw error;
        log.error(
          { workflow, record: id, err: error },
          'the database refuses to bring this record back: it is held for a person',
        );
        const held = (await take(1, { ids: [id], hold: true })) ?? [];
        done += held.length;
        await onRecovered(held);
      }
    }
    return done;
  }

  async #countBlocks(): Promise<number> {
    const { store } = this.#options;
    const { rows } = await store.sessions.query<{ blocks: string }>(
      "SELECT pg_relation_size(to_regclass($1)) / current_setting('block_size')::bigint AS blocks",
      [store.table.name],
    );
    return Number(rows[0]?.blocks ?? 0) + 1;
  }
}
