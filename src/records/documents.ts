/** How records are written in answers of the API and in documents of the command line. */

import type { Inspection } from './inspect.js';
import type { Handled, HandledCounts } from './operations.js';

/** That a person may name at once. */
export const mostIds = 1000;

const rounded = (seconds: number | null) => (seconds === null ? null : Math.round(seconds));

export function showNumbers(found: Inspection, p99: number | null, times: readonly string[]) {
  return {
    name: found.workflow,
    queued: found.queued,
    processing: found.processing,
    stuck: found.stuck,
    held: found.held,
    failed: found.failed,
    oldest_queued_seconds: found.queued > 0 ? rounded(found.oldestQueuedSeconds) : null,
    oldest_stuck_seconds: found.stuck > 0 ? rounded(found.oldestStuckSeconds) : null,
    processing_p99_seconds: p99,
    advice: [...found.advice, ...times],
  };
}

export function showRecord({ id, outcome, reason, resets, stuckSeconds, worker, trace }: Handled) {
  return { id, outcome, reason, resets, stuck_seconds: rounded(stuckSeconds), worker, trace };
}

export function showCounts(counts: HandledCounts) {
  const { workflow, dryRun, requeued, failed, held, skipped, total, records } = counts;
  return {
    workflow,
    dry_run: dryRun,
    requeued,
    failed,
    held,
    skipped,
    total,
    records: records.map(showRecord),
  };
}
