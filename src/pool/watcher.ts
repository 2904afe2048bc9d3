/**
 * Follows the changes of the pods: each reaches the store as soon as the source tells it. It goes on from the last
 * version it has seen, whatever ended the last watch; when that is too old it asks for a list and goes on from there.
 * One round is one watch; the loop around it starts the next.
 *
 * A pod that is said to be gone is looked for once more before its calls are ended: after a silence, another of its name
 * may be there for long, with a call that it was given meanwhile. Where that cannot be read, a list decides.
 */
import type { Clock } from '../clock.js';
import { type ClusterPod, interruptionOf, type PodSource, VersionExpired } from '../cluster/pods.js';
import { Interruption } from '../loop.js';
import type { Logger } from '../observe/log.js';
import { nothingPlaced, type Placer } from './placer.js';

/** A server that ends every watch at once is asked again after this long, not in a tight loop. */
const shortestWatchMs = 1000;
const mostLooks = 8;

export interface WatcherOptions {
  watch: NonNullable<PodSource['watch']>;
  read: PodSource['read'] | undefined;
  placer: Placer;
  clock: Clock;
  log: Logger;
  /** Asks for a list now instead of at its time. */
  relist(): void;
  /** A watch ended and is opened again: `closed` by the server, `expired`, or what `interruptionOf` says. */
  onReconnect?: ((reason: string) => void) | undefined;
}

export class Watcher {
  readonly #options: WatcherOptions;
  #version: string | undefined;
  #onVersion: ((version: string) => void) | undefined;
  #current = new AbortController();
  readonly #looks = new Set<Promise<void>>();
  /** What the write of a deletion met, beside the watch: it ends the round. */
  #failure: { error: unknown } | undefined;

  constructor(options: WatcherOptions) {
    this.#options = options;
  }

  /**
   * A list has been made true. A watch that lives knows as much and more, unless the versions start over: then it
   * waits for versions that a restored cluster will not reach for long, and begins anew.
   */
  listed(version: string, startsOver = false): void {
    if (this.#version !== undefined && !startsOver) return;
    this.#version = version;
    this.#current.abort();
    this.#onVersion?.(version);
  }

  async runOnce(
    epoch: string,
    signal: AbortSignal,
    alive?: (counts: Record<string, number>) => void,
  ): Promise<Record<string, number>> {
    const { watch, placer, clock, log, relist, onReconnect } = this.#options;
    const counts = { changes: 0 };
    let version = this.#version ?? (await this.#untilListed(signal));
    this.#current = new AbortController();
    this.#failure = undefined;
    const over = AbortSignal.any([signal, this.#current.signal]);
    const started = clock.monotonic();
    try {
      for await (const change of watch(version, over)) {
        if (over.aborted) break;
        if (change.pod) {
          if (change.pod.state === 'gone') await this.#lookForHeir(epoch, change.pod, signal);
          else await placer.follow(epoch, change.pod, nothingPlaced(), signal);
          counts.changes += 1;
        }
        if (over.aborted) break;
        // Only after the store has it: what fails in between is told again.
        version = change.version;
        this.#version = version;
        alive?.({ ...counts });
      }
      if (!over.aborted) onReconnect?.('closed');
    } catch (error) {
      if (!over.aborted) {
        const reason = error instanceof VersionExpired ? 'expired' : interruptionOf(error);
        if (reason !== undefined) onReconnect?.(reason);
        if (!(error instanceof VersionExpired))
          throw reason === undefined ? error : new Interruption(reason, error);
        log.info({ version }, 'the watch is too far behind: listing again');
        this.#version = undefined;
        relist();
      }
    } finally {
      await Promise.all(this.#looks);
    }
    if (this.#failure && !signal.aborted) throw (this.#failure as { error: unknown }).error;
    if (over.aborted) return counts;
    const lastedMs = clock.monotonic() - started;
    if (lastedMs < shortestWatchMs) await clock.sleep(shortestWatchMs - lastedMs, signal);
    return counts;
  }

  /** Beside the other changes, a few at a time: they do not wait for it. The placer knows which word is the last. */
  async #lookForHeir(epoch: string, pod: ClusterPod, signal: AbortSignal): Promise<void> {
    const { read, placer, log, relist } = this.#options;
    if (!read) return placer.follow(epoch, pod, nothingPlaced(), signal);
    while (this.#looks.size >= mostLooks) await Promise.race(this.#looks);
    const look = (async () => {
      let found: ClusterPod | undefined;
      try {
        found = await read(pod.name, signal);
      } catch (error) {
        if (signal.aborted) return;
        log.warn({ err: error, pod: pod.name }, 'pod deleted; replacement lookup failed');
        return relist();
      }
      try {
        await placer.follow(epoch, found ?? pod, nothingPlaced(), signal);
      } catch (error) {
        // The watch is past this event by now, so only a list repeats it.
        relist();
        this.#failure ??= { error };
        this.#current.abort();
      }
    })();
    this.#looks.add(look);
    void look.then(() => this.#looks.delete(look));
  }

  async #untilListed(signal: AbortSignal): Promise<string> {
    return new Promise((resolve) => {
      const done = (version: string) => {
        this.#onVersion = undefined;
        signal.removeEventListener('abort', giveUp);
        resolve(version);
      };
      const giveUp = () => done('');
      this.#onVersion = done;
      signal.addEventListener('abort', giveUp, { once: true });
      if (signal.aborted) giveUp();
    });
  }
}
