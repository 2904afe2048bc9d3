/** One router as `main.ts` builds it, without its HTTP server: the same parts on simulated ground. */
import { pino } from 'pino';
import { adoptStore } from '../../src/calls/import.js';
import { CallRouter } from '../../src/calls/router.js';
import { Settings } from '../../src/calls/settings.js';
import { StoreConnection } from '../../src/calls/store/connection.js';
import { PoolStore } from '../../src/calls/store/pool-store.js';
import { CallStore, type LeaseTimes } from '../../src/calls/store/store.js';
import { parseTierConfig } from '../../src/calls/tiers.js';
import type { Dice } from '../../src/demo/dice.js';
import { Election } from '../../src/leadership/election.js';
import { Metrics } from '../../src/observe/metrics.js';
import { PoolManager } from '../../src/pool/manager.js';
import { SupervisedLoop } from '../../src/supervised-loop.js';
import type { Cluster } from './cluster.js';
import type { Store, StoreLink } from './store.js';
import type { Process } from './time.js';

export const prefix = 'voice:';
export const times: LeaseTimes = {
  leaseTtlMs: 120_000,
  callInfoTtlMs: 600_000,
  drainingTtlMs: 360_000,
  reportGraceMs: 30_000,
  noShowTimeoutMs: 0,
};
export const cleanupIntervalMs = 30_000;
export const reconcileIntervalMs = 60_000;
const commandTimeoutMs = 1000;
const requestTimeoutMs = 2000;
const log = pino({ level: 'silent' });

const parsed = parseTierConfig({
  tiers: {
    gold: { type: 'exclusive', target: 3 },
    basic: { type: 'shared', target: 2, max_concurrent: 3 },
  },
  default_chain: ['gold', 'basic'],
});
if (!parsed.config) throw new Error('the tiers of the simulation are wrong');
export const tiers = parsed.config;

export class SimulatedRouter {
  readonly calls: CallRouter;
  readonly manager: PoolManager;
  readonly link: StoreLink;
  readonly #connection: StoreConnection;
  readonly #settings: Settings;
  readonly #refresh: SupervisedLoop;
  #isPrepared = false;

  constructor(
    readonly process: Process,
    {
      store,
      cluster,
      dice,
      onLeader,
    }: { store: Store; cluster: Cluster; dice: Dice; onLeader(isLeader: boolean): void },
  ) {
    const { clock } = process;
    this.link = store.link(process, dice);
    const metrics = new Metrics({ processMetrics: false });
    this.#connection = new StoreConnection({
      url: '',
      keyPrefix: prefix,
      commandTimeoutMs,
      clock,
      createClient: (timeoutMs) => this.link.client(timeoutMs),
      onState: (state) => {
        if (state === 'up') this.manager?.nudge();
      },
    });
    const connection = this.#connection;
    const calls = new CallStore(connection, times);
    const pools = new PoolStore(connection, times.reportGraceMs);
    this.#settings = new Settings({ connection, log, initial: tiers, initialGiven: true });
    this.manager = new PoolManager({
      identity: process.name,
      source: cluster.source(process, dice),
      settings: this.#settings,
      store: calls,
      pools,
      clock,
      log,
      reconcileIntervalMs,
      cleanupIntervalMs,
      onLeader,
      leadership: (events) =>
        new Election({
          ...events,
          lock: cluster.lock(process, dice),
          durationMs: 15_000,
          renewDeadlineMs: 10_000,
          retryPeriodMs: 2000,
        }),
    });
    this.calls = new CallRouter({
      store: calls,
      settings: this.#settings,
      metrics,
      clock,
      patienceMs: 0.9 * Math.min(requestTimeoutMs, commandTimeoutMs),
      isPrepared: () => this.#isPrepared,
    });
    this.#refresh = new SupervisedLoop({
      name: 'settings',
      intervalMs: 30_000,
      clock,
      log,
      runAtStart: false,
      runOnce: async () => {
        await this.#settings.refresh();
        return {};
      },
    });
  }

  async start(): Promise<void> {
    for (;;) {
      try {
        await adoptStore({ connection: this.#connection, times, log, tiers });
        await this.#settings.start();
        break;
      } catch {
        await this.process.clock.sleep(1000);
      }
    }
    this.#refresh.start();
    void this.manager.start();
    this.#isPrepared = true;
  }

  /** A clean stop. */
  async stop(): Promise<void> {
    await Promise.all([this.manager.stop(), this.#refresh.stop()]);
    this.#connection.close();
    this.process.kill();
  }
}
