/**
 * The checks and rules of the API server for writes: names and versions, the metadata fields of the server, no new
 * version for a write that changes nothing, and the deletion of a pod in two steps (a deadline, then the removal). The
 * kubelet of a pod removes it earlier or at the deadline; a pod without a kubelet is removed at the deadline. Tests and
 * controllers write through it too, so that they cannot create a state that no cluster has.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../clock.js';
import { ApiError, badRequest, conflict, invalid, notFound } from './api-error.js';
import { type Draft, type KubeObject, kubeTime, mergePatch, type Pod } from './objects.js';
import { pods, type Resource } from './resources.js';
import type { Store, Version } from './store.js';

const modified =
  'the object has been modified; please apply your changes to the latest version and try again';
const validName = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;

export interface Kubelet {
  /** In milliseconds; the API has whole seconds only. */
  readonly graceMs: number;
  /** The pod was deleted, or deleted again with an earlier deadline. */
  onTerminating(): void;
  /** The grace period is over: the kubelet removes the pod now. */
  onDeadline(): void;
  onRemoved(): void;
}

export class Registry {
  readonly #kubelets = new Map<string, Kubelet>();
  /** Of terminating pods. */
  readonly #deadlines = new Map<string, { atMs: number; cancel: () => void }>();
  #created = 0;

  constructor(
    private readonly store: Store,
    private readonly clock: Clock,
  ) {
    store.onChange((resource, { type, now }) => {
      if (resource === pods) this.#podChanged(now.uid, type === 'DELETED');
    });
  }

  /** Returns a function that unregisters the kubelet. */
  register(uid: string, kubelet: Kubelet): () => void {
    this.#kubelets.set(uid, kubelet);
    return () => void this.#kubelets.delete(uid);
  }

  stop(): void {
    for (const { cancel } of this.#deadlines.values()) cancel();
    this.#deadlines.clear();
    this.#kubelets.clear();
  }

  get(resource: Resource, namespace: string, name: string): Version {
    const found = this.store.find(resource, namespace, name);
    if (!found) throw notFound(resource.plural, name);
    return found;
  }

  create(resource: Resource, namespace: string, draft: Draft): Version {
    const { metadata: { name = '', ...given } = {}, spec, status } = draft;
    this.#check(resource, namespace, name, draft);
    if (this.store.find(resource, namespace, name)) {
      throw new ApiError(409, `${resource.plural} "${name}" already exists`, {
        reason: 'AlreadyExists',
        details: { name, kind: resource.plural },
      });
    }
    if (given.resourceVersion) throw badRequest('resourceVersion should not be set on objects to be created');
    return this.store.write(resource, {
      kind: resource.kind,
      apiVersion: resource.apiVersion,
      metadata: {
        ...given,
        name,
        namespace,
        uid: this.#nextUid(),
        resourceVersion: '',
        ...(resource.hasGeneration ? { generation: 1 } : {}),
        creationTimestamp: kubeTime(this.clock.now()),
      },
      ...(spec ? { spec } : {}),
      ...(status ? { status } : {}),
    });
  }

  /** An update by a client: it must name the version that it read, and creates an object that does not exist. */
  update(resource: Resource, namespace: string, name: string, draft: Draft): Version {
    const given = draft.metadata ?? {};
    if (given.name !== undefined && given.name !== name)
      throw badRequest(`the name of the object (${given.name}) does not match the name on the URL (${name})`);
    const current = this.store.find(resource, namespace, name);
    if (given.uid && given.uid !== current?.uid) {
      const uids = `UID in precondition: ${given.uid}, UID in object meta: ${current?.uid ?? ''}`;
      throw conflict(resource.plural, name, `Precondition failed: ${uids}`);
    }
    if (!current) return this.create(resource, namespace, { ...draft, metadata: { ...given, name } });
    this.#check(resource, namespace, name, draft);
    if (!given.resourceVersion) {
      const why = 'Invalid value: 0x0: must be specified for an update';
      throw invalid(resource.kind, name, 'metadata.resourceVersion', why);
    }
    if (given.resourceVersion !== String(current.resourceVersion))
      throw conflict(resource.plural, name, modified);
    return this.#replace(resource, current, draft);
  }

  /** An update by the simulator: a merge patch of the present object. */
  patch(resource: Resource, namespace: string, name: string, patch: object): Version {
    const current = this.get(resource, namespace, name);
    return this.#replace(resource, current, mergePatch(JSON.parse(current.json), patch) as Draft);
  }

  /** Replaces the status: unlike a patch it can remove fields. */
  setStatus(resource: Resource, namespace: string, name: string, status: object): Version {
    const current = this.get(resource, namespace, name);
    return this.#replace(resource, current, { ...(JSON.parse(current.json) as KubeObject), status });
  }

  /** Returns the last state of an object that was removed, or the pod with its deadline. */
  delete(resource: Resource, namespace: string, name: string, graceMs?: number): Version {
    const current = this.get(resource, namespace, name);
    const effectiveMs = resource.isGraceful ? this.#graceOf(JSON.parse(current.json) as Pod, graceMs) : 0;
    if (effectiveMs <= 0) return this.store.remove(resource, current);
    return this.#terminate(resource, current, effectiveMs);
  }

  /** Zero where nothing runs. */
  #graceOf({ metadata, spec, status }: Pod, requestedMs: number | undefined): number {
    if (status.phase === 'Succeeded' || status.phase === 'Failed') return 0;
    const ownMs = this.#kubelets.get(metadata.uid)?.graceMs;
    return requestedMs ?? ownMs ?? (spec.terminationGracePeriodSeconds ?? 30) * 1000;
  }

  /** A second deletion can make the grace period shorter, never longer. */
  #terminate(resource: Resource, current: Version, graceMs: number): Version {
    const { uid } = current;
    const before = this.#deadlines.get(uid);
    const atMs = this.clock.monotonic() + graceMs;
    if (before && before.atMs <= atMs) return current;
    before?.cancel();
    const cancel = this.clock.after(graceMs, () => this.#expire(current), { unref: true });
    this.#deadlines.set(uid, { atMs, cancel });
    const pod = JSON.parse(current.json) as Pod;
    return this.store.write(resource, {
      ...pod,
      metadata: {
        ...pod.metadata,
        deletionTimestamp: kubeTime(this.clock.now() + graceMs),
        deletionGracePeriodSeconds: Math.ceil(graceMs / 1000),
      },
    });
  }

  #expire({ uid, namespace, name }: Version): void {
    const kubelet = this.#kubelets.get(uid);
    const current = this.store.find(pods, namespace, name);
    if (kubelet) kubelet.onDeadline();
    else if (current?.uid === uid) this.store.remove(pods, current);
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

  /** Of the metadata only labels, annotations and owners change; the other fields are the server's. */
  #replace(resource: Resource, current: Version, { metadata = {}, spec, status }: Draft): Version {
    const before = JSON.parse(current.json) as KubeObject;
    const { labels: _labels, annotations: _annotations, ownerReferences: _owners, ...kept } = before.metadata;
    const { labels, annotations, ownerReferences } = metadata;
    const after: KubeObject = {
      kind: resource.kind,
      apiVersion: resource.apiVersion,
      metadata: {
        ...kept,
        ...(labels ? { labels } : {}),
        ...(annotations ? { annotations } : {}),
        ...(ownerReferences ? { ownerReferences } : {}),
      },
      ...(spec ? { spec } : {}),
      ...(status ? { status } : {}),
    };
    if (isDeepStrictEqual(after, before)) return current;
    if (resource.hasGeneration && !isDeepStrictEqual(after.spec, before.spec))
      after.metadata.generation = (before.metadata.generation ?? 0) + 1;
    return this.store.write(resource, after);
  }

  #check(resource: Resource, namespace: string, name: string, draft: Draft): void {
    const { kind, apiVersion, metadata } = draft;
    if (kind !== undefined && kind !== resource.kind)
      throw badRequest(`${kind} in version "${apiVersion}" cannot be handled as a ${resource.kind}`);
    if (metadata?.namespace && metadata.namespace !== namespace)
      throw badRequest(
        'the namespace of the provided object does not match the namespace sent on the request',
      );
    const nameError = (why: string) => invalid(resource.kind, name, 'metadata.name', why);
    if (name === '') throw nameError('Required value: name or generateName is required');
    if (!validName.test(name)) throw nameError(`Invalid value: "${name}": a lowercase RFC 1123 subdomain`);
    resource.validate?.(draft, name);
  }

  /** From a counter, so that a failing test fails again in the same way. */
  #nextUid(): string {
    this.#created += 1;
    return `00000000-0000-4000-a000-${this.#created.toString(16).padStart(12, '0')}`;
  }
}
