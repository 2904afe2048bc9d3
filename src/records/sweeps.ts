/**
 * The two sweeps over one workflow, in bounded batches. A row that the database refuses to change (a constraint that
 * was added after the row, a trigger) must keep nobody from coming back: its batch is taken one by one, and that row is
 * held for a person. Who finds another replica at it leaves it the rest of the sweep: of several at once, the one that
 * never met another has done everything up to its place, and goes on.
 */
import type { Logger } from '../observe/log.js';
import { isRowFault } from './sessions.js';
import type { Blocks, Bounds, RecordStore, Recovered } from './store.js';

export interface SweepOptions {
  workflow: string;
  store: RecordStore;
  bounds: Bounds;
  batchSize: number;
  log: Logger;
  onRecovered(recovered: readonly Recovered[]): Promise<void>;
}

/** Brings these back, or holds them; undefined while another replica is at it. */
type TakeThese = (ids: readonly string[], hold: boolean) => Promise<readonly Recovered[] | undefined>;

/** Ids that are read at a time, to be brought back in batches. */
const mostListed = 10_000;

export class Sweeps {
  readonly #options: SweepOptions;

  constructor(options: SweepOptions) {
    this.#options = options;
  }

  /** Claims without an owner; with `judges` false only those past their timeout. */
  async claims(judges: boolean, signal: AbortSignal): Promise<void> {
    const { store, bounds, batchSize, onRecovered } = this.#options;
    const deadMs = judges ? bounds.deadMs : null;
    const takeThese: TakeThese = async (ids, hold) =>
      (await store.recoverClaims(ids.length, deadMs, bounds.graceMs, { ids, hold }))?.recovered;
    // What somebody keeps locked is passed over, however much it is.
    let skip = 0;
    let hasForgotten = false;
    while (!signal.aborted) {
      let batch: Awaited<ReturnType<RecordStore['recoverClaims']>>;
      try {
        batch = await store.recoverClaims(batchSize, deadMs, bounds.graceMs, {}, skip);
      } catch (error) {
        if (!isRowFault(error)) throw error;
        // An id that the table cannot have is nobody's.
        if (!hasForgotten) {
          await this.#all(() => store.forget(batchSize, deadMs, bounds.graceMs), signal);
          hasForgotten = true;
          continue;
        }
        const { records } = await store.stuck(batchSize, bounds, { unclaimed: false, judges });
        const ids = records.map(({ id }) => id);
        // Nothing refused is left once all have been looked at.
        if ((await this.#oneByOne(ids, takeThese, signal)) === 0) throw error;
        continue;
      }
      if (!batch) return;
      const { recovered, lookedAt } = batch;
      await onRecovered(recovered);
      if (lookedAt < batchSize) return;
      if (recovered.length < batchSize) skip += lookedAt - recovered.length;
    }
  }

  /** Rows in Processing that carry no claim of ours. */
  async unclaimed(signal: AbortSignal): Promise<void> {
    const { store, bounds, batchSize } = this.#options;
    await this.#all(() => store.forget(batchSize, bounds.deadMs, bounds.graceMs), signal);
    const { isIndexed, hasBlocks, hasUntimed } = store.table;
    const inBlocks = hasBlocks && !isIndexed;
    if (hasUntimed && !inBlocks) await this.#all(() => store.sightUntimed(batchSize), signal);
    if (!hasBlocks) await this.#unclaimedOf(undefined, signal);
    else if (inBlocks || (await this.#unclaimedOf(undefined, signal, 1)) === 'more')
      await this.#byPieces(signal, hasUntimed && inBlocks);
  }

  /**
   * Without an index, or when a large part of the table is stuck, every query would read the table from its beginning:
   * so it is read once, piece by piece.
   */
  async #byPieces(signal: AbortSignal, seesUntimed: boolean): Promise<void> {
    const { store, batchSize } = this.#options;
    for (const blocks of await store.pieces()) {
      if (seesUntimed) await this.#all(() => store.sightUntimed(batchSize, blocks), signal);
      if (signal.aborted || (await this.#unclaimedOf(blocks, signal)) === 'left') return;
    }
  }

  /** List by list, at most so many. Resolves to whether there may be more, or the rest is left to another replica. */
  async #unclaimedOf(
    blocks: Blocks | undefined,
    signal: AbortSignal,
    mostLists = Number.POSITIVE_INFINITY,
  ): Promise<'more' | 'done' | 'left'> {
    const { store, bounds } = this.#options;
    // What is still there after its list was gone through is locked by somebody: it is for the next time.
    let skip = 0;
    for (let lists = 0; lists < mostLists && !signal.aborted; lists += 1) {
      const listed = await store.listUnclaimed(mostListed, bounds.afterMs, skip, blocks);
      const done = await this.#bringBack(listed, signal);
      if (done === undefined) return 'left';
      if (listed.length < mostListed) return 'done';
      skip += listed.length - done;
    }
    return 'more';
  }

  /** Resolves to how many of them were brought back or held; undefined when another replica is at it. */
  async #bringBack(listed: readonly string[], signal: AbortSignal): Promise<number | undefined> {
    const { store, bounds, batchSize, onRecovered } = this.#options;
    const takeThese: TakeThese = (ids, hold) => store.recoverUnclaimed(ids, bounds.afterMs, hold);
    let done = 0;
    for (let at = 0; at < listed.length && !signal.aborted; at += batchSize) {
      const ids = listed.slice(at, at + batchSize);
      try {
        const recovered = await takeThese(ids, false);
        if (!recovered) return undefined;
        done += recovered.length;
        await onRecovered(recovered);
      } catch (error) {
        if (!isRowFault(error)) throw error;
        done += await this.#oneByOne(ids, takeThese, signal);
      }
    }
    return done;
  }

  /** Batch by batch, until one is not full. */
  async #all(some: () => Promise<number>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await some()) >= this.#options.batchSize);
  }

  /** Resolves to how many were brought back or held. */
  async #oneByOne(ids: readonly string[], takeThese: TakeThese, signal: AbortSignal): Promise<number> {
    const { log, workflow, onRecovered } = this.#options;
    let done = 0;
    for (const id of ids) {
      if (signal.aborted) return done;
      let recovered: readonly Recovered[] | undefined;
      try {
        recovered = await takeThese([id], false);
      } catch (error) {
        if (!isRowFault(error)) throw error;
        log.error(
          { workflow, record: id, err: error },
          'the database refuses to bring this record back: it is held for a person',
        );
        recovered = await takeThese([id], true);
      }
      done += recovered?.length ?? 0;
      await onRecovered(recovered ?? []);
    }
    return done;
  }
}
