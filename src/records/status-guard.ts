/**
 * Whether a table keeps the status that we write. A trigger, a rule or a policy of the table may undo a claim or a
 * finish without an error; then the same records would be claimed and processed again and again, thousands of times a
 * second. One for each workflow: while its table refuses, this workflow claims after 1, 2, 4 ... 60 s only, says so
 * once, and the others go on.
 *
 * A trigger that fires after the statement is seen only by looking again. That costs a round trip, so it is done for
 * the first claim of a process, and after a finish that found a status it did not expect.
 */
import type { Clock } from '../clock.js';
import type { Logger } from '../observe/log.js';
import type { Unchanged } from './store.js';

const longestPauseMs = 60_000;

export class StatusGuard {
  readonly #options: { workflow: string; clock: Clock; log: Logger };
  #isProven = false;
  #refusals = 0;
  #resumeMs = 0;

  constructor(options: { workflow: string; clock: Clock; log: Logger }) {
    this.#options = options;
  }

  /** The last claim that was looked at again was kept. */
  get isProven(): boolean {
    return this.#isProven;
  }

  proven(): void {
    this.#isProven = true;
  }

  doubt(): void {
    this.#isProven = false;
  }

  /** What is refused while it pauses already was under way: one refusal per pause counts. */
  refused(reason: string): void {
    const { clock, log, workflow } = this.#options;
    this.doubt();
    const nowMs = clock.monotonic();
    if (nowMs < this.#resumeMs) return;
    if (this.#refusals === 0)
      log.error(
        { workflow, reason },
        `the table does not keep the status that is written to it: ${reason}; this workflow claims less and less often until it does: check triggers, rules and policies of the table`,
      );
    this.#resumeMs = nowMs + Math.min(1000 * 2 ** this.#refusals, longestPauseMs);
    this.#refusals += 1;
  }

  /** An outcome was written. */
  accepted(): void {
    if (this.#refusals > 0)
      this.#options.log.info({ workflow: this.#options.workflow }, 'the table keeps the status again');
    this.#refusals = 0;
  }

  /** Resolves when the next claim may be tried. */
  async ready(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    await clock.sleep(Math.max(0, this.#resumeMs - clock.monotonic()), signal);
  }
}

/** Why a finish changed nothing; `isRefused`: the table will not take the next one either. */
export function whyUnchanged(
  row: Unchanged | undefined,
  isSetBack: boolean,
): { reason: string; isRefused: boolean; isStuck: boolean } {
  const { status = null, isProcessing = false, isSecured = false } = row ?? {};
  const secured = 'row-level security does not let this role change it';
  if (isSetBack)
    return {
      reason: `a trigger set its status back to ${status}`,
      isRefused: true,
      isStuck: isProcessing,
    };
  if (isProcessing)
    return {
      reason: isSecured ? secured : 'a trigger or a rule keeps its row as it is',
      isRefused: true,
      isStuck: true,
    };
  const gone = isSecured ? 'its row was deleted, or row-level security hides it' : 'its row was deleted';
  const reason = status === null ? gone : `another program set its status to ${status}`;
  return { reason, isRefused: status === null && isSecured, isStuck: false };
}
