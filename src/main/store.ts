/** Opens the store: the embedded engine, if any, and the connection. */

import type { Metrics } from '../calls/metrics.js';
import { StoreConnection } from '../calls/store/connection.js';
import { Replication } from '../calls/store/replication.js';
import type { LeaseTimes } from '../calls/store/store.js';
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import { startEmbeddedValkey } from '../embedded/valkey.js';
import type { Logger } from '../observe/log.js';
import type { Tracing } from '../observe/tracing.js';

export async function openEngine(
  config: Config,
  stops: (() => Promise<void> | void)[],
  log: Logger,
): Promise<string> {
  if (config.redisUrl !== 'embedded') return config.redisUrl;
  const engine = await startEmbeddedValkey({
    onCrash: (error) =>
      log.fatal({ err: error }, 'embedded store ended and its data is lost; restart the router'),
  });
  stops.push(() => engine.stop());
  return engine.url;
}

export function openStore(
  config: Config,
  url: string,
  {
    clock,
    log,
    metrics,
    tracing,
    onUp,
  }: { clock: Clock; log: Logger; metrics: Metrics; tracing: Tracing | undefined; onUp(): void },
): StoreConnection {
  return new StoreConnection({
    url,
    keyPrefix: config.redisKeyPrefix,
    commandTimeoutMs: config.redisCommandTimeoutMs,
    clock,
    observe: (operation, outcome, seconds) => {
      metrics.observeStore(operation, outcome, seconds);
      tracing?.observeStore(operation, outcome === 'ok' ? 'ok' : 'error', seconds);
    },
    onState: (state, reason) => {
      metrics.storeUp.set(state === 'up' ? 1 : 0);
      if (state === 'up') {
        log.info('connected to the store');
        onUp();
      } else log.error({ reason }, 'lost the connection to the store; calls get 503 until it is restored');
    },
  });
}

/** Undefined if no replicas are waited for. */
export function openReplication(
  config: Config,
  url: string,
  main: StoreConnection,
  { clock, log, metrics }: { clock: Clock; log: Logger; metrics: Metrics },
): Replication | undefined {
  if (config.redisWaitReplicas === 0) return undefined;
  let isConfirmed = true;
  return new Replication({
    main,
    own: new StoreConnection({
      url,
      keyPrefix: config.redisKeyPrefix,
      commandTimeoutMs: config.redisCommandTimeoutMs,
      clock,
    }),
    replicas: config.redisWaitReplicas,
    timeoutMs: config.redisWaitTimeoutMs,
    clock,
    onOutcome: (outcome, writes, reason) => {
      metrics.confirmations.inc({ outcome }, writes);
      if (isConfirmed === (outcome === 'confirmed')) return;
      isConfirmed = !isConfirmed;
      if (isConfirmed) log.info('replicas confirm writes again');
      else log.warn({ outcome, reason }, 'writes not confirmed by enough replicas (REDIS_WAIT_REPLICAS)');
    },
  });
}

export function leaseTimes(config: Config): LeaseTimes {
  return {
    leaseTtlMs: config.leaseTtlMs,
    callInfoTtlMs: config.callInfoTtlMs,
    drainingTtlMs: config.drainingTtlMs,
    reportGraceMs: config.reportGraceMs,
    noShowTimeoutMs: config.noShowTimeoutMs ?? 0,
    holdClaimTtlMs: config.holdClaimTtlMs,
    holdPollIntervalMs: config.holdPollIntervalMs,
  };
}
