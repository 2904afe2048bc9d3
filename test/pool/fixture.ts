/** A leader's parts on a real store, with pods that the test names. */
import { pino } from 'pino';
import { Settings } from '../../src/calls/settings.js';
import type { ClusterPod, PodList, PodSource } from '../../src/cluster/pods.js';
import { parseTierConfig, serializeTierConfig, type TierConfig } from '../../src/config/tiers.js';
import { SingleReplica } from '../../src/leadership/single-replica.js';
import type { Logger } from '../../src/observe/log.js';
import { PoolManager } from '../../src/pool/manager.js';
import { PodWriter } from '../../src/pool/pod-writer.js';
import { Reconciler } from '../../src/pool/reconciler.js';
import { Sweeper } from '../../src/pool/sweeper.js';
import { ManualClock } from '../support/manual-clock.js';
import { openStore, type TestStore, type TestStoreOptions, testTiers } from '../support/store.js';

export interface LogLine {
  level: number;
  msg: string;
}

/** What the cluster has; a test changes it at will. */
export class Pods implements PodSource {
  name = 'test';
  pods: ClusterPod[] = [];
  /** Of the next lists. */
  version = '';
  /** Thrown by the next lists while set. */
  failure: Error | undefined;

  set(...names: (string | (Partial<ClusterPod> & { name: string }))[]): void {
    this.pods = names.map((pod) => ({
      uid: '',
      state: 'ready' as const,
      mustReport: false,
      ...(typeof pod === 'string' ? { name: pod } : pod),
    }));
  }

  async list(): Promise<PodList> {
    if (this.failure) throw this.failure;
    return { pods: this.pods, version: this.version };
  }
}

export interface Leader {
  store: TestStore;
  settings: Settings;
  source: Pods;
  writer: PodWriter;
  reconciler: Reconciler;
  sweeper: Sweeper;
  clock: ManualClock;
  manager: PoolManager;
  log: LogLine[];
  /** `reason: count`, in order. */
  lost: [string, number][];
  zombies: number[];
  leading: boolean[];
  crashes: string[];
  reconcile(): ReturnType<Reconciler['runOnce']>;
  sweep(): ReturnType<Sweeper['runOnce']>;
}

export const silentLog: Logger = pino({ level: 'silent' });
const never = new AbortController().signal;
export const intervals = { reconcileIntervalMs: 60_000, cleanupIntervalMs: 30_000 };

export async function openLeader(url: string, options: TestStoreOptions = {}): Promise<Leader> {
  const store = await openStore(url, options);
  const { connection, calls, pools } = store;
  const log: LogLine[] = [];
  const logger: Logger = pino(
    { level: 'debug', base: null },
    { write: (line: string) => log.push(JSON.parse(line) as LogLine) },
  );
  const settings = new Settings({
    connection,
    log: logger,
    initial: tiersOf(options.tiers ?? testTiers),
    initialGiven: true,
  });
  await settings.start();
  const source = new Pods();
  const [lost, zombies, leading, crashes]: [[string, number][], number[], boolean[], string[]] = [
    [],
    [],
    [],
    [],
  ];
  const onCallsLost = (count: number, reason: string) => lost.push([reason, count]);
  const parts = { source, settings, store: calls, pools, log: logger, onCallsLost };
  const writer = new PodWriter(parts);
  const reconciler = new Reconciler({ ...parts, clock: new ManualClock(), reconcileIntervalMs: 0 }, writer);
  const sweeper = new Sweeper({ ...parts, onZombies: (count) => zombies.push(count) });
  const clock = new ManualClock();
  const manager = new PoolManager({
    identity: 'this-one',
    ...parts,
    clock,
    ...intervals,
    leadership: (events) => new SingleReplica(events),
    onCrash: (loop) => crashes.push(loop),
    onLeader: (is) => leading.push(is),
  });
  return {
    store,
    settings,
    source,
    writer,
    reconciler,
    sweeper,
    clock,
    manager,
    log,
    lost,
    zombies,
    leading,
    crashes,
    reconcile: () => reconciler.runOnce(store.epoch, never),
    sweep: () => sweeper.runOnce(store.epoch, never),
  };
}

export function tiersOf(input: unknown): TierConfig {
  const { config, problems } = parseTierConfig(input);
  if (!config) throw new Error(problems.join('; '));
  return config;
}

export const textOf = (input: unknown): string => serializeTierConfig(tiersOf(input));
