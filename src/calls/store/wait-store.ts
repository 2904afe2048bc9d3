/** The operations on waiting calls, besides allocate and release. */
import type { StoreConnection } from './connection.js';
import { list, parseWaiting, strings, type WaitingCall } from './replies.js';
import { type LeaseTimes, type Page, page } from './store.js';

/** The rules of a queue that has waiting calls. */
export interface QueueRules {
  queue: string;
  /** Pool ids, separated by spaces. */
  chain: string;
  priority: number;
  weight: number;
}

export interface ServedWaiting {
  expired: number;
  abandoned: number;
  /** Calls past their lease that were ended. */
  recovered: number;
  waiting: number;
  oldestMs: number;
  queues: QueueRules[];
}

export class WaitStore {
  readonly #connection: StoreConnection;
  readonly #times: LeaseTimes;

  constructor(connection: StoreConnection, times: LeaseTimes) {
    this.#connection = connection;
    this.#times = times;
  }

  get pollIntervalMs(): number {
    return this.#times.holdPollIntervalMs;
  }

  /** One step for waiting calls; see lua/serve_waiting.lua. `changed`: queues whose rules differ from the stored ones. */
  async serve(changed: readonly QueueRules[] = []): Promise<ServedWaiting> {
    const rules = changed.flatMap(({ queue, ...rest }) => [queue, JSON.stringify(rest)]);
    const args = [this.#times.reportGraceMs, 1000, ...rules];
    const [expired, abandoned, recovered, waiting, oldest, now, ...queues] = list(
      await this.#connection.run('serveWaiting', args, 'serve_waiting'),
    );
    this.#connection.learnTime(Number(now));
    return {
      expired: Number(expired),
      abandoned: Number(abandoned),
      recovered: Number(recovered),
      waiting: Number(waiting),
      oldestMs: oldest === '' ? 0 : Math.max(0, Number(now) - Number(oldest)),
      queues: queues.map((row) => {
        const [queue = '', chain = '', priority, weight] = strings(row);
        return { queue, chain, priority: Number(priority), weight: Number(weight) };
      }),
    };
  }

  /** Keeps the places of calls whose callers wait on an open connection. Returns those that no longer wait. */
  async refresh(callSids: readonly string[]): Promise<string[]> {
    const args = [3 * this.#times.holdPollIntervalMs, ...callSids];
    return strings(await this.#connection.run('refreshWaiting', args, 'refresh_waiting'));
  }

  async calls(cursor: string, count: number): Promise<Page<WaitingCall>> {
    return page(list(await this.#connection.run('listWaiting', [cursor, count], 'waiting')), parseWaiting);
  }
}
