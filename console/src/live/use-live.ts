/** Hooks for the live state: a component renders again only when its selected value changes. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { type LiveState, live, type Topic } from './live';

export function useLive<T>(select: (state: LiveState) => T): T {
  const [, render] = useState(0);
  const selected = select(live.state);
  const last = useRef({ select, selected });
  last.current = { select, selected };
  useLayoutEffect(
    () =>
      live.subscribe(() => {
        if (!Object.is(last.current.select(live.state), last.current.selected)) render((n) => n + 1);
      }),
    [],
  );
  return selected;
}

type Fleet = Pick<LiveState, 'pods' | 'calls' | 'waiting'>;
type FleetItem<Name extends keyof Fleet> = Fleet[Name] extends Map<string, infer Item> ? Item : never;

/** All pods, calls or waiting calls. Their map changes in place; the version shows that it changed. */
export function useFleet<Name extends keyof Fleet>(name: Name): readonly FleetItem<Name>[] {
  const version = useLive((state) => state.fleetVersion);
  const map = useLive((state) => state[name]);
  return useMemo(() => [...map.values()] as FleetItem<Name>[], [map, version]);
}

/** The topics of the page; constant while it is open. */
export function useTopics(...topics: Topic[]): void {
  // Depends on the names, not on the identity of the array.
  useEffect(() => live.show(topics), [topics.join()]);
}
