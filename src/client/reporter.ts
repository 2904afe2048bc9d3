import { type Loop, startLoop } from './loop.js';
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

/**
 * A pod's heartbeat. It reports at once, then every `intervalMs`, and after a failover of the router's store, which may have
 * lost calls; a failed report is retried after 1, 2, 4 ... s, up to the interval. If `listCalls` throws, it sends nothing: a
 * missing report costs new calls after three intervals and running ones when their lease expires, while an empty list would
 * end every call of the pod.
 */
export class Reporter {
  readonly #requester: Requester;
  readonly #listCalls: ListCalls;
  readonly #options: ReportingOptions;
  readonly #send: SendReport;
  readonly #intervalMs: number;
  readonly #loop: Loop;
  readonly #forgetClose: () => void;
  readonly #forgetGeneration: () => void;
  #last: Promise<unknown> = Promise.resolve();

  /** @internal */
  constructor(
    requester: Requester,
    pod: string,
    listCalls: ListCalls,
    options: ReportingOptions,
    send: SendReport,
  ) {
    this.#requester = requester;
    this.#listCalls = listCalls;
    this.#options = options;
    this.#send = send;
    const { lifetime } = requester;
    checkPod(pod);
    const intervalMs = integer('intervalMs', options.intervalMs, defaultIntervalMs, 1, maxDurationMs);
    this.#intervalMs = intervalMs;
    lifetime.assertOpen(`report ${pod}`);
    this.#loop = startLoop({
      clock: requester.settings.clock,
      startsNow: true,
      runOnce: (signal) => this.#report(signal),
      periodMs: () => intervalMs,
      retryMaxMs: intervalMs,
      onFailure: (error, retryInMs) => requester.emit({ type: 'report_failed', pod, error, retryInMs }),
    });
    this.#forgetClose = lifetime.onClose(() => this.stop());
    this.#forgetGeneration = requester.onGeneration(() => this.#loop.wake());
  }

  /** Sends one report now, after any report in flight, so that none overtakes another. */
  async runOnce(): Promise<Report> {
    return this.#report(undefined);
  }

  /** Ends the heartbeat. */
  stop(): void {
    this.#loop.stop();
    this.#forgetClose();
    this.#forgetGeneration();
  }

  #report(signal: AbortSignal | undefined): Promise<Report> {
    const turn = this.#last.then(async () => {
      const { uid, tier, merchant, onConflict, onAdopted } = this.#options;
      const about = { uid, tier, merchant, intervalMs: this.#intervalMs };
      const report = await this.#send(this.#listCalls(), { ...about, signal, heartbeat: true });
      this.#notify('onConflict', onConflict, report.conflicts);
      this.#notify('onAdopted', onAdopted, report.adopted);
      return report;
    });
    this.#last = turn.catch(() => {});
    return turn;
  }

  #notify(callback: string, listener: ((callSids: string[]) => void) | undefined, callSids: string[]): void {
    if (callSids.length > 0) this.#requester.callBack(callback, () => listener?.([...callSids]));
  }
}
