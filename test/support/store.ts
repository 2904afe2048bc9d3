/** A store on a real engine for tests, with time that the test may move. */
import { StoreConnection } from '../../src/calls/store/connection.js';
import { type PodRegistration, PoolStore } from '../../src/calls/store/pool-store.js';
import { type AllocateRequest, CallStore, type LeaseTimes } from '../../src/calls/store/store.js';
import { systemClock } from '../../src/clock.js';
import { type PoolId, parseTierConfig, poolsOf, serializeTierConfig } from '../../src/config/tiers.js';

export const testTimes: LeaseTimes = {
  leaseTtlMs: 900_000,
  callInfoTtlMs: 3_600_000,
  drainingTtlMs: 360_000,
  reportGraceMs: 30_000,
  noShowTimeoutMs: 0,
};

export interface TestStore {
  connection: StoreConnection;
  calls: CallStore;
  pools: PoolStore;
  epoch: string;
  /** Moves the store's idea of now; only with `virtualTime`. */
  advance(ms: number): void;
  nowMs(): number;
  allocate(
    callSid: string,
    chain: readonly PoolId[],
    extra?: Partial<AllocateRequest>,
  ): ReturnType<CallStore['allocate']>;
  register(names: readonly string[], pool: PoolId): Promise<void>;
  /** All phases over one pool, or over all. */
  sweep(pool?: PoolId): Promise<{ callsEnded: number; podsPutBack: number; podsTakenOut: number }>;
  close(): void;
}

export interface TestStoreOptions {
  prefix?: string;
  times?: Partial<LeaseTimes>;
  virtualTime?: boolean;
  commandTimeoutMs?: number;
  /** Any of the three forms; default: gold exclusive, basic shared by 3, merchant pool vip. */
  tiers?: unknown;
}

export const testTiers = {
  tiers: {
    gold: { type: 'exclusive', target: 2 },
    basic: { type: 'shared', target: 2, max_concurrent: 3 },
    vip: { type: 'exclusive', target: 1 },
  },
  default_chain: ['gold', 'basic'],
};

/** Connects and writes the tier configuration; the caller closes it. */
export async function openStore(url: string, options: TestStoreOptions = {}): Promise<TestStore> {
  let virtualUs = 1_800_000_000_000_000;
  const connection = new StoreConnection({
    url,
    keyPrefix: options.prefix ?? 'voice:',
    commandTimeoutMs: options.commandTimeoutMs ?? 5000,
    clock: systemClock,
    ...(options.virtualTime ? { nowUs: () => virtualUs++ } : {}),
  });
  const times = { ...testTimes, ...options.times };
  const calls = new CallStore(connection, times);
  const pools = new PoolStore(connection, times.reportGraceMs);
  const { config } = parseTierConfig(options.tiers ?? testTiers);
  if (!config) throw new Error('the test tiers are wrong');
  const kinds = poolsOf(config).flatMap((pool) => [
    pool.id,
    pool.kind === 'shared' ? `shared:${pool.maxConcurrent}` : 'exclusive',
  ]);
  await connection.run('setTiers', [serializeTierConfig(config), 'init', '', 'test', ...kinds]);
  const epoch = await pools.takeEpoch();
  return {
    connection,
    calls,
    pools,
    epoch,
    advance: (ms) => {
      virtualUs += ms * 1000;
    },
    nowMs: () => Math.floor(virtualUs / 1000),
    allocate: (callSid, chain, extra = {}) =>
      calls.allocate({
        callSid,
        merchantId: '',
        provider: 'twilio',
        flow: 'v2',
        template: 'order-confirmation',
        chain,
        patienceMs: 5000,
        ...extra,
      }),
    register: async (names, pool) => {
      await pools.register(
        epoch,
        names.map((name) => registration(name, pool)),
        { candidates: [], last: pool },
      );
    },
    sweep: async (only) => {
      const total = { callsEnded: 0, podsPutBack: 0, podsTakenOut: 0 };
      const all = only ? [only] : (await calls.snapshot()).pools.map(({ pool }) => pool);
      for (const pool of all) {
        for (const phase of ['calls', 'pods', 'available'] as const) {
          let cursor = '0';
          do {
            const batch = await pools.sweep(epoch, pool, phase, cursor, 100);
            cursor = batch.cursor;
            total.callsEnded += batch.callsEnded;
            total.podsPutBack += batch.podsPutBack;
            total.podsTakenOut += batch.podsTakenOut;
          } while (cursor !== '0');
        }
      }
      return total;
    },
    close: () => connection.close(),
  };
}

export function registration(
  name: string,
  pool?: PoolId,
  extra: Partial<PodRegistration> = {},
): PodRegistration {
  return { name, uid: '', pool, suspended: '', mustReport: false, metadata: '{}', ...extra };
}
