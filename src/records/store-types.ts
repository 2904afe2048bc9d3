/** What the statements of the record plane take and return. */
import type { Row } from './workflow.js';

/** A record that this process holds. */
export interface Claim {
  id: string;
  token: string;
  record: Row;
  /** By our own clock: when it was last known to hold. */
  confirmedMs: number;
  /** It has been reset before: that its handler begins is written down. */
  isBack: boolean;
  /** Its handler had begun when it was reset the second time, or later: it may be what kills its workers. */
  isSuspect: boolean;
}

/** What names a claim. */
export type ClaimKey = Pick<Claim, 'id' | 'token'>;

export interface Outcome {
  id: string;
  token: string;
  /** Null: completed. */
  error: string | null;
}

export interface Finished {
  written: Set<string>;
  /** The token held, and a trigger set the status back. */
  setBack: string[];
  /** The token held, and the row was not changed. What is in none of the three came too late. */
  unchanged: string[];
}

export interface Unchanged {
  id: string;
  /** Null: no such row can be seen. */
  status: string | null;
  isProcessing: boolean;
  isQueued: boolean;
  /** Row-level security applies to us. */
  isSecured: boolean;
}

export interface Recovered {
  id: string;
  reason: 'dead_worker' | 'timed_out' | 'given_up' | 'unclaimed' | 'by_hand';
  outcome: 'requeued' | 'failed' | 'held';
  /** Before this one. */
  resets: number;
  stuckSeconds: number;
  worker: string | null;
  trace: string | null;
}

/** What a sweep would do, or could not do. */
export interface Stuck {
  /** Those that a sweep would change, oldest first; then those that are held already. */
  records: (Recovered & { isHeld: boolean })[];
  /** All of them, also those that are not listed. */
  total: number;
  /** What a sweep would do now. */
  wouldBe: Record<Recovered['outcome'], number>;
  oldestSeconds: number;
}

/** What of the stuck records is looked at. */
export interface Which {
  /** True: only what the slow sweep is for, false: only the fast one. Default: both. */
  unclaimed?: boolean | null;
  /** False: no worker is taken for dead. */
  judges?: boolean;
}

export interface Bounds {
  deadMs: number;
  graceMs: number;
  afterMs: number;
}

/** A range of a table's blocks, without the last. */
export interface Blocks {
  from: number;
  to: number;
}

export interface Only {
  ids?: readonly string[];
  /** Whatever the policy says: left as they are for a person. */
  hold?: boolean;
}
