/** The arguments and results of the statements in `store.ts`. */
import type { Row } from './workflow.js';

/** A record that this process holds. */
export interface Claim {
  id: string;
  token: string;
  record: Row;
  /** By our own clock: when the claim was last known to hold. */
  confirmedMs: number;
  /** The record was reset before: the start of its handler is written down. */
  wasReset: boolean;
  /** Its handler had started when it was reset the second time or later: it may kill its workers. */
  isSuspect: boolean;
  /** Characters of the row. */
  size: number;
  /** The claim had too many characters before this row: `record` has no values, and the claim must be released. */
  isCut: boolean;
}

export type ClaimKey = Pick<Claim, 'id' | 'token'>;

/** For sets and maps of claims. */
export const keyOf = ({ id, token }: ClaimKey) => `${token} ${id}`;

export interface Outcome extends ClaimKey {
  /** Null: completed. */
  error: string | null;
}

/** Outcomes in none of the three came too late: the token no longer held. */
export interface Finished {
  written: Set<string>;
  /** The token held, and a trigger restored the status. */
  restored: string[];
  /** The token held, and the row was not changed. */
  unchanged: string[];
  /** Of the written ones: failed, and queued again. */
  retried: Set<string>;
}

export interface Unchanged {
  id: string;
  /** Null: the row does not exist, or is not visible. */
  status: string | null;
  isProcessing: boolean;
  isQueued: boolean;
  /** Row-level security applies to our role. */
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

export interface Stuck {
  /** Records that a sweep would change, the oldest first; then those already held. */
  records: (Recovered & { isHeld: boolean })[];
  /** Includes records that are not listed. */
  total: number;
  /** What a sweep would do now. */
  wouldBe: Record<Recovered['outcome'], number>;
  oldestSeconds: number;
}

/** Which stuck records to count. */
export interface StuckFilter {
  /** True: only those of the slow sweep, false: only those of the fast one. Default: both. */
  unclaimed?: boolean | null;
  /** False: heartbeats do not count. */
  judgesHeartbeats?: boolean;
}

/** A record as an operator's request finds it. */
export interface RecordState {
  id: string;
  resets: number;
  trace: string | null;
  worker: string | null;
  exists: boolean;
  isProcessing: boolean;
  isFailed: boolean;
  isLive: boolean;
  stuckSeconds: number | null;
}

export interface FailedRecord {
  id: string;
  /** Null also without an error column. */
  error: string | null;
  failedSeconds: number | null;
  /** Until its retry; null: it is Failed, without another try. */
  retrySeconds: number | null;
}

/** What keeps queued records from being claimed. */
export interface Waiting {
  /** Failed records that wait for their retry; null without `retry`. */
  waitingForRetry: number | null;
  /** Until the first of them is due. */
  nextRetrySeconds: number | null;
  /** Keys that have as many claimed records as the limit allows; null without `limit`. */
  keysAtLimit: number | null;
}

/** Resets of the last 7 days. */
export interface History {
  timedOut: number;
  deadWorker: number;
  unclaimed: number;
  /** Of the longest-running record of a live worker. */
  longestSeconds: number | null;
}

/** A range of a table's blocks; `to` is exclusive. */
export interface Blocks {
  from: number;
  to: number;
}

/** As places in the table. */
export const edges = ({ from, to }: Blocks): string[] => [`(${from},0)`, `(${to},0)`];

export function columns(claims: readonly ClaimKey[]): [string[], string[]] {
  return [claims.map(({ id }) => id), claims.map(({ token }) => token)];
}

/** The ids, and JSON `[token, {id: token}]`: the first claim's token, and those of ids with another. The last claim of an id counts. */
export function idsAndTokens(claims: readonly ClaimKey[]): [string[], string] {
  const first = claims[0]?.token;
  const tokens = new Map(claims.map(({ id, token }) => [id, token]));
  const others = [...tokens].filter(([, token]) => token !== first);
  return [[...tokens.keys()], JSON.stringify([first, Object.fromEntries(others)])];
}
