/**
 * Pods that have been asked to end. Each has a deadline; whoever looks after the pod (a simulated kubelet) ends it
 * earlier or is told that the time is up, and without one the pod is removed at its deadline.
 */
import type { Clock } from '../../clock.js';
import type { Change, Version } from './history.js';
import { pods, type Resource } from './resources.js';
import type { Store } from './store.js';

export interface PodKeeper {
  /** The grace period to the millisecond; the API knows whole seconds only. */
  readonly graceMs: number;
  /** Asked to end, or asked to end sooner. */
  onTerminating(): void;
  /** The time is up: the keeper removes the pod now. */
  onDeadline(): void;
  /** The object is gone, whoever removed it. */
  onRemoved(): void;
}

export class Terminations {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #keepers = new Map<string, PodKeeper>();
  readonly #deadlines = new Map<string, { atMs: number; cancel: () => void }>();

  constructor(store: Store, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
    store.onChange((resource, change) => this.#hear(resource, change));
  }

  /** The result gives the pod back. */
  keep(uid: string, keeper: PodKeeper): () => void {
    this.#keepers.set(uid, keeper);
    return () => {
      this.#keepers.delete(uid);
    };
  }

  graceMs(uid: string): number | undefined {
    return this.#keepers.get(uid)?.graceMs;
  }

  /** Until the deadline; undefined when the pod was not asked to end. */
  leftMs(uid: string): number | undefined {
    const deadline = this.#deadlines.get(uid);
    return deadline && deadline.atMs - this.#clock.monotonic();
  }

  begin({ uid, namespace, name }: Version, graceMs: number): void {
    this.#deadlines.get(uid)?.cancel();
    const expire = () => {
      const keeper = this.#keepers.get(uid);
      if (keeper) return keeper.onDeadline();
      const current = this.#store.find(pods, namespace, name);
      if (current?.uid === uid) this.#store.remove(pods, current);
    };
    const cancel = this.#clock.after(graceMs, expire, { unref: true });
    this.#deadlines.set(uid, { atMs: this.#clock.monotonic() + graceMs, cancel });
  }

  stop(): void {
    for (const { cancel } of this.#deadlines.values()) cancel();
    this.#deadlines.clear();
    this.#keepers.clear();
  }

  #hear(resource: Resource, { type, now: { uid } }: Change): void {
    if (resource !== pods) return;
    const keeper = this.#keepers.get(uid);
    if (type === 'DELETED') {
      this.#deadlines.get(uid)?.cancel();
      this.#deadlines.delete(uid);
      this.#keepers.delete(uid);
      keeper?.onRemoved();
    } else if (this.#deadlines.has(uid)) keeper?.onTerminating();
  }
}
