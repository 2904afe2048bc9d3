/**
 * The replies that callers and agents got (`History`), on the real clock, and the conclusions from them.
 *
 * A call is promised to its agent from the first report that named it and was answered, for one lease. Before that it is
 * safe for the grace alone: a report written before the agent knew of the call may have begun to count. A later report
 * renews the promise; a renewal by the caller is left out, because it does not stop such a count.
 *
 * Only replies that arrived count. A call whose reply came during a change of its pod may belong to the old or the new pod:
 * nothing is concluded from it (`ofUnknownPod`).
 */
import { History, type KnownCall } from '../simulation/history.js';
import { limits, times } from './times.js';

export class CallHistory extends History {
  /** When the store last lost something that it had acknowledged. */
  #lossMs = 0;

  constructor(
    startMs: number,
    clock = () => Date.now(),
    private readonly nowAbsoluteMs = clock,
  ) {
    super(
      () => clock() - startMs,
      clock,
      (pool) => limits[pool as keyof typeof limits] ?? 0,
      times.graceMs,
    );
  }

  /**
   * A failover with asynchronous replication: writes acknowledged until now may be lost, and later replies to earlier
   * requests as well. Redis with a Sentinel promises no more (see docs/guarantees.md).
   */
  lostWrites(): void {
    this.note('the store has lost writes');
    this.#lossMs = this.nowAbsoluteMs();
    this.excuse();
  }

  /** For replies to requests sent at `sentMs`, before the loss. */
  isLost(sentMs: number): boolean {
    return sentMs <= this.#lossMs;
  }

  ofUnknownPod(call: KnownCall): void {
    call.isExcused = true;
  }

  isPromised(call: KnownCall): boolean {
    return call.isConnected && !call.isExcused && call.leaseUntilMs > this.storeNowMs();
  }

  /** The answer to a report that was sent at `sentMs` with this call in it. */
  reported(call: KnownCall, sentMs: number): void {
    if (this.isLost(sentMs)) return;
    call.isConnected = true;
    call.isExcused = false;
    call.leaseUntilMs = Math.max(call.leaseUntilMs, sentMs + times.leaseMs);
  }

  /** The store had forgotten a call and knows it again from its agent. */
  adopted(call: KnownCall, fence: number | undefined, sentMs: number): void {
    if (!call.isOver && this.isPromised(call) && !this.isLost(sentMs))
      this.violated(
        `5: ${call.sid} on ${call.pod} was forgotten although it was promised until ${call.leaseUntilMs}`,
      );
    if (fence !== undefined) call.fence = fence;
    this.reported(call, sentMs);
  }

  /** The router says that a call is not this pod's, or is over, or is not there. */
  denied(call: KnownCall, how: string, sentMs: number): void {
    if (!call.isOver && this.isPromised(call) && !this.isLost(sentMs))
      this.violated(`5: ${call.sid} on ${call.pod} was promised until ${call.leaseUntilMs}, then ${how}`);
  }
}
