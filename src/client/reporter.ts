import { fullJitterMs, jitteredPeriodMs } from './backoff.js';
import { type Loop, startLoop } from './loop.js';
import { checkPod, type ReportOptions } from './operations.js';
import { integer, maxDurationMs } from './options.js';
import type { Requester } from './requester.js';
import type { Report } from './wire.js';

export interface ReportingOptions extends Omit<ReportOptions, 'signal'> {
  /**
   * Between two reports. Default 10000; each is up to a fifth earlier, so that pods do not report in step. The router is
   * told, and gives the pod no new calls while it is silent for three intervals (at least 15 s).
   */
  intervalMs?: number | undefined;
  /** Calls that this pod must drop: another pod owns them, they have ended, or the pod is full. */
  onConflict?: ((callSids: string[]) => void) | undefined;
  /** Calls that the router had forgotten and knows again. */
  onAdopted?: ((callSids: string[]) => void) | undefined;
}

/** Lists the calls that the pod really serves, at this moment. Synchronous: a promise could hang the heartbeat. */
export type ListCalls = () => readonly string[];

type SendReport = (calls: readonly string[], options: ReportOptions & { retries: number }) => Promise<Report>;

const defaultIntervalMs = 10_000;
const retryBaseMs = 1000;

/**
 * A pod's heartbeat. It reports at once and then every `intervalMs`; a failed report is repeated sooner,
 * after 1, 2, 4 ... s up to the interval. If `listCalls` throws, nothing is sent: silence costs new
 * calls after three intervals and running ones when their lease runs out, while an empty list would end every call of the pod.
 */
export class Reporter {
  readonly #requester: Requester;
  readonly #listCalls: ListCalls;
  readonly #options: ReportingOptions;
  readonly #send: SendReport;
  readonly #intervalMs: number;
  readonly #loop: Loop;
  readonly #forgetClose: () => void;
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
    const { clock } = requester.settings;
    checkPod(pod);
    const intervalMs = integer('intervalMs', options.intervalMs, defaultIntervalMs, 1, maxDurationMs);
    this.#intervalMs = intervalMs;
    lifetime.assertOpen(`report ${pod}`);
    let failures = 0;
    this.#loop = startLoop(clock, 0, async (signal) => {
      try {
        await this.#report(signal);
        failures = 0;
        return jitteredPeriodMs(clock, intervalMs);
      } catch (error) {
        if (signal.aborted || lifetime.closed) return null;
        const retryInMs = fullJitterMs(clock, retryBaseMs, intervalMs, failures++);
        requester.emit({ type: 'report_failed', pod, error, retryInMs });
        return retryInMs;
      }
    });
    this.#forgetClose = lifetime.onClose(() => this.stop());
  }

  /** Sends one report now and gives its answer; never beside another one, so that none overtakes. */
  async runOnce(): Promise<Report> {
    return this.#report(undefined);
  }

  /** Ends the heartbeat. */
  stop(): void {
    this.#loop.stop();
    this.#forgetClose();
  }

  #report(signal: AbortSignal | undefined): Promise<Report> {
    const turn = this.#last.then(async () => {
      const { uid, tier, merchant, onConflict, onAdopted } = this.#options;
      const about = { uid, tier, merchant, intervalMs: this.#intervalMs };
      const report = await this.#send(this.#listCalls(), { ...about, signal, retries: 0 });
      this.#tell('onConflict', onConflict, report.conflicts);
      this.#tell('onAdopted', onAdopted, report.adopted);
      return report;
    });
    this.#last = turn.catch(() => {});
    return turn;
  }

  #tell(callback: string, listener: ((callSids: string[]) => void) | undefined, callSids: string[]): void {
    if (listener === undefined || callSids.length === 0) return;
    try {
      listener([...callSids]);
    } catch (error) {
      this.#requester.emit({ type: 'callback_failed', callback, error });
    }
  }
}
