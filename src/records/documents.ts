/** Records as JSON documents of the API and the command line. */
import type { Inspection } from './inspect.js';
import type { HandledCounts, HandledRecord } from './operations.js';
import type { FailedRecord } from './store-types.js';

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
