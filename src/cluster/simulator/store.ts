/**
 * Every object of the cluster and what happened to it lately. One counter gives every write its resourceVersion.
 *
 * An object is kept as its JSON text alone: it is serialized once per version, however many lists and watches send
 * it, and whoever asks for it gets a copy of their own. A list at an older version is the present with the changes
 * since then undone, so that it costs nothing until somebody asks for it.
 */
import type { Change, Version } from './history.js';
import { History } from './history.js';
import type { KubeObject } from './objects.js';
import { type Resource, resources } from './resources.js';

/** Not zero, which means "any version" to a client. */
const firstVersion = 1000;
/** Pages of a few lists at once are cut from the same sorted snapshot. */
const keptSnapshots = 8;

export const keyOf = ({ namespace, name }: { namespace: string; name: string }) => `${namespace}/${name}`;

interface Collection {
  readonly objects: Map<string, Map<string, Version>>;
  readonly history: History;
}

export class Store {
  readonly #collections: ReadonlyMap<Resource, Collection>;
  readonly #listeners = new Set<(resource: Resource, change: Change) => void>();
  readonly #snapshots = new Map<string, Version[]>();
  readonly #untold: [Resource, Change][] = [];
  #isTelling = false;
  #version = firstVersion;

  constructor(historyLimit: number) {
    this.#collections = new Map(
      resources.map((resource) => [
        resource,
        { objects: new Map(), history: new History(historyLimit, firstVersion) },
      ]),
    );
  }

  get version(): number {
    return this.#version;
  }

  history(resource: Resource): History {
    return this.#of(resource).history;
  }

  /** Runs after every write, in the order of the writes: what a listener writes is told when all know the first. */
  onChange(listener: (resource: Resource, change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  find(resource: Resource, namespace: string, name: string): Version | undefined {
    return this.#of(resource).objects.get(namespace)?.get(name);
  }

  /** In no order. */
  *all(resource: Resource, namespace?: string): Iterable<Version> {
    const { objects } = this.#of(resource);
    if (namespace !== undefined) yield* objects.get(namespace)?.values() ?? [];
    else for (const inNamespace of objects.values()) yield* inNamespace.values();
  }

  write(resource: Resource, object: KubeObject): Version {
    const { namespace, name } = object.metadata;
    const before = this.find(resource, namespace, name);
    const now = this.#next(object);
    const { objects } = this.#of(resource);
    const inNamespace = objects.get(namespace);
    if (inNamespace) inNamespace.set(name, now);
    else objects.set(namespace, new Map([[name, now]]));
    this.#happened(resource, before ? 'MODIFIED' : 'ADDED', now, before);
    return now;
  }

  remove(resource: Resource, before: Version): Version {
    const now = this.#next(JSON.parse(before.json) as KubeObject);
    this.#of(resource).objects.get(before.namespace)?.delete(before.name);
    this.#happened(resource, 'DELETED', now, before);
    return now;
  }

  /** Everything at `version`, sorted by namespace and name; undefined when that version is expired. */
  snapshot(resource: Resource, namespace: string | undefined, version: number): Version[] | undefined {
    const { history } = this.#of(resource);
    const first = history.after(version);
    if (first === undefined) return undefined;
    const id = [resource.plural, namespace ?? '', version].join('|');
    const kept = this.#snapshots.get(id);
    if (kept) return kept;
    const objects = new Map<string, Version>();
    for (const one of this.all(resource, namespace)) objects.set(keyOf(one), one);
    for (let place = history.end - 1; place >= first; place -= 1) {
      const change = history.at(place);
      if (!change || (namespace !== undefined && change.now.namespace !== namespace)) continue;
      if (change.before) objects.set(keyOf(change.before), change.before);
      else objects.delete(keyOf(change.now));
    }
    const sorted = [...objects].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, one]) => one);
    this.#snapshots.set(id, sorted);
    const [oldest] = this.#snapshots.keys();
    if (this.#snapshots.size > keptSnapshots && oldest !== undefined) this.#snapshots.delete(oldest);
    return sorted;
  }

  /** Every version that a client can hold is expired, also the latest one. */
  expireHistory(): void {
    this.#version += 1;
    this.#snapshots.clear();
    for (const { history } of this.#collections.values()) history.expire(this.#version);
  }

  #next(object: KubeObject): Version {
    this.#version += 1;
    object.metadata.resourceVersion = String(this.#version);
    const { namespace, name, uid, labels = {} } = object.metadata;
    return { namespace, name, uid, labels, resourceVersion: this.#version, json: JSON.stringify(object) };
  }

  #happened(resource: Resource, type: Change['type'], now: Version, before: Version | undefined): void {
    const change = { type, resourceVersion: now.resourceVersion, now, before };
    this.#of(resource).history.push(change);
    this.#untold.push([resource, change]);
    if (this.#isTelling) return;
    this.#isTelling = true;
    try {
      for (let next = this.#untold.shift(); next; next = this.#untold.shift()) {
        for (const listener of this.#listeners) listener(...next);
      }
    } finally {
      this.#isTelling = false;
    }
  }

  #of(resource: Resource): Collection {
    const collection = this.#collections.get(resource);
    if (!collection) throw new Error(`the simulator has no ${resource.plural}`);
    return collection;
  }
}
