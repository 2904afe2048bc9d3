import type { Clock } from '../clock.js';

/**
 * The circuit breaker: sends nothing to a router that is down, so that callers fail (or fall back) at once.
 *
 *   closed     all attempts pass; `failures` failed attempts in a row open it
 *   open       no attempt passes for `openMs`, except heartbeats; one that succeeds makes it half open at once
 *   half_open  `trials` attempts pass; when all have succeeded it closes, the first failure opens it again
 *
 * It counts attempts, not operations. It ignores a response to an attempt from before the last change of state; a
 * cancelled trial frees its slot.
 */
export type BreakerState = 'closed' | 'open' | 'half_open';

export interface BreakerSettings {
  failures: number;
  openMs: number;
  trials: number;
}

export type AttemptKind = 'request' | 'long_poll' | 'heartbeat';

/** Permission for one attempt; exactly one of its methods must be called, once. */
export interface Permit {
  success(): void;
  failure(): void;
  cancel(): void;
}

export class Breaker {
  #state: BreakerState = 'closed';
  #generation = 0;
  #failures = 0;
  /** Failures counted since the start. */
  #total = 0;
  #openedAtMs = 0;
  #trialsInFlight = 0;
  #trialsPassed = 0;

  constructor(
    private readonly clock: Clock,
    private readonly settings: BreakerSettings,
    private readonly onChange: (from: BreakerState, to: BreakerState) => void,
  ) {}

  get state(): BreakerState {
    if (this.#state === 'open' && this.openForMs() <= 0) this.#enter('half_open');
    return this.#state;
  }

  /** Milliseconds until trials are allowed; 0 unless open. */
  openForMs(): number {
    if (this.#state !== 'open') return 0;
    return Math.max(0, this.#openedAtMs + this.settings.openMs - this.clock.monotonic());
  }

  /**
   * A permit, or null if the router counts as down. A `long_poll` (drain or allocate with wait) takes no trial slot, because it
   * would hold it for minutes and keep the breaker half open. Its failure counts only if none was counted since it began: a
   * replica that dies cuts hundreds of them at once, and others may be up. A `heartbeat` (background renewal or report) always
   * passes: it has its own backoff, and without it calls would lose their leases after an outage of a second.
   */
  acquire(kind: AttemptKind = 'request'): Permit | null {
    const state = this.state;
    if (state === 'open' && kind !== 'heartbeat') return null;
    const takesSlot = state === 'half_open' && kind === 'request';
    if (takesSlot && this.#trialsInFlight + this.#trialsPassed >= this.settings.trials) return null;
    if (takesSlot) this.#trialsInFlight += 1;
    const generation = this.#generation;
    const total = this.#total;
    const settle = (apply: () => void) => () => {
      if (generation !== this.#generation) return;
      if (takesSlot) this.#trialsInFlight -= 1;
      apply();
    };
    return {
      success: settle(() => this.#succeeded()),
      failure: settle(() => {
        if (kind !== 'long_poll' || total === this.#total) this.#failed();
      }),
      cancel: settle(() => {}),
    };
  }

  #succeeded(): void {
    this.#failures = 0;
    if (this.#state === 'open') this.#enter('half_open');
    if (this.#state !== 'half_open') return;
    this.#trialsPassed += 1;
    if (this.#trialsPassed >= this.settings.trials) this.#enter('closed');
  }

  #failed(): void {
    // A failed heartbeat does not prolong the pause.
    if (this.#state === 'open') return;
    this.#failures += 1;
    this.#total += 1;
    if (this.#state === 'half_open' || this.#failures >= this.settings.failures) this.#enter('open');
  }

  #enter(to: BreakerState): void {
    const from = this.#state;
    this.#state = to;
    this.#generation += 1;
    this.#failures = 0;
    this.#trialsInFlight = 0;
    this.#trialsPassed = 0;
    if (to === 'open') this.#openedAtMs = this.clock.monotonic();
    this.onChange(from, to);
  }
}
