/** What the rest of the router knows of leading, whether it is elected (election.ts) or simply is so (alone.ts). */
import type { Clock } from '../clock.js';
import type { Logger } from '../observe/log.js';

export interface LeaderChange {
  isLeader: boolean;
  /** Identity of whoever leads as far as it is known here. */
  leader: string | null;
}

export interface LeadershipOptions {
  /** `POD_NAME`. */
  identity: string;
  clock: Clock;
  log: Logger;
  /**
   * The leader's work, started with each term; it must end soon after `signal` aborts, and is awaited before the
   * lock is released. If it ends or throws by itself, the term ends.
   */
  lead(signal: AbortSignal): Promise<void>;
  /** Every change that is seen, others' terms included. */
  onChange?: (change: LeaderChange) => void;
}

export interface LeadershipState extends LeaderChange {
  /** `leaving`: the term is over, its work has not ended yet. */
  role: 'follower' | 'leader' | 'leaving' | 'stopped';
  identity: string;
  /** Which lock, or why there is none. */
  lock: string;
  /** How many terms this process has had. */
  terms: number;
  last_error: string | null;
}

export interface Leadership {
  readonly isLeader: boolean;
  readonly leader: string | null;
  /** For `/status`. */
  readonly state: LeadershipState;
  start(): void;
  /** Ends the term, waits for its work, gives the lock back. */
  stop(): Promise<void>;
  /**
   * Asks the lock itself: is this replica still its holder, within its deadline? For a leader whose epoch was
   * refused. Rejects when the lock cannot be read.
   */
  stillHeld(): Promise<boolean>;
}
