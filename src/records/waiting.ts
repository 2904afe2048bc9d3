/**
 * Claims that wait in this process for a free slot. A claim's time runs from when it is made, so the longer a record
 * waits here the less of its timeout is left, and in the end the recovery would give it to another while it still
 * waits. Therefore claims that wait are renewed, all in one statement, and none is begun that has not been confirmed
 * lately.
 */
import type { Clock } from '../clock.js';
import type { Claim, RecordStore } from './store.js';

/** Well below the 30 s that a claim is given beyond its timeout. */
const freshMs = 10_000;
const renewAfterMs = 5000;

export class Waiting {
  readonly #store: RecordStore;
  readonly #clock: Clock;
  readonly #onLost: (claim: Claim) => void;
  #claims: Claim[] = [];
  #renewing: Promise<void> | undefined;

  constructor(parts: { store: RecordStore; clock: Clock; onLost(claim: Claim): void }) {
    this.#store = parts.store;
    this.#clock = parts.clock;
    this.#onLost = parts.onLost;
  }

  get size(): number {
    return this.#claims.length;
  }

  add(claims: readonly Claim[]): void {
    this.#claims.push(...claims);
  }

  /** The next one whose claim certainly holds; throws when that cannot be found out now. */
  async take(): Promise<Claim | undefined> {
    for (;;) {
      const claim = this.#claims[0];
      if (!claim) return undefined;
      if (this.#ageMs(claim) <= freshMs) return this.#claims.shift();
      await this.#renew();
    }
  }

  takeAll(): Claim[] {
    return this.#claims.splice(0);
  }

  /** Called now and then. */
  async renewOld(): Promise<void> {
    if (this.#claims.some((claim) => this.#ageMs(claim) > renewAfterMs)) await this.#renew();
  }

  #ageMs(claim: Claim): number {
    return this.#clock.monotonic() - claim.confirmedMs;
  }

  #renew(): Promise<void> {
    this.#renewing ??= this.#ask().finally(() => {
      this.#renewing = undefined;
    });
    return this.#renewing;
  }

  async #ask(): Promise<void> {
    const nowMs = this.#clock.monotonic();
    const asked = [...this.#claims];
    const held = new Set((await this.#store.renew(asked)).map(({ id, token }) => `${token} ${id}`));
    const isLost = (claim: Claim) => !held.has(`${claim.token} ${claim.id}`);
    for (const claim of asked) if (!isLost(claim)) claim.confirmedMs = nowMs;
    const lost = new Set(asked.filter(isLost));
    // What was taken meanwhile is looked after where it runs.
    const gone = this.#claims.filter((claim) => lost.has(claim));
    this.#claims = this.#claims.filter((claim) => !lost.has(claim));
    for (const claim of gone) this.#onLost(claim);
  }
}
