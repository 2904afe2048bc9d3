/** Our store, as the router uses it, filled with pods of one exclusive pool. */
import { Redis } from 'ioredis';
import { StoreConnection } from '../../src/calls/store/connection.js';
import { PoolStore, type SweepPhase } from '../../src/calls/store/pool-store.js';
import type { CallInfo } from '../../src/calls/store/replies.js';
import { CallStore, type Page } from '../../src/calls/store/store.js';
import { systemClock } from '../../src/clock.js';
import { type PoolId, parseTierConfig, poolsOf, serializeTierConfig } from '../../src/config/tiers.js';
import { AppError } from '../../src/errors.js';
import { forEach } from './measure.js';

export const gold: PoolId = 'pool:gold';

export interface BenchStoreOptions {
  prefix: string;
  reportGraceMs?: number;
  /** Added to the wall clock: moves leases into the past without waiting. */
  offsetMs?: () => number;
}

const requestOf = (callSid: string) => ({
  callSid,
  merchantId: 'acme',
  provider: 'twilio',
  flow: 'v2',
  template: 'order-confirmation',
  chain: [gold],
  patienceMs: 30_000,
});

export class BenchStore {
  readonly connection: StoreConnection;
  readonly calls: CallStore;
  readonly pools: PoolStore;
  #epoch = '';

  constructor(url: string, options: BenchStoreOptions) {
    const { prefix, reportGraceMs = 30_000, offsetMs } = options;
    this.connection = new StoreConnection({
      url,
      keyPrefix: prefix,
      commandTimeoutMs: 30_000,
      clock: systemClock,
      ...(offsetMs ? { nowUs: () => (systemClock.now() + offsetMs()) * 1000 } : {}),
    });
    this.calls = new CallStore(this.connection, {
      leaseTtlMs: 900_000,
      callInfoTtlMs: 3_600_000,
      drainingTtlMs: 360_000,
      reportGraceMs,
      noShowTimeoutMs: 0,
      holdClaimTtlMs: 20_000,
      holdPollIntervalMs: 5000,
    });
    this.pools = new PoolStore(this.connection, reportGraceMs);
  }

  async prepare(pods: readonly string[]): Promise<void> {
    const { config } = parseTierConfig({ tiers: { gold: { type: 'exclusive', target: 10 } } });
    if (config === undefined) throw new Error('the tiers of the benchmark are wrong');
    const kinds = poolsOf(config).flatMap(({ id, kind }) => [id, kind]);
    await this.connection.run('setTiers', [serializeTierConfig(config), 'init', '', 'bench', ...kinds]);
    this.#epoch = await this.pools.takeEpoch();
    const batches = Array.from({ length: Math.ceil(pods.length / 200) }, (_, i) =>
      pods.slice(i * 200, i * 200 + 200),
    );
    await forEach(batches, 4, (batch) =>
      this.pools.register(
        this.#epoch,
        batch.map((name) => ({
          name,
          uid: '',
          pool: gold,
          suspended: '',
          mustReport: false,
          metadata: '{}',
        })),
        { candidates: [], last: gold },
      ),
    );
  }

  async allocate(callSid: string): Promise<string> {
    const { allocation } = await this.calls.allocate(requestOf(callSid));
    if (allocation === undefined) throw new Error('no free pod: the benchmark has more callers than pods');
    return allocation.podName;
  }

  /** Queues a call while every pod is busy. */
  async enter(callSid: string): Promise<void> {
    const { waiting } = await this.calls.allocate({
      ...requestOf(callSid),
      hold: {
        queue: '',
        priority: 0,
        weight: 1,
        maxWaitMs: 3_600_000,
        maxWaiting: 100_000,
        maxWaitingAll: 100_000,
      },
    });
    if (waiting === undefined) throw new Error('a call of the benchmark found a pod and does not wait');
  }

  /** One allocate and one release. */
  async pair(callSid: string): Promise<void> {
    await this.allocate(callSid);
    await this.calls.release(callSid);
  }

  /** A pair of empty scripts: the same round trips with the same arguments. */
  async emptyPair(callSid: string): Promise<void> {
    const { connection } = this;
    const args = [callSid, '', 'twilio/v2/order-confirmation', 900_000, 3_600_000, 30_000, '', '', '', gold];
    await connection.command('empty', (client) =>
      client.eval('return 1', 1, connection.keyPrefix, '', ...args),
    );
    await connection.command('empty', (client) =>
      client.eval('return 1', 1, connection.keyPrefix, '', callSid, ''),
    );
  }

  /** The leader's sweep of the pool: all three phases, in batches. */
  async sweep(
    batchSize: (phase: SweepPhase) => number,
  ): Promise<{ batches: number; lookedAt: number; callsEnded: number; repaired: number }> {
    const total = { batches: 0, lookedAt: 0, callsEnded: 0, repaired: 0 };
    for (const phase of ['calls', 'pods', 'available'] satisfies SweepPhase[]) {
      let cursor = '0';
      do {
        const done = await this.pools.sweep(this.#epoch, gold, phase, cursor, batchSize(phase));
        cursor = done.cursor;
        total.batches++;
        if (phase === 'pods') total.lookedAt += done.lookedAt;
        total.callsEnded += done.callsEnded;
        total.repaired += done.podsPutBack + done.podsTakenOut;
      } while (cursor !== '0');
    }
    return total;
  }

  /** Ends all calls of the pool. */
  async releaseAll(): Promise<void> {
    const sids = new Set<string>();
    let cursor: string | undefined = '0';
    while (cursor !== undefined) {
      const page: Page<CallInfo> = await this.calls.calls(gold, cursor, 1000);
      for (const { callSid } of page.items) sids.add(callSid);
      cursor = page.cursor;
    }
    // wrk disconnects during its last requests; the router releases those pods.
    await forEach(sids, 64, (sid) =>
      this.calls.release(sid).catch((error: unknown) => {
        if (!(error instanceof AppError) || error.code !== 'call_not_found') throw error;
      }),
    );
  }

  close(): void {
    this.connection.close();
  }
}

/** A server's leader registers its pods after it has begun to listen. */
export async function untilAvailable(store: BenchStore, pods: number): Promise<void> {
  const deadline = performance.now() + 120_000;
  for (;;) {
    const { pools } = await store.calls.snapshot();
    if (pools.some(({ pool, available }) => pool === gold && available === pods)) return;
    if (performance.now() > deadline)
      throw new Error(`the server did not register its ${pods} pods in 120 s`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

export function podNames(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `voice-agent-${i}`);
}

let counter = 0;

/** As long as a provider's: Twilio's have 34 characters. */
export function nextSid(): string {
  return `CA${String(++counter).padStart(32, '0')}`;
}

/** A connection for inspecting and flushing the store. */
export function adminClient(url: string): Redis {
  return new Redis(url);
}
