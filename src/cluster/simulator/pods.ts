/**
 * Creates, changes and removes pods for tests and controllers. The pods look as if a StatefulSet had created them and a
 * kubelet ran them, about 3 KB each.
 */
import type { Clock } from '../../clock.js';
import {
  kubeTime,
  type OwnerReference,
  type Pod,
  type PodCondition,
  type PodSpec,
  type PodStatus,
} from './objects.js';
import { specOf, statusOf } from './pod-manifest.js';
import type { Registry } from './registry.js';
import { pods } from './resources.js';
import type { Store } from './store.js';

export interface NewPod {
  name: string;
  namespace?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  image?: string | undefined;
  /** False: running with an address, but not ready. Default: true. */
  ready?: boolean;
  /** `Pending`: without an address and a running container. Default: `Running`. */
  phase?: 'Pending' | 'Running';
  /** The grace period of a deletion that names none. Default: 30 s. */
  graceSeconds?: number;
  generateName?: string;
  ownerReferences?: OwnerReference[];
  /** Default: a voice agent. */
  spec?: PodSpec;
  managedFields?: object[];
}

export class Pods {
  #addresses = 0;

  constructor(
    private readonly registry: Registry,
    private readonly store: Store,
    private readonly clock: Clock,
    private readonly namespace: string,
  ) {}

  create(wanted: NewPod): Pod {
    const { name, namespace = this.namespace, ready = true, phase = 'Running' } = wanted;
    const { labels = { app: 'voice-agent' }, spec = specOf(wanted) } = wanted;
    const { generateName, annotations, ownerReferences, managedFields } = wanted;
    const status = statusOf(spec.containers[0]?.image ?? '', this.#now());
    if (phase === 'Running') this.#run(status);
    if (phase === 'Running' && ready) this.#setReady(status, true);
    const { json } = this.registry.create(pods, namespace, {
      metadata: { name, labels, generateName, annotations, ownerReferences, managedFields },
      spec,
      status,
    });
    return JSON.parse(json) as Pod;
  }

  get(name: string): Pod | undefined {
    const found = this.store.find(pods, this.namespace, name);
    return found && (JSON.parse(found.json) as Pod);
  }

  /** Sorted by name. */
  list(): Pod[] {
    const found = this.store.snapshot(pods, this.namespace, this.store.version) ?? [];
    return found.map(({ json }) => JSON.parse(json) as Pod);
  }

  /** Applies a merge patch to any fields, the status included. */
  patch(name: string, patch: object): Pod {
    return JSON.parse(this.registry.patch(pods, this.namespace, name, patch).json) as Pod;
  }

  setReady(name: string, ready: boolean): Pod {
    return this.#change(name, (status) => this.#setReady(status, ready));
  }

  /** Makes it Running, with an address and not ready. */
  start(name: string): Pod {
    return this.#change(name, (status) => this.#run(status));
  }

  /** Ends the pod: it never serves again. */
  finish(name: string, phase: 'Succeeded' | 'Failed'): Pod {
    return this.#change(name, (status) => {
      status.phase = phase;
      this.#exit(status, phase === 'Failed' ? 137 : 0, 'PodCompleted');
    });
  }

  /** The container exits. As with a kubelet, the restart count grows with its next start. */
  stopContainer(name: string): Pod {
    return this.#change(name, (status) => this.#exit(status, 137));
  }

  /** An exited container waits for its next start; kubelets wait 10 s, then twice as long each time, up to 5 min. */
  backOff(name: string): Pod {
    return this.#change(name, ({ containerStatuses = [] }) => {
      for (const container of containerStatuses) {
        container.lastState = container.state;
        const message = 'back-off restarting failed container';
        container.state = { waiting: { reason: 'CrashLoopBackOff', message } };
      }
    });
  }

  /** The container exits and runs again at once: one more restart, and ready by default. */
  restartContainer(name: string, { ready = true }: { ready?: boolean } = {}): Pod {
    this.stopContainer(name);
    const pod = this.start(name);
    return ready ? this.setReady(name, true) : pod;
  }

  /** Without a grace period the pod is removed at once. */
  remove(name: string, { graceMs = 0 }: { graceMs?: number } = {}): void {
    this.registry.delete(pods, this.namespace, name, graceMs);
  }

  #change(name: string, change: (status: PodStatus) => void): Pod {
    const { status } = JSON.parse(this.registry.get(pods, this.namespace, name).json) as Pod;
    change(status);
    return JSON.parse(this.registry.setStatus(pods, this.namespace, name, status).json) as Pod;
  }

  #run(status: PodStatus): void {
    status.phase = 'Running';
    status.podIP ??= this.#nextAddress();
    status.podIPs = [{ ip: status.podIP }];
    for (const container of status.containerStatuses ?? []) {
      const terminated = container.state.terminated ?? container.lastState.terminated;
      container.started = true;
      container.restartCount += terminated ? 1 : 0;
      container.containerID = `containerd://${String(this.#addresses).padStart(8, '0')}${'c0ffee'.repeat(9)}${container.restartCount}`;
      container.state = { running: { startedAt: this.#now() } };
      container.lastState = terminated ? { terminated } : {};
    }
  }

  #exit(status: PodStatus, exitCode: number, reason?: string): void {
    this.#setReady(status, false, reason);
    for (const container of status.containerStatuses ?? []) {
      container.started = false;
      container.state = {
        terminated: {
          exitCode,
          reason: exitCode === 0 ? 'Completed' : 'Error',
          ...container.state.running,
          finishedAt: this.#now(),
        },
      };
    }
  }

  /** lastTransitionTime is the time of the last change, not of the last write. */
  #setReady(status: PodStatus, ready: boolean, reason = 'ContainersNotReady'): void {
    const wanted = ready ? 'True' : 'False';
    for (const container of status.containerStatuses ?? []) container.ready = ready;
    status.conditions = (status.conditions ?? []).map((condition): PodCondition => {
      const { type } = condition;
      if (!['Ready', 'ContainersReady'].includes(type) || condition.status === wanted) return condition;
      const changed = { type, status: wanted, lastProbeTime: null, lastTransitionTime: this.#now() } as const;
      return ready ? changed : { ...changed, reason, message: 'containers with unready status: [agent]' };
    });
  }

  #now(): string {
    return kubeTime(this.clock.now());
  }

  /** 10.0.0.1 and so on. */
  #nextAddress(): string {
    this.#addresses += 1;
    const n = this.#addresses;
    return `10.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`;
  }
}
