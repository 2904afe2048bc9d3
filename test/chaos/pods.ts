/**
 * The pods of the cluster, as a StatefulSet and a kubelet would lead them: what ends a container ends its agent first, so
 * that no guarantee covers a call that has ended. Every action ends when its pod is ready again.
 */
import type { Cluster } from '../support/cluster.js';
import type { Agents } from './agents.js';
import type { CallHistory } from './call-history.js';
import { wait } from './child.js';
import type { Answer, Router } from './routers.js';
import { podNames, times } from './times.js';

/** A real kubelet kills after this time, with or without live calls. */
const rollPatienceMs = 10_000;
const becomesReadyMs = times.agentStartsMs + 200;

export class Pods {
  constructor(
    private readonly cluster: Cluster,
    private readonly agents: Agents,
    private readonly routers: readonly Router[],
    private readonly history: CallHistory,
  ) {}

  async bearAll(): Promise<void> {
    await Promise.all(podNames.map((name) => this.bear(name)));
  }

  async bear(name: string): Promise<void> {
    const { metadata } = this.cluster.pods.create({ name, ready: false });
    this.agents.start(name, metadata.uid);
    await wait(becomesReadyMs);
    this.cluster.pods.setReady(name, true);
  }

  /** Killed without a drain; another pod of the same name starts after a while, or at once. */
  async lose(name: string, goneMs: number): Promise<void> {
    this.agents.end(name, 'its pod was deleted');
    this.cluster.pods.remove(name, { graceMs: 0 });
    if (goneMs > 0) await wait(goneMs);
    await this.bear(name);
  }

  async restartContainer(name: string, downMs: number): Promise<void> {
    const uid = this.cluster.pods.get(name)?.metadata.uid ?? '';
    this.agents.end(name, 'its container ended');
    this.cluster.pods.stopContainer(name);
    await wait(downMs);
    this.cluster.pods.start(name);
    this.agents.start(name, uid);
    await wait(becomesReadyMs);
    this.cluster.pods.setReady(name, true);
  }

  /** So quickly that no watch sees it down, and ready before its agent listens. */
  async restartAtOnce(name: string): Promise<void> {
    const uid = this.cluster.pods.get(name)?.metadata.uid ?? '';
    this.agents.end(name, 'its container ended');
    this.cluster.pods.restartContainer(name);
    this.agents.start(name, uid);
    await wait(becomesReadyMs);
  }

  setReady(name: string, isReady: boolean): void {
    this.cluster.pods.setReady(name, isReady);
  }

  /** A rolling update: drained with patience, ended, replaced. */
  async roll(name: string): Promise<void> {
    this.cluster.pods.remove(name, { graceMs: 2 * rollPatienceMs });
    const life = this.agents.lives.get(name);
    const deadlineMs = Date.now() + rollPatienceMs;
    while (Date.now() < deadlineMs) {
      await this.drain(name, life?.uid);
      if (!life || life.serving.size + life.awaited.size === 0) break;
      await wait(500);
    }
    await this.lose(name, 300);
  }

  /** The guarantee starts with the reply, and only if the reply was about the current pod. */
  async drain(name: string, uid?: string): Promise<void> {
    const life = this.agents.lives.get(name);
    const isKnown = life?.isKnown === true;
    const sentMs = Date.now();
    const { status } = await this.#ask('/api/v1/drain', { pod_name: name, uid });
    if (status === 200 && life && isKnown && life.isAlive && !this.history.isLost(sentMs))
      this.history.drained(name, life.uid);
  }

  /** Retries until a router confirms it, or the pod is unknown. */
  async undrain(name: string): Promise<void> {
    this.history.undrained(name);
    for (const startMs = Date.now(); Date.now() < startMs + times.healedWithinMs; await wait(200)) {
      const { status } = await this.#ask('/api/v1/undrain', { pod_name: name });
      if (status === 200 || status === 404) return;
    }
    this.history.violated(`the drain of ${name} did not end within ${times.healedWithinMs} ms`);
  }

  #ask(path: string, body: unknown): Promise<Answer> {
    const router = this.routers[Math.floor(Date.now() / 7) % this.routers.length] as Router;
    return router.post(path, body);
  }
}
