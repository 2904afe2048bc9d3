/** An answer of the router for one page: read at once, then every few seconds, and kept while reads fail. */
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { ApiError, ask, sentenceOf, withTimeout } from '../api';
import type { RouterEvent } from '../types';
import { live } from './live';
import { type RepeatedRead, repeat } from './repeat';

export interface RequestState<T> {
  value: T | undefined;
  /** The error message; undefined after a successful read. */
  problem: string | undefined;
  error: unknown;
  /** Reads again; at most one read at a time and one per second. */
  again: () => void;
}

interface RequestOptions {
  /** 0: once, and again only while the router cannot answer. */
  intervalMs?: number;
  /** The body of a POST that changes nothing. */
  body?: object;
  /** An event after which the answer is read again. */
  when?: (event: RouterEvent) => boolean;
}

const retryMs = 3000;
const minMs = 1000;
const timeoutMs = 20_000;

/** Reads nothing without a path. */
export function useRequest<T>(path: string | undefined, options: RequestOptions = {}): RequestState<T> {
  const { intervalMs = 5000, body, when } = options;
  const json = JSON.stringify(body);
  const asked = `${path} ${json}`;
  const [answer, setAnswer] = useState<{ asked: string; value: T }>();
  const [failure, setFailure] = useState<{ asked: string; error: unknown }>();
  const reading = useRef<RepeatedRead | undefined>(undefined);
  const again = useCallback(() => reading.current?.again(), []);
  useEffect(() => {
    if (path === undefined) return;
    const mine = repeat(async (signal) => {
      try {
        const value = await ask<T>(path, {
          ...(body && { method: 'POST', body }),
          signal: withTimeout(timeoutMs, signal),
        });
        if (!signal.aborted) setAnswer({ asked, value });
        setFailure(undefined);
      } catch (error) {
        if (!signal.aborted) setFailure({ asked, error });
        if (!(error instanceof ApiError) || error.isPassing) {
          const retryAfterMs = error instanceof ApiError ? error.retryAfterMs : 0;
          return { minMs: Math.max(minMs, retryAfterMs), maxMs: Math.max(retryMs, retryAfterMs) };
        }
      }
      return { minMs, maxMs: intervalMs };
    });
    reading.current = mine;
    return mine.stop;
  }, [asked, intervalMs]);
  const isWanted = useRef(when);
  isWanted.current = when;
  useLayoutEffect(
    () =>
      live.onEvents((events) => {
        if (events.some((event) => isWanted.current?.(event))) again();
      }),
    [],
  );
  const error = failure?.asked === asked ? failure?.error : undefined;
  return {
    value: answer?.asked === asked ? answer?.value : undefined,
    problem: error === undefined ? undefined : sentenceOf(error),
    error,
    again,
  };
}
