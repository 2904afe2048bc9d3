/**
 * Tells the store once a second that a router reaches it (lua/stamp_alive.lua), and this router whether the store accepts its
 * writes. After a time in which no router reached the store, leases do not end for a minute: see lua/lib/outage.lua.
 */
import type { Clock } from '../clock.js';
import { AppError, isStoreDown } from '../errors.js';
import { SupervisedLoop } from '../loop.js';
import type { Logger } from '../observe/log.js';
import type { StoreConnection } from './store/connection.js';

export interface AliveStampOptions {
  connection: StoreConnection;
  clock: Clock;
  log: Logger;
  onCrash?: () => void;
}

const stampEveryMs = 1000;

export class AliveStamp {
  readonly loop: SupervisedLoop;
  readonly #clock: Clock;
  #lastAtMs: number;

  constructor({ connection, clock, log, onCrash }: AliveStampOptions) {
    this.#clock = clock;
    this.#lastAtMs = clock.monotonic();
    this.loop = new SupervisedLoop({
      name: 'alive-stamp',
      intervalMs: stampEveryMs,
      clock,
      log,
      ...(onCrash ? { onCrash } : {}),
      runOnce: async () => {
        try {
          await connection.run('stampAlive', [], 'stamp_alive');
          this.#lastAtMs = clock.monotonic();
        } catch (error) {
          // The connection reports it, and the next round tries again.
          if (!(error instanceof AppError && isStoreDown(error))) throw error;
        }
        return {};
      },
    });
  }

  /** Starts after a command has succeeded: from then on the store counts as reachable. */
  start(): void {
    this.#lastAtMs = this.#clock.monotonic();
    this.loop.start();
  }

  /** Whether the store has accepted a write of this router in the last `ms`. */
  succeededWithin(ms: number): boolean {
    return this.#clock.monotonic() - this.#lastAtMs <= ms;
  }
}
