/**
 * Queues all records again that have failed by now. In batches, so that no transaction is long; interrupted, it has
 * done whole batches, and the next call does the rest. A record that fails again during the run is newer than the start
 * and stays Failed, so that it ends.
 */
import type { Clock } from '../clock.js';
import { mostIds } from './documents.js';
import type { Desk, HandledCounts } from './operations.js';

export async function retryAll(
  desk: Desk,
  workflow: string,
  { dryRun, clock }: { dryRun: boolean; clock: Clock },
): Promise<HandledCounts> {
  const startMs = clock.monotonic();
  const sum: HandledCounts = {
    ...{ workflow, dryRun, requeued: 0, failed: 0, held: 0, skipped: 0, total: 0 },
    records: [],
  };
  const leftAlone: string[] = [];
  for (;;) {
    const ids = await desk.failedIds(workflow, mostIds, clock.monotonic() - startMs, leftAlone);
    if (ids.length === 0) return sum;
    const counts = await desk.retry(workflow, { ids, dryRun });
    for (const field of ['requeued', 'skipped', 'total'] as const) sum[field] += counts[field];
    sum.records.push(...counts.records.slice(0, mostIds - sum.records.length));
    if (dryRun) {
      // Nothing has changed: the rest is counted, not looked at one by one.
      const rest = Math.max(0, (await desk.look(workflow, 1)).failed - sum.total);
      return { ...sum, requeued: sum.requeued + rest, total: sum.total + rest };
    }
    leftAlone.push(...counts.records.flatMap(({ id, outcome }) => (outcome === 'skipped' ? [id] : [])));
  }
}
