/** A look at one workflow: how much waits, runs and failed, what is stuck, and what would help. Changes nothing. */
import type { Pool } from 'pg';
import { systemClock } from '../clock.js';
import { defaultBounds, stuckAfterOf } from './bounds.js';
import { assertMigrated } from './loop.js';
import { Sessions } from './sessions.js';
import { RecordStore, type Recovered } from './store.js';
import { openTable } from './table.js';
import type { Workflow } from './workflow.js';

export interface Inspection {
  workflow: string;
  queued: number;
  processing: number;
  failed: number;
  /** What a recovery would bring back now, and what policy `hold` keeps for a person. */
  stuck: number;
  /** Of those, what waits for a person already. */
  held: number;
  oldestStuckSeconds: number;
  oldestQueuedSeconds: number;
  /** The oldest of them. */
  stuckRecords: Recovered[];
  advice: readonly string[];
}

export interface InspectOptions {
  deadAfterMs?: number;
  timeoutGraceMs?: number;
  stuckAfterMs?: number;
  /** Stuck records to show. */
  most?: number;
}

export async function inspect(
  pool: Pool,
  // biome-ignore lint/suspicious/noExplicitAny: any workflow will do.
  workflow: Workflow<any>,
  options: InspectOptions = {},
): Promise<Inspection> {
  const {
    deadAfterMs = defaultBounds.deadAfterMs,
    timeoutGraceMs = defaultBounds.timeoutGraceMs,
    stuckAfterMs = defaultBounds.stuckAfterMs,
    most = 100,
  } = options;
  const sessions = new Sessions({ pool, clock: systemClock });
  await assertMigrated(sessions);
  const table = await openTable(sessions, workflow);
  const store = new RecordStore(sessions, table);
  const counts = await store.counts();
  const afterMs = stuckAfterOf(workflow, stuckAfterMs);
  const { records, total, wouldBe, oldestSeconds } = await store.stuck(most, {
    deadMs: deadAfterMs,
    graceMs: timeoutGraceMs,
    afterMs,
  });
  const of = (status: string) => counts.get(status)?.records ?? 0;
  return {
    workflow: workflow.name,
    queued: of(workflow.status.queued),
    processing: of(workflow.status.processing),
    failed: of(workflow.status.failed),
    stuck: total,
    held: total - wouldBe.requeued - wouldBe.failed - wouldBe.held,
    oldestStuckSeconds: oldestSeconds,
    oldestQueuedSeconds: counts.get(workflow.status.queued)?.oldestSeconds ?? 0,
    stuckRecords: records,
    advice: table.advice,
  };
}
