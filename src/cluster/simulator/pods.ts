/**
 * Pods by hand: a test or a controller makes them, changes them and takes them away, and every client sees it through
 * the API. What it makes looks like a pod that a StatefulSet made and a kubelet runs, about 3 KB each.
 */
import type { Clock } from '../../clock.js';
import {
  type ContainerStatus,
  kubeTime,
  type ObjectMeta,
  type OwnerReference,
  type Pod,
  type PodCondition,
  type PodStatus,
} from './objects.js';
import { productionSize, specOf, statusOf } from './pod-manifest.js';
import type { Registry } from './registry.js';
import { pods } from './resources.js';
import type { Store } from './store.js';

export interface NewPod {
  name: string;
  namespace?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  image?: string;
  /** False: it runs and has an address, and is not ready. Default: true. */
  ready?: boolean;
  /** `Pending`: no address, nothing runs yet. Default: `Running`. */
  phase?: 'Pending' | 'Running';
  /** What a deletion without a word about it gives. Default: 30 s. */
  graceSeconds?: number;
  generateName?: string;
  ownerReferences?: OwnerReference[];
  /** About 13 KB, as pods of production have, instead of 3 KB. Default: false. */
  productionSize?: boolean;
}

interface Named {
  namespace?: string;
}

export class Pods {
  readonly #registry: Registry;
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #namespace: string;
  #addresses = 0;

  constructor(registry: Registry, store: Store, clock: Clock, namespace: string) {
    this.#registry = registry;
    this.#store = store;
    this.#clock = clock;
    this.#namespace = namespace;
  }

  create(wanted: NewPod): Pod {
    const { name, namespace = this.#namespace, generateName, ownerReferences } = wanted;
    const { labels = { app: 'voice-agent' }, annotations, ready = true, phase = 'Running' } = wanted;
    const now = kubeTime(this.#clock.now());
    const small = { spec: specOf(wanted), metadata: {} as Partial<ObjectMeta> };
    const { spec, metadata } = wanted.productionSize ? productionSize(small.spec, now) : small;
    const pending = statusOf(spec.containers[0]?.image ?? '', now);
    const started = phase === 'Running' ? this.#started(pending) : pending;
    const { json } = this.#registry.create(
      pods,
      namespace,
      {
        metadata: {
          name,
          labels,
          ...(generateName === undefined ? {} : { generateName }),
          ...metadata,
          ...(annotations ? { annotations: { ...metadata.annotations, ...annotations } } : {}),
          ...(ownerReferences ? { ownerReferences } : {}),
        },
        spec,
        status: phase === 'Running' && ready ? this.#withReady(started, true) : started,
      },
      'whole',
    );
    return JSON.parse(json) as Pod;
  }

  /** Undefined when there is none. */
  get(name: string, { namespace = this.#namespace }: Named = {}): Pod | undefined {
    const found = this.#store.find(pods, namespace, name);
    return found && (JSON.parse(found.json) as Pod);
  }

  /** Of one namespace, by name. */
  list({ namespace = this.#namespace }: Named = {}): Pod[] {
    const found = this.#store.snapshot(pods, namespace, this.#store.version) ?? [];
    return found.map(({ json }) => JSON.parse(json) as Pod);
  }

  count({ namespace = this.#namespace }: Named = {}): number {
    return [...this.#store.all(pods, namespace)].length;
  }

  /** A merge patch of anything, the status included. */
  patch(name: string, patch: object, { namespace = this.#namespace }: Named = {}): Pod {
    return JSON.parse(this.#registry.patch(pods, namespace, name, patch, 'whole').json) as Pod;
  }

  setReady(name: string, ready: boolean, where: Named = {}): Pod {
    return this.#setStatus(name, where, (status) => this.#withReady(status, ready));
  }

  /** From Pending to Running: it has an address and is not ready yet. */
  start(name: string, where: Named = {}): Pod {
    return this.#setStatus(name, where, (status) => this.#started(status));
  }

  /** Its containers ended: the phase that a pod has when it will never serve again. */
  finish(name: string, phase: 'Succeeded' | 'Failed', where: Named = {}): Pod {
    return this.#setStatus(name, where, (status) =>
      this.#withContainer({ ...this.#withReady(status, false, 'PodCompleted'), phase }, (container) => ({
        ...container,
        started: false,
        state: { terminated: this.#ending(phase === 'Failed' ? 137 : 0, container.state.running?.startedAt) },
      })),
    );
  }

  /** The container ended: not ready. As with a kubelet, the restart count rises with its next start, not now. */
  stopContainer(name: string, where: Named = {}): Pod {
    return this.#setStatus(name, where, (status) =>
      this.#withContainer(this.#withReady(status, false, 'ContainersNotReady'), (container) => ({
        ...container,
        started: false,
        state: { terminated: this.#ending(137, container.state.running?.startedAt) },
      })),
    );
  }

  /** A container that ended waits for its next start; kubelets wait 10 s, then twice as long each time, up to 5 min. */
  backOff(name: string, where: Named = {}): Pod {
    return this.#setStatus(name, where, (status) =>
      this.#withContainer(status, (container) => ({
        ...container,
        state: { waiting: { reason: 'CrashLoopBackOff', message: 'back-off restarting failed container' } },
        lastState: { terminated: container.state.terminated ?? this.#ending(137, undefined) },
      })),
    );
  }

  /** The container ended and runs again, all at once: one restart more, and ready unless told otherwise. */
  restartContainer(name: string, { ready = true, ...where }: Named & { ready?: boolean } = {}): Pod {
    this.stopContainer(name, where);
    this.start(name, where);
    return ready ? this.setReady(name, true, where) : (this.get(name, where) as Pod);
  }

  /** Without a grace period it is gone at once; with one it is terminating until then. */
  remove(
    name: string,
    { graceMs = 0, namespace = this.#namespace }: Named & { graceMs?: number } = {},
  ): void {
    this.#registry.delete(pods, namespace, name, { graceMs });
  }

  #setStatus(
    name: string,
    { namespace = this.#namespace }: Named,
    change: (status: PodStatus) => PodStatus,
  ): Pod {
    const pod = JSON.parse(this.#registry.get(pods, namespace, name).json) as Pod;
    pod.status = change(pod.status);
    return JSON.parse(this.#registry.update(pods, namespace, name, pod, 'whole').json) as Pod;
  }

  #started(status: PodStatus): PodStatus {
    const now = kubeTime(this.#clock.now());
    const podIP = status.podIP ?? this.#nextAddress();
    const running = this.#withContainer(
      { ...status, phase: 'Running', podIP, podIPs: [{ ip: podIP }] },
      (container) => {
        const terminated = container.state.terminated ?? container.lastState.terminated;
        const restartCount = container.restartCount + (terminated ? 1 : 0);
        return {
          ...container,
          started: true,
          restartCount,
          containerID: `containerd://${String(this.#addresses).padStart(8, '0')}${'c0ffee'.repeat(9)}${restartCount}`,
          state: { running: { startedAt: now } },
          lastState: terminated ? { terminated } : {},
        };
      },
    );
    return this.#withCondition(running, 'Initialized', true);
  }

  #withReady(status: PodStatus, ready: boolean, reason = 'ContainersNotReady'): PodStatus {
    const marked = this.#withContainer(status, (container) => ({ ...container, ready }));
    return ['Ready', 'ContainersReady'].reduce(
      (changed, type) => this.#withCondition(changed, type, ready, reason),
      marked,
    );
  }

  /** The time of a condition is that of its last change, not of its last write. */
  #withCondition(status: PodStatus, type: string, holds: boolean, reason = ''): PodStatus {
    const wanted = holds ? 'True' : 'False';
    const message = 'containers with unready status: [agent]';
    const conditions = (status.conditions ?? []).map((condition): PodCondition => {
      if (condition.type !== type || condition.status === wanted) return condition;
      const lastTransitionTime = kubeTime(this.#clock.now());
      const changed = { type, status: wanted, lastProbeTime: null, lastTransitionTime } as const;
      return holds ? changed : { ...changed, reason, message };
    });
    return { ...status, conditions };
  }

  #withContainer(status: PodStatus, change: (container: ContainerStatus) => ContainerStatus): PodStatus {
    return { ...status, containerStatuses: (status.containerStatuses ?? []).map(change) };
  }

  #ending(exitCode: number, startedAt: string | undefined) {
    return {
      exitCode,
      reason: exitCode === 0 ? 'Completed' : 'Error',
      ...(startedAt === undefined ? {} : { startedAt }),
      finishedAt: kubeTime(this.#clock.now()),
    };
  }

  /** 10.0.0.1 and on: enough for sixteen million pods. */
  #nextAddress(): string {
    this.#addresses += 1;
    const n = this.#addresses;
    return `10.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`;
  }
}
