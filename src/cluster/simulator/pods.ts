/**
 * Creates, changes and removes pods for tests and controllers. The pods look as if a StatefulSet had created them and a
 * kubelet ran them, about 3 KB each.
 */
import type { Clock } from '../../clock.js';
import {
  type ContainerStatus,
  kubeTime,
  type OwnerReference,
  type Pod,
  type PodCondition,
  type PodStatus,
} from './objects.js';
import { managedFieldsOf, productionSize, specOf, statusOf } from './pod-manifest.js';
import type { Registry } from './registry.js';
import { pods } from './resources.js';
import type { Store } from './store.js';

export interface NewPod {
  name: string;
  namespace?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  image?: string;
  /** False: running with an address, but not ready. Default: true. */
  ready?: boolean;
  /** `Pending`: without an address and a running container. Default: `Running`. */
  phase?: 'Pending' | 'Running';
  /** The grace period of a deletion that names none. Default: 30 s. */
  graceSeconds?: number;
  generateName?: string;
  ownerReferences?: OwnerReference[];
  /** About 13 KB, as in production, instead of 3 KB. Default: false. */
  productionSize?: boolean;
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
    const small = { spec: specOf(wanted), annotations: undefined };
    const { spec, annotations: extra } = wanted.productionSize ? productionSize(small.spec) : small;
    const pending = statusOf(spec.containers[0]?.image ?? '', now);
    const started = phase === 'Running' ? this.#started(pending) : pending;
    const status = phase === 'Running' && ready ? this.#withReady(started, true) : started;
    const { json } = this.#registry.create(pods, namespace, {
      metadata: {
        name,
        labels,
        ...(generateName === undefined ? {} : { generateName }),
        ...(annotations || extra ? { annotations: { ...extra, ...annotations } } : {}),
        ...(ownerReferences ? { ownerReferences } : {}),
        ...(wanted.productionSize
          ? { managedFields: managedFieldsOf({ annotations: extra, spec, status }, now) }
          : {}),
      },
      spec,
      status,
    });
    return JSON.parse(json) as Pod;
  }

  get(name: string): Pod | undefined {
    const found = this.#store.find(pods, this.#namespace, name);
    return found && (JSON.parse(found.json) as Pod);
  }

  /** Sorted by name. */
  list(): Pod[] {
    const found = this.#store.snapshot(pods, this.#namespace, this.#store.version) ?? [];
    return found.map(({ json }) => JSON.parse(json) as Pod);
  }

  /** Applies a merge patch to any fields, the status included. */
  patch(name: string, patch: object): Pod {
    return JSON.parse(this.#registry.patch(pods, this.#namespace, name, patch).json) as Pod;
  }

  setReady(name: string, ready: boolean): Pod {
    return this.#setStatus(name, (status) => this.#withReady(status, ready));
  }

  /** Makes it Running, with an address and not ready. */
  start(name: string): Pod {
    return this.#setStatus(name, (status) => this.#started(status));
  }

  /** Ends the pod: it never serves again. */
  finish(name: string, phase: 'Succeeded' | 'Failed'): Pod {
    return this.#setStatus(name, (status) =>
      this.#withContainer({ ...this.#withReady(status, false, 'PodCompleted'), phase }, (container) => ({
        ...container,
        started: false,
        state: { terminated: this.#ending(phase === 'Failed' ? 137 : 0, container.state.running?.startedAt) },
      })),
    );
  }

  /** The container exits. As with a kubelet, the restart count grows with its next start. */
  stopContainer(name: string): Pod {
    return this.#setStatus(name, (status) =>
      this.#withContainer(this.#withReady(status, false, 'ContainersNotReady'), (container) => ({
        ...container,
        started: false,
        state: { terminated: this.#ending(137, container.state.running?.startedAt) },
      })),
    );
  }

  /** An exited container waits for its next start; kubelets wait 10 s, then twice as long each time, up to 5 min. */
  backOff(name: string): Pod {
    return this.#setStatus(name, (status) =>
      this.#withContainer(status, (container) => ({
        ...container,
        state: { waiting: { reason: 'CrashLoopBackOff', message: 'back-off restarting failed container' } },
        lastState: { terminated: container.state.terminated ?? this.#ending(137, undefined) },
      })),
    );
  }

  /** The container exits and runs again at once: one more restart, and ready by default. */
  restartContainer(name: string, { ready = true }: { ready?: boolean } = {}): Pod {
    this.stopContainer(name);
    const pod = this.start(name);
    return ready ? this.setReady(name, true) : pod;
  }

  /** Without a grace period the pod is removed at once. */
  remove(name: string, { graceMs = 0 }: { graceMs?: number } = {}): void {
    this.#registry.delete(pods, this.#namespace, name, graceMs);
  }

  #setStatus(name: string, change: (status: PodStatus) => PodStatus): Pod {
    const { status } = JSON.parse(this.#registry.get(pods, this.#namespace, name).json) as Pod;
    return JSON.parse(this.#registry.setStatus(pods, this.#namespace, name, change(status)).json) as Pod;
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

  /** lastTransitionTime is the time of the last change, not of the last write. */
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

  /** 10.0.0.1 and so on. */
  #nextAddress(): string {
    this.#addresses += 1;
    const n = this.#addresses;
    return `10.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`;
  }
}
