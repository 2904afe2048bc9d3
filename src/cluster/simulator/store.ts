/**
 * Every object of the cluster and its latest changes. One counter gives every write its resourceVersion.
 *
 * An object is kept as its JSON text only: it is serialized once per version, however many lists and watches send it,
 * and every reader gets its own copy. The later pages of a list read the snapshot that its first page has made.
 */
import type { KubeObject, Labels } from './objects.js';
import { type Resource, resources } from './resources.js';

/** One state of one object. */
export interface Version {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: number;
  readonly labels: Labels;
  readonly json: string;
}

export interface Change {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  /** After a deletion: the last state, with the version of the deletion. */
  readonly now: Version;
  readonly before: Version | undefined;
}

/**
 * The latest changes of one resource, oldest first, which watches replay. A version older than the first of them is
 * expired, and its client must list again.
 */
export class History {
  readonly #changes: Change[] = [];
  /** The position of the first of them; positions only grow. */
  #first = 0;

  /** `floor`: the version of the last change that was dropped. */
  constructor(
    private readonly limit: number,
    public floor: number,
  ) {}

  /** The position of the next change. */
  get end(): number {
    return this.#first + this.#changes.length;
  }

  push(change: Change): void {
    this.#changes.push(change);
    if (this.#changes.length > this.limit) this.#drop(1);
  }

  expire(floor: number): void {
    this.#drop(this.#changes.length);
    this.floor = floor;
  }

  at(position: number): Change | undefined {
    return this.#changes[position - this.#first];
  }

  isExpired(position: number): boolean {
    return position < this.#first;
  }

  /** Returns the position of the first change after `version`, or undefined when the version is expired. */
  after(version: number): number | undefined {
    if (version < this.floor) return undefined;
    const later = this.#changes.findIndex(({ now }) => now.resourceVersion > version);
    return later === -1 ? this.end : this.#first + later;
  }

  #drop(count: number): void {
    this.floor = this.#changes[count - 1]?.now.resourceVersion ?? this.floor;
    this.#changes.splice(0, count);
    this.#first += count;
  }
}

/** Not zero, which means "any version" to a client. */
const firstVersion = 1000;
/** The pages of concurrent lists use the same sorted snapshots. */
const maxSnapshots = 8;

export const keyOf = ({ namespace, name }: { namespace: string; name: string }) => `${namespace}/${name}`;

export class Store {
  readonly #objects = new Map<Resource, Map<string, Version>>();
  readonly #histories = new Map<Resource, History>();
  readonly #listeners = new Set<(resource: Resource, change: Change) => void>();
  readonly #snapshots = new Map<string, Version[]>();
  readonly #pending: [Resource, Change][] = [];
  #isNotifying = false;
  #version = firstVersion;

  constructor(historyLimit: number) {
    for (const resource of resources) {
      this.#objects.set(resource, new Map());
      this.#histories.set(resource, new History(historyLimit, firstVersion));
    }
  }

  get version(): number {
    return this.#version;
  }

  history(resource: Resource): History {
    return this.#histories.get(resource) as History;
  }

  /**
   * Calls `listener` after every write, in the order of the writes: the write of a listener is delivered after all
   * listeners have seen the first one.
   */
  onChange(listener: (resource: Resource, change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  find(resource: Resource, namespace: string, name: string): Version | undefined {
    return this.#objects.get(resource)?.get(keyOf({ namespace, name }));
  }

  write(resource: Resource, object: KubeObject): Version {
    const { namespace, name } = object.metadata;
    const before = this.find(resource, namespace, name);
    const now = this.#next(object);
    this.#objects.get(resource)?.set(keyOf(now), now);
    this.#changed(resource, { type: before ? 'MODIFIED' : 'ADDED', now, before });
    return now;
  }

  remove(resource: Resource, before: Version): Version {
    const now = this.#next(JSON.parse(before.json) as KubeObject);
    this.#objects.get(resource)?.delete(keyOf(before));
    this.#changed(resource, { type: 'DELETED', now, before });
    return now;
  }

  /**
   * Returns all objects at `version`, sorted by namespace and name: the latest one, or one that a list has read before.
   * Undefined when that version is expired.
   */
  snapshot(resource: Resource, namespace: string | undefined, version: number): Version[] | undefined {
    if (this.history(resource).after(version) === undefined) return undefined;
    const id = [resource.plural, namespace ?? '', version].join('|');
    const kept = this.#snapshots.get(id);
    if (kept || version !== this.#version) return kept;
    const sorted = [...(this.#objects.get(resource)?.values() ?? [])]
      .filter((one) => namespace === undefined || one.namespace === namespace)
      .sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
    this.#snapshots.set(id, sorted);
    const [oldest] = this.#snapshots.keys();
    if (this.#snapshots.size > maxSnapshots && oldest !== undefined) this.#snapshots.delete(oldest);
    return sorted;
  }

  /** Expires every version that a client can hold, the latest included. */
  expireHistory(): void {
    this.#version += 1;
    this.#snapshots.clear();
    for (const history of this.#histories.values()) history.expire(this.#version);
  }

  #next(object: KubeObject): Version {
    this.#version += 1;
    object.metadata.resourceVersion = String(this.#version);
    const { namespace, name, uid, labels = {} } = object.metadata;
    return { namespace, name, uid, labels, resourceVersion: this.#version, json: JSON.stringify(object) };
  }

  #changed(resource: Resource, change: Change): void {
    this.history(resource).push(change);
    this.#pending.push([resource, change]);
    if (this.#isNotifying) return;
    this.#isNotifying = true;
    try {
      for (let next = this.#pending.shift(); next; next = this.#pending.shift()) {
        for (const listener of this.#listeners) listener(...next);
      }
    } finally {
      this.#isNotifying = false;
    }
  }
}
