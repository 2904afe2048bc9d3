import { getEventListeners } from 'node:events';

/** What waits for a signal: its listeners, and the signals that AbortSignal.any derived from it. */
export function abortReferences(signal: AbortSignal): number {
  const derived = Object.getOwnPropertySymbols(signal)
    .filter(({ description }) => description === 'kDependantSignals')
    .map((symbol) => (signal as unknown as Record<symbol, Set<unknown> | undefined>)[symbol]?.size ?? 0);
  return getEventListeners(signal, 'abort').length + derived.reduce((sum, size) => sum + size, 0);
}
