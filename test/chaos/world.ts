/** The whole fleet, opened in order and closed in reverse. */
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../../src/clock.js';
import { SeededRandom } from '../../src/demo/seeded-random.js';
import { HistoryWriter } from '../history/writer.js';
import { type Cluster, startCluster } from '../support/cluster.js';
import { freePorts } from '../support/ports.js';
import { quickestRoot } from '../support/postgres.js';
import { Agents } from './agents.js';
import { CallHistory } from './call-history.js';
import { Callers } from './callers.js';
import { OnlyGrows } from './checks.js';
import { root } from './child.js';
import { EventReader } from './events.js';
import { Pods } from './pods.js';
import { Records } from './records.js';
import { openSentinel, openSingle, type Store } from './redis.js';
import { openRouters, type Router } from './routers.js';
import { limits, times } from './times.js';

export interface World {
  readonly history: CallHistory;
  /** What callers and agents sent and received, for the independent checker. */
  readonly requests: HistoryWriter;
  readonly store: Store;
  readonly cluster: Cluster;
  readonly routers: readonly Router[];
  readonly agents: Agents;
  readonly pods: Pods;
  readonly callers: Callers;
  readonly records: Records;
  readonly reader: EventReader;
  readonly growing: OnlyGrows;
  /** A fault lasts this long, or until everything is healed. */
  readonly hold: (ms: number) => Promise<void>;
  /** The store has lost acknowledged writes. */
  readonly onLoss: () => void;
  /** The name of the router that leads, as far as any of them says. */
  readonly leader: () => Promise<string | undefined>;
  readonly close: () => Promise<void>;
}

export interface WorldOptions {
  seed: number;
  sentinel: boolean;
  /** Where logs go. */
  folder: string;
  /** Aborts when the faults are over. */
  healing: AbortSignal;
}

export async function openWorld({ seed, sentinel, folder, healing }: WorldOptions): Promise<World> {
  if (!existsSync(join(root, 'dist', 'index.js')))
    throw new Error('dist/ is not built: `npm run build` first.');
  const closing: (() => unknown)[] = [];
  const close = async () => {
    for (const one of closing.splice(0).reverse()) await one();
  };
  try {
    const data = mkdtempSync(join(quickestRoot(undefined), 'smart-router-chaos-'));
    // Redis may just be writing a file.
    const removeData = () => rmSync(data, { recursive: true, force: true, maxRetries: 3 });
    // Also where nothing is closed any more: a second Ctrl-C.
    process.once('exit', removeData);
    closing.push(() => process.off('exit', removeData), removeData);
    mkdirSync(folder, { recursive: true });
    const history = new CallHistory(Date.now());
    const requests = new HistoryWriter(join(folder, 'history.ndjson'), {
      pools: {
        'pool:gold': { kind: 'exclusive' },
        'pool:basic': { kind: 'shared', max: limits['pool:basic'] },
      },
      ...{ lease_ms: times.leaseMs, report_grace_ms: times.graceMs, drain_ms: times.drainMs },
      notes: `chaos, seed ${seed}`,
    });
    closing.push(() => requests.close());
    const [port = 0] = await freePorts(1);
    const cluster = await startCluster({ clock: systemClock, port, bookmarkIntervalMs: 1000 });
    closing.push(() => cluster.stop());
    const store = await (sentinel ? openSentinel : openSingle)({ logs: folder, data });
    closing.push(() => store.stop());
    const records = await Records.open(folder);
    closing.push(() => records.stop());
    const routers = await openRouters(folder, store, cluster, history, requests);
    closing.push(async () => {
      await Promise.all(routers.map((router) => router.end()));
      for (const router of routers) router.close();
    });
    for (const router of routers) router.start();
    const reader = new EventReader(store.redis);
    closing.push(() => reader.stop());
    const agents = new Agents(history, routers, new SeededRandom(seed ^ 0xa6e7), requests);
    closing.push(() => agents.stop());
    const callers = new Callers(history, routers, agents, seed);
    closing.push(() => callers.stop());
    const growing = new OnlyGrows();
    return {
      ...{ history, requests, store, cluster, routers, agents, callers, records, reader, growing, close },
      pods: new Pods(cluster, agents, routers, history),
      hold: (ms) =>
        new Promise((resolve) => {
          if (healing.aborted) return resolve();
          const over = () => {
            clearTimeout(timer);
            healing.removeEventListener('abort', over);
            resolve();
          };
          const timer = setTimeout(over, ms);
          healing.addEventListener('abort', over);
        }),
      onLoss() {
        history.lostWrites();
        requests.fault('failover', requests.now(), requests.now(), true);
        growing.forget();
      },
      async leader() {
        const states = await Promise.all(routers.map((router) => router.get('/api/v1/status')));
        return states.find(({ body }) => typeof body.leader === 'string')?.body.leader ?? undefined;
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}
