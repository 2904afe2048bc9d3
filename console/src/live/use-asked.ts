/** An answer of the router that only one page shows: read at once, read again every few seconds, kept while it fails. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, ask, patiently, sentenceOf } from '../api';
import { type Repeating, repeat } from './repeat';

export interface Asked<T> {
  value: T | undefined;
  /** One sentence; undefined while all is well. */
  trouble: string | undefined;
  /** The router does not have it. */
  isAbsent: boolean;
  /** As often as you like: it is read one at a time, with a second between. */
  again: () => void;
}

const retryMs = 3000;
const leastMs = 1000;
const patienceMs = 20_000;

/** With a path of undefined nothing is asked. `everyMs` 0: once, and again only while the router cannot answer. */
export function useAsked<T>(path: string | undefined, everyMs = 5000): Asked<T> {
  const [answer, setAnswer] = useState<{ path: string; value: T }>();
  const [problem, setProblem] = useState<{ path: string; error: unknown }>();
  const reading = useRef<Repeating | undefined>(undefined);
  useEffect(() => {
    if (path === undefined) return;
    const over = new AbortController();
    const mine = repeat(async () => {
      try {
        const value = await ask<T>(path, { signal: patiently(patienceMs, over.signal) });
        if (!over.signal.aborted) setAnswer({ path, value });
        setProblem(undefined);
      } catch (error) {
        if (!over.signal.aborted) setProblem({ path, error });
        if (!(error instanceof ApiError) || error.isPassing) {
          const asked = error instanceof ApiError ? error.retryAfterMs : 0;
          return { leastMs: Math.max(leastMs, asked), mostMs: Math.max(retryMs, asked) };
        }
      }
      return { leastMs, mostMs: everyMs };
    });
    reading.current = mine;
    return () => {
      mine.stop();
      over.abort();
    };
  }, [path, everyMs]);
  const error = problem?.path === path ? problem?.error : undefined;
  const isAbsent = error instanceof ApiError && error.isAbsent;
  return {
    value: answer?.path === path ? answer?.value : undefined,
    trouble: error === undefined || isAbsent ? undefined : sentenceOf(error),
    isAbsent,
    again: useCallback(() => reading.current?.again(), []),
  };
}
