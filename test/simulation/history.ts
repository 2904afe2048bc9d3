/**
 * The replies that callers and agents got, and whether they are consistent. It does not read keys, only replies that
 * arrived. Where an answer did not arrive nothing is concluded from it.
 *
 * A promise that the store itself has broken is not held against the router: after a failover that lost writes, or with
 * everything lost, calls that were given before may be given again until their agents have reported (`excuse`).
 */
export interface KnownCall {
  sid: string;
  pod: string;
  uid: string;
  pool: string;
  fence: number;
  /** By the store's clock, as far as it was acknowledged. */
  leaseUntilMs: number;
  givenAtMs: number;
  /** When the store gave it, as far as its answers tell. */
  allocatedAtMs: number;
  /** An agent serves it. The report of its pod ends a call without a caller, after a grace. */
  isConnected: boolean;
  /** From here on its pod may be given to another: it was released, or its agent has ended it. */
  isOver: boolean;
  /** The store may have forgotten it. */
  isExcused: boolean;
  /** The store may have forgotten it, and its pod must not be given to another before it has reported. */
  isGuarded?: boolean;
}

/** How long after a router has begun it an undrain may still be done: its patience, and what a clock may be behind. */
const undrainLateMs = 7000;

export class History {
  readonly violations: string[] = [];
  readonly #calls = new Map<string, KnownCall>();
  /** Those that are not over: a long run has few at a time, and many in all. */
  readonly #live = new Set<KnownCall>();
  /** Since when, and until when by the store's clock. */
  readonly #drained = new Map<string, { atMs: number; untilMs: number }>();
  readonly #undrainedAtMs = new Map<string, number>();
  /** The time of each pod's last report, by the store's clock. */
  readonly #reportedAtMs = new Map<string, number>();
  readonly #trace: string[] = [];
  #highestFence = 0;
  #highestEpoch = 0;
  /** When the store last lost acknowledged writes. */
  lossAtMs = Number.NEGATIVE_INFINITY;
  allocated = 0;
  refused = 0;
  failed = 0;

  constructor(
    readonly nowMs: () => number,
    readonly storeNowMs: () => number,
    readonly limitOf: (pool: string) => number,
    readonly graceMs: number,
  ) {}

  note(line: string): void {
    this.#trace.push(`${this.nowMs().toFixed(3)} ${line}`);
  }

  get trace(): readonly string[] {
    return this.#trace;
  }

  violated(what: string): void {
    this.note(`VIOLATION ${what}`);
    this.violations.push(`at ${this.nowMs().toFixed(0)} ms: ${what}`);
  }

  call(sid: string): KnownCall | undefined {
    return this.#calls.get(sid);
  }

  get live(): KnownCall[] {
    return [...this.#live];
  }

  /** The guarantees at the time of a request. */
  before(): { fence: number; atMs: number } {
    return { fence: this.#highestFence, atMs: this.nowMs() };
  }

  allocatedAs(
    answer: {
      sid: string;
      pod: string;
      uid: string;
      pool: string;
      fence: number;
      leaseUntilMs: number;
      wasExisting: boolean;
      /** Allocated before its pod started, by the two clocks: see docs/guarantees.md. */
      isBeforeItsPod?: boolean;
      allocatedAtMs?: number;
    },
    before: { fence: number; atMs: number },
  ): KnownCall {
    const { sid, pod, uid, pool, fence, leaseUntilMs, wasExisting, isBeforeItsPod = false } = answer;
    this.note(`allocated ${sid} on ${pod} (${pool}), fence ${fence}${wasExisting ? ', existing' : ''}`);
    const known = this.#calls.get(sid);
    const holds = (call: KnownCall) =>
      (call.isConnected || this.nowMs() < call.givenAtMs + this.graceMs) &&
      !call.isOver &&
      !call.isExcused &&
      call.leaseUntilMs > this.storeNowMs() &&
      call.fence !== fence;
    if (known && holds(known) && known.fence < fence)
      this.violated(
        `call ${sid} has two pods: ${known.pod} (fence ${known.fence}) and ${pod} (fence ${fence})`,
      );
    if (!wasExisting) {
      this.allocated += 1;
      // Requested before a failover, answered after it by a clock that is behind: see docs/guarantees.md.
      if (fence <= before.fence && before.atMs > this.lossAtMs)
        this.violated(`fence ${fence} of ${sid} is not above ${before.fence}, which an earlier allocate got`);
      const others = this.live.filter(
        (call) => call.sid !== sid && call.pod === pod && call.uid === uid && holds(call),
      );
      const limit = this.limitOf(pool);
      if (others.length >= limit)
        this.violated(
          `${pod} (${pool}, at most ${limit}) was given to ${sid} beside ${others.map((call) => call.sid).join(', ')}`,
        );
      const drained = this.#drained.get(`${pod} ${uid}`);
      if (drained && before.atMs > drained.atMs && this.storeNowMs() < drained.untilMs)
        this.violated(`${pod} was given to ${sid} although its drain had been answered`);
    }
    // Asked for before the store lost writes: this may be one of those.
    const isExcused = before.atMs <= this.lossAtMs || isBeforeItsPod;
    if (before.atMs > this.lossAtMs) this.#highestFence = Math.max(this.#highestFence, fence);
    const call: KnownCall = {
      ...{ sid, pod, uid, pool, fence, leaseUntilMs },
      ...{ givenAtMs: before.atMs, isConnected: false, isOver: false, isExcused },
      allocatedAtMs: answer.allocatedAtMs ?? before.atMs,
    };
    if (known && known.fence > fence) return known;
    if (known?.fence === fence) {
      known.leaseUntilMs = Math.max(known.leaseUntilMs, leaseUntilMs);
      return known;
    }
    if (known) this.#live.delete(known);
    this.#calls.set(sid, call);
    this.#live.add(call);
    const reportedAtMs = this.#reportedAtMs.get(pod) ?? Number.NEGATIVE_INFINITY;
    if (reportedAtMs >= fence / 1000) this.#omit(call, reportedAtMs);
    return call;
  }

  /** A leader's write that the store has done: from here on it does none of an older leader. */
  accepted(write: string, epoch: number): void {
    if (epoch < this.#highestEpoch)
      this.violated(
        `9: the ${write} of an older leader was accepted: epoch ${epoch} after ${this.#highestEpoch}`,
      );
    this.#highestEpoch = Math.max(epoch, this.#highestEpoch);
  }

  over(call: KnownCall | undefined, why: string): void {
    if (!call || call.isOver) return;
    call.isOver = true;
    this.#live.delete(call);
    this.note(`over ${call.sid} on ${call.pod}: ${why}`);
  }

  renewed(sid: string, leaseUntilMs: number): void {
    const call = this.#calls.get(sid);
    if (call && !call.isOver) call.leaseUntilMs = Math.max(call.leaseUntilMs, leaseUntilMs);
  }

  /** The answer to its renewal, or to the report of its pod, was that this pod does not have such a call. */
  unknown(call: KnownCall | undefined): void {
    if (!call || call.isOver || call.isExcused || call.isGuarded || call.leaseUntilMs <= this.storeNowMs())
      return;
    this.violated(`5: ${call.sid} on ${call.pod} was promised until ${call.leaseUntilMs}, then not known`);
  }

  /** What a report leaves out ends a grace later, unless a later one names it; newer calls are not judged by it. */
  heardFrom(pod: string, sids: readonly string[], asOfStoreMs: number): void {
    this.#reportedAtMs.set(pod, asOfStoreMs);
    for (const call of this.#live)
      if (call.pod === pod && !sids.includes(call.sid) && call.fence / 1000 <= asOfStoreMs)
        this.#omit(call, this.storeNowMs());
  }

  /** The store was asked at this moment, and has it: from here on it may not forget it. */
  known(call: KnownCall | undefined, askedAtMs: number): void {
    if (!call || askedAtMs <= this.lossAtMs) return;
    call.isExcused = false;
    call.isGuarded = false;
  }

  #omit(call: KnownCall, atMs: number): void {
    call.leaseUntilMs = Math.min(call.leaseUntilMs, atMs + this.graceMs);
  }

  drained(pod: string, uid: string, sentAtMs = this.nowMs(), untilMs = Number.POSITIVE_INFINITY): void {
    this.note(`drained ${pod}`);
    // The store may have lost it, and an undrain that is still on its way may come after it.
    if (sentAtMs <= this.lossAtMs) return;
    if (this.nowMs() < (this.#undrainedAtMs.get(pod) ?? Number.NEGATIVE_INFINITY) + undrainLateMs) return;
    this.#drained.set(`${pod} ${uid}`, { atMs: this.nowMs(), untilMs });
  }

  undrained(pod: string): void {
    this.#undrainedAtMs.set(pod, this.nowMs());
    for (const key of [...this.#drained.keys()]) if (key.startsWith(`${pod} `)) this.#drained.delete(key);
  }

  /**
   * Called before the store's clock is set back. Leases that have expired by then may have ended, regardless of the clock; what
   * has not was promised for a length of time, and a renewal by the new clock may end at a smaller number.
   */
  setBack(byMs: number): void {
    const nowMs = this.storeNowMs();
    for (const call of this.#calls.values()) {
      if (call.leaseUntilMs <= nowMs) call.isExcused = true;
      call.leaseUntilMs -= byMs;
    }
    for (const [key, { atMs, untilMs }] of [...this.#drained])
      if (untilMs <= nowMs) this.#drained.delete(key);
      else this.#drained.set(key, { atMs, untilMs: untilMs - byMs });
  }

  /**
   * The store has lost writes it had acknowledged. Where its clock is behind the last fence, fences begin again from
   * there. Calls that are `guarded` are still safe: their pod takes no call before it has reported.
   */
  excuse(isGuarded: (call: KnownCall) => boolean = () => false): void {
    for (const call of this.#calls.values()) {
      if (isGuarded(call)) call.isGuarded = true;
      else call.isExcused = true;
    }
    this.#drained.clear();
    this.lossAtMs = this.nowMs();
    this.#highestEpoch = 0;
    if (this.storeNowMs() < this.#highestFence / 1000) this.#highestFence = 0;
  }
}
