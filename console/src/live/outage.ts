/** Why the page may be stale: the failed part, and the error message. */
import { ApiError, sentenceOf } from '../api';
import type { Status } from '../types';

export interface Outage {
  part: 'store' | 'router' | 'answer';
  detail: string;
}

/** Returns undefined without a failure. */
export function outageOf(error: unknown, status: Status | undefined): Outage | undefined {
  if (error === undefined)
    return status?.status === 'down'
      ? { part: 'store', detail: status.store_error ?? 'the store did not answer' }
      : undefined;
  const detail = sentenceOf(error);
  if (!(error instanceof ApiError)) return { part: 'answer', detail };
  if (error.code === 'store_unavailable') return { part: 'store', detail };
  return { part: error.code === 'unreachable' ? 'router' : 'answer', detail };
}

/**
 * Keeps the more specific cause: while the store hangs, some requests name it and others only time out. An outage of the
 * store stays until the router is unreachable or everything answers.
 */
export function worse(known: Outage | undefined, found: Outage | undefined): Outage | undefined {
  if (found === undefined) return known;
  return known?.part === 'store' && found.part === 'answer' ? known : found;
}
