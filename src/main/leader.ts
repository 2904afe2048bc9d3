/** Creates the pool manager with the configured pod source and lock. */
import type { AliveStamp } from '../calls/alive-stamp.js';
import type { Metrics } from '../calls/metrics.js';
import { connectKubernetes, type KubeApi } from '../cluster/kubernetes/api.js';
import { kubernetesSource } from '../cluster/kubernetes/source.js';
import type { PodSource } from '../cluster/pods.js';
import { staticSource } from '../cluster/pods.js';
import { registeredSource } from '../cluster/registered.js';
import type { Config } from '../config/config.js';
import { Election } from '../leadership/election.js';
import { KubernetesLock } from '../leadership/kubernetes-lock.js';
import { SingleReplica } from '../leadership/single-replica.js';
import { StoreLock } from '../leadership/store-lock.js';
import { PoolManager, type PoolManagerOptions } from '../pool/manager.js';

type LeaderParts = Pick<
  PoolManagerOptions,
  'store' | 'pools' | 'settings' | 'auditor' | 'clock' | 'log' | 'onCrash' | 'onLost'
> & { alive: AliveStamp; metrics: Metrics };

/** Sends no request: an unreachable API server does not prevent the start. */
export async function createManager(
  config: Config,
  parts: LeaderParts,
): Promise<{ manager: PoolManager; close(): void }> {
  const { metrics, clock } = parts;
  const api = config.podSource === 'kubernetes' ? await connectKubernetes(config, clock) : undefined;
  // The alive stamp is written once a second.
  const storeDeadlineMs = Math.max(config.leaderElectionRenewDeadlineMs, 5000);
  const manager = new PoolManager({
    ...parts,
    identity: config.podName,
    source: sourceOf(config, api, parts),
    reconcileIntervalMs: config.reconcileIntervalMs,
    cleanupIntervalMs: config.cleanupIntervalMs,
    auditIntervalMs: config.auditIntervalMs,
    leadership: (events) => {
      if (!config.leaderElectionEnabled) return new SingleReplica(events);
      return new Election({
        ...events,
        lock: api
          ? new KubernetesLock({
              api,
              clock,
              namespace: config.leaderElectionNamespace,
              name: config.leaderElectionLockName,
            })
          : new StoreLock(parts.pools.connection),
        durationMs: config.leaderElectionDurationMs,
        renewDeadlineMs: config.leaderElectionRenewDeadlineMs,
        retryPeriodMs: config.leaderElectionRetryPeriodMs,
        // A lock in the store is lost with the store; a Lease is not.
        ...(api ? { canWork: () => parts.alive.succeededWithin(storeDeadlineMs) } : {}),
      });
    },
    onReconnect: (reason) => metrics.watchReconnects.inc({ reason }),
    onCallsLost: (count, reason) => metrics.callsLost.inc({ reason }, count),
    onZombies: (count) => metrics.zombiesRecovered.inc(count),
    onSilent: (pods) => metrics.podsBlocked.inc({ reason: 'awaiting_report' }, pods.length),
    onAudited: (violations) => metrics.invariantViolations.set(violations),
    onLeader: (leading) => {
      metrics.leaderStatus.set(leading ? 1 : 0);
      // Drop the gauge of the previous leader.
      if (!leading) metrics.invariantViolations.remove();
    },
  });
  return { manager, close: () => api?.close() };
}

function sourceOf(config: Config, api: KubeApi | undefined, { pools, clock, log }: LeaderParts): PodSource {
  if (api) {
    return kubernetesSource({
      api,
      namespace: config.namespace,
      labelSelector: config.podLabelSelector,
      silenceMs: config.kubernetesWatchTimeoutMs,
      clock,
      log,
    });
  }
  if (config.podSource === 'registered') return registeredSource(pools, config.registeredPodTtlMs, clock);
  return staticSource(config.staticPods ?? []);
}
