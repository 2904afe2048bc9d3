/** Runs the loops of the leader (leader-loops.ts) in every term of this replica. The given leadership decides who leads. */
import type { Leadership, LeadershipOptions } from '../leadership/leadership.js';
import type { LoopState } from '../loop.js';
import { LeaderLoops } from './leader-loops.js';
import type { LeaderOptions } from './leader-options.js';

export interface PoolManagerOptions extends LeaderOptions {
  /** The caller adds lock and times. */
  leadership(options: LeadershipOptions): Leadership;
  onLeader?: (isLeader: boolean) => void;
  /** A term ended before the stop. */
  onLost?: () => void;
}

export class PoolManager {
  readonly #options: PoolManagerOptions;
  readonly #leadership: Leadership;
  #loops: LeaderLoops | undefined;
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

  get election(): Leadership['state'] {
    return this.#leadership.state;
  }

  /** Empty on a follower. */
  get loops(): LoopState[] {
    return this.#loops?.states ?? [];
  }

  /** Resolves after our first reconcile, or when another replica leads: usually the pods are registered then. */
  async start(): Promise<void> {
    this.#leadership.start();
    await this.#firstOutcome;
  }

  /** Syncs now, for example after a reconnect to a store that may have lost its data. */
  nudge(): void {
    this.#loops?.nudge();
  }

  async stop(): Promise<void> {
    this.#settled();
    await this.#leadership.stop();
  }

  async #lead(signal: AbortSignal): Promise<void> {
    const loops = new LeaderLoops(this.#options, () => this.#leadership.stillHeld());
    this.#loops = loops;
    void loops.firstReconcile.then(this.#settled);
    try {
      await loops.run(signal);
    } finally {
      this.#loops = undefined;
    }
  }
}
