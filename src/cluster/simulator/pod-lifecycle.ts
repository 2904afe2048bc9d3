/**
 * The lifecycle of one pod on its node, as a kubelet runs it: Pending, running, ready; after a crash the container
 * starts again in the same pod; after a deletion preStop runs, the container stops, and the object is removed. When the
 * grace period is over the container is killed.
 *
 * The hooks are the container's own work. A hook that throws counts as a command that failed.
 */
import type { Cluster } from './cluster.js';
import type { Pod } from './objects.js';
import type { Kubelet } from './registry.js';

export interface AgentHooks {
  /** A container starts; it becomes ready some time after this resolves. If it throws, the container restarts. */
  onStart?(pod: Pod): void | Promise<void>;
  /** The pod is terminating, its container still runs. The signal aborts when the grace period is over. */
  preStop?(pod: Pod, signal: AbortSignal): void | Promise<void>;
  /** The container got SIGTERM; it has exited when this resolves. */
  onStop?(pod: Pod, signal: AbortSignal): void | Promise<void>;
  /** The container crashed, or was killed at the end of the grace period. */
  onKill?(pod: Pod): void;
}

export interface LifecycleOptions {
  /** From Pending to running. Default: 0. */
  startAfterMs?: number;
  /** From running to ready. */
  readyAfterMs: number;
  /** From a crash to running again. Default: 0. */
  restartAfterMs?: number;
  graceMs: number;
  hooks?: AgentHooks;
}

/** The minimum pause after a failed start. */
const failedStartMs = 1000;

export class PodLifecycle implements Kubelet {
  readonly graceMs: number;
  readonly #name: string;
  readonly #unregister: () => void;
  readonly #grace = new AbortController();
  #state: 'waiting' | 'running' | 'stopping' | 'ended' = 'waiting';
  /** The container that runs now; aborted when it ends. */
  #container: AbortController | undefined;
  #cancelTimer = () => {};

  constructor(
    private readonly cluster: Cluster,
    private pod: Pod,
    private readonly options: LifecycleOptions,
    private readonly onEnd: () => void,
  ) {
    this.graceMs = options.graceMs;
    this.#name = pod.metadata.name;
    this.#unregister = cluster.internals.registry.register(pod.metadata.uid, this);
    this.#later(options.startAfterMs ?? 0, () => this.#start());
  }

  /** Returns false when no container runs. */
  crash(): boolean {
    if (this.#state !== 'running') return false;
    this.#restartAfter(this.options.restartAfterMs ?? 0);
    return true;
  }

  onTerminating(): void {
    if (this.#state === 'stopping' || this.#state === 'ended') return;
    this.#state = 'stopping';
    this.#cancelTimer();
    void this.#stopGracefully();
  }

  onDeadline(): void {
    this.#grace.abort();
    const isKilled = this.#kill();
    this.#finish(isKilled ? 'Failed' : 'Succeeded');
  }

  /** The object was removed by force: the container is killed. */
  onRemoved(): void {
    if (this.#state === 'ended') return;
    this.#end();
    this.#kill();
  }

  /** Leaves the pod as it is. */
  abandon(): void {
    this.#unregister();
    this.#end();
  }

  #start(): void {
    this.#state = 'running';
    const pod = this.cluster.pods.start(this.#name);
    const container = new AbortController();
    this.#container = container;
    void this.#becomeReady(pod, container.signal);
  }

  async #becomeReady(pod: Pod, ended: AbortSignal): Promise<void> {
    try {
      await this.options.hooks?.onStart?.(pod);
    } catch {
      if (!ended.aborted && this.#state === 'running') {
        this.#restartAfter(Math.max(this.options.restartAfterMs ?? 0, failedStartMs));
      }
      return;
    }
    if (ended.aborted || this.#state !== 'running') return;
    this.#later(this.options.readyAfterMs, () => this.cluster.pods.setReady(this.#name, true));
  }

  #restartAfter(ms: number): void {
    this.#cancelTimer();
    this.#kill();
    this.#state = 'waiting';
    this.cluster.pods.stopContainer(this.#name);
    if (ms > 0) this.cluster.pods.backOff(this.#name);
    this.#later(ms, () => this.#start());
  }

  async #stopGracefully(): Promise<void> {
    const { signal } = this.#grace;
    const { hooks = {} } = this.options;
    for (const step of ['preStop', 'onStop'] as const) {
      if (!this.#container || signal.aborted) break;
      try {
        await hooks[step]?.(this.#current(), signal);
      } catch {
        // A failed preStop does not keep the container alive.
      }
    }
    if (signal.aborted || this.#state !== 'stopping') return;
    this.#container?.abort();
    this.#container = undefined;
    this.#finish('Succeeded');
  }

  /** Sets the final phase, then removes the object. */
  #finish(phase: 'Succeeded' | 'Failed'): void {
    this.#end();
    this.cluster.pods.finish(this.#name, phase);
    this.cluster.pods.remove(this.#name);
  }

  /** Returns the present pod, or its last state when it was removed. */
  #current(): Pod {
    const found = this.cluster.pods.get(this.#name);
    if (found?.metadata.uid === this.pod.metadata.uid) this.pod = found;
    return this.pod;
  }

  /** Returns false when no container runs. */
  #kill(): boolean {
    const container = this.#container;
    if (!container) return false;
    this.#container = undefined;
    container.abort();
    try {
      this.options.hooks?.onKill?.(this.#current());
    } catch {
      // The container is killed anyway.
    }
    return true;
  }

  #end(): void {
    this.#state = 'ended';
    this.#cancelTimer();
    this.#grace.abort();
    this.onEnd();
  }

  #later(ms: number, action: () => void): void {
    this.#cancelTimer();
    if (ms <= 0) action();
    else this.#cancelTimer = this.cluster.clock.after(ms, action, { unref: true });
  }
}
