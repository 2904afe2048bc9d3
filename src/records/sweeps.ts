/**
 * The two sweeps over one workflow, in batches. If the database refuses to change a row (a constraint added after the
 * row, a trigger), its batch is swept one record at a time, and the refused record is held for a person. A replica that
 * finds another one sweeping leaves it the rest: the one that never met another has swept everything up to its place.
 */
import type { Logger } from '../observe/log.js';
import { oneByOne } from './row-faults.js';
import { mayBeRowFault } from './sessions.js';
import type { Blocks, RecordStore, Recovered } from './store.js';
import type { Bounds } from './workflow.js';

export interface SweepOptions {
  workflow: string;
  store: RecordStore;
  bounds: Bounds;
  batchSize: number;
  log: Logger;
  onRecovered(recovered: readonly Recovered[]): Promise<void>;
}

/** Recovers or holds these; undefined while another replica sweeps. */
type Recover = (ids: readonly string[], hold: boolean) => Promise<readonly Recovered[] | undefined>;

/** Ids listed at a time, to be recovered in batches. */
const maxListed = 10_000;

export class Sweeps {
  constructor(private readonly options: SweepOptions) {}

  /** Recovers claims without a live worker; without `judgesHeartbeats` only those past their timeout. */
  async claims(judgesHeartbeats: boolean, signal: AbortSignal): Promise<void> {
    const { store, bounds, batchSize, onRecovered } = this.options;
    const recover: Recover = async (ids, hold) =>
      (await store.recoverClaims(ids.length, bounds, { judgesHeartbeats, ids, hold }))?.recovered;
    // Passes over locked, changed and deleted rows.
    let skip = 0;
    let hasForgotten = false;
    while (!signal.aborted) {
      let batch: Awaited<ReturnType<RecordStore['recoverClaims']>>;
      try {
        batch = await store.recoverClaims(batchSize, bounds, { judgesHeartbeats, skip });
      } catch (error) {
        if (!mayBeRowFault(error)) throw error;
        // The reason may be a claim with an id that the table cannot have.
        if (!hasForgotten) {
          await this.#repeat(() => store.forget(batchSize, bounds, judgesHeartbeats), signal);
          hasForgotten = true;
          continue;
        }
        const { records } = await store.stuck(batchSize, bounds, { unclaimed: false, judgesHeartbeats });
        const ids = records.map(({ id }) => id);
        if ((await this.#recoverOneByOne(ids, recover, signal)) === 0) throw error;
        continue;
      }
      if (!batch) return;
      const { recovered, lookedAt } = batch;
      await onRecovered(recovered);
      const left = recovered.length < batchSize ? lookedAt - recovered.length : 0;
      // A claim whose record was changed or deleted still takes a place of its key.
      if (store.table.limit && left > 0 && !hasForgotten) {
        await this.#repeat(() => store.forget(batchSize, bounds, judgesHeartbeats), signal);
        hasForgotten = true;
        continue;
      }
      if (lookedAt < batchSize) return;
      skip += left;
    }
  }

  /** Recovers rows in Processing without a claim. */
  async unclaimed(signal: AbortSignal): Promise<void> {
    const { store, bounds, batchSize } = this.options;
    await this.#repeat(() => store.forget(batchSize, bounds), signal);
    const { isIndexed, hasBlocks, hasUntimed } = store.table;
    const byBlocks = hasBlocks && !isIndexed;
    if (hasUntimed && !byBlocks) await this.#markUntimed(undefined, signal);
    if (!hasBlocks) await this.#unclaimedIn(undefined, signal);
    else if (byBlocks || (await this.#unclaimedIn(undefined, signal, 1)) === 'more')
      await this.#unclaimedByBlocks(signal, hasUntimed && byBlocks);
  }

  /** Without an index, or if much of the table is stuck, every query would read the table from its start: so read it once. */
  async #unclaimedByBlocks(signal: AbortSignal, marksUntimed: boolean): Promise<void> {
    const { store } = this.options;
    for (const blocks of await store.ranges()) {
      if (marksUntimed) await this.#markUntimed(blocks, signal);
      if (signal.aborted || (await this.#unclaimedIn(blocks, signal)) === 'left') return;
    }
  }

  /** Resolves to whether there may be more, or the rest is left to another replica. */
  async #unclaimedIn(
    blocks: Blocks | undefined,
    signal: AbortSignal,
    maxLists = Number.POSITIVE_INFINITY,
  ): Promise<'more' | 'done' | 'left'> {
    const { store, bounds } = this.options;
    // Rows still there after their list was swept are locked: for the next sweep.
    let skip = 0;
    for (let lists = 0; lists < maxLists && !signal.aborted; lists += 1) {
      const listed = await store.listUnclaimed(maxListed, bounds.stuckAfterMs, skip, blocks);
      const done = await this.#recoverListed(listed, signal);
      if (done === undefined) return 'left';
      if (listed.length < maxListed) return 'done';
      skip += listed.length - done;
    }
    return 'more';
  }

  /** Resolves to how many were recovered or held; undefined if another replica sweeps. */
  async #recoverListed(listed: readonly string[], signal: AbortSignal): Promise<number | undefined> {
    const { store, bounds, batchSize, onRecovered } = this.options;
    const recover: Recover = (ids, hold) => store.recoverUnclaimed(ids, bounds.stuckAfterMs, hold);
    let done = 0;
    for (let at = 0; at < listed.length && !signal.aborted; at += batchSize) {
      const ids = listed.slice(at, at + batchSize);
      try {
        const recovered = await recover(ids, false);
        if (!recovered) return undefined;
        done += recovered.length;
        await onRecovered(recovered);
      } catch (error) {
        if (!mayBeRowFault(error)) throw error;
        done += await this.#recoverOneByOne(ids, recover, signal);
      }
    }
    return done;
  }

  async #markUntimed(blocks: Blocks | undefined, signal: AbortSignal): Promise<void> {
    const { store, batchSize, log, workflow } = this.options;
    try {
      await this.#repeat(() => store.markUntimed(batchSize, blocks), signal);
    } catch (error) {
      if (!mayBeRowFault(error)) throw error;
      log.error({ workflow, err: error }, 'records without a timestamp not marked: they do not age');
    }
  }

  /** Runs batches until one is not full. */
  async #repeat(batch: () => Promise<number>, signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await batch()) >= this.options.batchSize);
  }

  /** Resolves to how many were recovered or held. */
  async #recoverOneByOne(ids: readonly string[], recover: Recover, signal: AbortSignal): Promise<number> {
    const { log, workflow, onRecovered } = this.options;
    let done = 0;
    const run = async (id: string, hold: boolean) => {
      const recovered = (signal.aborted ? undefined : await recover([id], hold)) ?? [];
      done += recovered.length;
      await onRecovered(recovered);
      return recovered.length > 0;
    };
    for (const [id, error] of await oneByOne(ids, (id) => run(id, false))) {
      const outcome = await run(id, true).then(
        () => 'held for a person',
        (again: unknown) => {
          if (!mayBeRowFault(again)) throw again;
          return 'it cannot be held either';
        },
      );
      log.error(
        { workflow, record: id, err: error },
        `record cannot be recovered: the database refuses it; ${outcome}`,
      );
    }
    return done;
  }
}
