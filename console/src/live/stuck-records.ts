/**
 * How many records are stuck, on whatever page somebody is. The router counts rows of the team's own tables for it, so
 * it is asked rarely, and the more rarely the longer the counting takes.
 */
import { ask } from '../api';
import type { WorkflowNumbers } from '../shapes';
import { type Repeating, repeat } from './repeat';

const everyMs = 15_000;
const restPerRead = 10;
const longestMs = 300_000;

/** Undefined: not known, as while the database is away. */
export type StuckRecords = readonly WorkflowNumbers[] | undefined;

export function followStuckRecords(mayAsk: () => boolean, tell: (stuck: StuckRecords) => void): Repeating {
  return repeat(async () => {
    const beganAt = performance.now();
    try {
      if (mayAsk()) {
        const { workflows } = await ask<{ workflows: WorkflowNumbers[] }>('/records');
        tell(workflows.filter(({ stuck }) => stuck > 0));
      } else tell(undefined);
    } catch {
      // The page of the records says why; a number that may be wrong is worse than none.
      tell(undefined);
    }
    const restMs = Math.min(longestMs, Math.max(everyMs, restPerRead * (performance.now() - beganAt)));
    return { leastMs: restMs, mostMs: restMs };
  });
}
