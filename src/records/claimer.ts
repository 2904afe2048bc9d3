/**
 * Takes the next batch. If the database refuses one of its rows (a constraint that was added after the row, a trigger),
 * the rows are taken one by one, and the one that is refused is left alone for an hour: it would otherwise stand at
 * the head of the queue and keep everybody behind it.
 */
import type { Clock } from '../clock.js';
import type { Logger } from '../observe/log.js';
import type { Breaker } from './breaker.js';
import type { RecordObserver } from './observer.js';
import { isRowFault, isSessionFault } from './sessions.js';
import type { Claim, RecordStore } from './store.js';
import type { Workflow } from './workflow.js';

export interface ClaimerOptions {
  workflow: Workflow;
  store: RecordStore;
  breaker: Breaker;
  clock: Clock;
  log: Logger;
  observer: RecordObserver;
  worker(): number;
}

export class Claimer {
  readonly #options: ClaimerOptions;

  constructor(options: ClaimerOptions) {
    this.#options = options;
  }

  async claim(): Promise<Claim[]> {
    const { breaker, observer, workflow } = this.#options;
    try {
      const claims = await this.#batch();
      breaker.succeeded();
      if (claims.length > 0) observer.claimed?.(workflow.name, claims.length);
      return claims;
    } catch (error) {
      if (isSessionFault(error)) breaker.failed();
      throw error;
    }
  }

  async #batch(): Promise<Claim[]> {
    const { workflow, store } = this.#options;
    try {
      return await this.#take(workflow.batchSize, null);
    } catch (error) {
      if (!isRowFault(error)) throw error;
    }
    const claims: Claim[] = [];
    for (const id of await store.queued(workflow.batchSize)) {
      try {
        claims.push(...(await this.#take(1, [id])));
      } catch (error) {
        if (!isRowFault(error)) {
          // What has been taken is worked on; the next batch meets the same trouble again.
          if (claims.length > 0) return claims;
          throw error;
        }
        this.#options.log.error(
          { workflow: workflow.name, record: id, err: error },
          'the database does not let this record be claimed: it is left alone for an hour',
        );
        await store.postpone(id);
      }
    }
    return claims;
  }

  #take(most: number, only: string[] | null): Promise<Claim[]> {
    const { store, worker, workflow, clock } = this.#options;
    return store.claim(worker(), most, workflow.timeoutMs, clock.monotonic(), only);
  }
}
