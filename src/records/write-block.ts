/**
 * A workflow whose outcomes the database does not take although it answers: it starts no new work. If the reason may be the
 * fault of a row, one record a minute is processed: its outcome shows whether others pass, and then the row is at fault.
 */
import type { Clock } from '../clock.js';
import type { Logger } from '../observe/log.js';
import { mayBeRowFault } from './sessions.js';

const betweenProbesMs = 60_000;

export class WriteBlock {
  #reason: unknown;
  #othersPass = false;
  #nextProbeMs = 0;

  constructor(private readonly options: { workflow: string; clock: Clock; log: Logger }) {}

  /** Another outcome was written since. */
  get othersPass(): boolean {
    return this.#othersPass;
  }

  begin(reason: unknown): void {
    const { log, workflow } = this.options;
    if (this.#reason === undefined)
      log.error({ workflow, err: reason }, 'outcomes cannot be written; no new work starts until they can');
    this.#reason = reason;
  }

  /** Outcomes were written. */
  passed(): void {
    this.#othersPass = this.#reason !== undefined;
  }

  end(): void {
    this.#reason = undefined;
    this.#othersPass = false;
    this.#nextProbeMs = 0;
  }

  /** How many records may be claimed; throws if none. */
  maxClaims(): number {
    if (this.#reason === undefined) return Number.POSITIVE_INFINITY;
    if (!mayBeRowFault(this.#reason) || this.options.clock.monotonic() < this.#nextProbeMs)
      throw new Error('outcomes of this workflow cannot be written');
    return 1;
  }

  claimed(records: number): void {
    if (this.#reason !== undefined && records > 0)
      this.#nextProbeMs = this.options.clock.monotonic() + betweenProbesMs;
  }
}
