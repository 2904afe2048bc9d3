/**
 * A StatefulSet of voice agents and its controller. After every change the controller acts in the order of the real one:
 * it creates missing pods (from ordinal 0 up), then replaces pods of an older revision (from the highest ordinal down,
 * one at a time, each Running and Ready before the next). A name is used again only after its pod was removed.
 *
 * Unlike the real one it keeps no older revision: a pod that is deleted during a roll is replaced by the new one. The
 * number of replicas never changes.
 */
import { createHash } from 'node:crypto';
import type { Cluster } from './cluster.js';
import type { KubeObject, Labels, Pod } from './objects.js';
import { type LifecycleOptions, PodLifecycle } from './pod-lifecycle.js';
import { pods, type Resource, statefulSets } from './resources.js';
import type { Change } from './store.js';

export interface StatefulSetOptions extends LifecycleOptions {
  name: string;
  replicas: number;
  /** Default: `app: {name}`. */
  labels?: Labels;
  annotations?: Labels;
  /** Default: `OrderedReady`. */
  podManagementPolicy?: 'OrderedReady' | 'Parallel';
  /** How long a pod must have been ready before the next one is replaced. Default: 0. */
  minReadyMs?: number;
}

interface SetObject extends KubeObject {
  spec: {
    template: {
      metadata?: { labels?: Record<string, string>; annotations?: Record<string, string> };
      spec?: { containers?: { image?: string }[] };
    };
  };
}

interface Member {
  name: string;
  uid: string;
  revision: string;
  isTerminating: boolean;
  isFinished: boolean;
  /** Since when it is Running and Ready, by the monotonic clock; undefined when it is not. */
  readySinceMs: number | undefined;
}

const revisionLabel = 'controller-revision-hash';
const containersOf = (version: string) => ({
  containers: [{ name: 'agent', image: `registry.example/voice-agent:${version}` }],
});

export class StatefulSet {
  readonly name: string;
  readonly #uid: string;
  readonly #members = new Map<number, Member>();
  readonly #lifecycles = new Map<string, PodLifecycle>();
  readonly #stopListening: () => void;
  #cancelTimer = () => {};
  #isScheduled = false;
  #isStopped = false;

  constructor(
    private readonly cluster: Cluster,
    private readonly options: StatefulSetOptions,
  ) {
    const { name, replicas, labels = { app: options.name }, annotations = {} } = options;
    const { podManagementPolicy = 'OrderedReady', graceMs, minReadyMs = 0 } = options;
    const { registry, store } = cluster.internals;
    this.name = name;
    this.#uid = registry.create(statefulSets, cluster.namespace, {
      metadata: { name, labels: { ...labels } },
      spec: {
        replicas,
        serviceName: name,
        podManagementPolicy,
        minReadySeconds: Math.ceil(minReadyMs / 1000),
        selector: { matchLabels: labels },
        updateStrategy: { type: 'RollingUpdate', rollingUpdate: { partition: 0 } },
        template: {
          metadata: { labels, annotations },
          spec: { terminationGracePeriodSeconds: Math.ceil(graceMs / 1000), ...containersOf('1') },
        },
      },
    }).uid;
    this.#stopListening = store.onChange((resource, change) => this.#changed(resource, change));
    this.#sync();
  }

  /** Replaces the pods with another image tag. */
  roll({ version }: { version: string }): void {
    const spec = { template: { spec: containersOf(version) } };
    this.cluster.internals.registry.patch(statefulSets, this.cluster.namespace, this.name, { spec });
  }

  /** The container exits and starts again; returns false when none was running. */
  crash(pod: string): boolean {
    return this.#lifecycles.get(pod)?.crash() ?? false;
  }

  /** Deletes a pod, as `kubectl delete pod` does; the controller creates it again. */
  remove(pod: string): void {
    this.cluster.internals.registry.delete(pods, this.cluster.namespace, pod);
  }

  /** Stops the controller and leaves all objects as they are. */
  stop(): void {
    this.#isStopped = true;
    this.#stopListening();
    this.#cancelTimer();
    for (const lifecycle of [...this.#lifecycles.values()]) lifecycle.abandon();
  }

  status() {
    const set = this.#read();
    const { currentRevision } = (set.status ?? {}) as { currentRevision?: string };
    const revision = revisionOf(set);
    return {
      desired: this.options.replicas,
      ...this.#count(revision),
      /** Not all pods are ready and of the newest revision. */
      rolling: currentRevision !== undefined && currentRevision !== revision,
    };
  }

  /** `replicas` includes terminating pods. In one pass without a copy: it runs whenever one of thousands of pods is ready. */
  #count(revision: string) {
    let ready = 0;
    let updated = 0;
    for (const member of this.#members.values()) {
      if (member.readySinceMs !== undefined) ready += 1;
      if (member.revision === revision && !member.isTerminating) updated += 1;
    }
    return { replicas: this.#members.size, ready, updated };
  }

  #changed(resource: Resource, { type, now }: Change): void {
    if (now.namespace !== this.cluster.namespace) return;
    if (resource === statefulSets) {
      if (now.uid === this.#uid) this.#schedule();
      return;
    }
    const ordinal = resource === pods ? this.#ordinalOf(now.name) : undefined;
    if (ordinal === undefined) return;
    const known = this.#members.get(ordinal);
    if (type === 'DELETED') {
      if (known?.uid === now.uid) this.#members.delete(ordinal);
    } else {
      const pod = JSON.parse(now.json) as Pod;
      const isOwn = pod.metadata.ownerReferences?.some(({ uid }) => uid === this.#uid);
      if (!isOwn) return;
      this.#members.set(ordinal, memberOf(pod, known, this.cluster.clock.monotonic()));
    }
    this.#schedule();
  }

  #ordinalOf(pod: string): number | undefined {
    const prefix = `${this.name}-`;
    const rest = pod.slice(prefix.length);
    return pod.startsWith(prefix) && /^(0|[1-9]\d*)$/.test(rest) ? Number(rest) : undefined;
  }

  /** Runs once per turn, however many changes there were. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      if (!this.#isStopped) this.#sync();
    });
  }

  #sync(): void {
    const set = this.#read();
    const revision = revisionOf(set);
    this.#act(set, revision);
    this.#writeStatus(set, revision);
  }

  #act(set: SetObject, revision: string): void {
    const { replicas, podManagementPolicy } = this.options;
    const isOrdered = podManagementPolicy !== 'Parallel';
    for (let ordinal = 0; ordinal < replicas; ordinal += 1) {
      const member = this.#members.get(ordinal);
      if (!member) this.#create(set, revision, ordinal);
      else if (member.isFinished) this.#delete(member);
      else if (this.#isAvailable(member)) continue;
      if (isOrdered) return;
    }
    for (let ordinal = replicas - 1; ordinal >= 0; ordinal -= 1) {
      const member = this.#members.get(ordinal);
      if (member && member.revision !== revision) this.#delete(member);
      if (!member || member.revision !== revision || !this.#isAvailable(member)) return;
    }
  }

  #isAvailable({ isTerminating, readySinceMs }: Member): boolean {
    if (isTerminating || readySinceMs === undefined) return false;
    const { minReadyMs = 0 } = this.options;
    const leftMs = minReadyMs === 0 ? 0 : readySinceMs + minReadyMs - this.cluster.clock.monotonic();
    if (leftMs <= 0) return true;
    this.#cancelTimer();
    this.#cancelTimer = this.cluster.clock.after(leftMs, () => this.#schedule(), { unref: true });
    return false;
  }

  #create({ spec: { template } }: SetObject, revision: string, ordinal: number): void {
    const { name: setName } = this;
    const name = `${setName}-${ordinal}`;
    // A pod of another owner has the name: the real controller retries at the next change too.
    if (this.cluster.pods.get(name)) return;
    const image = template.spec?.containers?.[0]?.image;
    const pod = this.cluster.pods.create({
      name,
      generateName: `${setName}-`,
      labels: {
        ...template.metadata?.labels,
        'apps.kubernetes.io/pod-index': String(ordinal),
        [revisionLabel]: revision,
        'statefulset.kubernetes.io/pod-name': name,
      },
      annotations: { ...template.metadata?.annotations },
      image,
      phase: 'Pending',
      graceSeconds: Math.ceil(this.options.graceMs / 1000),
      ownerReferences: [
        {
          apiVersion: 'apps/v1',
          kind: 'StatefulSet',
          name: setName,
          uid: this.#uid,
          controller: true,
          blockOwnerDeletion: true,
        },
      ],
    });
    const lifecycle: PodLifecycle = new PodLifecycle(this.cluster, pod, this.options, () => {
      if (this.#lifecycles.get(name) === lifecycle) this.#lifecycles.delete(name);
    });
    this.#lifecycles.set(name, lifecycle);
  }

  #delete({ name, isTerminating }: Member): void {
    if (!isTerminating) this.remove(name);
  }

  /** For `kubectl get statefulset`; a write without a change creates no version. */
  #writeStatus(set: SetObject, revision: string): void {
    const { replicas, ready, updated } = this.#count(revision);
    const isDone = updated === replicas && ready === replicas && replicas === this.options.replicas;
    const { currentRevision = revision } = (set.status ?? {}) as { currentRevision?: string };
    const status = {
      observedGeneration: set.metadata.generation,
      replicas,
      readyReplicas: ready,
      availableReplicas: ready,
      currentReplicas: replicas - updated,
      updatedReplicas: updated,
      currentRevision: isDone ? revision : currentRevision,
      updateRevision: revision,
      collisionCount: 0,
    };
    const { namespace, internals } = this.cluster;
    internals.registry.setStatus(statefulSets, namespace, this.name, status);
  }

  #read(): SetObject {
    const { namespace, internals } = this.cluster;
    return JSON.parse(internals.registry.get(statefulSets, namespace, this.name).json) as SetObject;
  }
}

function memberOf({ metadata, status }: Pod, known: Member | undefined, nowMs: number): Member {
  const isReady =
    status.phase === 'Running' &&
    (status.conditions ?? []).some(({ type, status: is }) => type === 'Ready' && is === 'True');
  const since = known?.uid === metadata.uid ? known.readySinceMs : undefined;
  return {
    name: metadata.name,
    uid: metadata.uid,
    revision: metadata.labels?.[revisionLabel] ?? '',
    isTerminating: metadata.deletionTimestamp !== undefined,
    isFinished: status.phase === 'Succeeded' || status.phase === 'Failed',
    readySinceMs: isReady ? (since ?? nowMs) : undefined,
  };
}

function revisionOf({ metadata: { name }, spec: { template } }: SetObject): string {
  return `${name}-${createHash('sha256').update(JSON.stringify(template)).digest('hex').slice(0, 10)}`;
}
