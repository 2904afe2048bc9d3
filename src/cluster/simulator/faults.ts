/**
 * Injected faults between a client and the API server. Each lasts until the returned function ends it, until it has
 * happened `times` times, or until `clear`.
 */
import type { Clock } from '../../clock.js';
import { expired } from './api-error.js';
import { matches, type RequestFilter, type SeenRequest } from './requests.js';
import type { Store } from './store.js';
import type { Watches, WatchStream } from './watches.js';

/** One of `status`, `reset`, `hang`, `lost`, or only a delay. */
export interface RequestFault extends RequestFilter {
  /** The answer is this HTTP status with its Status body. */
  status?: number;
  retryAfterSeconds?: number;
  /** The connection breaks; the request has no effect. */
  reset?: boolean;
  /** No answer while the fault lasts, then the connection breaks; the request has no effect. */
  hang?: boolean;
  /** The request takes effect but its answer is lost. A watch breaks right after its start. */
  lost?: boolean;
  /** A delay before the request is handled. */
  delayMs?: number;
  /** The fault ends after so many requests. */
  times?: number;
}

interface ActiveFault {
  readonly fault: RequestFault;
  left: number;
  readonly held: Set<() => void>;
}

export class Faults {
  readonly #store: Store;
  readonly #watches: Watches;
  readonly #clock: Clock;
  readonly #active = new Set<ActiveFault>();
  /** Closes the listening socket and every connection. */
  readonly down: () => Promise<void>;
  /** Listens again on the same port. */
  readonly up: () => Promise<void>;

  constructor(
    store: Store,
    watches: Watches,
    clock: Clock,
    server: { close(): Promise<void>; open(): Promise<void> },
  ) {
    this.#store = store;
    this.#watches = watches;
    this.#clock = clock;
    this.down = server.close;
    this.up = server.open;
  }

  failRequests(fault: RequestFault): () => void {
    const active: ActiveFault = { fault, left: fault.times ?? Number.POSITIVE_INFINITY, held: new Set() };
    this.#active.add(active);
    return () => this.#end(active);
  }

  /** Breaks the connections of open watches. Returns their number. */
  cutWatches(filter: RequestFilter = {}): number {
    return this.#matching(filter).map((stream) => stream.cut()).length;
  }

  /** Ends open watches as their timeout does. Returns their number. */
  endWatches(filter: RequestFilter = {}): number {
    return this.#matching(filter).map((stream) => stream.end()).length;
  }

  /**
   * Keeps open watches open without any event, bookmark or end. Watches opened later are not affected. The returned
   * function resumes them at their position.
   */
  silenceWatches(filter: RequestFilter = {}): () => void {
    const paused = this.#matching(filter);
    for (const stream of paused) stream.pause();
    return () => {
      for (const stream of paused) stream.resume();
    };
  }

  /**
   * Expires every version and continue token that a client holds. With `tellWatches` open watches get the ERROR event
   * and end; without it they continue.
   */
  expireHistory({ tellWatches = false }: { tellWatches?: boolean } = {}): void {
    const before = this.#store.version;
    this.#store.expireHistory();
    if (!tellWatches) return;
    for (const stream of this.#matching({})) stream.fail(expired(before, this.#store.version));
  }

  /**
   * Separates one client from the API server: its watches and requests break (`reset`) or get no answer (`hang`, like
   * behind a firewall that drops packets). The returned function ends it.
   */
  isolate(client: string, how: 'reset' | 'hang' = 'reset'): () => void {
    const end = this.failRequests(how === 'reset' ? { client, reset: true } : { client, hang: true });
    if (how === 'reset') {
      this.cutWatches({ client });
      return end;
    }
    this.silenceWatches({ client });
    // Dropped packets do not arrive later: the connections are dead.
    return () => {
      end();
      this.cutWatches({ client });
    };
  }

  /** Ends all request faults. */
  clear(): void {
    for (const active of this.#active) this.#end(active);
  }

  /** Returns the fault for this request, after its delay and while it hangs. `closed`: the client disconnected. */
  async apply(request: SeenRequest, closed: AbortSignal): Promise<RequestFault | undefined> {
    const active = [...this.#active].find(({ fault, left }) => left > 0 && matches(fault, request));
    if (!active) return undefined;
    active.left -= 1;
    const { fault, held } = active;
    if (fault.delayMs !== undefined) await this.#clock.sleep(fault.delayMs, closed);
    if (fault.hang) {
      await new Promise<void>((resolve) => {
        held.add(resolve);
        closed.addEventListener('abort', () => resolve(), { once: true });
      });
    }
    return fault;
  }

  #end(active: ActiveFault): void {
    this.#active.delete(active);
    for (const release of active.held) release();
    active.held.clear();
  }

  #matching(filter: RequestFilter): WatchStream[] {
    return this.#watches.open.filter(({ request }) => matches(filter, request));
  }
}
