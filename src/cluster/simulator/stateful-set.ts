/**
 * A StatefulSet of voice agents and its controller. The truth is the StatefulSet object in the API: `scale` and `roll`
 * write it, and so may kubectl or any other client. After every change the controller does what is missing, in the
 * order of the real one: create what is absent (from 0 up), end what is too much (from the top down), then replace
 * what is of an older revision (from the top down, one at a time, each Running and Ready before the next).
 * A name is given again only when the pod that had it is gone.
 *
 * Unlike the real one it keeps no older revision: a pod that is lost in the middle of a roll comes back as the new one.
 */
import { createHash } from 'node:crypto';
import type { Cluster } from './cluster.js';
import type { Change } from './history.js';
import type { KubeObject, Labels, Pod } from './objects.js';
import { type LifeOptions, PodLife } from './pod-lifecycle.js';
import { pods, type Resource, statefulSets } from './resources.js';

export interface StatefulSetOptions extends LifeOptions {
  name: string;
  replicas: number;
  /** Default: the cluster's. */
  namespace?: string;
  /** Default: `app: {name}`. */
  labels?: Labels;
  annotations?: Labels;
  /** Tag of the image. Default: `1`. */
  version?: string;
  /** Default: `OrderedReady`. */
  podManagementPolicy?: 'OrderedReady' | 'Parallel';
  /** How long a pod must have been ready before the next one is touched. Default: 0. */
  minReadyMs?: number;
}

export interface StatefulSetStatus {
  /** Wanted. */
  desired: number;
  /** Existing, the terminating ones too. */
  replicas: number;
  ready: number;
  /** Of the newest revision. */
  updated: number;
  /** Not every pod is ready and of the newest revision yet. */
  rolling: boolean;
}

export interface StatefulSet {
  readonly name: string;
  status(): StatefulSetStatus;
  scale(replicas: number): void;
  /** New pods, one after the other: another image tag, or only another annotation (`kubectl rollout restart`). */
  roll(change: { version?: string; annotations?: Labels }): void;
  /** The container ends and starts anew; false when none was running. */
  crash(pod: string): boolean;
  /** Asks a pod to end, as `kubectl delete pod` does; it comes back under its name. */
  remove(pod: string): void;
  /** Ends the controller and leaves everything as it is. */
  stop(): void;
}

interface Template {
  metadata?: { labels?: Record<string, string>; annotations?: Record<string, string> };
  spec?: { containers?: { image?: string }[] };
}

interface SetObject extends KubeObject {
  spec: { replicas?: number; podManagementPolicy?: string; template: Template };
}

interface Member {
  name: string;
  uid: string;
  revision: string;
  isTerminating: boolean;
  isOver: boolean;
  /** By the clock, since when it is Running and Ready; undefined when it is not. */
  readySinceMs: number | undefined;
}

const revisionLabel = 'controller-revision-hash';
const imageOf = (version: string) => `registry.example/voice-agent:${version}`;

export function runStatefulSet(cluster: Cluster, options: StatefulSetOptions): StatefulSet {
  const { name, replicas, namespace = cluster.namespace, labels = { app: name }, annotations = {} } = options;
  const { version = '1', podManagementPolicy = 'OrderedReady', graceMs, minReadyMs = 0 } = options;
  const { registry } = cluster.internals;
  registry.create(statefulSets, namespace, {
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
        spec: {
          terminationGracePeriodSeconds: Math.ceil(graceMs / 1000),
          containers: [{ name: 'agent', image: imageOf(version) }],
        },
      },
    },
  });
  const controller = new Controller(cluster, namespace, options);
  controller.start();
  const patch = (spec: object) => void registry.patch(statefulSets, namespace, name, { spec });
  return {
    name,
    status: () => controller.status(),
    scale: (wanted) => patch({ replicas: wanted }),
    roll(change) {
      const containers = change.version === undefined ? {} : { spec: containersOf(change.version) };
      patch({ template: { metadata: { annotations: change.annotations ?? {} }, ...containers } });
    },
    crash: (pod) => controller.crash(pod),
    remove: (pod) => void registry.delete(pods, namespace, pod),
    stop: () => controller.stop(),
  };
}

const containersOf = (version: string) => ({ containers: [{ name: 'agent', image: imageOf(version) }] });

class Controller {
  readonly #cluster: Cluster;
  readonly #namespace: string;
  readonly #options: StatefulSetOptions;
  readonly #uid: string;
  readonly #members = new Map<number, Member>();
  readonly #lives = new Map<string, PodLife>();
  #stopListening = () => {};
  #cancelTimer = () => {};
  #isScheduled = false;
  #isStopped = false;

  constructor(cluster: Cluster, namespace: string, options: StatefulSetOptions) {
    this.#cluster = cluster;
    this.#namespace = namespace;
    this.#options = options;
    this.#uid = cluster.internals.registry.get(statefulSets, namespace, options.name).uid;
  }

  start(): void {
    this.#stopListening = this.#cluster.internals.store.onChange((resource, change) =>
      this.#hear(resource, change),
    );
    this.#sync();
  }

  stop(): void {
    this.#isStopped = true;
    this.#stopListening();
    this.#cancelTimer();
    for (const life of [...this.#lives.values()]) life.abandon();
  }

  crash(pod: string): boolean {
    return this.#lives.get(pod)?.crash() ?? false;
  }

  status(): StatefulSetStatus {
    const set = this.#read();
    const { currentRevision } = (set?.status ?? {}) as { currentRevision?: string };
    const revision = set ? revisionOf(set) : '';
    return {
      desired: set?.spec.replicas ?? 0,
      ...this.#count(revision),
      rolling: currentRevision !== undefined && currentRevision !== revision,
    };
  }

  /** In one pass without a copy: with thousands of pods it runs for each one that becomes ready. */
  #count(revision: string): { replicas: number; ready: number; updated: number } {
    let ready = 0;
    let updated = 0;
    for (const member of this.#members.values()) {
      if (member.readySinceMs !== undefined) ready += 1;
      if (member.revision === revision && !member.isTerminating) updated += 1;
    }
    return { replicas: this.#members.size, ready, updated };
  }

  #hear(resource: Resource, { type, now }: Change): void {
    if (now.namespace !== this.#namespace) return;
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
      const isOurs = pod.metadata.ownerReferences?.some(({ uid }) => uid === this.#uid);
      if (!isOurs) return;
      this.#members.set(ordinal, memberOf(pod, known, this.#cluster.clock.monotonic()));
    }
    this.#schedule();
  }

  #ordinalOf(pod: string): number | undefined {
    const prefix = `${this.#options.name}-`;
    const rest = pod.slice(prefix.length);
    return pod.startsWith(prefix) && /^(0|[1-9]\d*)$/.test(rest) ? Number(rest) : undefined;
  }

  /** After the turn that changed something: a hundred changes are one look. */
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
    if (!set) {
      // The set was deleted, and its pods go with it.
      for (const member of this.#members.values()) this.#delete(member);
      return;
    }
    const revision = revisionOf(set);
    this.#act(set, revision);
    this.#report(set, revision);
  }

  #act(set: SetObject, revision: string): void {
    const { replicas = 1, podManagementPolicy } = set.spec;
    const isOrdered = podManagementPolicy !== 'Parallel';
    for (let ordinal = 0; ordinal < replicas; ordinal += 1) {
      const member = this.#members.get(ordinal);
      if (!member) this.#create(set, revision, ordinal);
      else if (member.isOver) this.#delete(member);
      else if (this.#isAvailable(member)) continue;
      if (isOrdered) return;
    }
    const condemned: number[] = [];
    for (const ordinal of this.#members.keys()) if (ordinal >= replicas) condemned.push(ordinal);
    for (const ordinal of condemned.sort((a, b) => b - a)) {
      const member = this.#members.get(ordinal);
      if (member) this.#delete(member);
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
    const { minReadyMs = 0 } = this.#options;
    const leftMs = minReadyMs === 0 ? 0 : readySinceMs + minReadyMs - this.#cluster.clock.monotonic();
    if (leftMs <= 0) return true;
    this.#cancelTimer();
    this.#cancelTimer = this.#cluster.clock.after(leftMs, () => this.#schedule(), { unref: true });
    return false;
  }

  #create({ spec: { template } }: SetObject, revision: string, ordinal: number): void {
    const { name: setName, graceMs } = this.#options;
    const name = `${setName}-${ordinal}`;
    // A pod of that name that is not ours: the real controller fails and tries again at the next change.
    if (this.#cluster.pods.get(name, { namespace: this.#namespace })) return;
    const image = template.spec?.containers?.[0]?.image;
    const pod = this.#cluster.pods.create({
      name,
      namespace: this.#namespace,
      generateName: `${setName}-`,
      labels: {
        ...template.metadata?.labels,
        'apps.kubernetes.io/pod-index': String(ordinal),
        [revisionLabel]: revision,
        'statefulset.kubernetes.io/pod-name': name,
      },
      annotations: { ...template.metadata?.annotations },
      ...(image === undefined ? {} : { image }),
      phase: 'Pending',
      graceSeconds: Math.ceil(graceMs / 1000),
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
    const life: PodLife = new PodLife(this.#cluster, pod, this.#options, () => {
      if (this.#lives.get(name) === life) this.#lives.delete(name);
    });
    this.#lives.set(name, life);
  }

  #delete({ name, isTerminating }: Member): void {
    if (!isTerminating) this.#cluster.internals.registry.delete(pods, this.#namespace, name);
  }

  /** What `kubectl get statefulset` and `kubectl rollout status` read; writing the same again changes nothing. */
  #report(set: SetObject, revision: string): void {
    const { replicas, ready, updated } = this.#count(revision);
    const isDone = updated === replicas && ready === replicas && replicas === set.spec.replicas;
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
    this.#cluster.internals.registry.patch(
      statefulSets,
      this.#namespace,
      this.#options.name,
      { status },
      'status',
    );
  }

  #read(): SetObject | undefined {
    const found = this.#cluster.internals.store.find(statefulSets, this.#namespace, this.#options.name);
    return found?.uid === this.#uid ? (JSON.parse(found.json) as SetObject) : undefined;
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
    isOver: status.phase === 'Succeeded' || status.phase === 'Failed',
    readySinceMs: isReady ? (since ?? nowMs) : undefined,
  };
}

function revisionOf({ metadata: { name }, spec: { template } }: SetObject): string {
  return `${name}-${createHash('sha256').update(JSON.stringify(template)).digest('hex').slice(0, 10)}`;
}
