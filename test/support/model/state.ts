/**
 * What the model knows, and the steps that its operations are made of.
 *
 * The truth (pods, calls, deadlines, marks) is predicted exactly. Membership in `available` is known as yes, no
 * or maybe: after a write by hand, the order in which a random SPOP meets bad members decides what
 * is left of them. A pod that is surely available must be allocated, one that may be can be, and no other.
 */
import type { Allocation, LeaseTimes } from '../../../src/calls/store/store.js';
import type { PoolId } from '../../../src/config/tiers.js';
import { parseKind } from '../invariants.js';

export interface ModelPod {
  name: string;
  pool: PoolId;
  uid: string;
  /** Until when; Infinity for a mark by hand. */
  drain: number | undefined;
  /** When it was last drained through us. */
  drainedAt: string | undefined;
  suspended: string;
  mustReport: boolean;
  /** A failover marked it then; `isSeen`: one report of an unknown time has come since. */
  marked?: { atMs: number; isSeen: boolean } | undefined;
  lastReport?: { asOfMs: number; atMs: number; uid: string } | undefined;
  restarts: number | undefined;
  /** Failed calls in a row; undefined: no call of it has ended. */
  failures: number | undefined;
  /** How often it was set back in that row. */
  setBacks: number;
  calls: Map<string, number>;
  listed: 'yes' | 'no' | 'maybe';
}

export interface ModelRecord {
  pod: string;
  pool: PoolId;
  fence: number;
  allocatedAt: string;
  claimed: boolean;
  /** Its pod renewed or reported it. */
  renewed: boolean;
  missingSince: number | undefined;
  /** When the first report since the failover without it was written. */
  omittedAt?: number | undefined;
  merchant: string;
  /** The merchant whose limit counts it. */
  limited: string | undefined;
  /** It was handed over, and its caller has not picked it up. */
  isAssigned: boolean;
  waitedMs: number | undefined;
}

export class ModelState {
  now = 0;
  lastFence = 0;
  readonly pools = new Map<PoolId, string>();
  readonly pods = new Map<string, ModelPod>();
  readonly records = new Map<string, ModelRecord>();
  readonly tombstones = new Map<string, number>();
  /** By the removal brake, and those of them that an operator has given up. */
  readonly held = new Set<string>();
  confirmed = new Set<string>();
  readonly index = new Map<PoolId, Map<string, number>>();

  /** The last report of each pod, and after how long without one it is silent. */
  readonly reports = new Map<string, { atMs: number; boundMs: number; isBlocked: boolean }>();
  /** Until when pods cool off. */
  readonly flapping = new Map<string, number>();
  /** When drains that were set through us end. */
  readonly drains = new Map<string, number>();
  /** Since when silence counts. */
  silenceSince = 0;
  /** When the generation of the store began. */
  generationAt = 0;

  constructor(readonly times: LeaseTimes) {}

  get #latestReport(): number {
    return Math.max(0, ...[...this.reports.values()].map(({ atMs }) => atMs));
  }

  protected noteReport(name: string, intervalMs: number | undefined): void {
    const boundMs = Math.max(15_000, 3 * (intervalMs ?? 10_000));
    if (this.now - this.#latestReport > boundMs / 2) this.silenceSince = this.now;
    const isSaid = intervalMs !== undefined;
    this.reports.set(name, {
      atMs: this.now,
      boundMs: isSaid ? boundMs : Number.POSITIVE_INFINITY,
      isBlocked: false,
    });
  }

  /** Those that are silent for longest first, and of each pool no more than half. */
  blockSilent(): string[] {
    const latest = this.#latestReport;
    const due = new Map(
      [...this.reports].flatMap(([name, { atMs, boundMs, isBlocked }]) =>
        isBlocked || atMs + boundMs > latest ? [] : [[name, atMs + boundMs]],
      ),
    );
    return inOrder(due).flatMap(([name]) => {
      const pod = this.pod(name);
      const report = this.reports.get(name);
      const others = this.podsOf(pod.pool);
      const blocked = others.filter((other) => this.reports.get(other.name)?.isBlocked).length;
      const hasRoom = blocked < Math.floor(others.length / 2);
      if (!report || pod.suspended !== '' || !hasRoom) return [];
      if (latest - this.silenceSince < report.boundMs) return [];
      report.isBlocked = true;
      pod.mustReport = true;
      pod.suspended = 'awaiting_report';
      this.settle(pod);
      return [name];
    });
  }

  /** Another master with the same data: pods that reported within two minutes must report again. Returns their number. */
  failOver(): number {
    this.generationAt = this.now;
    const pods = [...this.reports].flatMap(([name, { atMs }]) =>
      atMs >= this.now - 120_000 ? [this.pod(name)] : [],
    );
    for (const pod of pods) {
      pod.mustReport = true;
      pod.marked = { atMs: this.now, isSeen: false };
      if (pod.suspended === '' || pod.suspended === 'flapping') pod.suspended = 'awaiting_report';
      this.settle(pod);
    }
    return pods.length;
  }

  /** Unblocks a pod that had to report, unless the report may be older than the mark. */
  protected unblockReporter(pod: ModelPod, asOfMs: number | undefined): void {
    const { marked } = pod;
    if (marked && (asOfMs === undefined ? !marked.isSeen : asOfMs < marked.atMs)) {
      marked.isSeen ||= asOfMs === undefined;
      return;
    }
    pod.mustReport = false;
    pod.marked = undefined;
    if (pod.suspended === 'awaiting_report') pod.suspended = this.flapping.has(pod.name) ? 'flapping' : '';
  }

  podsOf(pool: PoolId): ModelPod[] {
    return [...this.pods.values()].filter((pod) => pod.pool === pool);
  }

  blockOf(pod: ModelPod): string {
    return pod.suspended || (pod.drain !== undefined && pod.drain > this.now ? 'draining' : '');
  }

  protected pod(name: string): ModelPod {
    const pod = this.pods.get(name);
    if (!pod) throw new Error(`the model has no pod ${name}`);
    return pod;
  }

  protected indexOf(pool: PoolId): Map<string, number> {
    const index = this.index.get(pool) ?? new Map<string, number>();
    this.index.set(pool, index);
    return index;
  }

  protected expired(pool: PoolId): string[] {
    return inOrder(this.indexOf(pool)).flatMap(([sid, deadline]) => (deadline <= this.now ? [sid] : []));
  }

  protected hold(sid: string, pod: ModelPod, deadline: number): void {
    pod.calls.set(sid, deadline);
    this.indexOf(pod.pool).set(sid, deadline);
  }

  protected moveLease(sid: string, name: string, deadline: number): void {
    this.hold(sid, this.pod(name), deadline);
  }

  protected endCall(sid: string, pod: ModelPod): void {
    pod.calls.delete(sid);
    this.indexOf(pod.pool).delete(sid);
    // A caller that has not picked up its pod may wait again.
    if (!this.records.get(sid)?.isAssigned) this.tombstones.set(sid, this.now + this.times.reportGraceMs);
    this.records.delete(sid);
  }

  /** The entry of a call that lives on another pod goes alone. */
  protected dropLeftover(sid: string, pod: ModelPod): boolean {
    const owner = this.records.get(sid)?.pod;
    if (owner === undefined || owner === pod.name) return false;
    pod.calls.delete(sid);
    if (this.pods.get(owner)?.pool !== pod.pool) this.indexOf(pod.pool).delete(sid);
    return true;
  }

  protected endExpired(pod: ModelPod): number {
    let ended = 0;
    for (const [sid, deadline] of inOrder(pod.calls)) {
      if (this.dropLeftover(sid, pod)) continue;
      if (this.records.has(sid) && deadline > this.now) continue;
      this.endCall(sid, pod);
      ended++;
    }
    return ended;
  }

  protected reclaim(sid: string, pool: PoolId): number {
    const owner = this.pods.get(this.records.get(sid)?.pod ?? '');
    let ended = 0;
    if (owner?.pool === pool) {
      ended = this.endExpired(owner);
      this.settle(owner);
    }
    const left = owner?.pool === pool ? owner.calls.get(sid) : undefined;
    if (left === undefined) this.indexOf(pool).delete(sid);
    else this.indexOf(pool).set(sid, left);
    return ended;
  }

  protected settle(pod: ModelPod): void {
    const { kind } = parseKind(this.pools.get(pod.pool));
    if (!kind) return;
    const can = this.blockOf(pod) === '' && (kind === 'shared' || pod.calls.size === 0);
    pod.listed = can ? 'yes' : 'no';
  }

  /** A call of the pod has ended; true if the pod is set back now. */
  protected judgeCall(pod: ModelPod, record: ModelRecord, how: 'ended' | 'refused' | 'unclaimed'): boolean {
    const ageMs = this.now - Math.floor(record.fence / 1000);
    const isShort = ageMs >= 0 && ageMs < 5000 && !record.renewed;
    if (how === 'unclaimed') return false;
    if (how === 'ended' && !isShort) {
      pod.failures = 0;
      pod.setBacks = 0;
      if (pod.suspended === 'flapping') {
        pod.suspended = '';
        this.flapping.delete(pod.name);
      }
      return false;
    }
    const failures = (pod.failures ?? 0) + 1;
    pod.failures = failures;
    if (failures < 3 || pod.suspended !== '' || !parseKind(this.pools.get(pod.pool)).kind) return false;
    const isLookedAt = pod.setBacks > 0 || failures === 3 || failures % 10 === 0;
    if (how === 'ended' && !(isLookedAt && this.#differs(pod))) return false;
    const all = this.podsOf(pod.pool);
    const cooling = all.filter(({ name }) => this.flapping.has(name)).length;
    if (cooling >= Math.floor(all.length / 2)) return false;
    pod.suspended = 'flapping';
    this.flapping.set(pod.name, this.now + Math.min(300_000, 10_000 * 2 ** pod.setBacks));
    pod.setBacks += 1;
    return true;
  }

  #differs(pod: ModelPod): boolean {
    const others = this.podsOf(pod.pool).filter((other) => other !== pod);
    const isGood = ({ failures, calls }: ModelPod) =>
      failures === 0 || (failures === undefined && calls.size > 0);
    return others.filter(isGood).length > others.filter(({ failures }) => (failures ?? 0) > 0).length;
  }

  /** A pod that was set back, for a call that would get none. */
  protected takeSetBack(pool: PoolId): ModelPod | undefined {
    const { max } = parseKind(this.pools.get(pool));
    return inOrder(this.flapping)
      .flatMap(([name]) => this.podsOf(pool).filter((pod) => pod.name === name))
      .find((pod) => {
        const isDraining = pod.drain !== undefined && pod.drain > this.now;
        return pod.suspended === 'flapping' && !isDraining && pod.calls.size < max;
      });
  }

  endFlapping(): number {
    const over = [...this.flapping].filter(([, until]) => until <= this.now);
    for (const [name] of over) {
      this.flapping.delete(name);
      const pod = this.pod(name);
      if (pod.suspended !== 'flapping') continue;
      pod.suspended = '';
      this.settle(pod);
    }
    return over.length;
  }

  protected take(pool: PoolId, answer: Allocation | undefined, problems: string[]): ModelPod | undefined {
    const { kind, max } = parseKind(this.pools.get(pool));
    const members = this.podsOf(pool).filter((pod) => pod.listed !== 'no');
    const able = members.filter((pod) => this.blockOf(pod) === '' && pod.calls.size < max);
    const sure = able.filter((pod) => pod.listed === 'yes');
    const given = answer?.sourcePool === pool ? able.find((pod) => pod.name === answer.podName) : undefined;
    if (!given && sure.length > 0) {
      problems.push(
        `gave ${answer?.podName ?? 'nothing'}, not one of ${sure.map(({ name }) => name)} of ${pool}`,
      );
    }
    const least = Math.min(...sure.map((pod) => pod.calls.size));
    if (given?.listed === 'yes' && given.calls.size > least) {
      problems.push(`gave ${given.name} with ${given.calls.size} calls, another of ${pool} has ${least}`);
    }
    for (const pod of members) {
      if (!able.includes(pod)) pod.listed = 'maybe';
      else if (!given && kind === 'exclusive' && pod.listed === 'maybe') pod.listed = 'no';
    }
    return given;
  }

  protected leave(pod: ModelPod): void {
    const { pool } = pod;
    for (const sid of [...pod.calls.keys()]) {
      if (!this.dropLeftover(sid, pod)) this.indexOf(pool).delete(sid);
    }
    const value = this.pools.get(pool);
    const empty = this.podsOf(pool).every((other) => other === pod) && this.indexOf(pool).size === 0;
    if (empty && (value === 'gone' || value === 'label')) this.pools.delete(pool);
  }

  /** With `before` only calls that began before that time: one that waited, when its caller picked up the pod. */
  protected loseCalls(pod: ModelPod, before?: string): string[] {
    const lost: string[] = [];
    for (const [sid] of inOrder(pod.calls)) {
      const { allocatedAt = '', waitedMs, fence = 0 } = this.records.get(sid) ?? {};
      const pickedUp = waitedMs === undefined ? '' : new Date(Math.floor(fence / 1000)).toISOString();
      const isLater = before !== undefined && (allocatedAt >= before || pickedUp >= before);
      if (!isLater && !this.dropLeftover(sid, pod)) lost.push(sid);
    }
    for (const sid of lost) this.endCall(sid, pod);
    return lost;
  }

  protected forget(pod: ModelPod): string[] {
    const lost = this.loseCalls(pod);
    this.leave(pod);
    this.pods.delete(pod.name);
    this.reports.delete(pod.name);
    this.flapping.delete(pod.name);
    this.drains.delete(pod.name);
    this.releaseHold(pod.name);
    return lost;
  }

  protected releaseHold(name: string): void {
    this.held.delete(name);
    this.confirmed.delete(name);
  }
}

/** As a sorted set gives them: by deadline, then by name. */
export function inOrder(calls: ReadonlyMap<string, number>): [string, number][] {
  return [...calls].sort(([a, x], [b, y]) => x - y || (a < b ? -1 : 1));
}
