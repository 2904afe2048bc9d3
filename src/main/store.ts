/** Opens the store: the embedded engine, if any, the connections, and its adoption at the start. */
import type { Metrics } from '../calls/metrics.js';
import { StoreConnection } from '../calls/store/connection.js';
import { Replication } from '../calls/store/replication.js';
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import { startEmbeddedValkey } from '../embedded/valkey.js';
import { ConfigError } from '../errors.js';
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

interface StoreParts {
  clock: Clock;
  log: Logger;
  metrics: Metrics;
}

export function openStore(
  config: Config,
  url: string,
  { clock, log, metrics, tracing, onUp }: StoreParts & { tracing: Tracing | undefined; onUp(): void },
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
  { clock, log, metrics }: StoreParts,
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

/**
 * Runs `prepare`, which adopts the store, until it succeeds. `firstTry` ends with the first run and rejects only with
 * a ConfigError, which no retry can fix. A ConfigError of a later run is logged and ends the retries.
 */
export function prepareUntilDone(
  prepare: () => Promise<void>,
  { clock, log, address, signal }: { clock: Clock; log: Logger; address: string; signal: AbortSignal },
): { firstTry: Promise<unknown>; ended: Promise<void> } {
  const isPrepared = async (): Promise<boolean> => {
    try {
      await prepare();
      return true;
    } catch (error) {
      if (error instanceof ConfigError) throw error;
      log.error(
        { err: error, store: address },
        'store not usable yet; retrying (`smart-router doctor` shows details)',
      );
      return false;
    }
  };
  const retry = async () => {
    for (let delayMs = 1000; ; delayMs = Math.min(2 * delayMs, 10_000)) {
      await clock.sleep(delayMs, signal);
      if (signal.aborted || (await isPrepared())) return;
    }
  };
  const firstTry = isPrepared();
  const ended = firstTry.then(
    async (isDone) => {
      if (isDone) return;
      await retry().catch((error: unknown) =>
        log.fatal({ err: error }, 'store not usable; fix the configuration and restart'),
      );
    },
    () => {},
  );
  return { firstTry, ended };
}
