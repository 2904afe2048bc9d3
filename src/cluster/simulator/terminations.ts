/**
 * The deadlines of terminating pods. The kubelet of a pod removes it earlier or at the deadline; a pod without a kubelet
 * is removed at the deadline.
 */
import type { Clock } from '../../clock.js';
import { pods } from './resources.js';
import type { Store, Version } from './store.js';

export interface Kubelet {
  /** In milliseconds; the API has whole seconds only. */
  readonly graceMs: number;
  /** The pod was deleted, or deleted again with an earlier deadline. */
  onTerminating(): void;
  /** The grace period is over: the kubelet removes the pod now. */
  onDeadline(): void;
  /** The object was removed. */
  onRemoved(): void;
}

export class Terminations {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #kubelets = new Map<string, Kubelet>();
  readonly #deadlines = new Map<string, { atMs: number; cancel: () => void }>();

  constructor(store: Store, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
    store.onChange((resource, { type, now }) => {
      if (resource === pods) this.#podChanged(now.uid, type === 'DELETED');
    });
  }

  /** Returns a function that unregisters the kubelet. */
  register(uid: string, kubelet: Kubelet): () => void {
    this.#kubelets.set(uid, kubelet);
    return () => {
      this.#kubelets.delete(uid);
    };
  }

  graceMs(uid: string): number | undefined {
    return this.#kubelets.get(uid)?.graceMs;
  }

  /** The time until the deadline; undefined when the pod is not terminating. */
  leftMs(uid: string): number | undefined {
    const deadline = this.#deadlines.get(uid);
    return deadline && deadline.atMs - this.#clock.monotonic();
  }

  begin({ uid, namespace, name }: Version, graceMs: number): void {
    this.#deadlines.get(uid)?.cancel();
    const expire = () => {
      const kubelet = this.#kubelets.get(uid);
      if (kubelet) return kubelet.onDeadline();
      const current = this.#store.find(pods, namespace, name);
      if (current?.uid === uid) this.#store.remove(pods, current);
    };
    const cancel = this.#clock.after(graceMs, expire, { unref: true });
    this.#deadlines.set(uid, { atMs: this.#clock.monotonic() + graceMs, cancel });
  }

  stop(): void {
    for (const { cancel } of this.#deadlines.values()) cancel();
    this.#deadlines.clear();
    this.#kubelets.clear();
  }

  #podChanged(uid: string, isRemoved: boolean): void {
    const kubelet = this.#kubelets.get(uid);
    if (isRemoved) {
      this.#deadlines.get(uid)?.cancel();
      this.#deadlines.delete(uid);
      this.#kubelets.delete(uid);
      kubelet?.onRemoved();
    } else if (this.#deadlines.has(uid)) kubelet?.onTerminating();
  }
}
