/**
 * Follows the changes of the pods and writes each to the store at once. It resumes from the last version it has seen; when
 * that version is too old, it asks for a list and resumes from there. One round is one watch; the loop starts the next.
 *
 * A deleted pod is looked up once more before its calls end: after an interruption, another pod of its name may have
 * existed for long, with a call of its own. When the lookup fails, a list decides.
 */
import { abortWith, unlessAborted } from '../clock.js';
import { type ClusterPod, interruptionOf, type PodSource, VersionExpired } from '../cluster/pods.js';
import { InterruptedError } from '../loop.js';
import type { LeaderOptions } from './leader-options.js';
import { noWrites, type PodWriter } from './pod-writer.js';

/** The pause before the next watch on a server that ends every watch at once. */
const minWatchMs = 1000;
const maxLookups = 8;

export class Watcher {
  #version: string | undefined;
  #onVersion = (_version: string) => {};
  #current = new AbortController();
  readonly #lookups = new Set<Promise<void>>();
  /** The failed write of a deletion, beside the watch: it ends the round. */
  #failure: { error: unknown } | undefined;

  /** `relist` lists now instead of at the end of the interval. */
  constructor(
    private readonly options: Pick<LeaderOptions, 'clock' | 'log' | 'onReconnect'> & {
      source: Pick<PodSource, 'watch' | 'read'>;
    },
    private readonly writer: PodWriter,
    private readonly relist: () => void,
  ) {}

  /**
   * A list was applied. A running watch is at least as new, unless the versions start over: then it waits for versions
   * that the restored cluster will not reach for long, and has to be reopened.
   */
  listed(version: string, startsOver = false): void {
    if (this.#version !== undefined && !startsOver) return;
    this.#version = version;
    this.#current.abort();
    this.#onVersion(version);
  }

  async runOnce(
    epoch: string,
    signal: AbortSignal,
    alive?: (counts: Record<string, number>) => void,
  ): Promise<Record<string, number>> {
    const { source, clock, log, onReconnect } = this.options;
    const writer = this.writer;
    const counts = { changes: 0 };
    let version = this.#version ?? (await unlessAborted(this.#nextList(), signal)) ?? '';
    this.#current = new AbortController();
    this.#failure = undefined;
    const over = this.#current.signal;
    const unlink = abortWith(this.#current, signal);
    const started = clock.monotonic();
    try {
      for await (const change of source.watch?.(version, over) ?? []) {
        if (over.aborted) break;
        if (change.pod) {
          if (change.pod.state === 'gone') await this.#handleDeletion(epoch, change.pod, signal);
          else await writer.writeChange(epoch, change.pod, noWrites(), signal);
          counts.changes += 1;
        }
        if (over.aborted) break;
        // Only after the store has it: a change that failed is repeated.
        version = change.version;
        this.#version = version;
        writer.sawVersion(version);
        alive?.({ ...counts });
      }
      if (!over.aborted) onReconnect?.('closed');
    } catch (error) {
      if (!over.aborted) {
        const reason = error instanceof VersionExpired ? 'expired' : interruptionOf(error);
        if (reason !== undefined) onReconnect?.(reason);
        if (!(error instanceof VersionExpired))
          throw reason === undefined ? error : new InterruptedError(reason, error);
        log.info({ version }, 'watch version expired; listing again');
        this.#version = undefined;
        this.relist();
      }
    } finally {
      unlink();
      await Promise.all(this.#lookups);
    }
    if (this.#failure && !signal.aborted) throw (this.#failure as { error: unknown }).error;
    if (over.aborted) return counts;
    const lastedMs = clock.monotonic() - started;
    if (lastedMs < minWatchMs) await clock.sleep(minWatchMs - lastedMs, signal);
    return counts;
  }

  /** Runs beside the other changes, a few at a time. The writer drops outdated ones. */
  async #handleDeletion(epoch: string, pod: ClusterPod, signal: AbortSignal): Promise<void> {
    const { source, log } = this.options;
    if (!source.read) return this.writer.writeChange(epoch, pod, noWrites(), signal);
    while (this.#lookups.size >= maxLookups) await Promise.race(this.#lookups);
    const lookup = (async () => {
      let found: ClusterPod | undefined;
      try {
        found = await source.read?.(pod.name, signal);
      } catch (error) {
        if (signal.aborted) return;
        log.warn({ err: error, pod: pod.name }, 'pod deleted; replacement lookup failed');
        return this.relist();
      }
      try {
        await this.writer.writeChange(epoch, found ?? pod, noWrites(), signal);
      } catch (error) {
        // The watch is past this event, so only a list repeats it.
        this.relist();
        this.#failure ??= { error };
        this.#current.abort();
      }
    })();
    this.#lookups.add(lookup);
    void lookup.then(() => this.#lookups.delete(lookup));
  }

  #nextList(): Promise<string> {
    return new Promise((resolve) => {
      this.#onVersion = resolve;
    });
  }
}
