/**
 * Router processes against a simulated cluster and a real store, with times scaled down: what takes 15 s in
 * production takes 6 s here. Each router has its own kubeconfig, so that a test can disconnect one of them.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { type Cluster, type ClusterOptions, startCluster } from './cluster.js';
import { type RouterEnv, type RouterProcess, startRouter, until } from './processes.js';
import { startTestRouter, type TestRouter } from './router.js';

/** Less than the defaults (15 s, 10 s, 2 s), and long enough that a leader on a busy machine keeps its lease. */
export const electionTimes = { durationMs: 6000, renewDeadlineMs: 4000, retryPeriodMs: 400 };

export const fleetEnv = {
  POD_SOURCE: 'kubernetes',
  LEADER_ELECTION_ENABLED: 'true',
  LEADER_ELECTION_DURATION: `${electionTimes.durationMs}ms`,
  LEADER_ELECTION_RENEW_DEADLINE: `${electionTimes.renewDeadlineMs}ms`,
  LEADER_ELECTION_RETRY_PERIOD: `${electionTimes.retryPeriodMs}ms`,
  TIER_CONFIG: JSON.stringify({
    tiers: {
      gold: { type: 'exclusive', target: 100 },
      basic: { type: 'shared', target: 0, max_concurrent: 3 },
    },
    default_chain: ['gold', 'basic'],
  }),
  LEASE_TTL: '20s',
  CALL_INFO_TTL: '1m',
  REPORT_GRACE: '1s',
  DRAINING_TTL: '2s',
  CLEANUP_INTERVAL: '500ms',
  RECONCILE_INTERVAL: '1s',
  TIER_CONFIG_REFRESH_INTERVAL: '1s',
  KUBERNETES_WATCH_TIMEOUT: '2s',
  // A busy machine is not an outage; some tests stop the store, and wait this long for an answer.
  REQUEST_TIMEOUT: '5s',
  REDIS_COMMAND_TIMEOUT: '5s',
};

export interface Fleet {
  cluster: Cluster;
  /** Starts one more router, of another version if it is in `folder`; its name is its identity and the name of its client at the API server. */
  start(name: string, env?: RouterEnv, folder?: string): Promise<RouterProcess>;
  /** The same inside this process, which starts much faster. */
  startHere(name: string, env?: RouterEnv): Promise<TestRouter>;
  /** Waits until exactly one of the running routers says that it leads, and all name the same leader. */
  leader(routers: readonly RouterProcess[]): Promise<RouterProcess>;
  pods(...names: string[]): void;
}

export async function openFleet(redisUrl: string, options: Partial<ClusterOptions> = {}): Promise<Fleet> {
  const cluster = await startCluster({ clock: systemClock, bookmarkIntervalMs: 500, ...options });
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-fleet-'));
  onTestFinished(async () => {
    await cluster.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  const envOf = (name: string) => {
    const file = join(folder, name);
    writeFileSync(file, cluster.kubeconfigFor(name));
    return { ...fleetEnv, KUBECONFIG: file, POD_NAME: name };
  };
  return {
    cluster,
    start: (name, env = {}, folder) => startRouter({ ...envOf(name), REDIS_URL: redisUrl, ...env }, folder),
    async startHere(name, env = {}) {
      const router = await startTestRouter(redisUrl, { ...envOf(name), STATIC_PODS: '', ...env });
      onTestFinished(() => router.stop());
      return router;
    },
    async leader(routers) {
      let found: RouterProcess | undefined;
      await until('one router leads and all know it', async () => {
        const running = routers.filter((router) => router.running);
        const states = await Promise.all(running.map((router) => router.get('/api/v1/status')));
        const leaders = running.filter((_, i) => states[i]?.body.is_leader === true);
        const names = new Set(states.map(({ body }) => body.leader));
        found = leaders[0];
        return leaders.length === 1 && names.size === 1 && !names.has(null) && !names.has(undefined);
      });
      if (!found) throw new Error('no leader');
      return found;
    },
    pods(...names) {
      for (const name of names) cluster.pods.create({ name });
    },
  };
}
