/** An answer of the router that only one page shows: read at once, read again every few seconds, kept while it fails. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, ask, sentenceOf } from '../api';

export interface Asked<T> {
  value: T | undefined;
  /** One sentence; undefined while all is well. */
  trouble: string | undefined;
  /** The router does not have it. */
  isAbsent: boolean;
  again: () => void;
}

const retryMs = 3000;

/** With a path of undefined nothing is asked. `everyMs` 0: once, and again only while the router cannot answer. */
export function useAsked<T>(path: string | undefined, everyMs = 5000): Asked<T> {
  const [answer, setAnswer] = useState<{ path: string; value: T }>();
  const [problem, setProblem] = useState<{ path: string; error: unknown }>();
  const [turn, setTurn] = useState(0);
  const round = useRef(0);
  // A new turn asks again.
  useEffect(() => {
    if (path === undefined) return;
    round.current += 1;
    const mine = round.current;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const read = async () => {
      let pauseMs = everyMs;
      try {
        const value = await ask<T>(path);
        if (mine !== round.current) return;
        setAnswer({ path, value });
        setProblem(undefined);
      } catch (error) {
        if (mine !== round.current) return;
        setProblem({ path, error });
        const isPassing = !(error instanceof ApiError) || error.status === 0 || error.status >= 500;
        if (isPassing) pauseMs = retryMs;
      }
      if (pauseMs > 0) timer = setTimeout(() => void read(), pauseMs);
    };
    void read();
    return () => {
      round.current += 1;
      clearTimeout(timer);
    };
  }, [path, everyMs, turn]);
  const error = problem?.path === path ? problem?.error : undefined;
  const isAbsent = error instanceof ApiError && error.isAbsent;
  return {
    value: answer?.path === path ? answer?.value : undefined,
    trouble: error === undefined || isAbsent ? undefined : sentenceOf(error),
    isAbsent,
    again: useCallback(() => setTurn((n) => n + 1), []),
  };
}
