/**
 * What the API server does with a write before it reaches the store: names and versions are checked, the fields that
 * belong to the server are its own, a write that changes nothing gives no new version, and a pod is deleted in two
 * steps (a deadline first, the end later). Tests and controllers write through here as well, so that they cannot
 * bring about what a cluster never shows.
 */
import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../clock.js';
import { ApiError, badRequest, conflict, invalid, notFound } from './api-error.js';
import type { Version } from './history.js';
import {
  type Draft,
  isRecord,
  type KubeObject,
  kubeTime,
  mergePatch,
  type ObjectMeta,
  type Pod,
} from './objects.js';
import type { Resource } from './resources.js';
import type { Store } from './store.js';
import type { Terminations } from './terminations.js';

export interface DeleteOptions {
  /** Undefined: what the object itself asks for. */
  graceMs?: number | undefined;
  uid?: string | undefined;
  resourceVersion?: string | undefined;
}

/** `whole`: the simulator itself may write everything; a client writes either the status or all but the status. */
export type Part = 'main' | 'status' | 'whole';

const modified =
  'the object has been modified; please apply your changes to the latest version and try again';
const validName = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;
const suffixLetters = 'bcdfghjklmnpqrstvwxz2456789';

export class Registry {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #terminations: Terminations;
  #created = 0;

  constructor(store: Store, clock: Clock, terminations: Terminations) {
    this.#store = store;
    this.#clock = clock;
    this.#terminations = terminations;
  }

  get(resource: Resource, namespace: string, name: string): Version {
    const found = this.#store.find(resource, namespace, name);
    if (!found) throw notFound(resource.plural, name);
    return found;
  }

  create(resource: Resource, namespace: string, draft: Draft, part: Part = 'main'): Version {
    const { metadata: given = {} } = draft;
    const name = given.name || (given.generateName ? given.generateName + this.#suffix() : '');
    this.#check(resource, namespace, name, draft);
    if (this.#store.find(resource, namespace, name)) {
      throw new ApiError(409, 'AlreadyExists', `${resource.plural} "${name}" already exists`, {
        details: { name, kind: resource.plural },
      });
    }
    if (given.resourceVersion) throw badRequest('resourceVersion should not be set on objects to be created');
    const status =
      part === 'whole'
        ? draft.status
        : resource.graceful
          ? { phase: 'Pending', qosClass: 'BestEffort' }
          : undefined;
    return this.#store.write(resource, {
      kind: resource.kind,
      apiVersion: resource.apiVersion,
      metadata: metaOf({
        ...given,
        name,
        namespace,
        uid: this.#uid(),
        ...(resource.generations ? { generation: 1 } : {}),
        creationTimestamp: kubeTime(this.#clock.now()),
        deletionTimestamp: undefined,
        deletionGracePeriodSeconds: undefined,
      }),
      ...(draft.spec ? { spec: draft.spec } : {}),
      ...(status ? { status } : {}),
    });
  }

  update(resource: Resource, namespace: string, name: string, draft: Draft, part: Part = 'main'): Version {
    const given = draft.metadata ?? {};
    if (given.name !== undefined && given.name !== name) {
      throw badRequest(`the name of the object (${given.name}) does not match the name on the URL (${name})`);
    }
    const current = this.#store.find(resource, namespace, name);
    if (!current) {
      if (!resource.createOnUpdate || part === 'status') throw notFound(resource.plural, name);
      if (given.uid)
        throw conflict(
          resource.plural,
          name,
          `Precondition failed: UID in precondition: ${given.uid}, UID in object meta: `,
        );
      return this.create(resource, namespace, { ...draft, metadata: { ...given, name } }, part);
    }
    this.#check(resource, namespace, name, draft);
    if (given.uid && given.uid !== current.uid) {
      throw conflict(
        resource.plural,
        name,
        `Precondition failed: UID in precondition: ${given.uid}, UID in object meta: ${current.uid}`,
      );
    }
    if (given.resourceVersion) {
      if (given.resourceVersion !== String(current.resourceVersion))
        throw conflict(resource.plural, name, modified);
    } else if (!resource.unconditionalUpdate && part !== 'whole') {
      const why = 'Invalid value: 0x0: must be specified for an update';
      throw invalid(resource.kind, name, 'metadata.resourceVersion', why);
    }
    return this.#replace(resource, current, draft, part);
  }

  /** A merge patch; it is applied to what is there now, so that it meets a conflict only if it names a version. */
  patch(resource: Resource, namespace: string, name: string, patch: unknown, part: Part = 'main'): Version {
    if (!isRecord(patch)) throw badRequest('a patch is an object');
    const current = this.get(resource, namespace, name);
    return this.update(resource, namespace, name, mergePatch(JSON.parse(current.json), patch) as Draft, part);
  }

  /** `gone` is false while the object goes on until its deadline. */
  delete(
    resource: Resource,
    namespace: string,
    name: string,
    options: DeleteOptions = {},
  ): { version: Version; gone: boolean } {
    const current = this.get(resource, namespace, name);
    const { uid = current.uid, resourceVersion = String(current.resourceVersion) } = options;
    if (uid !== current.uid || resourceVersion !== String(current.resourceVersion)) {
      const [what, wanted, is] =
        uid !== current.uid
          ? ['UID', uid, current.uid]
          : ['ResourceVersion', resourceVersion, current.resourceVersion];
      throw conflict(
        resource.plural,
        name,
        `Precondition failed: ${what} in precondition: ${wanted}, ${what} in object meta: ${is}`,
      );
    }
    const graceMs = resource.graceful ? this.#graceOf(JSON.parse(current.json) as Pod, options.graceMs) : 0;
    if (graceMs <= 0) return { version: this.#store.remove(resource, current), gone: true };
    return { version: this.#terminate(resource, current, graceMs), gone: false };
  }

  /** Nothing to end gracefully where nothing runs. */
  #graceOf({ metadata, spec, status }: Pod, askedMs: number | undefined): number {
    if (!spec.nodeName || status.phase === 'Succeeded' || status.phase === 'Failed') return 0;
    return (
      askedMs ?? this.#terminations.graceMs(metadata.uid) ?? (spec.terminationGracePeriodSeconds ?? 30) * 1000
    );
  }

  /** A second deletion can make the time shorter, never longer. */
  #terminate(resource: Resource, current: Version, graceMs: number): Version {
    const leftMs = this.#terminations.leftMs(current.uid);
    if (leftMs !== undefined && leftMs <= graceMs) return current;
    const pod = JSON.parse(current.json) as Pod;
    this.#terminations.begin(current, graceMs);
    return this.#store.write(resource, {
      ...pod,
      metadata: metaOf({
        ...pod.metadata,
        deletionTimestamp: kubeTime(this.#clock.now() + graceMs),
        deletionGracePeriodSeconds: Math.ceil(graceMs / 1000),
      }),
    });
  }

  #replace(resource: Resource, current: Version, draft: Draft, part: Part): Version {
    const before = JSON.parse(current.json) as KubeObject;
    const spec = part === 'status' ? before.spec : draft.spec;
    const status = part === 'main' && resource.subresources.includes('status') ? before.status : draft.status;
    const after: KubeObject = {
      kind: resource.kind,
      apiVersion: resource.apiVersion,
      metadata: metaOf({
        ...before.metadata,
        labels: draft.metadata?.labels,
        annotations: draft.metadata?.annotations,
        ownerReferences:
          part === 'status' ? before.metadata.ownerReferences : draft.metadata?.ownerReferences,
      }),
      ...(spec ? { spec } : {}),
      ...(status ? { status } : {}),
    };
    if (isDeepStrictEqual(after, before)) return current;
    if (resource.generations && !isDeepStrictEqual(after.spec, before.spec)) {
      after.metadata.generation = (before.metadata.generation ?? 0) + 1;
    }
    return this.#store.write(resource, after);
  }

  #check(resource: Resource, namespace: string, name: string, draft: Draft): void {
    if (draft.kind !== undefined && draft.kind !== resource.kind) {
      throw badRequest(
        `${draft.kind} in version "${draft.apiVersion}" cannot be handled as a ${resource.kind}`,
      );
    }
    const { namespace: given } = draft.metadata ?? {};
    if (given && given !== namespace) {
      throw badRequest(
        'the namespace of the provided object does not match the namespace sent on the request',
      );
    }
    if (name === '')
      throw invalid(resource.kind, '', 'metadata.name', 'Required value: name or generateName is required');
    if (!validName.test(name)) {
      throw invalid(
        resource.kind,
        name,
        'metadata.name',
        `Invalid value: "${name}": a lowercase RFC 1123 subdomain`,
      );
    }
    resource.validate(draft, name);
  }

  /** Looks random, and is the same in every run: a test that fails fails again. */
  #uid(): string {
    this.#created += 1;
    const hash = createHash('sha256').update(`uid ${this.#created}`).digest('hex');
    const [a, b, c, d] = [hash.slice(0, 8), hash.slice(8, 12), hash.slice(13, 16), hash.slice(17, 20)];
    return `${a}-${b}-4${c}-a${d}-${hash.slice(20, 32)}`;
  }

  #suffix(): string {
    const letter = () => suffixLetters[Math.floor(this.#clock.random() * suffixLetters.length)] ?? 'x';
    return Array.from({ length: 5 }, letter).join('');
  }
}

/** In the order of the API server; what is undefined is left out. */
function metaOf(meta: { [Field in keyof ObjectMeta]?: ObjectMeta[Field] | undefined }): ObjectMeta {
  const fields = {
    name: meta.name,
    generateName: meta.generateName,
    namespace: meta.namespace,
    uid: meta.uid,
    resourceVersion: meta.resourceVersion,
    generation: meta.generation,
    creationTimestamp: meta.creationTimestamp,
    deletionTimestamp: meta.deletionTimestamp,
    deletionGracePeriodSeconds: meta.deletionGracePeriodSeconds,
    labels: meta.labels,
    annotations: meta.annotations,
    ownerReferences: meta.ownerReferences,
  };
  for (const [field, value] of Object.entries(fields)) {
    if (value === undefined) delete fields[field as keyof typeof fields];
  }
  return fields as ObjectMeta;
}
