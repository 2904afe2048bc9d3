/** One router as `main.ts` builds it, without its HTTP server: the same parts on simulated ground. */
import { pino } from 'pino';
import { AliveStamp } from '../../src/calls/alive-stamp.js';
import { Auditor } from '../../src/calls/audit/auditor.js';
import { EventFeed } from '../../src/calls/events.js';
import { prepareStore } from '../../src/calls/import.js';
import { Metrics } from '../../src/calls/metrics.js';
import { CallRouter } from '../../src/calls/router.js';
import { Settings } from '../../src/calls/settings.js';
import { StoreConnection } from '../../src/calls/store/connection.js';
import { PoolStore } from '../../src/calls/store/pool-store.js';
import { CallStore, type LeaseTimes } from '../../src/calls/store/store.js';
import { WaitStore } from '../../src/calls/store/wait-store.js';
import { WaitQueue } from '../../src/calls/wait-queue.js';
import type { PodSource } from '../../src/cluster/pods.js';
import { parseTierConfig } from '../../src/config/tiers.js';
import type { SeededRandom } from '../../src/demo/seeded-random.js';
import { Election } from '../../src/leadership/election.js';
import { SupervisedLoop } from '../../src/loop.js';
import { PoolManager } from '../../src/pool/manager.js';
import type { Cluster } from './cluster.js';
import { tierVariants } from './configuration.js';
import type { Store, StoreLink } from './store.js';
import type { Process } from './time.js';

export const prefix = 'voice:';
/** But for NO_SHOW_TIMEOUT, which each world has its own. */
export const times: LeaseTimes = {
  leaseTtlMs: 120_000,
  callInfoTtlMs: 600_000,
  drainingTtlMs: 360_000,
  reportGraceMs: 30_000,
  noShowTimeoutMs: 0,
  holdClaimTtlMs: 20_000,
  holdPollIntervalMs: 5000,
};
export const cleanupIntervalMs = 30_000;
export const reconcileIntervalMs = 60_000;
export const leaderDurationMs = 15_000;
const auditIntervalMs = 30_000;
const commandTimeoutMs = 1000;
const requestTimeoutMs = 2000;

const parsed = parseTierConfig(tierVariants[0]);
if (!parsed.config) throw new Error('the tiers of the simulation are wrong');
const tiers = parsed.config;

/** The parts whose methods may be replaced before anything is built on them. */
export type Rewire = (parts: { connection: StoreConnection; source: PodSource; cluster: Cluster }) => void;

export interface RouterOptions {
  store: Store;
  cluster: Cluster;
  times: LeaseTimes;
  random: SeededRandom;
  rewire: Rewire | undefined;
  onLeader(isLeader: boolean): void;
  /** What an audit of this router, as leader, has found. */
  onAudited(violations: readonly string[]): void;
}

export class SimulatedRouter {
  readonly calls: CallRouter;
  readonly manager: PoolManager;
  readonly link: StoreLink;
  readonly settings: Settings;
  readonly #times: LeaseTimes;
  readonly #connection: StoreConnection;
  readonly #refresh: SupervisedLoop;
  readonly #alive: AliveStamp;
  readonly #queue: WaitQueue;
  readonly #stopping = new AbortController();
  /** What the leader's audit writes into the log: the metric is only their number. */
  readonly #log = pino(
    { level: 'error', base: null, timestamp: false },
    {
      write: (line: string) => {
        const { msg } = JSON.parse(line) as { msg: string };
        if (msg.startsWith('invariant violated: ')) this.#contradictions.push(msg.slice(20));
      },
    },
  );
  #contradictions: string[] = [];
  #isPrepared = false;

  constructor(
    readonly process: Process,
    { store, cluster, times, random, rewire, onLeader, onAudited }: RouterOptions,
  ) {
    this.#times = times;
    const log = this.#log;
    const { clock } = process;
    this.link = store.link(process, random);
    const metrics = new Metrics();
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
    const source = cluster.source(process, random);
    rewire?.({ connection, source, cluster });
    this.#alive = new AliveStamp({ connection, clock, log, afterFailover: 'report' });
    const calls = new CallStore(connection, times);
    const pools = new PoolStore(connection, times.reportGraceMs);
    this.settings = new Settings({ connection, log, initial: tiers, initialGiven: true });
    this.manager = new PoolManager({
      identity: process.name,
      source,
      settings: this.settings,
      store: calls,
      pools,
      clock,
      log,
      reconcileIntervalMs,
      cleanupIntervalMs,
      auditor: new Auditor(connection, this.#stopping.signal),
      auditIntervalMs,
      onLeader: (isLeader) => {
        if (isLeader) cluster.beginTerm(process);
        onLeader(isLeader);
      },
      onAudited: (count) => {
        const found = this.#contradictions.splice(0);
        onAudited(found.length === Math.min(count, 10) ? found : [`${count} violations`, ...found]);
      },
      leadership: (events) =>
        new Election({
          ...events,
          lock: cluster.lock(process, random),
          durationMs: leaderDurationMs,
          renewDeadlineMs: 10_000,
          retryPeriodMs: 2000,
          canWork: () => this.#alive.succeededWithin(10_000),
        }),
    });
    this.calls = new CallRouter({
      store: calls,
      settings: this.settings,
      metrics,
      clock,
      patienceMs: 0.9 * Math.min(requestTimeoutMs, commandTimeoutMs),
      isPrepared: () => this.#isPrepared,
    });
    // Callers poll here: nothing subscribes to the feed.
    this.#queue = new WaitQueue(new WaitStore(connection, times), {
      ...{ settings: this.settings, feed: new EventFeed(connection, clock), metrics, clock, log },
      isPrepared: () => this.#isPrepared,
    });
    this.#refresh = new SupervisedLoop({
      name: 'settings',
      intervalMs: 30_000,
      clock,
      log,
      runAtStart: false,
      runOnce: async () => {
        await this.settings.refresh();
        return {};
      },
    });
  }

  async start(): Promise<void> {
    for (;;) {
      try {
        await prepareStore({ connection: this.#connection, times: this.#times, log: this.#log, tiers });
        await this.#alive.start();
        await this.settings.start();
        break;
      } catch {
        await this.process.clock.sleep(1000);
      }
    }
    this.#refresh.start();
    this.#queue.loop.start();
    void this.manager.start();
    this.#isPrepared = true;
  }

  /** A clean stop. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all([
      this.manager.stop(),
      this.#refresh.stop(),
      this.#alive.loop.stop(),
      this.#queue.loop.stop(),
    ]);
    this.#connection.close();
    this.process.kill();
  }
}
