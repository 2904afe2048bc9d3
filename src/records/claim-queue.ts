/**
 * Claims that wait in this process for a free slot. A claim's time runs from when it is made, so the longer a record
 * waits here the less of its timeout is left, and in the end the recovery would give it to another while it still
 * waits. Therefore claims that wait are renewed, all in one statement, and none is begun that has not been confirmed
 * lately.
 *
 * One record that kills its worker must not take its neighbours along until they all fail. So that the recovery can
 * tell them apart, it is written down when a record that came back begins; and of those that had begun when their
 * worker died again (suspects), this process works on one at a time.
 */
import type { Clock } from '../clock.js';
import type { Claim, RecordStore } from './store.js';

/** Well below the 30 s that a claim is given beyond its timeout. */
const freshMs = 10_000;
const renewAfterMs = 5000;

/** One for all workflows of a process: the suspect that is worked on. */
export interface Suspicion {
  claim?: Claim | undefined;
}

export interface WaitingParts {
  store: RecordStore;
  clock: Clock;
  suspicion: Suspicion;
  onLost(claim: Claim): void;
}

export class Waiting {
  readonly #parts: WaitingParts;
  #claims: Claim[] = [];
  #suspects: Claim[] = [];
  #renewing: Promise<void> | undefined;

  constructor(parts: WaitingParts) {
    this.#parts = parts;
  }

  /** Those that could be begun now. */
  get size(): number {
    return this.#claims.length + (this.#parts.suspicion.claim ? 0 : this.#suspects.length);
  }

  add(claims: readonly Claim[]): void {
    for (const claim of claims) (claim.isSuspect ? this.#suspects : this.#claims).push(claim);
  }

  /** The next one whose claim certainly holds; throws when that cannot be found out now. Tell when it is `done`. */
  async take(): Promise<Claim | undefined> {
    for (;;) {
      const next = this.#next();
      const [claim] = next;
      if (!claim) return undefined;
      if (this.#ageMs(claim) > freshMs) {
        await this.#renew();
        continue;
      }
      next.shift();
      if (!claim.isBack || (await this.#begin(claim))) return claim;
    }
  }

  done(claim: Claim): void {
    const { suspicion } = this.#parts;
    if (suspicion.claim === claim) suspicion.claim = undefined;
  }

  takeAll(): Claim[] {
    return [...this.#suspects.splice(0), ...this.#claims.splice(0)];
  }

  /** Called now and then. */
  async renewOld(): Promise<void> {
    if (this.#all().some((claim) => this.#ageMs(claim) > renewAfterMs)) await this.#renew();
  }

  #all(): Claim[] {
    return [...this.#suspects, ...this.#claims];
  }

  #next(): Claim[] {
    return this.#suspects.length > 0 && !this.#parts.suspicion.claim ? this.#suspects : this.#claims;
  }

  /** Resolves to false if it is lost; throws, and it waits again, when that cannot be found out. */
  async #begin(claim: Claim): Promise<boolean> {
    const { store, clock, suspicion, onLost } = this.#parts;
    if (claim.isSuspect) suspicion.claim = claim;
    const nowMs = clock.monotonic();
    try {
      if (await store.begin(claim)) {
        claim.confirmedMs = nowMs;
        return true;
      }
    } catch (error) {
      this.done(claim);
      (claim.isSuspect ? this.#suspects : this.#claims).unshift(claim);
      throw error;
    }
    this.done(claim);
    onLost(claim);
    return false;
  }

  #ageMs(claim: Claim): number {
    return this.#parts.clock.monotonic() - claim.confirmedMs;
  }

  #renew(): Promise<void> {
    this.#renewing ??= this.#ask().finally(() => {
      this.#renewing = undefined;
    });
    return this.#renewing;
  }

  async #ask(): Promise<void> {
    const { store, clock, onLost } = this.#parts;
    const nowMs = clock.monotonic();
    const asked = this.#all();
    const held = new Set((await store.renew(asked)).map(({ id, token }) => `${token} ${id}`));
    const isLost = (claim: Claim) => !held.has(`${claim.token} ${claim.id}`);
    for (const claim of asked) if (!isLost(claim)) claim.confirmedMs = nowMs;
    const lost = new Set(asked.filter(isLost));
    // What was taken meanwhile is looked after where it runs.
    const gone = this.#all().filter((claim) => lost.has(claim));
    this.#claims = this.#claims.filter((claim) => !lost.has(claim));
    this.#suspects = this.#suspects.filter((claim) => !lost.has(claim));
    for (const claim of gone) onLost(claim);
  }
}
