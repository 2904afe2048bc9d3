/**
 * The life of one pod on its node, as a kubelet leads it: Pending, then running and not ready, then ready; after a
 * crash the container starts anew under the same pod; asked to end, it runs preStop, then lets the container stop,
 * and removes the object. The grace period bounds all of that: when it is over the container is killed.
 *
 * The hooks are where the container's own work happens. One that throws is taken for a command that failed: the life
 * goes on.
 */
import type { Cluster } from './cluster.js';
import type { Pod } from './objects.js';
import { pods } from './resources.js';
import type { PodKeeper } from './terminations.js';

export interface AgentHooks {
  /** A container starts; it becomes ready some time after this is done. If it throws, the container starts again. */
  onStart?(pod: Pod): void | Promise<void>;
  /** The pod was asked to end, its container still works. The signal aborts when the grace period is over. */
  preStop?(pod: Pod, signal: AbortSignal): void | Promise<void>;
  /** The container is asked to end (SIGTERM), and has ended when this is done. */
  onStop?(pod: Pod, signal: AbortSignal): void | Promise<void>;
  /** The container ended without being asked: it crashed, or its time was up. */
  onKill?(pod: Pod): void;
}

export interface LifeOptions {
  /** From Pending to running. Default: 0. */
  startAfterMs?: number;
  /** From running to ready. */
  readyAfterMs: number;
  /** From a crash to running again. Default: 0. */
  restartAfterMs?: number;
  graceMs: number;
  hooks?: AgentHooks;
}

/** A container whose start fails is not started again at once, for ever. */
const failedStartMs = 1000;

export class PodLife implements PodKeeper {
  readonly graceMs: number;
  readonly #cluster: Cluster;
  readonly #name: string;
  #pod: Pod;
  readonly #where: { namespace: string };
  readonly #options: LifeOptions;
  readonly #giveBack: () => void;
  readonly #onOver: () => void;
  readonly #grace = new AbortController();
  #state: 'waiting' | 'running' | 'stopping' | 'over' = 'waiting';
  /** The container that runs now; aborted when it ends. */
  #container: AbortController | undefined;
  #cancelTimer = () => {};

  constructor(cluster: Cluster, pod: Pod, options: LifeOptions, onOver: () => void) {
    const { metadata } = pod;
    this.#pod = pod;
    this.graceMs = options.graceMs;
    this.#cluster = cluster;
    this.#name = metadata.name;
    this.#where = { namespace: metadata.namespace };
    this.#options = options;
    this.#onOver = onOver;
    this.#giveBack = cluster.internals.terminations.keep(metadata.uid, this);
    this.#later(options.startAfterMs ?? 0, () => this.#start());
  }

  /** False when no container runs that could crash. */
  crash(): boolean {
    if (this.#state !== 'running') return false;
    this.#restartAfter(this.#options.restartAfterMs ?? 0);
    return true;
  }

  onTerminating(): void {
    if (this.#state === 'stopping' || this.#state === 'over') return;
    this.#state = 'stopping';
    this.#cancelTimer();
    void this.#stopGracefully();
  }

  onDeadline(): void {
    this.#grace.abort();
    const isKilled = this.#kill();
    this.#leave(isKilled ? 'Failed' : 'Succeeded');
  }

  /** Removed by force: nothing waits for the container any more. */
  onRemoved(): void {
    if (this.#state === 'over') return;
    this.#end();
    this.#kill();
  }

  /** The node goes away: nothing more happens to the pod. */
  abandon(): void {
    this.#giveBack();
    this.#end();
  }

  #start(): void {
    this.#state = 'running';
    const pod = this.#cluster.pods.start(this.#name, this.#where);
    const container = new AbortController();
    this.#container = container;
    void this.#becomeReady(pod, container.signal);
  }

  async #becomeReady(pod: Pod, ended: AbortSignal): Promise<void> {
    try {
      await this.#options.hooks?.onStart?.(pod);
    } catch {
      if (!ended.aborted && this.#state === 'running') {
        this.#restartAfter(Math.max(this.#options.restartAfterMs ?? 0, failedStartMs));
      }
      return;
    }
    if (ended.aborted || this.#state !== 'running') return;
    this.#later(this.#options.readyAfterMs, () => this.#cluster.pods.setReady(this.#name, true, this.#where));
  }

  #restartAfter(ms: number): void {
    this.#cancelTimer();
    this.#kill();
    this.#state = 'waiting';
    this.#cluster.pods.stopContainer(this.#name, this.#where);
    if (ms > 0) this.#cluster.pods.backOff(this.#name, this.#where);
    this.#later(ms, () => this.#start());
  }

  async #stopGracefully(): Promise<void> {
    const { signal } = this.#grace;
    const { hooks = {} } = this.#options;
    for (const step of ['preStop', 'onStop'] as const) {
      if (!this.#container || signal.aborted) break;
      try {
        await hooks[step]?.(this.#look(), signal);
      } catch {
        // A preStop that fails does not keep a container alive.
      }
    }
    if (signal.aborted || this.#state !== 'stopping') return;
    this.#container?.abort();
    this.#container = undefined;
    this.#leave('Succeeded');
  }

  /** The kubelet's last word on the pod, then its removal. */
  #leave(phase: 'Succeeded' | 'Failed'): void {
    this.#end();
    this.#cluster.pods.finish(this.#name, phase, this.#where);
    this.#cluster.internals.registry.delete(pods, this.#where.namespace, this.#name, { graceMs: 0 });
  }

  /** The pod as it is now, or as it was last when it is gone already. */
  #look(): Pod {
    const found = this.#cluster.pods.get(this.#name, this.#where);
    if (found?.metadata.uid === this.#pod.metadata.uid) this.#pod = found;
    return this.#pod;
  }

  /** True when there was a container to kill. */
  #kill(): boolean {
    const container = this.#container;
    if (!container) return false;
    this.#container = undefined;
    container.abort();
    try {
      this.#options.hooks?.onKill?.(this.#look());
    } catch {
      // The container is dead all the same.
    }
    return true;
  }

  #end(): void {
    this.#state = 'over';
    this.#cancelTimer();
    this.#grace.abort();
    this.#onOver();
  }

  #later(ms: number, action: () => void): void {
    this.#cancelTimer();
    if (ms <= 0) action();
    else this.#cancelTimer = this.#cluster.clock.after(ms, action, { unref: true });
  }
}
