/** A leader of a real store whose pods are those of a simulated cluster, and whose lock does what the test says. */
import { pino } from 'pino';
import { Settings } from '../../src/calls/settings.js';
import { type Clock, systemClock } from '../../src/clock.js';
import { kubernetesSource } from '../../src/cluster/kubernetes/source.js';
import type { PodSource } from '../../src/cluster/pods.js';
import type { Leadership, LeadershipOptions } from '../../src/leadership/leadership.js';
import { PoolManager } from '../../src/pool/manager.js';
import type { Kubernetes } from '../cluster/fixture.js';
import type { TestStore } from '../support/store.js';
import { until } from '../support/until.js';
import { tiersOf } from './fixture.js';

/** Leads while it sits there; whether the lock is still its own is what the test says. */
export class Throne implements Leadership {
  stillHeld: () => Promise<boolean> = () => Promise.resolve(true);
  readonly #options: LeadershipOptions;
  readonly #over = new AbortController();
  #work: Promise<void> | undefined;
  isLeader = false;

  constructor(options: LeadershipOptions) {
    this.#options = options;
  }

  get leader(): string | null {
    return this.isLeader ? this.#options.identity : null;
  }

  readonly state = { lock: 'the test', last_error: null };

  start(): void {
    this.#become(true);
    this.#work ??= this.#options.lead(this.#over.signal).finally(() => this.#become(false));
  }

  async stop(): Promise<void> {
    this.#over.abort();
    await this.#work;
  }

  #become(isLeader: boolean): void {
    this.isLeader = isLeader;
    this.#options.onChange?.({ isLeader, leader: this.leader });
  }
}

/** Twenty times as fast: a backoff of a second takes 50 ms. */
const speed = 20;
export const fastClock: Clock = {
  ...systemClock,
  monotonic: () => systemClock.monotonic() * speed,
  after: (ms, callback) => systemClock.after(ms / speed, callback),
  sleep: (ms, signal) => systemClock.sleep(ms / speed, signal),
};

export interface ReignOptions {
  store: TestStore;
  tiers: unknown;
  source: PodSource;
  cleanupIntervalMs?: number;
  reconcileIntervalMs?: number;
}

export interface Reign {
  manager: PoolManager;
  throne: Throne;
  /** Messages, by level: 30, 40, 50. */
  log: { level: number; msg: string }[];
  lost: [string, number][];
  /** Why each watch was opened again. */
  reconnects: string[];
  /** One more sync than there have been, from beginning to end. */
  sync(): Promise<void>;
  stop(): Promise<void>;
}

const anHourMs = 3_600_000;

/** Only the watch and `sync` change anything, unless the options say otherwise. */
export async function reign(options: ReignOptions): Promise<Reign> {
  const { store, tiers, source, cleanupIntervalMs = anHourMs, reconcileIntervalMs = anHourMs } = options;
  const log: Reign['log'] = [];
  const lost: Reign['lost'] = [];
  const reconnects: string[] = [];
  const logger = pino(
    { level: 'debug', base: null },
    { write: (line: string) => log.push(JSON.parse(line) as Reign['log'][number]) },
  );
  const settings = new Settings({
    connection: store.connection,
    log: logger,
    initial: tiersOf(tiers),
    initialGiven: true,
  });
  await settings.start();
  let throne: Throne | undefined;
  const manager = new PoolManager({
    identity: 'this-one',
    source,
    settings,
    store: store.calls,
    pools: store.pools,
    clock: fastClock,
    log: logger,
    cleanupIntervalMs: cleanupIntervalMs * speed,
    reconcileIntervalMs: reconcileIntervalMs * speed,
    leadership: (events) => {
      throne = new Throne(events);
      return throne;
    },
    onCallsLost: (count, reason) => lost.push([reason, count]),
    onReconnect: (reason) => reconnects.push(reason),
  });
  const reconcile = () => manager.loops.find(({ name }) => name === 'reconcile');
  await manager.start();
  return {
    manager,
    throne: throne as unknown as Throne,
    log,
    lost,
    reconnects,
    async sync() {
      const before = reconcile()?.rounds ?? 0;
      manager.nudge();
      await until(() => (reconcile()?.rounds ?? 0) > before, 'the sync is over');
    },
    stop: () => manager.stop(),
  };
}

export async function sourceOf(
  k8s: Kubernetes,
  kubeconfig: string,
  { labelSelector = 'app=voice-agent', silenceMs = 30_000 } = {},
): Promise<PodSource> {
  return kubernetesSource({
    api: await k8s.connect(kubeconfig),
    namespace: 'default',
    labelSelector,
    silenceMs,
    clock: systemClock,
    log: pino({ level: 'silent' }),
  });
}
