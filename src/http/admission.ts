/**
 * Decides which requests are handled while there are more than the router can handle. Without it every request waits
 * behind all others, until none is answered in time.
 *
 * Guarantees: a refused request has touched neither the store nor a pod. New calls are refused first; what ends or keeps
 * calls (release, renew, report) has as many places again. Strangers (no valid key, no valid signature) have a few places
 * of their own and never take one of a known caller. Probes take no place: routes/probes.ts bounds their cost.
 *
 * A request holds a place from the moment its body is complete and its caller is known until its answer is handed to the
 * socket (response.ts). A body that does not arrive and an answer that is not read hold none; connections.ts limits those.
 *
 * Two measures: the requests in flight, at most `maxInFlight` for a new call and twice that for all; and the delay of the
 * event loop. If the loop was late at three looks in a row, the limit for new calls shrinks below what is in flight, and
 * grows again when the loop is in time. One long pause (garbage collection, a large sync) does not count. The delay never
 * brings the limit below `leastLimit`: a slow machine with few callers refuses none of them.
 *
 * Weakness: the kernel's queue in front of the process is not seen, only what it does to the loop.
 */
import type { Clock } from '../clock.js';

export type Kind = 'call' | 'other' | 'lasting' | 'probe';
export type Place = 'call' | 'other' | 'lasting' | 'stranger';

export const leastLimit = 64;
/** Drains that are waited for (1,000 a router) and event streams (100) have their own bounds, audits are shared. */
const mostLasting = 2000;
/** What strangers ask for (a page, a sign-in, a refusal) takes a few milliseconds at most. */
const mostStrangers = 64;
const lookEveryMs = 20;
const looksOfAWhile = 3;

const newCall = /^\/api\/v1\/allocate\/?(?:\?|$)/;
const probe = /^(?:\/api\/v1)?\/(?:health|ready|metrics)\/?(?:\?|$)/;
const lasting = /^(?:POST \/api\/v1\/drain|GET \/api\/v1\/(?:events|audit))\/?(?:\?|$)/;

/**
 * By its first line alone, before anything is parsed. A provider's call is an `other` here: only its body says whether it
 * rings or hangs up, so its route asks again (`hasRoomForCall`).
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
  #isLooking = false;
  /** Of the while that is being looked at: how many looks, the least delay, the most in flight. */
  #looks = 0;
  #leastDelayMs = Number.POSITIVE_INFINITY;
  #mostInFlight = 0;

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

  /** How many may be in flight for one more new call to be let in. */
  get callLimit(): number {
    return this.#limit;
  }

  /** The event loop has been late: what a stranger asks for is refused before anything else. */
  get isLate(): boolean {
    return this.#limit < this.#maxInFlight;
  }

  /** Whether a request of a known caller would be let in now. */
  hasRoom(kind: Kind | Place): boolean {
    switch (kind) {
      case 'call':
        return this.#inFlight < this.#limit;
      case 'other':
        return this.#inFlight < 2 * this.#maxInFlight;
      case 'lasting':
        return this.#lasting < mostLasting;
      case 'stranger':
        return this.#strangers < mostStrangers;
      case 'probe':
        return true;
    }
  }

  /** False: refused. True: it has a place, until `leave`. */
  enter(place: Place): boolean {
    if (!this.hasRoom(place)) return false;
    if (place === 'lasting') this.#lasting += 1;
    else if (place === 'stranger') this.#strangers += 1;
    else {
      this.#inFlight += 1;
      this.#mostInFlight = Math.max(this.#mostInFlight, this.#inFlight);
      if (!this.#isLooking && this.#delayMs !== undefined) this.#look(this.#delayMs);
    }
    return true;
  }

  leave(place: Place): void {
    if (place === 'lasting') this.#lasting -= 1;
    else if (place === 'stranger') this.#strangers -= 1;
    else this.#inFlight -= 1;
  }

  /** For a request that is in already and turns out to be a new call. */
  get hasRoomForCall(): boolean {
    return this.#inFlight <= this.#limit;
  }

  /** Looks for as long as somebody is in flight: an idle router has no timer. */
  #look(delayMs: number): void {
    this.#isLooking = true;
    const startMs = this.#clock.monotonic();
    const look = () => {
      this.#note(this.#clock.monotonic() - startMs - lookEveryMs, delayMs);
      this.#isLooking = this.#inFlight > 0;
      if (this.#isLooking) this.#look(delayMs);
      else this.#forget();
    };
    this.#clock.after(lookEveryMs, look, { unref: true });
  }

  /** Nobody waits any more: whatever it was, it says nothing about whoever comes next. */
  #forget(): void {
    this.#limit = this.#maxInFlight;
    this.#beginWhile();
  }

  #beginWhile(): void {
    this.#looks = 0;
    this.#leastDelayMs = Number.POSITIVE_INFINITY;
    this.#mostInFlight = this.#inFlight;
  }

  #note(lateMs: number, delayMs: number): void {
    this.#looks += 1;
    this.#leastDelayMs = Math.min(this.#leastDelayMs, lateMs);
    if (this.#looks < looksOfAWhile) return;
    if (this.#leastDelayMs > delayMs) {
      const present = Math.min(this.#limit, this.#mostInFlight);
      const share = Math.max(0.25, delayMs / this.#leastDelayMs);
      this.#limit = Math.min(this.#maxInFlight, Math.max(leastLimit, Math.floor(present * share)));
    } else {
      this.#limit = Math.min(this.#maxInFlight, Math.ceil(this.#limit * 1.1));
    }
    this.#beginWhile();
  }
}
