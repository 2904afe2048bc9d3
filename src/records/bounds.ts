/** After how long something counts as lost, where nobody says otherwise. */
import type { Workflow } from './workflow.js';

export const defaultBounds = {
  /** A worker without a heartbeat for this long is dead. */
  deadAfterMs: 45_000,
  /** Added to a claim's timeout before it is taken away. */
  timeoutGraceMs: 30_000,
  /** Of rows in Processing that carry no claim of ours. */
  stuckAfterMs: 3_600_000,
};

/** Never shorter than the work may take: what still runs elsewhere must not be given away. */
export function stuckAfterOf(
  { stuck, timeoutMs }: Pick<Workflow, 'timeoutMs' | 'stuck'>,
  generalMs: number,
): number {
  return stuck.afterMs ?? Math.max(generalMs, timeoutMs);
}
