/**
 * Keeps the pools true to the cluster whenever this replica leads: a new term for every time the lock is won, nothing
 * in between. Who leads is decided by the leadership it is given.
 */
import type { ElectionOptions } from '../leadership/election.js';
import type { Leadership } from '../leadership/leadership.js';
import type { LoopState } from '../loop.js';
import { Term, type TermOptions } from './term.js';

/** What a leadership is made from; the rest (which lock, which times) is the caller's. */
export type LeadershipEvents = Pick<ElectionOptions, 'identity' | 'clock' | 'log' | 'lead'> &
  Required<Pick<ElectionOptions, 'onChange' | 'onLost'>>;

export interface PoolManagerOptions extends TermOptions {
  leadership(events: LeadershipEvents): Leadership;
  onLeader?: (isLeader: boolean) => void;
  /** A term ended although nobody asked for it. */
  onLost?: () => void;
}

export class PoolManager {
  readonly #options: PoolManagerOptions;
  readonly #leadership: Leadership;
  #term: Term | undefined;
  #settled = () => {};
  readonly #firstOutcome = new Promise<void>((resolve) => {
    this.#settled = resolve;
  });

  constructor(options: PoolManagerOptions) {
    this.#options = options;
    const { identity, clock, log } = options;
    this.#leadership = options.leadership({
      identity,
      clock,
      log,
      lead: (signal) => this.#lead(signal),
      onChange: ({ isLeader, leader }) => {
        options.onLeader?.(isLeader);
        if (leader !== null && !isLeader) this.#settled();
      },
      onLost: () => options.onLost?.(),
    });
  }

  get isLeader(): boolean {
    return this.#leadership.isLeader;
  }

  get leader(): string | null {
    return this.#leadership.leader;
  }

  /** Which lock decides, and what is wrong with it, if anything. */
  get election(): { lock: string; last_error: string | null } {
    const { lock, last_error } = this.#leadership.state;
    return { lock, last_error };
  }

  /** Empty while another replica leads. */
  get loops(): LoopState[] {
    return this.#term?.loops ?? [];
  }

  /** Resolves when another leader is known or our first sync has been tried: usually the pods are there then. */
  async start(): Promise<void> {
    this.#leadership.start();
    await this.#firstOutcome;
  }

  /** The store is back, perhaps without its content: look now instead of in a minute. */
  nudge(): void {
    this.#term?.nudge();
  }

  async stop(): Promise<void> {
    this.#settled();
    await this.#leadership.stop();
  }

  async #lead(signal: AbortSignal): Promise<void> {
    const term = new Term(this.#options, () => this.#leadership.stillHeld());
    this.#term = term;
    void term.firstSync.then(this.#settled);
    try {
      await term.run(signal);
    } finally {
      this.#term = undefined;
    }
  }
}
