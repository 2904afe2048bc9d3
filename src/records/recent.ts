/** What was brought back lately, of all workflows together: for whoever watches the recovery. Reads our own schema alone. */
import { queries } from './queries.generated.js';
import type { Sessions } from './sessions.js';

export interface ResetCount {
  workflow: string;
  reason: string;
  outcome: string;
  records: number;
}

export interface RecentReset {
  workflow: string;
  id: string;
  at: Date;
  reason: string;
  outcome: string;
  stuckSeconds: number | null;
  worker: string | null;
  trace: string | null;
}

interface ResetRow extends Omit<RecentReset, 'stuckSeconds'> {
  stuck_seconds: number | null;
}

/** `resets` are the newest, at most `most`; `counts` are of all. */
export async function recentResets(
  sessions: Sessions,
  workflows: readonly string[],
  lastMs: number,
  most: number,
): Promise<{ counts: ResetCount[]; resets: RecentReset[] }> {
  const counts = await sessions.query<ResetCount>(queries.recentResetCounts, [lastMs, workflows]);
  const resets = await sessions.query<ResetRow>(queries.recentResets, [lastMs, workflows, most]);
  return {
    counts: counts.rows,
    resets: resets.rows.map(({ stuck_seconds, ...row }) => ({ ...row, stuckSeconds: stuck_seconds })),
  };
}
