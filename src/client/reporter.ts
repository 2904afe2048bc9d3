import { startLoop } from './loop.js';
import { checkPod, type ReportOptions } from './operations.js';
import { integer, maxDurationMs } from './options.js';
import type { Requester } from './requester.js';
import type { Report } from './wire.js';

export interface ReportingOptions extends Omit<ReportOptions, 'signal'> {
  /**
   * Between two reports. Default 10000; each is up to a fifth earlier, so that pods do not report in step. It is sent to
   * the router, which gives the pod no new calls after three intervals (at least 15 s) without a report.
   */
  intervalMs?: number | undefined;
  /** Calls that this pod must drop: another pod owns them, they have ended, or the pod is full. */
  onConflict?: ((callSids: string[]) => void) | undefined;
  /** Calls that the router did not know and has assigned to this pod. */
  onAdopted?: ((callSids: string[]) => void) | undefined;
}

/** Lists the calls that the pod serves now. Synchronous: a promise could block the heartbeat. */
export type ListCalls = () => readonly string[];

type SendReport = (calls: readonly string[], options: ReportOptions & { heartbeat: true }) => Promise<Report>;

const defaultIntervalMs = 10_000;

/** A pod's heartbeat. */
export interface Reporter {
  /** Sends one report now, after any report in flight, so that none overtakes another. */
  runOnce(): Promise<Report>;
  /** Ends the heartbeat. */
  stop(): void;
}

/**
 * Reports at once, then every `intervalMs`, and after a failover of the router's store, which may have lost calls; a failed
 * report is retried after 1, 2, 4 ... s, up to the interval. If `listCalls` throws, it sends nothing: a missing report costs
 * new calls after three intervals and running ones when their lease expires, while an empty list would end every call of the
 * pod.
 */
export function startReporter(
  requester: Requester,
  pod: string,
  listCalls: ListCalls,
  options: ReportingOptions,
  send: SendReport,
): Reporter {
  checkPod(pod);
  const { uid, tier, merchant, onConflict, onAdopted } = options;
  const intervalMs = integer('intervalMs', options.intervalMs, defaultIntervalMs, 1, maxDurationMs);
  requester.lifetime.assertOpen(`report ${pod}`);
  const notify = (callback: string, listener: ReportingOptions['onConflict'], callSids: string[]) => {
    if (callSids.length > 0) requester.callBack(callback, () => listener?.([...callSids]));
  };
  let last: Promise<unknown> = Promise.resolve();
  const report = (signal?: AbortSignal) => {
    const turn = last.then(async () => {
      const about = { uid, tier, merchant, intervalMs };
      const answer = await send(listCalls(), { ...about, signal, heartbeat: true });
      notify('onConflict', onConflict, answer.conflicts);
      notify('onAdopted', onAdopted, answer.adopted);
      return answer;
    });
    last = turn.catch(() => {});
    return turn;
  };
  const loop = startLoop({
    clock: requester.settings.clock,
    startsNow: true,
    runOnce: report,
    periodMs: () => intervalMs,
    retryMaxMs: intervalMs,
    onFailure: (error, retryInMs) => requester.emit({ type: 'report_failed', pod, error, retryInMs }),
  });
  const stop = () => {
    loop.stop();
    forgetClose();
    forgetGeneration();
  };
  const forgetClose = requester.lifetime.onClose(stop);
  const forgetGeneration = requester.onGeneration(() => loop.wake());
  return { runOnce: () => report(), stop };
}
