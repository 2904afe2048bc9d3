/**
 * Stamps the store once a second (lua/stamp_alive.lua): a router reaches it, and the store accepts its writes. After a time in
 * which no router reached the store, leases do not end for a minute: see lua/lib/outage.lua.
 *
 * The same script notices another master by its replication id and begins a generation (lua/lib/generation.lua). It runs
 * before the router serves its first call, and as the first command of every later connection. Behind a proxy that keeps
 * connections open, and on a Cluster, the next stamp notices it: within a second.
 */
import type { Clock } from '../clock.js';
import { AppError, isStoreDown } from '../errors.js';
import { SupervisedLoop } from '../loop.js';
import type { Logger } from '../observe/log.js';
import type { Reply, StoreConnection } from './store/connection.js';
import { list } from './store/replies.js';

export interface AliveStampOptions {
  connection: StoreConnection;
  clock: Clock;
  log: Logger;
  /** `trust`: a new generation marks no pod. */
  afterFailover: 'report' | 'trust';
  onCrash?: ((loop: string) => void) | undefined;
  /** This router began a generation and marked that many pods. */
  onGeneration?: (pods: number) => void;
}

const stampEveryMs = 1000;

export class AliveStamp {
  readonly loop: SupervisedLoop;
  readonly #options: AliveStampOptions;
  #lastAtMs: number;
  #generation: number | undefined;
  #hasWarned = false;

  constructor(options: AliveStampOptions) {
    this.#options = options;
    this.#lastAtMs = options.clock.monotonic();
    this.loop = new SupervisedLoop({
      ...options,
      name: 'alive-stamp',
      intervalMs: stampEveryMs,
      runOnce: async () => {
        // The connection reports a store that does not answer, and the next round tries again.
        await this.#stamp().catch((error: unknown) => {
          if (!(error instanceof AppError && isStoreDown(error))) throw error;
        });
        return {};
      },
    });
  }

  /**
   * Stamps once before the first call, then on every new connection and once a second. Rejects if the store does not answer:
   * call it again then.
   */
  async start(): Promise<void> {
    const { connection, clock, afterFailover } = this.#options;
    connection.runFirst('stampAlive', [afterFailover], (reply) => {
      // A connection that is lost again is replaced by one that stamps, too.
      reply
        .then((answer) => this.#learn(answer))
        .catch((error: Error) => {
          if (error.name === 'ReplyError') this.#warn(error.message);
        });
    });
    await this.#stamp().catch((error: unknown) => {
      if (!(error instanceof AppError) || isStoreDown(error)) throw error;
      this.#warn(error.message);
    });
    this.#lastAtMs = clock.monotonic();
    this.loop.start();
  }

  /** Whether the store has accepted a write of this router in the last `ms`. */
  succeededWithin(ms: number): boolean {
    return this.#options.clock.monotonic() - this.#lastAtMs <= ms;
  }

  /** Grows with every change of the master; undefined while it is unknown. */
  get generation(): number | undefined {
    return this.#generation;
  }

  async #stamp(): Promise<void> {
    const { connection, clock, afterFailover } = this.#options;
    this.#learn(await connection.run('stampAlive', [afterFailover], 'stamp_alive'));
    this.#lastAtMs = clock.monotonic();
  }

  #learn(reply: Reply): void {
    const { log, onGeneration } = this.#options;
    const [, generation, marked, problem] = list(reply);
    if (problem !== '') this.#warn(String(problem));
    this.#generation = generation === '' ? undefined : Number(generation);
    if (Number(marked) < 0) return;
    log.warn(
      { generation: this.#generation, pods_awaiting_report: marked },
      'master of the store changed; new generation began',
    );
    onGeneration?.(Number(marked));
  }

  /** Once: the router serves calls without it. */
  #warn(reason: string): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    this.#options.log.warn({ reason }, 'replication id of the store is unknown; a failover is not noticed');
  }
}
