import type { Waiting } from './store-types.js';

/** Receives the events of the record plane, for metrics, history, alerts and traces. Every method is optional. */
export interface RecordObserver {
  claimed?(workflow: string, records: number): void;
  finished?(workflow: string, outcome: 'completed' | 'failed', records: number): void;
  /** Failed records that were queued again. */
  retried?(workflow: string, records: number): void;
  /** What keeps queued records from being claimed, for a workflow with `retry` or `limit`. */
  waiting?(workflow: string, waiting: Waiting): void;
  /** Late finishes: the claim was lost before the outcome was written. */
  rejected?(workflow: string, records: number): void;
  /** Claims returned to the queue before their handler started. */
  released?(workflow: string, records: number): void;
  recovered?(workflow: string, reason: string, outcome: string, records: number): void;
  session?(outcome: 'ok' | 'failed'): void;
  /** Outcomes stored in Redis or on disk because the database did not take them. */
  spooled?(workflow: string, records: number): void;
  replayed?(workflow: string, records: number): void;
  /** A record stays in Processing because its failure could not be written. */
  zombie?(workflow: string): void;
  breaker?(isOpen: boolean): void;
  stuck?(workflow: string, records: number, oldestSeconds: number): void;
  /** Most workers missed their heartbeats at once: the fast sweep waits. */
  massStall?(isHolding: boolean): void;
  processed?(workflow: string, seconds: number): void;
}

type Events = Required<RecordObserver>;

export const recordEvents = [
  ...(['claimed', 'finished', 'rejected', 'released', 'recovered', 'session', 'spooled'] as const),
  ...(['replayed', 'zombie', 'breaker', 'stuck', 'massStall', 'processed', 'retried', 'waiting'] as const),
] satisfies readonly (keyof Events)[];

/** Returns an observer that passes every event to `handle`, by name. */
export function forwardEvents(handle: (name: keyof Events, args: unknown[]) => void): Events {
  const entries = recordEvents.map((name) => [name, (...args: unknown[]) => handle(name, args)]);
  return Object.fromEntries(entries) as Events;
}

/** Returns one observer that passes every event to all of `observers`. */
export function combineObservers(observers: readonly RecordObserver[]): RecordObserver {
  return forwardEvents((name, args) => {
    for (const observer of observers)
      (observer[name] as ((...all: unknown[]) => void) | undefined)?.(...args);
  });
}
