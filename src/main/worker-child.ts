/**
 * The entry point of a worker: an ordinary router that the primary (workers.ts) starts, stops and asks for its metrics.
 *
 * It stops cleanly at the first signal, when it loses its leadership and LEADER_LOSS=exit, and when the primary has ended: then it
 * exits within SHUTDOWN_TIMEOUT and 5 s.
 * Later signals are ignored: a terminal sends them to all processes, and the primary decides when to kill workers.
 */
import cluster from 'node:cluster';
import { Socket } from 'node:net';
import { systemClock as clock, stopSignals } from '../clock.js';
import type { Config } from '../config/config.js';
import { messageOf } from '../errors.js';
import { createLogger } from '../observe/log.js';
import type { OperationName, RecordsStatus } from '../records/admin.js';
import { Channel } from './channel.js';
import { limitGarbage, stopMarginMs } from './processes.js';
import type { RecordsPlane } from './records-plane.js';
import { askWorker1, downStatus, operationTimeoutMs, remoteOperations } from './records-report.js';
import { type RunningRouter, startRouter } from './router.js';

const exitDelayMs = 500;
/** `/status` does not wait longer for worker 1. */
const statusTimeoutMs = 1000;

let router: Promise<RunningRouter> | undefined;
let isStopping = false;
let maxStopMs = stopMarginMs;

const primary = new Channel(new Socket({ fd: 4 }), {
  clock,
  handlers: {
    alive: () => true,
    start: async (config: Config, number: number) => {
      if (isStopping) throw new Error('the worker is stopping');
      maxStopMs += config.shutdownTimeoutMs;
      router = start(config, number);
      await router;
    },
    metrics: async () => (await router)?.collectMetrics(),
    records: async (name: OperationName | 'status', args: unknown[]) => {
      const records = (await router)?.context.records;
      if (name === 'status') return records?.status();
      const operation = records?.operations()[name] as ((...all: unknown[]) => Promise<unknown>) | undefined;
      return operation?.(...args);
    },
  },
  onError: (error) => {
    throw error;
  },
});

/** Worker 1 has the records process. */
async function start(config: Config, number: number): Promise<RunningRouter> {
  const log = createLogger({ level: config.logLevel, format: config.logFormat }).child({ worker: number });
  const logFatal = (error: unknown) => {
    log.fatal({ err: error }, 'uncaught error; worker exits');
    process.exit(1);
  };
  process.on('uncaughtException', logFatal);
  process.on('unhandledRejection', logFatal);
  limitGarbage();
  const started = await startRouter(config, {
    log,
    renderGroup: async () => String(await primary.call('metrics', [], operationTimeoutMs)),
    ...(number === 1
      ? { hasRecordsOf: (leader) => leader?.startsWith(config.podName.slice(0, -1)) === true }
      : { openRecords: async () => recordsOfFirst(config.zombieCleanupEnabled) }),
  });
  void started.lostLeadership.then(() => stop('lost leadership'));
  return started;
}

/** The first worker has the records process; this one asks it. */
function recordsOfFirst(cleanup: boolean): RecordsPlane {
  return {
    start: () => {},
    stop: async () => {},
    loops: [],
    gauges: () => undefined,
    operations: () => remoteOperations((name, args) => askWorker1(primary, name, args)),
    status: () =>
      askWorker1(primary, 'status', [], statusTimeoutMs).then(
        (status) => status as RecordsStatus,
        (error: unknown) => downStatus(cleanup, messageOf(error)),
      ),
  };
}

async function stop(reason: string): Promise<void> {
  if (isStopping) return;
  isStopping = true;
  const running = await router?.catch(() => undefined);
  running?.context.log.info({ reason }, 'stopping; finishing requests in flight');
  await running?.stop();
  running?.context.log.info('stopped');
  // Neither a channel nor a connection that does not close may keep the process alive.
  primary.close();
  process.channel?.unref();
  clock.after(exitDelayMs, () => process.exit(0), { unref: true });
}

if (cluster.worker) {
  // Without this, Node ends a worker at once when the primary has ended.
  cluster.worker.exitedAfterDisconnect = true;
  // Node's own messages to a primary that has just ended.
  cluster.worker.on('error', () => {});
}
process.once('disconnect', () => {
  primary.close();
  // A worker that waits for the primary to hand over a port cannot stop by itself.
  clock.after(maxStopMs, () => process.exit(1), { unref: true });
  void stop('primary ended');
});
for (const signal of stopSignals) process.on(signal, () => stop(signal));
