/** A store on a real engine for tests, with time that the test may move. */
import { StoreConnection } from '../../src/calls/store/connection.js';
import { type PodRegistration, PoolStore } from '../../src/calls/store/pool-store.js';
import {
  type AllocateOutcome,
  type AllocateRequest,
  type Allocation,
  CallStore,
  type HoldRules,
  type LeaseTimes,
} from '../../src/calls/store/store.js';
import { WaitStore } from '../../src/calls/store/wait-store.js';
import { systemClock } from '../../src/clock.js';
import { type PoolId, parseTierConfig, poolsOf, serializeTierConfig } from '../../src/config/tiers.js';
import { until } from './until.js';

export const testTimes: LeaseTimes = {
  leaseTtlMs: 900_000,
  callInfoTtlMs: 3_600_000,
  drainingTtlMs: 360_000,
  reportGraceMs: 30_000,
  noShowTimeoutMs: 0,
  holdClaimTtlMs: 20_000,
  holdPollIntervalMs: 5000,
};

export interface TestStore {
  connection: StoreConnection;
  calls: CallStore;
  waits: WaitStore;
  pools: PoolStore;
  epoch: string;
  /** Moves the store's idea of now; only with `virtualTime`. */
  advance(ms: number): void;
  nowMs(): number;
  allocate(
    callSid: string,
    chain: readonly PoolId[],
    extra?: Partial<AllocateRequest>,
  ): Promise<Allocation | undefined>;
  /** As `allocate`, with the whole outcome. */
  ask(callSid: string, chain: readonly PoolId[], extra?: Partial<AllocateRequest>): Promise<AllocateOutcome>;
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
  // A command waits for half of its timeout until the connection is there: too short for a hasty one.
  await until(() => connection.command('ping', (client) => client.ping()), 'the store answers');
  await connection.run('setTiers', [serializeTierConfig(config), 'init', '', 'test', ...kinds]);
  const epoch = await pools.takeEpoch();
  const ask: TestStore['ask'] = (callSid, chain, extra = {}) =>
    calls.allocate({
      callSid,
      merchantId: '',
      provider: 'twilio',
      flow: 'v2',
      template: 'order-confirmation',
      chain,
      patienceMs: 5000,
      ...extra,
    });
  return {
    connection,
    calls,
    waits: new WaitStore(connection, times),
    pools,
    epoch,
    advance: (ms) => {
      virtualUs += ms * 1000;
    },
    nowMs: () => Math.floor(virtualUs / 1000),
    ask,
    allocate: async (...request) => (await ask(...request)).allocation,
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

/** Rules for a call that may wait, in the queue of all merchants. */
export function holdRules(extra: Partial<HoldRules> = {}): HoldRules {
  const { queue = '', priority = 0, weight = 1, maxWaitMs = 60_000 } = extra;
  return { queue, priority, weight, maxWaitMs, maxWaiting: 1000, maxWaitingAll: 20_000, ...extra };
}

export function registration(
  name: string,
  pool?: PoolId,
  extra: Partial<PodRegistration> = {},
): PodRegistration {
  return { name, uid: '', pool, suspended: '', mustReport: false, metadata: '{}', ...extra };
}
