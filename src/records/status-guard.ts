/**
 * Detects a table that does not keep the status we write. A trigger, rule or policy may undo a claim or a finish without
 * an error; then the same records would be claimed and processed thousands of times a second. There is one guard per
 * workflow: while its table refuses, it claims only after 1, 2, 4 ... 60 s and logs that once. Other workflows are not affected.
 *
 * A trigger that fires after the statement is seen only by a second look. That costs a round trip, so it is done for
 * the first claim of a process, and after a finish that found an unexpected status.
 */
import type { Clock } from '../clock.js';
import type { Logger } from '../observe/log.js';
import type { Unchanged } from './store.js';

const maxPauseMs = 60_000;

export class StatusGuard {
  /** Whether the table kept the last claim that was looked at twice. */
  isProven = false;
  #refusals = 0;
  #resumeMs = 0;

  constructor(private readonly options: { workflow: string; clock: Clock; log: Logger }) {}

  /** Counts one refusal per pause: others were under way before it. */
  refused(reason: string): void {
    const { clock, log, workflow } = this.options;
    this.isProven = false;
    const nowMs = clock.monotonic();
    if (nowMs < this.#resumeMs) return;
    if (this.#refusals === 0)
      log.error(
        { workflow, reason },
        `table does not keep the status written to it: ${reason}; claiming slows down until it does; check triggers, rules and policies of the table`,
      );
    this.#resumeMs = nowMs + Math.min(1000 * 2 ** this.#refusals, maxPauseMs);
    this.#refusals += 1;
  }

  /** An outcome was written. */
  accepted(): void {
    if (this.#refusals > 0)
      this.options.log.info({ workflow: this.options.workflow }, 'table keeps the status again');
    this.#refusals = 0;
  }

  /** Resolves when the next claim may be tried. */
  async ready(signal: AbortSignal): Promise<void> {
    const { clock } = this.options;
    await clock.sleep(Math.max(0, this.#resumeMs - clock.monotonic()), signal);
  }
}

/** Explains why a finish changed nothing. `isRefused`: the table will not take the next one either. */
export function whyUnchanged(
  row: Unchanged | undefined,
  isRestored: boolean,
): { reason: string; isRefused: boolean; isStuck: boolean } {
  const { status = null, isProcessing = false, isSecured = false } = row ?? {};
  if (isRestored)
    return { reason: `a trigger set the status back to ${status}`, isRefused: true, isStuck: isProcessing };
  if (isProcessing) {
    const reason = isSecured
      ? 'row-level security does not let this role change the row'
      : 'a trigger or a rule keeps the row unchanged';
    return { reason, isRefused: true, isStuck: true };
  }
  if (status !== null)
    return { reason: `another program set the status to ${status}`, isRefused: false, isStuck: false };
  const reason = isSecured ? 'the row was deleted, or row-level security hides it' : 'the row was deleted';
  return { reason, isRefused: isSecured, isStuck: false };
}
