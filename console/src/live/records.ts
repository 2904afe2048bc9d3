/**
 * The numbers of the records, from one read for every page: the badge, the overview and the page of the records cannot
 * disagree. The router counts rows of the team's own tables for it, so it is asked rarely, and the more rarely the
 * longer the counting takes; more often only while the page of the records is open.
 */
import { ask, sentenceOf } from '../api';
import type { WorkflowNumbers } from '../types';
import { type Repeating, repeat } from './repeat';

const leastMs = 1000;
const openEveryMs = 5000;
const everyMs = 15_000;
const restPerRead = 10;
const longestMs = 300_000;
const patienceMs = 20_000;

export interface RecordNumbers {
  /** As they were last read; kept while they cannot be read. Undefined before the first read. */
  workflows: readonly WorkflowNumbers[] | undefined;
  /** Those with stuck records; empty while that is not known: a number that may be wrong is worse than none. */
  stuck: readonly WorkflowNumbers[];
  /** One sentence; undefined while all is well. */
  trouble: string | undefined;
}

export const noRecords: RecordNumbers = { workflows: undefined, stuck: [], trouble: undefined };

export interface RecordsOptions {
  /** Whether the database answers. */
  mayAsk: () => boolean;
  /** Whether the page of the records is open. */
  isOpen: () => boolean;
  tell: (change: Partial<RecordNumbers>) => void;
}

export function followRecords({ mayAsk, isOpen, tell }: RecordsOptions): Repeating {
  return repeat(async () => {
    const beganAt = performance.now();
    try {
      if (mayAsk() || isOpen()) {
        const { workflows } = await ask<{ workflows: WorkflowNumbers[] }>('/records', {
          signal: AbortSignal.timeout(patienceMs),
        });
        tell({ workflows, stuck: workflows.filter(({ stuck }) => stuck > 0), trouble: undefined });
      } else tell({ stuck: [] });
    } catch (error) {
      tell({ stuck: [], trouble: sentenceOf(error) });
    }
    if (isOpen()) return { leastMs, mostMs: openEveryMs };
    const restMs = Math.min(longestMs, Math.max(everyMs, restPerRead * (performance.now() - beganAt)));
    return { leastMs, mostMs: restMs };
  });
}
