/**
 * Guessing the admin key at the sign-in, where people type it, is made slow: ten wrong keys a minute and address, then
 * none is looked at until the oldest of them is a minute old. Bearer keys are not limited: agents behind one proxy share
 * an address, and one of them with an old key must not cost the others their calls. In memory and for this replica; the number of addresses is bounded, and the one that failed
 * longest ago is forgotten first.
 */
import type { Clock } from '../clock.js';
import { networkOf } from './auth.js';

export const mostFailures = 10;
const windowMs = 60_000;
const mostAddresses = 10_000;

export class SignInLimit {
  readonly #failures = new Map<string, number[]>();

  constructor(readonly clock: Clock) {}

  /** Seconds until the next try is looked at; 0: now. */
  waitSeconds(address: string): number {
    const times = this.#recent(networkOf(address));
    const oldest = times.length >= mostFailures ? times[times.length - mostFailures] : undefined;
    if (oldest === undefined) return 0;
    return Math.max(1, Math.ceil((oldest + windowMs - this.clock.monotonic()) / 1000));
  }

  failed(address: string): void {
    const network = networkOf(address);
    const times = [...this.#recent(network), this.clock.monotonic()].slice(-mostFailures);
    this.#failures.delete(network);
    this.#failures.set(network, times);
    for (const first of this.#failures.keys()) {
      if (this.#failures.size <= mostAddresses) break;
      this.#failures.delete(first);
    }
  }

  succeeded(address: string): void {
    this.#failures.delete(networkOf(address));
  }

  get addresses(): number {
    return this.#failures.size;
  }

  #recent(network: string): number[] {
    const sinceMs = this.clock.monotonic() - windowMs;
    return (this.#failures.get(network) ?? []).filter((atMs) => atMs > sinceMs);
  }
}
