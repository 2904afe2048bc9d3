/**
 * The cluster as routers see it: pods with versions, a list, a watch that may end, err or be too old, and the Lease.
 * Its replies may be late, lost, or outdated.
 */
import {
  type ClusterPod,
  type PodChange,
  type PodList,
  type PodSource,
  VersionExpired,
} from '../../src/cluster/pods.js';
import type { SeededRandom } from '../../src/demo/seeded-random.js';
import type { HeldRecord, LeaseLock, LockRecord } from '../../src/leadership/leadership.js';
import type { Process } from './time.js';

export interface ApiTrouble {
  /** Chance that a request fails, or that its answer is lost although it was done. */
  failure: number;
  loss: number;
  /** Chance that an answer comes late, and how late. */
  slow: number;
  slowMs: number;
  /**
   * Chance that a list is some changes behind, for a client that has seen newer ones: a client that has seen none cannot
   * tell, and to those the cluster promises the present.
   */
  stale: number;
  isDown: boolean;
  /** Watches stand, and nothing comes through them until it is over. */
  isSilent: boolean;
}
export const noApiTrouble: ApiTrouble = {
  failure: 0,
  loss: 0,
  slow: 0,
  slowMs: 0,
  stale: 0,
  isDown: false,
  isSilent: false,
};

/** The number of changes that a watch can replay. */
const keptChanges = 50;
const requestTimeoutMs = 10_000;
/** How many changes a stale list may be behind: with six pods, the loss of one and its successor are three. */
const maxBehind = 8;

export class Cluster {
  #trouble: ApiTrouble = noApiTrouble;
  readonly #pods = new Map<string, ClusterPod>();
  #changes: { version: number; pod: ClusterPod }[] = [];
  #version = 1;
  /** What lists showed before each of the last changes. */
  #past: PodList[] = [];
  #lease: HeldRecord | undefined;
  #leaseVersion = 0;
  readonly #watchers = new Set<() => void>();
  /** Watches continue from here; older ones must list again. */
  #forgottenUpTo = 0;

  get trouble(): ApiTrouble {
    return this.#trouble;
  }

  set trouble(trouble: ApiTrouble) {
    this.#trouble = trouble;
    this.#ring();
  }

  get pods(): ClusterPod[] {
    return [...this.#pods.values()];
  }

  get version(): string {
    return String(this.#version);
  }

  pod(name: string): ClusterPod | undefined {
    return this.#pods.get(name);
  }

  put(pod: Omit<ClusterPod, 'version'>): void {
    this.#past = [...this.#past, this.#list()].slice(-maxBehind);
    this.#version += 1;
    const whole: ClusterPod = { ...pod, version: String(this.#version) };
    if (whole.state === 'gone') this.#pods.delete(whole.name);
    else this.#pods.set(whole.name, whole);
    this.#changes.push({ version: this.#version, pod: whole });
    if (this.#changes.length > keptChanges) this.#forgottenUpTo = this.#changes.shift()?.version ?? 0;
    this.#ring();
  }

  /** Every watch that is not at the newest version gets 410. */
  compact(): void {
    this.#forgottenUpTo = this.#version;
    this.#changes = [];
    this.#ring();
  }

  /** Every watch ends. */
  cutWatches(): void {
    this.#cuts += 1;
    this.#ring();
  }
  #cuts = 0;

  /** By an operator, who wants another leader at once. */
  deleteLease(): void {
    this.#lease = undefined;
  }

  /** A new leader does not know the versions of an earlier term. */
  beginTerm({ name }: Process): void {
    this.#told.delete(name);
  }
  /** The newest version that each leader has seen. */
  readonly #told = new Map<string, number>();

  #tell({ name }: Process, version: number): void {
    this.#told.set(name, Math.max(version, this.#told.get(name) ?? 0));
  }

  source(process: Process, random: SeededRandom): PodSource {
    const ask = <T>(act: () => T) => this.#ask(process, random, requestTimeoutMs, act);
    return {
      name: 'simulated',
      list: async () => {
        const list = await ask(() => {
          const isStale = random.next() < this.trouble.stale && this.#past.length > 0;
          const past = isStale ? random.pick(this.#past) : undefined;
          return past && Number(past.version) < (this.#told.get(process.name) ?? 0) ? past : this.#list();
        });
        this.#tell(process, Number(list.version));
        return list;
      },
      exists: (name) => ask(() => this.#pods.has(name)),
      read: (name) => ask(() => this.#pods.get(name)),
      watch: (version, signal) => this.#watch(process, random, version, signal),
    };
  }

  lock(process: Process, random: SeededRandom): LeaseLock {
    const ask = <T>(timeoutMs: number, act: () => T) => this.#ask(process, random, timeoutMs, act);
    return {
      description: 'a simulated Lease',
      read: (timeoutMs) => ask(timeoutMs, () => this.#lease),
      write: (record: LockRecord, version, timeoutMs) =>
        ask(timeoutMs, () => {
          if (this.#lease?.version !== version) return undefined;
          this.#leaseVersion += 1;
          this.#lease = { ...record, version: String(this.#leaseVersion) };
          return this.#lease;
        }),
    };
  }

  #list(): PodList {
    return { pods: this.pods, version: this.version };
  }

  async #ask<T>(process: Process, random: SeededRandom, timeoutMs: number, act: () => T): Promise<T> {
    const { failure, loss, slow, slowMs, isDown } = this.trouble;
    const { clock } = process;
    const fails = random.next() < failure;
    const isLost = random.next() < loss;
    const isSlow = random.next() < slow;
    const outMs = 1 + random.next() * 4;
    const backMs = 1 + random.next() * 4 + (isSlow ? random.next() * slowMs : 0);
    return new Promise<T>((resolve, reject) => {
      let isOver = false;
      const end = (finish: () => void) => () =>
        process.enter(() => {
          if (isOver) return;
          isOver = true;
          stop();
          finish();
        });
      const stop = clock.after(
        timeoutMs,
        end(() => reject(new Error(`no answer within ${timeoutMs} ms`))),
      );
      process.time.after(outMs, () => {
        if (isDown || this.trouble.isDown) return;
        if (fails)
          process.time.after(
            backMs,
            end(() => reject(new Error('500 Internal Server Error'))),
          );
        else {
          const result = act();
          if (!isLost)
            process.time.after(
              backMs,
              end(() => resolve(result)),
            );
        }
      });
    });
  }

  async *#watch(
    process: Process,
    random: SeededRandom,
    version: string,
    signal: AbortSignal,
  ): AsyncGenerator<PodChange> {
    await this.#ask(process, random, requestTimeoutMs, () => undefined);
    const cuts = this.#cuts;
    let at = Number(version);
    while (!signal.aborted) {
      if (this.#cuts !== cuts || this.trouble.isDown) {
        if (random.next() < 0.5) return;
        throw new Error('read ECONNRESET');
      }
      if (at < this.#forgottenUpTo) throw new VersionExpired('too old resource version');
      if (this.trouble.isSilent) {
        await this.#bell(process, signal);
        continue;
      }
      for (const change of this.#changes.filter((one) => one.version > at)) {
        await process.clock.sleep(1 + random.next() * 5, signal);
        at = change.version;
        this.#tell(process, at);
        yield { version: String(at), pod: change.pod };
      }
      if (at < this.#version && this.#changes.every((one) => one.version <= at)) at = this.#version;
      // What came while the last ones were handed over.
      if (!this.#changes.some((one) => one.version > at)) await this.#bell(process, signal);
    }
  }

  /** Until something changes, or for a while. */
  async #bell(process: Process, signal: AbortSignal): Promise<void> {
    const woken = new AbortController();
    const wake = () => process.enter(() => woken.abort());
    this.#watchers.add(wake);
    signal.addEventListener('abort', wake, { once: true });
    await process.clock.sleep(30_000, woken.signal);
    signal.removeEventListener('abort', wake);
    this.#watchers.delete(wake);
  }

  #ring(): void {
    for (const wake of [...this.#watchers]) wake();
  }
}
