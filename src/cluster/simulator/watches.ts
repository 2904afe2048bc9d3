/**
 * Open watches. Each has a position in the history and sends the changes after it as fast as its client reads. When the
 * history no longer contains its position, it gets the ERROR event 410 and ends.
 *
 * The type of an event depends on the selector: an object that starts to match is ADDED, one that stops matching is
 * DELETED, in its last matching state but with the version of the change.
 */
import type { ServerResponse } from 'node:http';
import type { Clock } from '../../clock.js';
import { expired } from './api-error.js';
import type { KubeObject } from './objects.js';
import type { Resource } from './resources.js';
import type { Selector } from './selectors.js';
import type { Change, Store, Version } from './store.js';

export interface WatchOptions {
  resource: Resource;
  namespace: string | undefined;
  selector: Selector;
  /** Undefined: starts with all present objects as ADDED. */
  since: number | undefined;
  bookmarks: boolean;
  timeoutMs: number;
}

/** One write to the socket has about this size, with as many events as fit. */
const chunkLength = 64 * 1024;

export class Watches {
  readonly #open = new Set<WatchStream>();
  #isScheduled = false;

  constructor(
    private readonly store: Store,
    private readonly clock: Clock,
    private readonly bookmarkMs: number,
  ) {
    // Once per turn, not per change: 5,000 new pods are one pass over each watch.
    store.onChange(() => {
      if (this.#isScheduled) return;
      this.#isScheduled = true;
      queueMicrotask(() => {
        this.#isScheduled = false;
        for (const stream of this.#open) stream.pump();
      });
    });
  }

  get count(): number {
    return this.#open.size;
  }

  start(response: ServerResponse, options: WatchOptions): void {
    response.writeHead(200, { 'content-type': 'application/json', 'cache-control': 'no-cache, private' });
    response.flushHeaders();
    const stream = new WatchStream(this.store, response, options);
    this.#open.add(stream);
    const cancelTimeout = this.clock.after(options.timeoutMs, () => {
      stream.bookmark();
      response.end();
    });
    let cancelBookmark = () => {};
    const bookmarkLater = () => {
      cancelBookmark = this.clock.after(this.bookmarkMs, () => {
        stream.bookmark();
        bookmarkLater();
      });
    };
    if (options.bookmarks) bookmarkLater();
    response.once('close', () => {
      this.#open.delete(stream);
      cancelTimeout();
      cancelBookmark();
    });
    stream.pump();
  }
}

class WatchStream {
  readonly #initial: readonly Version[];
  #sentInitial = 0;
  #position: number;
  #isBlocked = false;

  constructor(
    private readonly store: Store,
    private readonly response: ServerResponse,
    private readonly options: WatchOptions,
  ) {
    const { resource, namespace, since, selector } = options;
    const history = store.history(resource);
    const present = since === undefined ? (store.snapshot(resource, namespace, store.version) ?? []) : [];
    this.#initial = present.filter((version) => selector.matches(version));
    // An expired version is a position before the history.
    this.#position = since === undefined ? history.end : (history.after(since) ?? -1);
    response.on('drain', () => {
      this.#isBlocked = false;
      this.pump();
    });
  }

  /** Only after everything before it: a bookmark means that the client has all changes up to its version. */
  bookmark(): void {
    const { resource, bookmarks } = this.options;
    this.pump();
    if (!bookmarks || !this.#canWrite() || this.#position < this.store.history(resource).end) return;
    const object = {
      kind: resource.kind,
      apiVersion: resource.apiVersion,
      metadata: { resourceVersion: String(this.store.version), creationTimestamp: null },
    };
    this.response.write(`{"type":"BOOKMARK","object":${JSON.stringify(object)}}\n`);
  }

  pump(): void {
    const { resource, since = 0 } = this.options;
    const history = this.store.history(resource);
    while (this.#canWrite()) {
      let chunk = '';
      while (this.#sentInitial < this.#initial.length && chunk.length < chunkLength) {
        chunk += lineOf('ADDED', this.#initial[this.#sentInitial]?.json ?? '{}');
        this.#sentInitial += 1;
      }
      if (this.#sentInitial === this.#initial.length) {
        if (history.isExpired(this.#position)) {
          const { body } = expired(since, history.floor);
          this.response.end(`{"type":"ERROR","object":${JSON.stringify(body)}}\n`);
          return;
        }
        while (this.#position < history.end && chunk.length < chunkLength) {
          const change = history.at(this.#position);
          this.#position += 1;
          if (change && change.now.resourceVersion > since) chunk += this.#lineFor(change);
        }
      }
      if (chunk === '' && this.#position >= history.end) return;
      if (chunk !== '') this.#isBlocked = !this.response.write(chunk);
    }
  }

  #canWrite(): boolean {
    return !this.#isBlocked && !this.response.writableEnded && !this.response.destroyed;
  }

  #lineFor({ type, now, before }: Change): string {
    const { namespace, selector } = this.options;
    if (namespace !== undefined && now.namespace !== namespace) return '';
    const isMatch = type !== 'DELETED' && selector.matches(now);
    const wasMatch = before !== undefined && selector.matches(before);
    if (isMatch) return lineOf(wasMatch ? 'MODIFIED' : 'ADDED', now.json);
    if (!wasMatch) return '';
    return lineOf('DELETED', type === 'DELETED' ? now.json : withVersion(before.json, now.resourceVersion));
  }
}

const lineOf = (type: Change['type'], json: string) => `{"type":"${type}","object":${json}}\n`;

function withVersion(json: string, version: number): string {
  const object = JSON.parse(json) as KubeObject;
  object.metadata.resourceVersion = String(version);
  return JSON.stringify(object);
}
