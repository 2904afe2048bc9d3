/** Leadership as the rest of the router sees it, elected (election.ts) or not (single-replica.ts), and its lock. */
import type { Clock } from '../clock.js';
import type { Logger } from '../observe/log.js';

export interface LeaderChange {
  isLeader: boolean;
  /** Identity of the current leader, if known here. */
  leader: string | null;
}

export interface LeadershipOptions {
  /** `POD_NAME`. */
  identity: string;
  clock: Clock;
  log: Logger;
  /**
   * The work of the leader, started with each term. It must end soon after `signal` aborts, and the lock is released
   * after it. If it ends or throws before that, the term ends.
   */
  lead(signal: AbortSignal): Promise<void>;
  /** Every observed change of the leader. */
  onChange?: (change: LeaderChange) => void;
  /** A term was lost and its work has ended. Not called after `stop`. */
  onLost?: () => void;
}

export interface Leadership {
  readonly isLeader: boolean;
  readonly leader: string | null;
  /** For `/status`: the lock, or why there is none, and its last error. */
  readonly state: { lock: string; last_error: string | null };
  start(): void;
  /** Ends the term, waits for its work, releases the lock. */
  stop(): Promise<void>;
  /**
   * Reads the lock: is this replica still its holder, within its deadline? For a leader whose epoch was refused.
   * Rejects when the lock cannot be read.
   */
  stillHeld(): Promise<boolean>;
}

/** The record in the lock. Both kinds of lock (Kubernetes Lease, our store) have compare-and-swap. */
export interface LockRecord {
  /** Empty after a release. */
  holder: string;
  /** The process that wrote it. Two processes may share an identity (a pod deleted by force), never this. */
  writer: string;
  /** Promised by the holder: an observer waits this long, by its own clock, before it takes over. */
  durationMs: number;
  /** ISO times with milliseconds: for people, never compared. */
  acquiredAt: string;
  renewedAt: string;
  /** How often the holder has changed. */
  transitions: number;
}

export interface HeldRecord extends LockRecord {
  /** New with every write, never reused: the handle for the next write, and the holder's heartbeat. */
  version: string;
}

export interface LeaseLock {
  /** For logs: which lock, where. */
  readonly description: string;
  /** True where a missing record was probably lost with all data: its last writer writes it again at once. */
  readonly forgets?: boolean;
  /** The current record, not a cached one; undefined without a record. Ends or rejects within `timeoutMs`. */
  read(timeoutMs: number): Promise<HeldRecord | undefined>;
  /**
   * Writes if the record still has `version` (undefined: if no record exists). Undefined when another write was first.
   * Rejects within `timeoutMs` when it is unknown whether the record was, or will be, written.
   */
  write(record: LockRecord, version: string | undefined, timeoutMs: number): Promise<HeldRecord | undefined>;
}
