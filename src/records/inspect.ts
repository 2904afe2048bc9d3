/** Reads the state of workflows: counts, stuck records, advice. Changes nothing. */
import type { Pool } from 'pg';
import { systemClock } from '../clock.js';
import { assertMigrated } from './migrate.js';
import { Sessions } from './sessions.js';
import { RecordStore, type Recovered, type Waiting } from './store.js';
import { openTable } from './table.js';
import { type AnyWorkflow, type Bounds, defaultBounds, stuckAfterOf, type Workflow } from './workflow.js';

export interface Inspection extends Waiting {
  workflow: string;
  /** With those that wait for a retry. */
  queued: number;
  processing: number;
  failed: number;
  /** Records that a recovery would take now, and those held for a person. */
  stuck: number;
  /** Of the stuck ones, those held for a person. */
  held: number;
  oldestStuckSeconds: number;
  oldestQueuedSeconds: number;
  /** The oldest ones. */
  stuckRecords: Recovered[];
  advice: readonly string[];
}

export interface InspectOptions extends Partial<Bounds> {
  /** Stuck records to list. Default: 100. */
  most?: number;
}

export async function openStore(sessions: Sessions, workflow: Workflow): Promise<RecordStore> {
  await assertMigrated(sessions);
  return new RecordStore(sessions, await openTable(sessions, workflow));
}

export async function inspect(
  pool: Pool,
  workflow: AnyWorkflow,
  { most = 100, ...given }: InspectOptions = {},
): Promise<Inspection> {
  const store = await openStore(new Sessions({ pool, clock: systemClock }), workflow);
  const counts = await store.counts();
  const bounds = { ...defaultBounds, ...given };
  const { records, total, wouldBe, oldestSeconds } = await store.stuck(most, {
    ...bounds,
    stuckAfterMs: stuckAfterOf(workflow, bounds.stuckAfterMs),
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
    ...(await store.waiting()),
    stuckRecords: records,
    advice: store.table.advice,
  };
}
