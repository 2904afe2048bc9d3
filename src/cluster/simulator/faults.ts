/**
 * What can go wrong between a client and the API server, to order. Every fault lasts until it is ended (by the
 * function that beginning it gives back), has happened as often as asked, or `clear` ends them all.
 */
import type { Clock } from '../../clock.js';
import { expired } from './api-error.js';
import { fits, type RequestFilter, type SeenRequest } from './requests.js';
import type { Store } from './store.js';
import type { Watches } from './watches.js';

/** One of `status`, `reset`, `hang`, `lost`, or only a delay. */
export interface RequestFault extends RequestFilter {
  /** Answered with this status and the Status body that belongs to it. */
  status?: number;
  retryAfterSeconds?: number;
  /** The connection breaks before the request has any effect. */
  reset?: boolean;
  /** No answer while the fault lasts, then the connection breaks; no effect either. */
  hang?: boolean;
  /** The request takes effect and its answer is lost. Of a watch: it breaks as soon as it has begun. */
  lost?: boolean;
  /** Waits before anything else. */
  delayMs?: number;
  /** Ends by itself after so many requests. */
  times?: number;
}

interface ActiveFault {
  readonly fault: RequestFault;
  left: number;
  readonly held: Set<() => void>;
}

/** How the server reaches its listening socket; the faults do not know HTTP. */
export interface Listening {
  close(): Promise<void>;
  open(): Promise<void>;
}

export class Faults {
  readonly #store: Store;
  readonly #watches: Watches;
  readonly #listening: Listening;
  readonly #clock: Clock;
  readonly #active = new Set<ActiveFault>();

  constructor(store: Store, watches: Watches, listening: Listening, clock: Clock) {
    this.#store = store;
    this.#watches = watches;
    this.#listening = listening;
    this.#clock = clock;
  }

  failRequests(fault: RequestFault): () => void {
    const active: ActiveFault = { fault, left: fault.times ?? Number.POSITIVE_INFINITY, held: new Set() };
    this.#active.add(active);
    return () => this.#lift(active);
  }

  /** The connections of open watches break. Gives back how many there were. */
  cutWatches(filter: RequestFilter = {}): number {
    return this.#each(filter, (stream) => stream.cut());
  }

  /** Open watches end as if their time were up. */
  endWatches(filter: RequestFilter = {}): number {
    return this.#each(filter, (stream) => stream.end());
  }

  /**
   * Open watches stay open, and nothing more comes through them: no event, no bookmark, no end. Watches opened later
   * are not touched. The result lets them speak again, from where they were.
   */
  silenceWatches(filter: RequestFilter = {}): () => void {
    const silent = this.#watches.matching((request) => fits(filter, request));
    for (const stream of silent) stream.silence();
    return () => {
      for (const stream of silent) stream.speak();
    };
  }

  /**
   * Every version that a client holds is too old from now on, and so is every continue token. With `tellWatches`
   * open watches get the ERROR event and end; without it they go on.
   */
  expireHistory({ tellWatches = false }: { tellWatches?: boolean } = {}): void {
    const before = this.#store.version;
    this.#store.expireHistory();
    if (tellWatches) this.#each({}, (stream) => stream.fail(expired(before, this.#store.version)));
  }

  /**
   * One client loses the API server: its watches and its requests break (`reset`), or get no answer (`hang`, as
   * behind a firewall that drops packets). The result ends it.
   */
  isolate(client: string, how: 'reset' | 'hang' = 'reset'): () => void {
    const end = this.failRequests(how === 'reset' ? { client, reset: true } : { client, hang: true });
    if (how === 'reset') {
      this.cutWatches({ client });
      return end;
    }
    const silent = this.#watches.matching((request) => request.client === client);
    for (const stream of silent) stream.silence();
    // Packets that were dropped for so long do not arrive later: the connections are dead.
    return () => {
      end();
      for (const stream of silent) stream.cut();
    };
  }

  /** Nobody listens any more, and every connection is cut. */
  down(): Promise<void> {
    return this.#listening.close();
  }

  /** Listens again, on the same port. */
  up(): Promise<void> {
    return this.#listening.open();
  }

  /** Ends every fault of requests. */
  clear(): void {
    for (const active of this.#active) this.#lift(active);
  }

  /** What happens to this request; undefined when nothing does. Waits for the delay, and while it hangs. */
  async meet(request: SeenRequest, gone: AbortSignal): Promise<RequestFault | undefined> {
    const active = [...this.#active].find(({ fault, left }) => left > 0 && fits(fault, request));
    if (!active) return undefined;
    active.left -= 1;
    const { fault, held } = active;
    if (fault.delayMs !== undefined) await this.#clock.sleep(fault.delayMs, gone);
    if (fault.hang) {
      await new Promise<void>((resolve) => {
        held.add(resolve);
        gone.addEventListener('abort', () => resolve(), { once: true });
      });
    }
    return fault;
  }

  #lift(active: ActiveFault): void {
    this.#active.delete(active);
    for (const release of active.held) release();
    active.held.clear();
  }

  #each(filter: RequestFilter, act: (stream: ReturnType<Watches['matching']>[number]) => void): number {
    const found = this.#watches.matching((request) => fits(filter, request));
    for (const stream of found) act(stream);
    return found.length;
  }
}
