/**
 * The record plane as the HTTP API, the alerts and the command line see it, and its JSON documents. `src/main` implements
 * it, in this process or another one.
 */
import type { LoopState } from '../loop.js';
import type { Inspection } from './inspect.js';
import type { RecordGauges } from './metrics.js';
import type { HandledCounts, HandledRecord, RecordOperations } from './operations.js';
import type { FailedRecord } from './store-types.js';

export interface RecordsStatus {
  database: 'up' | 'down';
  /** No record is claimed because database sessions fail. */
  paused: boolean;
  /** The fast sweep waits because most workers missed their heartbeats at once. */
  braked: boolean;
  /** Whether stuck records are recovered (ZOMBIE_CLEANUP_ENABLED). */
  cleanup: boolean;
  /** Why records are not processed. */
  error: string | null;
  /** From the last sweep; null while unknown. */
  workflows: { name: string; stuck: number | null; oldest_stuck_seconds: number | null }[];
}

/** Operations that may run in another process: their arguments and results are plain data. */
export const operationNames = ['numbers', 'inspect', 'failed', 'recent', 'reset', 'retry'] as const;
export type OperationName = (typeof operationNames)[number];
export type RemoteOperations = Pick<RecordOperations, OperationName>;

export interface RecordsAdmin {
  readonly loops: LoopState[];
  status(): RecordsStatus | Promise<RecordsStatus>;
  /** Undefined if another worker shows them. */
  gauges(): RecordGauges | undefined;
  /** Throws 503 `database_unavailable` until the database has been opened. */
  operations(): RemoteOperations;
}

/** Ids in one request. */
export const maxIds = 1000;

const rounded = (seconds: number | null) => (seconds === null ? null : Math.round(seconds));

export type RecordNumbers = ReturnType<typeof showNumbers>;

export function showNumbers(found: Inspection, p99: number | null, times: readonly string[]) {
  const { workflow, queued, processing, stuck, held, failed, advice } = found;
  return {
    ...{ name: workflow, queued, processing, stuck, held, failed },
    oldest_queued_seconds: queued > 0 ? rounded(found.oldestQueuedSeconds) : null,
    oldest_stuck_seconds: stuck > 0 ? rounded(found.oldestStuckSeconds) : null,
    waiting_for_retry: found.waitingForRetry,
    next_retry_seconds: rounded(found.nextRetrySeconds),
    keys_at_limit: found.keysAtLimit,
    processing_p99_seconds: p99,
    advice: [...advice, ...times],
  };
}

export function showFailed({ id, error, failedSeconds, retrySeconds }: FailedRecord) {
  return { id, error, failed_seconds: failedSeconds, retry_seconds: rounded(retrySeconds) };
}

export function showRecord({ id, outcome, reason, resets, stuckSeconds, worker, trace }: HandledRecord) {
  return { id, outcome, reason, resets, stuck_seconds: rounded(stuckSeconds), worker, trace };
}

export function showCounts({ dryRun, workflow, records, ...counts }: HandledCounts) {
  return { workflow, dry_run: dryRun, ...counts, records: records.map(showRecord) };
}
