/**
 * Waiting calls, their order and the limits of merchants, as the model knows them.
 *
 * The order is predicted exactly. Which of several free pods a call gets is not: like SPOP, the order in which a script visits
 * pods is the store's. `placed` says where the store has put the calls, and the model checks that it could.
 */
import type { Allocation, HoldRules, Waiting } from '../../../src/calls/store/store.js';
import type { QueueRules } from '../../../src/calls/store/wait-store.js';
import type { PoolId } from '../../../src/config/tiers.js';
import { parseKind } from '../invariants.js';
import { inOrder, type ModelPod, ModelState } from './state.js';

export interface ModelWait {
  queue: string;
  merchant: string;
  sinceMs: number;
  untilMs: number;
  /** When it counts as abandoned. */
  dueMs: number;
}

export interface ModelQueue {
  name: string;
  chain: PoolId[] | undefined;
  priority: number;
  weight: number;
  tag: number;
  /** Call to its arrival. */
  calls: Map<string, number>;
  isListed: boolean;
}

export class ModelWaits extends ModelState {
  readonly waits = new Map<string, ModelWait>();
  /** Released while they waited: until when they cannot wait again. */
  readonly releasedWaits = new Map<string, number>();
  readonly queues = new Map<string, ModelQueue>();
  readonly limits = new Map<string, number>();
  readonly limited = new Map<string, Set<string>>();
  /** Every call that the store has on a pod. */
  readonly placed = new Map<string, { pod: string; fence: number }>();
  /** Every call that waits in the store. */
  readonly stillWaiting = new Set<string>();
  /** What no answer shows. */
  problems: string[] = [];
  /** Pool and priority to the highest start tag served. */
  readonly #served = new Map<string, number>();
  readonly #freed = new Set<string>();
  #arrivals = 0;

  queue(name: string): ModelQueue {
    const known = this.queues.get(name);
    const queue = known ?? {
      ...{ name, chain: undefined, priority: 0, weight: 1, tag: 0 },
      ...{ calls: new Map<string, number>(), isListed: false },
    };
    this.queues.set(name, queue);
    return queue;
  }

  isAtLimit(merchant: string): boolean {
    return (this.limited.get(merchant)?.size ?? 0) >= (this.limits.get(merchant) ?? Number.POSITIVE_INFINITY);
  }

  #list(name: string, enters = false): void {
    const queue = this.queue(name);
    if (queue.calls.size === 0 || this.isAtLimit(name)) {
      queue.isListed = false;
      if (this.waits.size === 0) this.#served.clear();
      return;
    }
    if (enters) {
      const served = (queue.chain ?? []).flatMap(
        (pool) => this.#served.get(`${pool} ${queue.priority}`) ?? [],
      );
      const least = served.length > 0 ? Math.min(...served) : 0;
      queue.tag = Math.min(Math.max(queue.tag, least), least + 1000 / queue.weight);
    }
    queue.isListed = true;
  }

  /** The queue that gets the next pod of a pool: the highest priority, then the lowest finish tag. */
  #next(pool: PoolId): ModelQueue | undefined {
    return [...this.queues.values()]
      .filter(({ isListed, chain }) => isListed && chain?.includes(pool))
      .sort((a, b) => b.priority - a.priority || endOf(a) - endOf(b) || (a.name < b.name ? -1 : 1))[0];
  }

  protected enter(
    sid: string,
    merchant: string,
    hold: HoldRules,
    chain: readonly PoolId[],
  ): Waiting | 'queue_full' {
    const queue = this.queue(hold.queue);
    if (queue.calls.size >= hold.maxWaiting) return 'queue_full';
    const dueMs = this.now + Math.min(hold.maxWaitMs, 3 * this.times.holdPollIntervalMs);
    const untilMs = this.now + hold.maxWaitMs;
    this.waits.set(sid, { queue: hold.queue, merchant, sinceMs: this.now, untilMs, dueMs });
    const isFirst = queue.calls.size === 0;
    queue.calls.set(sid, this.#arrivals++);
    if (isFirst) {
      Object.assign(queue, { chain: [...chain], priority: hold.priority, weight: hold.weight });
      this.#list(queue.name, true);
    }
    return this.describe(sid);
  }

  protected describe(sid: string): Waiting {
    const { queue, sinceMs, untilMs } = this.waits.get(sid) as ModelWait;
    return { position: this.inQueue(queue).indexOf(sid) + 1, sinceMs, untilMs };
  }

  inQueue(name: string): string[] {
    return inOrder(this.queue(name).calls).map(([sid]) => sid);
  }

  /** Undefined: its wait has expired. */
  protected askAgain(sid: string): Waiting | undefined {
    const wait = this.waits.get(sid) as ModelWait;
    if (wait.untilMs <= this.now) {
      this.endWait(sid);
      return undefined;
    }
    wait.dueMs = Math.min(wait.untilMs, this.now + 3 * this.times.holdPollIntervalMs);
    return this.describe(sid);
  }

  protected endWait(sid: string): void {
    const { queue } = this.waits.get(sid) as ModelWait;
    this.waits.delete(sid);
    this.queue(queue).calls.delete(sid);
    this.#list(queue);
    this.tombstones.set(sid, this.now + this.times.reportGraceMs);
  }

  protected override endCall(sid: string, pod: ModelPod): void {
    const merchant = this.records.get(sid)?.limited;
    super.endCall(sid, pod);
    if (merchant === undefined) return;
    this.limited.get(merchant)?.delete(sid);
    this.#list(merchant, true);
    this.#freed.add(merchant);
  }

  protected override settle(pod: ModelPod): void {
    const { kind, max } = parseKind(this.pools.get(pod.pool));
    if (kind && this.blockOf(pod) === '') this.#handOver(pod, max);
    super.settle(pod);
  }

  #handOver(pod: ModelPod, max: number): void {
    for (;;) {
      const queue = pod.calls.size < max ? this.#next(pod.pool) : undefined;
      const [sid] = queue ? this.inQueue(queue.name) : [];
      const wait = this.waits.get(sid ?? '');
      if (!queue || sid === undefined || !wait) return;
      if (wait.untilMs <= this.now) this.endWait(sid);
      else if (queue.name === '' && this.isAtLimit(wait.merchant)) this.#move(sid, queue, wait);
      else this.#assign(sid, queue, wait, pod);
    }
  }

  #move(sid: string, from: ModelQueue, wait: ModelWait): void {
    const to = this.queue(wait.merchant);
    to.chain ??= from.chain;
    to.calls.set(sid, from.calls.get(sid) ?? 0);
    from.calls.delete(sid);
    wait.queue = to.name;
    this.#list(from.name);
  }

  #assign(sid: string, queue: ModelQueue, { merchant, sinceMs }: ModelWait, pod: ModelPod): void {
    const placed = this.placed.get(sid);
    if (placed?.pod !== pod.name)
      this.problems.push(`gave ${sid} of queue '${queue.name}' ${placed?.pod ?? 'nothing'}, not ${pod.name}`);
    const fence = placed?.fence ?? 0;
    if (fence <= this.lastFence)
      this.problems.push(`handed over with fence ${fence} after ${this.lastFence}`);
    this.lastFence = Math.max(this.lastFence, fence);
    this.hold(sid, pod, this.now + this.times.holdClaimTtlMs);
    const isLimited = this.limits.has(merchant);
    this.records.set(sid, {
      ...{ pod: pod.name, pool: pod.pool, fence, allocatedAt: new Date(this.now).toISOString() },
      ...{ claimed: false, renewed: false, missingSince: undefined, merchant },
      ...{ limited: isLimited ? merchant : undefined, isAssigned: true, waitedMs: this.now - sinceMs },
    });
    if (isLimited) this.count(sid, merchant);
    if (isLimited && merchant !== queue.name) this.#list(merchant);
    this.waits.delete(sid);
    queue.calls.delete(sid);
    for (const pool of queue.chain ?? []) {
      const key = `${pool} ${queue.priority}`;
      this.#served.set(key, Math.max(this.#served.get(key) ?? 0, queue.tag));
    }
    queue.tag = endOf(queue);
    this.#list(queue.name);
  }

  protected count(sid: string, merchant: string): void {
    this.limited.set(merchant, (this.limited.get(merchant) ?? new Set()).add(sid));
  }

  /** An allocated call counts for the limit of its merchant. */
  protected countAllocated(sid: string, merchant: string): void {
    this.count(sid, merchant);
    this.#list(merchant);
  }

  protected hasRoom(merchant: string): boolean {
    if (!this.isAtLimit(merchant)) return true;
    for (const sid of [...(this.limited.get(merchant) ?? [])].sort()) {
      const pod = this.pods.get(this.records.get(sid)?.pod ?? '');
      if (pod && (pod.calls.get(sid) ?? 0) <= this.now) this.reclaim(sid, pod.pool);
    }
    this.serveFreed();
    return !this.isAtLimit(merchant);
  }

  /** The pods in the order in which the store gave them to waiting calls, then the others. */
  protected asServed(pods: readonly ModelPod[]): ModelPod[] {
    const first = (pod: ModelPod) =>
      Math.min(...this.#news().flatMap(([fence, name]) => (name === pod.name ? [fence] : [])));
    return [...pods].sort((a, b) => (first(a) === first(b) ? 0 : first(a) - first(b)));
  }

  /** Hand-overs of the store that the model has not made yet, the earliest first. */
  #news(): [fence: number, pod: string][] {
    return [...this.placed]
      .flatMap(([sid, { pod, fence }]): [number, string][] => (this.waits.has(sid) ? [[fence, pod]] : []))
      .sort(([a], [b]) => a - b);
  }

  /** The pod that the store took to serve the pool: one that got a call, or one that found only expired waits. */
  #taken(pool: PoolId): string | undefined {
    const { max } = parseKind(this.pools.get(pool));
    const able = this.podsOf(pool).filter((pod) => this.blockOf(pod) === '' && pod.calls.size < max);
    const [, given] = this.#news()[0] ?? [];
    if (able.some(({ name }) => name === given)) return given;
    const [first = ''] = this.inQueue(this.#next(pool)?.name ?? '');
    const isTaken = (pod: ModelPod) =>
      pod.listed === 'yes' || (pod.listed === 'maybe' && !this.stillWaiting.has(first));
    return able.filter(isTaken).sort((a, b) => a.calls.size - b.calls.size)[0]?.name;
  }

  protected servePool(pool: PoolId): void {
    const { kind } = parseKind(this.pools.get(pool));
    while (kind && this.#next(pool)) {
      const podName = this.#taken(pool) ?? '';
      const pod = this.take(pool, { sourcePool: pool, podName } as Allocation, this.problems);
      if (pod) {
        this.settle(pod);
        continue;
      }
      const setBack = this.takeSetBack(pool);
      if (!setBack) return;
      this.#handOver(setBack, setBack.calls.size + 1);
      this.settle(setBack);
    }
  }

  protected serveQueue(name: string, enters = false): void {
    if (enters) this.#list(name, true);
    for (const pool of this.queue(name).chain ?? []) this.servePool(pool);
  }

  protected serveFreed(): void {
    const freed = [...this.#freed];
    this.#freed.clear();
    for (const merchant of freed) this.serveQueue(merchant);
  }

  /** Gives calls that wait the pods that are set back, and then this call what is left. */
  protected takeLast(pools: readonly PoolId[]): ModelPod | undefined {
    for (;;) {
      const pod = pools.map((pool) => this.takeSetBack(pool)).find(Boolean);
      if (!pod || !this.#next(pod.pool)) return pod;
      const before = this.waits.size;
      this.servePool(pod.pool);
      if (this.waits.size === before) return undefined;
    }
  }

  refresh(sids: readonly string[]): string[] {
    return sids.filter((sid) => {
      const wait = this.waits.get(sid);
      if (wait) wait.dueMs = Math.min(wait.untilMs, this.now + 3 * this.times.holdPollIntervalMs);
      return !wait;
    });
  }

  serve(changed: readonly QueueRules[]): Record<'expired' | 'abandoned' | 'recovered' | 'waiting', number> {
    const total = { expired: 0, abandoned: 0, recovered: 0, waiting: 0 };
    if (this.waits.size === 0) return total;
    const due = new Map([...this.waits].map(([sid, { dueMs }]) => [sid, dueMs]));
    for (const [sid, dueMs] of inOrder(due)) {
      if (dueMs > this.now) continue;
      if ((this.waits.get(sid)?.untilMs ?? 0) <= this.now) total.expired++;
      else total.abandoned++;
      this.endWait(sid);
    }
    for (const [name, until] of inOrder(this.drains)) {
      if (until > this.now) continue;
      this.drains.delete(name);
      this.settle(this.pod(name));
    }
    for (const { queue: name, chain, priority, weight } of changed) {
      const queue = this.queue(name);
      queue.isListed = false;
      Object.assign(queue, { chain: chain.split(' ') as PoolId[], priority, weight });
      this.#list(name, true);
    }
    const looked = new Set<PoolId>();
    const queues = [...this.queues.values()].filter(({ calls }) => calls.size > 0);
    for (const { name, chain } of queues.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      this.hasRoom(name);
      this.#list(name);
      for (const pool of chain ?? []) {
        if (looked.has(pool)) continue;
        looked.add(pool);
        for (const sid of this.expired(pool)) total.recovered += this.reclaim(sid, pool);
        this.servePool(pool);
      }
    }
    this.serveFreed();
    return { ...total, waiting: this.waits.size };
  }

  setLimit(merchant: string, max: number | undefined): void {
    if (max === this.limits.get(merchant)) return;
    if (max === undefined) {
      this.limits.delete(merchant);
      this.limited.delete(merchant);
    } else {
      for (const [sid, record] of this.limits.has(merchant) ? [] : this.records) {
        if (record.merchant !== merchant) continue;
        record.limited = merchant;
        this.count(sid, merchant);
      }
      this.limits.set(merchant, max);
    }
    this.serveQueue(merchant, true);
  }
}

function endOf({ tag, weight }: ModelQueue): number {
  return tag + 1000 / weight;
}
