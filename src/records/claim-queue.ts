/**
 * Claims that wait in this process for a free slot. A claim's timeout runs from when it is made, so waiting claims are
 * renewed, all in one statement, and none is started that was not confirmed lately: otherwise the recovery would give the
 * record to another worker while it still waits here.
 *
 * A record that kills its worker must not make its neighbours fail too. So the start of a record that was reset before
 * is written down; and of those that had started when their worker died again (suspects), this process runs one at a
 * time.
 */
import { type Clock, singleFlight } from '../clock.js';
import type { Claim, RecordStore } from './store.js';
import { keyOf } from './store-types.js';

/** Well below the 30 s of grace that a claim has beyond its timeout. */
const maxAgeMs = 10_000;
const renewAfterMs = 5000;

/** Shared by all workflows of a process: the suspect that runs now. */
export interface SuspectSlot {
  claim?: Claim | undefined;
}

export interface ClaimQueueOptions {
  store: RecordStore;
  clock: Clock;
  suspectSlot: SuspectSlot;
  onLost(claim: Claim): void;
}

export class ClaimQueue {
  readonly #options: ClaimQueueOptions;
  #claims: Claim[] = [];
  #suspects: Claim[] = [];
  readonly #renew = singleFlight(() => this.#renewAll());

  constructor(options: ClaimQueueOptions) {
    this.#options = options;
  }

  /** How many could be started now. */
  get size(): number {
    return this.#claims.length + (this.#options.suspectSlot.claim ? 0 : this.#suspects.length);
  }

  add(claims: readonly Claim[]): void {
    for (const claim of claims) (claim.isSuspect ? this.#suspects : this.#claims).push(claim);
  }

  /** Returns the next claim if no statement is needed before it starts. Call `done` after the handler. */
  takeFresh(): Claim | undefined {
    const claim = this.#claims[0];
    if (!claim || claim.wasReset || this.#suspects.length > 0 || this.#ageMs(claim) > maxAgeMs)
      return undefined;
    return this.#claims.shift();
  }

  /** Returns the next claim that certainly holds; throws if the database cannot tell. Call `done` after the handler. */
  async take(): Promise<Claim | undefined> {
    for (;;) {
      const isSuspectNext = this.#suspects.length > 0 && !this.#options.suspectSlot.claim;
      const next = isSuspectNext ? this.#suspects : this.#claims;
      const [claim] = next;
      if (!claim) return undefined;
      if (this.#ageMs(claim) > maxAgeMs) {
        await this.#renew();
        continue;
      }
      next.shift();
      if (!claim.wasReset || (await this.#begin(claim))) return claim;
    }
  }

  done(claim: Claim): void {
    const { suspectSlot } = this.#options;
    if (suspectSlot.claim === claim) suspectSlot.claim = undefined;
  }

  takeAll(): Claim[] {
    return [...this.#suspects.splice(0), ...this.#claims.splice(0)];
  }

  /** Called every few seconds. */
  async renewOld(): Promise<void> {
    if (this.#all().some((claim) => this.#ageMs(claim) > renewAfterMs)) await this.#renew();
  }

  #all(): Claim[] {
    return [...this.#suspects, ...this.#claims];
  }

  /** Resolves to false if the claim is lost. If the database cannot tell, puts the claim back and throws. */
  async #begin(claim: Claim): Promise<boolean> {
    const { store, clock, suspectSlot, onLost } = this.#options;
    if (claim.isSuspect) suspectSlot.claim = claim;
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
    return this.#options.clock.monotonic() - claim.confirmedMs;
  }

  async #renewAll(): Promise<void> {
    const { store, clock, onLost } = this.#options;
    const nowMs = clock.monotonic();
    const sent = this.#all();
    const held = new Set((await store.renew(sent)).map(keyOf));
    const lost = new Set(sent.filter((claim) => !held.has(keyOf(claim))));
    for (const claim of sent) if (!lost.has(claim)) claim.confirmedMs = nowMs;
    // Claims that have started since are checked where they run.
    const lostHere = this.#all().filter((claim) => lost.has(claim));
    this.#claims = this.#claims.filter((claim) => !lost.has(claim));
    this.#suspects = this.#suspects.filter((claim) => !lost.has(claim));
    for (const claim of lostHere) onLost(claim);
  }
}
