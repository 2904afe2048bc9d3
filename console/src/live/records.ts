/**
 * The record counts, from one read for all pages, so that badge, overview and records page agree. The router counts table
 * rows for it, so reads are rare, more so when they are slow, and more frequent only while the records page is open.
 */
import { ask, sentenceOf } from '../api';
import type { WorkflowNumbers } from '../types';
import { type RepeatedRead, repeat } from './repeat';

const minMs = 1000;
const openEveryMs = 5000;
const intervalMs = 15_000;
const restPerRead = 10;
const maxMs = 300_000;
const timeoutMs = 20_000;

export interface RecordNumbers {
  /** The last successful read; undefined before the first one. */
  workflows: readonly WorkflowNumbers[] | undefined;
  /** Workflows with stuck records; empty while the counts are unknown. */
  stuck: readonly WorkflowNumbers[];
  /** The error message; undefined after a successful read. */
  problem: string | undefined;
}

export const noRecords: RecordNumbers = { workflows: undefined, stuck: [], problem: undefined };

export interface RecordsOptions {
  /** Whether the database answers. */
  mayAsk: () => boolean;
  /** Whether the records page is open. */
  isOpen: () => boolean;
  tell: (change: Partial<RecordNumbers>) => void;
}

export function followRecords({ mayAsk, isOpen, tell }: RecordsOptions): RepeatedRead {
  return repeat(async () => {
    const beganAt = performance.now();
    try {
      if (mayAsk() || isOpen()) {
        const { workflows } = await ask<{ workflows: WorkflowNumbers[] }>('/records', {
          signal: AbortSignal.timeout(timeoutMs),
        });
        tell({ workflows, stuck: workflows.filter(({ stuck }) => stuck > 0), problem: undefined });
      } else tell({ stuck: [] });
    } catch (error) {
      tell({ stuck: [], problem: sentenceOf(error) });
    }
    if (isOpen()) return { minMs, maxMs: openEveryMs };
    const restMs = Math.min(maxMs, Math.max(intervalMs, restPerRead * (performance.now() - beganAt)));
    return { minMs, maxMs: restMs };
  });
}
