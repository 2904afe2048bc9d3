/**
 * Decides which requests an overloaded router handles. Without it every request waits behind all others, until none is
 * answered in time.
 *
 * Guarantees: a rejected request has touched neither the store nor a pod. Of known callers, new calls are rejected first;
 * requests that end or keep calls (release, renew, report) only at twice `maxInFlight`. Strangers (no valid key, no valid signature) have a few
 * slots of their own and never take one of a known caller. Probes take no slot: routes/probes.ts bounds their cost.
 *
 * A request holds a slot from the moment its body is complete and its caller is authenticated until its response is
 * handed to the socket (gate.ts). Incomplete bodies and unread responses hold none; connections.ts limits those. An allocate
 * that waits for a pod gives its slot back and takes none for its later attempts; allocation.ts limits such requests.
 *
 * Two inputs decide: the requests in flight, and the delay of the event loop, sampled in windows of three. Three late samples
 * lower the limit for new calls below the number in flight; one long pause (garbage collection, a large sync) is not an
 * overload. A lowered limit shrinks again at once if the first sample of a window is late, else it grows with each window.
 * Without requests it doubles with each sample, from the second on: after a pause of the process, one timer runs before the
 * waiting requests are read. The delay never brings the limit below `minLimit`, and a few strangers per sample are always
 * handled: a slow machine with few callers rejects none.
 *
 * Weaknesses: it does not see the kernel's queue in front of the process, only its effect on the loop. A webhook counts as
 * known until its signature is checked, so unsigned webhooks are parsed until twice `maxInFlight` requests are in flight. Node parses all requests of
 * a packet before one of them can close the connection: a flood of pipelined requests delays the loop.
 */
import type { Clock } from '../clock.js';

export type Kind = 'call' | 'other' | 'lasting' | 'probe';
export type Slot = 'call' | 'other' | 'lasting' | 'stranger';

export const minLimit = 64;
/** Waiting drains (1,000 per router) and event streams (100) have limits of their own; concurrent audits are shared. */
const maxLasting = 2000;
/** A stranger's request (a page, a sign-in, a rejection) takes a few milliseconds at most. */
const maxStrangers = 64;
/** Strangers handled per sample: as many as a page of the console needs, so that an operator can sign in beside few others. */
const maxStrangersWhileLowered = 8;
const sampleEveryMs = 20;
const samplesPerWindow = 3;

const newCall = /^\/api\/v1\/allocate\/?(?:\?|$)/;
const probe = /^(?:\/api\/v1)?\/(?:health|ready|metrics)\/?(?:\?|$)/;
const lasting = /^(?:POST \/api\/v1\/drain|GET \/api\/v1\/(?:events|audit))\/?(?:\?|$)/;

/**
 * Classifies a request by its first line, before parsing. A provider's webhook is `other` here: only its body says whether
 * the call starts or ends, so its route checks again (`hasRoomForCall`).
 */
export function kindOf(method: string, url: string): Kind {
  if (newCall.test(url)) return 'call';
  if ((method === 'GET' || method === 'HEAD') && probe.test(url)) return 'probe';
  return lasting.test(`${method} ${url}`) ? 'lasting' : 'other';
}

export class Admission {
  readonly #clock: Clock;
  readonly #maxInFlight: number;
  readonly #delayMs: number | undefined;
  #limit: number;
  #inFlight = 0;
  #lasting = 0;
  #strangers = 0;
  #isSampling = false;
  /** Since the last sample. */
  #arrivals = 0;
  #strangersWhileLowered = 0;
  #wasIdle = false;
  /** Of the current window. */
  #samples = 0;
  #minDelayMs = Number.POSITIVE_INFINITY;
  #maxSeenInFlight = 0;

  /** `delayMs` undefined: only the number in flight counts. */
  constructor({
    clock,
    maxInFlight,
    delayMs,
  }: { clock: Clock; maxInFlight: number; delayMs: number | undefined }) {
    this.#clock = clock;
    this.#maxInFlight = maxInFlight;
    this.#delayMs = delayMs;
    this.#limit = maxInFlight;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** A new call is admitted while fewer requests than this are in flight. */
  get callLimit(): number {
    return this.#limit;
  }

  /** The event loop was late, and the limit has not grown back: strangers are rejected first (`admitStranger`). */
  get isLowered(): boolean {
    return this.#limit < this.#maxInFlight;
  }

  hasRoom(kind: Kind | Slot): boolean {
    switch (kind) {
      case 'call':
        return this.#inFlight < this.#limit;
      case 'other':
        return this.#inFlight < 2 * this.#maxInFlight;
      case 'lasting':
        return this.#lasting < maxLasting;
      case 'stranger':
        return this.#strangers < maxStrangers;
      case 'probe':
        return true;
    }
  }

  /** Counts a request before it is read: strangers alone can make the event loop late. */
  arrived(): void {
    this.#arrivals += 1;
    this.#sample();
  }

  /** Counts a stranger's request while the limit is lowered; false: reject it. */
  admitStranger(): boolean {
    if (!this.isLowered) return true;
    this.#strangersWhileLowered += 1;
    return this.#strangersWhileLowered <= maxStrangersWhileLowered;
  }

  /** Takes a slot until `leave`; false if there is none. */
  enter(slot: Slot): boolean {
    if (!this.hasRoom(slot)) return false;
    if (slot === 'lasting') this.#lasting += 1;
    else if (slot === 'stranger') this.#strangers += 1;
    else {
      this.#inFlight += 1;
      this.#maxSeenInFlight = Math.max(this.#maxSeenInFlight, this.#inFlight);
      this.#sample();
    }
    return true;
  }

  leave(slot: Slot): void {
    if (slot === 'lasting') this.#lasting -= 1;
    else if (slot === 'stranger') this.#strangers -= 1;
    else this.#inFlight -= 1;
  }

  /** For a request that holds a slot and turns out to be a new call. */
  get hasRoomForCall(): boolean {
    return this.#inFlight <= this.#limit;
  }

  /**
   * Samples the delay of the event loop while requests arrive or are in flight, or while the limit is lowered: an idle router
   * has no timer.
   */
  #sample(): void {
    const delayMs = this.#delayMs;
    if (this.#isSampling || delayMs === undefined) return;
    this.#isSampling = true;
    const startMs = this.#clock.monotonic();
    const sample = () => {
      this.#isSampling = false;
      const isIdle = this.#inFlight + this.#arrivals === 0;
      this.#arrivals = 0;
      this.#strangersWhileLowered = 0;
      if (isIdle) {
        // Doubled, not reset: a gap of 40 ms does not end an overload.
        if (this.#wasIdle) this.#limit = Math.min(this.#maxInFlight, 2 * this.#limit);
        // While the limit is lowered, a window continues across one idle sample: else a regular light load would never
        // complete one. An empty window must not keep the requests in flight before the gap.
        if (this.#wasIdle || !this.isLowered || this.#samples === 0) this.#startWindow();
      } else this.#adjust(this.#clock.monotonic() - startMs - sampleEveryMs, delayMs);
      this.#wasIdle = isIdle;
      if (!isIdle || this.isLowered) this.#sample();
    };
    this.#clock.after(sampleEveryMs, sample, { unref: true });
  }

  #startWindow(): void {
    this.#samples = 0;
    this.#minDelayMs = Number.POSITIVE_INFINITY;
    this.#maxSeenInFlight = this.#inFlight;
  }

  #adjust(lateMs: number, delayMs: number): void {
    this.#samples += 1;
    this.#minDelayMs = Math.min(this.#minDelayMs, lateMs);
    const isLate = this.#minDelayMs > delayMs;
    // A lowered limit does not wait for three: while it is too high, a backlog grows that takes seconds to reject.
    if (this.#samples < samplesPerWindow && !(isLate && this.isLowered)) return;
    if (isLate) {
      const present = Math.min(this.#limit, this.#maxSeenInFlight);
      const share = Math.max(0.25, delayMs / this.#minDelayMs);
      this.#limit = Math.min(this.#maxInFlight, Math.max(minLimit, Math.floor(present * share)));
    } else {
      this.#limit = Math.min(this.#maxInFlight, Math.ceil(this.#limit * 1.1));
    }
    this.#startWindow();
  }
}
