/** A simulated cluster of 5,000 pods in this process, and a router in another that leads it. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/clock.js';
import { type Cluster, type ClusterOptions, startCluster } from '../../test/support/cluster.js';
import type { Bench } from '../support/run.js';
import { ServerProcess } from '../support/server-process.js';
import { productionPod } from './production-pod.js';

export const pods = 5000;
export const nameOf = (i: number) => `voice-agent-${i}`;

export interface Stage {
  cluster: Cluster;
  kubeconfig: string;
  /** Environment of a router that leads this cluster. */
  env: NodeJS.ProcessEnv;
  create(): void;
  end(): Promise<void>;
}

export async function stage({ engine, admin }: Bench, options: Partial<ClusterOptions> = {}): Promise<Stage> {
  await admin.flushall();
  const cluster = await startCluster({ clock: systemClock, ...options });
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-bench-'));
  const kubeconfig = join(folder, 'kubeconfig');
  writeFileSync(kubeconfig, cluster.kubeconfig);
  const env = {
    REDIS_URL: engine.url,
    KUBECONFIG: kubeconfig,
    HTTP_PORT: '0',
    METRICS_PORT: 'off',
    LEADER_ELECTION_ENABLED: 'false',
    TIER_CONFIG: JSON.stringify({ gold: pods }),
    LOG_LEVEL: 'warn',
    RECONCILE_INTERVAL: '6s',
    CLEANUP_INTERVAL: '3s',
  };
  return {
    cluster,
    kubeconfig,
    env,
    create() {
      for (let i = 0; i < pods; i++) cluster.pods.create(productionPod(nameOf(i)));
    },
    async end() {
      await cluster.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export function startLeader(env: NodeJS.ProcessEnv): Promise<ServerProcess> {
  const file = new URL('../support/leader-process.js', import.meta.url);
  return ServerProcess.start(file, [], { PATH: process.env.PATH, ...env });
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
