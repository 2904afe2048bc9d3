/** Why what is shown may be wrong: what is away, for the words of the banner, and what exactly was said, for whoever mends it. */
import { ApiError, sentenceOf } from '../api';
import type { Status } from '../types';

export interface Trouble {
  away: 'store' | 'router' | 'answer';
  detail: string;
}

/** Undefined: nothing new is known. */
export function troubleOf(error: unknown, status: Status | undefined): Trouble | undefined {
  if (error === undefined)
    return status?.status === 'down'
      ? { away: 'store', detail: status.store_error ?? 'the store did not answer' }
      : undefined;
  const detail = sentenceOf(error);
  if (!(error instanceof ApiError)) return { away: 'answer', detail };
  if (error.code === 'store_unavailable') return { away: 'store', detail };
  return { away: error.code === 'unreachable' ? 'router' : 'answer', detail };
}

/**
 * One trouble has many symptoms: while the store hangs, some requests say so and others only come too late. What names
 * the store is kept until the router cannot be reached at all, or all is well.
 */
export function worse(known: Trouble | undefined, found: Trouble | undefined): Trouble | undefined {
  if (found === undefined) return known;
  return known?.away === 'store' && found.away === 'answer' ? known : found;
}
