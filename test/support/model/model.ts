/**
 * What the store must do, written a second time: small, in memory, one method for each operation. Its truth and
 * the steps they share are in state.ts; waiting calls are in waits.ts.
 */
import type { AllocateOutcome, HoldRules, Released, Report } from '../../../src/calls/store/store.js';
import type { PoolId } from '../../../src/config/tiers.js';
import { parseKind } from '../invariants.js';
import { same } from './same.js';
import { inOrder, type ModelPod } from './state.js';
import { ModelWaits } from './waits.js';

const nothingDrained = { drain: undefined, drainedAt: undefined };

export interface PodRequest {
  name: string;
  uid: string;
  pool: PoolId | '';
  suspended: '' | 'terminating' | 'not_ready';
  mustReport: boolean;
  idleGoes: boolean;
  idleStays: boolean;
  restarts: number | undefined;
  /** ISO time. */
  startedAt: string | undefined;
  ended: boolean;
}

/** What most calls are. */
const ordinary = { merchant: '', limited: undefined, isAssigned: false, waitedMs: undefined };
const notWaiting = {
  ...{ podName: null, releasedToPool: null, wasDraining: false },
  ...{ activeCalls: 0, pool: '' as const, isSetBack: false },
};

export class Model extends ModelWaits {
  // --- The operations of any replica ---

  /** Returns the problems of a reply, and updates the model from it. */
  allocate(
    sid: string,
    chain: readonly PoolId[],
    asked: { merchant: string; hold: HoldRules | undefined },
    outcome: AllocateOutcome,
  ): string[] {
    const { merchant, hold } = asked;
    const answer = outcome.allocation;
    const { leaseTtlMs, noShowTimeoutMs } = this.times;
    const deadline = this.now + (noShowTimeoutMs > 0 ? Math.min(noShowTimeoutMs, leaseTtlMs) : leaseTtlMs);
    const record = this.records.get(sid);
    const held = record && this.pods.get(record.pod)?.calls.get(sid);
    if (record && held !== undefined) {
      const { pod, pool, allocatedAt, waitedMs, isAssigned } = record;
      const until = isAssigned ? deadline : Math.max(deadline, held);
      this.moveLease(sid, pod, until);
      if (isAssigned) {
        if ((answer?.fence ?? 0) <= this.lastFence)
          return [`picked up with fence ${answer?.fence} after ${this.lastFence}`];
        record.fence = answer?.fence ?? 0;
        this.lastFence = record.fence;
        record.isAssigned = false;
        record.missingSince = undefined;
      } else record.claimed = true;
      const allocation = {
        ...{ podName: pod, sourcePool: pool, allocatedAt, leaseExpiresAtMs: until, fence: record.fence },
        ...{ wasExisting: !isAssigned, reclaimed: 0, waitedMs },
      };
      return same(outcome, { allocation });
    }
    if (hold && (this.releasedWaits.get(sid) ?? 0) > this.now) return same(outcome, { refusal: 'wait_over' });
    if (this.waits.has(sid) && hold) {
      const waiting = this.askAgain(sid);
      return same(outcome, waiting ? { waiting } : { refusal: 'wait_expired' });
    }
    if (this.waits.has(sid)) this.endWait(sid);
    this.records.delete(sid);
    const problems: string[] = [];
    let reclaimed = 0;
    let pod: ModelPod | undefined;
    const isLimited = this.limits.has(merchant) && !this.hasRoom(merchant);
    const known = isLimited ? [] : chain.filter((pool) => parseKind(this.pools.get(pool)).kind);
    // Whether a pod that may have been available was, shows in how much was reclaimed before it was given.
    const given = () => (answer?.reclaimed === reclaimed ? answer : undefined);
    for (const pool of known) pod ??= this.take(pool, given(), problems);
    for (const pool of pod ? [] : known) {
      for (const old of this.expired(pool)) {
        if (pod) break;
        reclaimed += this.reclaim(old, pool);
        pod = this.take(pool, given(), problems);
      }
    }
    this.serveFreed();
    const setBack = pod ? undefined : this.takeLast(known);
    pod ??= setBack;
    if (setBack && !answer) problems.push(`gave nothing, not ${setBack.name}, which was set back`);
    if (!answer || !pod) {
      if (answer) return [...problems, `gave ${answer.podName}, which cannot take a call`];
      if (pod) return problems;
      const entered = hold
        ? this.enter(sid, merchant, isLimited ? { ...hold, queue: merchant } : hold, chain)
        : isLimited
          ? 'merchant_limit'
          : 'no_pods';
      const expected = typeof entered === 'string' ? { refusal: entered } : { waiting: entered };
      return [...problems, ...same(outcome, expected)];
    }
    if (answer.fence <= this.lastFence) problems.push(`fence ${answer.fence} after ${this.lastFence}`);
    this.lastFence = answer.fence;
    const allocatedAt = new Date(this.now).toISOString();
    this.hold(sid, pod, deadline);
    this.records.set(sid, {
      pod: pod.name,
      pool: pod.pool,
      fence: answer.fence,
      allocatedAt,
      claimed: false,
      renewed: false,
      missingSince: undefined,
      ...ordinary,
      merchant,
      limited: this.limits.has(merchant) ? merchant : undefined,
    });
    if (this.limits.has(merchant)) this.countAllocated(sid, merchant);
    const isListed = parseKind(this.pools.get(pod.pool)).kind === 'shared' && pod.suspended === '';
    pod.listed = isListed ? 'yes' : 'no';
    const expected = {
      podName: pod.name,
      sourcePool: pod.pool,
      allocatedAt,
      leaseExpiresAtMs: deadline,
      fence: answer.fence,
      wasExisting: false,
      reclaimed,
    };
    return [...problems, ...same(outcome, { allocation: expected })];
  }

  release(sid: string, fence: number | undefined, how: 'ended' | 'refused' | 'unclaimed'): Released | string {
    if (this.waits.has(sid) && fence !== undefined) return 'stale_fence';
    if (this.waits.has(sid)) {
      this.endWait(sid);
      this.releasedWaits.set(sid, this.now + this.times.reportGraceMs);
      return notWaiting;
    }
    const record = this.records.get(sid);
    if (!record) return 'call_not_found';
    if (fence !== undefined && fence !== record.fence) return 'stale_fence';
    const pod = this.pod(record.pod);
    this.endCall(sid, pod);
    this.tombstones.set(sid, this.now + this.times.reportGraceMs);
    const isSetBack = this.judgeCall(pod, record, record.isAssigned ? 'unclaimed' : how);
    this.settle(pod);
    this.serveFreed();
    const block = this.blockOf(pod);
    return {
      podName: pod.name,
      releasedToPool: block === '' && parseKind(this.pools.get(pod.pool)).kind ? pod.pool : null,
      wasDraining: block === 'draining' || block === 'terminating',
      activeCalls: pod.calls.size,
      pool: pod.pool,
      isSetBack,
    };
  }

  releaseUnclaimed(sid: string, fence: number): boolean {
    if (this.records.get(sid)?.claimed) return false;
    return typeof this.release(sid, fence, 'unclaimed') !== 'string';
  }

  renew(sid: string, fence: number | undefined): { leaseExpiresAtMs: number; podName: string } | string {
    const record = this.records.get(sid);
    if (!record) return 'call_not_found';
    if (fence !== undefined && fence !== record.fence) return 'stale_fence';
    const deadline = this.now + this.times.leaseTtlMs;
    this.moveLease(sid, record.pod, deadline);
    record.claimed = true;
    record.renewed = true;
    return { leaseExpiresAtMs: deadline, podName: record.pod };
  }

  /** `fences` of the answer are taken over for calls that were adopted: they are new. */
  report(
    name: string,
    sids: readonly string[],
    { uid, intervalMs, asOfMs }: { uid: string; intervalMs: number | undefined; asOfMs: number | undefined },
    answer: Report | string,
  ): string[] {
    const pod = this.pods.get(name);
    if (!pod || (uid !== '' && pod.uid !== '' && uid !== pod.uid)) return same(answer, 'pod_not_found');
    const { leaseTtlMs, reportGraceMs } = this.times;
    const last = pod.lastReport;
    const isStale = last && asOfMs !== undefined && last.uid === uid && asOfMs < last.asOfMs;
    if (isStale && this.now - last.atMs < reportGraceMs) return same(answer, 'stale_report');
    if (asOfMs !== undefined) pod.lastReport = { asOfMs, atMs: this.now, uid };
    const atMs = typeof answer === 'string' ? 0 : answer.atMs;
    const expected: Report = { atMs, renewed: [], adopted: [], ended: [], conflicts: [], fences: {} };
    const problems: string[] = [];
    this.unblockReporter(pod, asOfMs);
    this.noteReport(name, intervalMs);
    const reported = new Set(sids);
    const unknown: string[] = [];
    for (const sid of reported) {
      if (this.waits.has(sid)) {
        unknown.push(sid);
        continue;
      }
      const record = this.records.get(sid);
      const live = record && this.pods.get(record.pod)?.calls.has(sid);
      if (live && record.pod === name) {
        this.moveLease(sid, name, this.now + leaseTtlMs);
        record.claimed = true;
        record.renewed = true;
        record.missingSince = undefined;
        record.omittedAt = undefined;
        record.isAssigned = false;
        expected.renewed.push(sid);
        expected.fences[sid] = record.fence;
      } else if (live || (this.tombstones.get(sid) ?? 0) > this.now) expected.conflicts.push(sid);
      else unknown.push(sid);
    }
    const { kind, max } = parseKind(this.pools.get(pod.pool));
    const lost = unknown.filter((sid) => !pod.calls.has(sid)).length;
    const isFull = kind !== undefined && lost > 0 && lost > max - pod.calls.size;
    for (const [sid, deadline] of inOrder(pod.calls)) {
      const record = this.records.get(sid);
      // Without its record it is the sweep's.
      if (reported.has(sid) || record?.isAssigned || this.dropLeftover(sid, pod) || !record) continue;
      if (asOfMs !== undefined && record.fence / 1000 > asOfMs) continue;
      const began = this.generationAt;
      const isSince = asOfMs !== undefined && asOfMs >= began && record.fence / 1000 < began;
      const first = record.omittedAt ?? 0;
      const isLost = isSince && record.renewed && (isFull || (first >= began && asOfMs > first));
      if (isSince && record.renewed && first < began) record.omittedAt = asOfMs;
      record.missingSince ??= this.now;
      const end = record.missingSince + reportGraceMs;
      if (isLost || this.now >= end) {
        this.endCall(sid, pod);
        expected.ended.push(sid);
      } else this.moveLease(sid, name, Math.min(end, deadline));
    }
    for (const sid of unknown) {
      if (!pod.calls.has(sid) && pod.calls.size >= (kind ? max : 1)) {
        expected.conflicts.push(sid);
        continue;
      }
      if (this.waits.has(sid)) this.endWait(sid);
      const fence = typeof answer === 'string' ? 0 : (answer.fences[sid] ?? 0);
      if (fence <= this.lastFence)
        problems.push(`adopted ${sid} with fence ${fence} after ${this.lastFence}`);
      this.lastFence = Math.max(fence, this.lastFence);
      const allocatedAt = new Date(this.now).toISOString();
      this.records.set(sid, {
        pod: name,
        pool: pod.pool,
        fence,
        allocatedAt,
        claimed: true,
        renewed: true,
        missingSince: undefined,
        ...ordinary,
      });
      this.hold(sid, pod, this.now + leaseTtlMs);
      expected.adopted.push(sid);
      expected.fences[sid] = fence;
    }
    this.settle(pod);
    this.serveFreed();
    return [...problems, ...same(answer, expected)];
  }

  drain(name: string, waitMs: number, uid: string): { activeCalls: number; untilMs: number } | string {
    const pod = this.pods.get(name);
    if (!pod) return 'pod_not_found';
    if (uid !== '' && pod.uid !== '' && pod.uid !== uid) return 'pod_replaced';
    const mark = Math.max(this.times.drainingTtlMs, waitMs > 0 ? waitMs + 30_000 : 0);
    const before = pod.drain === undefined || pod.drain === Number.POSITIVE_INFINITY ? 0 : pod.drain;
    // With a uid it is the registered pod's, and ends with it, unless a drain without one is under way.
    if (uid === '') pod.drainedAt = new Date(this.now).toISOString();
    else if (pod.drain === undefined) pod.drainedAt = undefined;
    pod.drain = Math.max(this.now + mark, before);
    this.drains.set(name, pod.drain);
    this.settle(pod);
    return { activeCalls: pod.calls.size, untilMs: pod.drain };
  }

  undrain(name: string, uid: string): { activeCalls: number; blockedBy: string } | string {
    const pod = this.pods.get(name);
    if (!pod) return 'pod_not_found';
    if (uid !== '' && pod.uid !== '' && pod.uid !== uid) return 'pod_replaced';
    pod.drain = undefined;
    this.drains.delete(name);
    this.settle(pod);
    return { activeCalls: pod.calls.size, blockedBy: pod.suspended };
  }

  // --- The leader's operations ---

  register(request: PodRequest, candidates: readonly { pool: PoolId; target: number }[], last: PoolId) {
    const { name } = request;
    let pod = this.pods.get(name);
    let lostCalls: string[] = [];
    let outcome = 'known';
    let drain: Pick<ModelPod, 'drain' | 'drainedAt'> = nothingDrained;
    const hasEnded = request.ended || (request.restarts ?? 0) > (pod?.restarts ?? Number.POSITIVE_INFINITY);
    if (pod && pod.uid !== '' && request.uid !== '' && pod.uid !== request.uid) {
      // Later calls and drains belong to the new pod: only the old one is removed.
      const since = request.startedAt;
      if (since !== undefined) lostCalls = this.loseCalls(pod, since);
      const isOwn = since !== undefined && pod.drain !== undefined && (pod.drainedAt ?? '') >= since;
      drain = isOwn ? { drain: pod.drain, drainedAt: pod.drainedAt } : nothingDrained;
      const until = isOwn ? this.drains.get(name) : undefined;
      this.drains.delete(name);
      if (until !== undefined) this.drains.set(name, until);
      if (since !== undefined && pod.calls.size > 0) {
        outcome = 'replaced';
        Object.assign(pod, {
          uid: '',
          ...drain,
          mustReport: request.mustReport,
          ...{ marked: undefined, lastReport: undefined },
          restarts: undefined,
          failures: undefined,
          setBacks: 0,
        });
        this.reports.delete(name);
        this.flapping.delete(name);
      } else {
        lostCalls.push(...this.forget(pod));
        if (until !== undefined) this.drains.set(name, until);
        pod = undefined;
      }
    } else if (pod && hasEnded) {
      lostCalls = this.loseCalls(pod, request.startedAt);
    }
    if (request.idleGoes && !pod && drain.drain === undefined)
      return { podName: name, outcome: 'skipped', pool: '', lostCalls };
    const stays = request.idleStays && !hasEnded;
    if (request.idleGoes && !stays && pod?.calls.size === 0 && pod.drain === undefined) {
      this.forget(pod);
      this.serveFreed();
      return { podName: name, outcome: 'removed', pool: pod.pool, lostCalls };
    }
    let pool = request.pool;
    if (pool === '') {
      const open = candidates.find((candidate) => this.podsOf(candidate.pool).length < candidate.target);
      pool = pod && parseKind(this.pools.get(pod.pool)).kind ? pod.pool : (open?.pool ?? last);
    }
    if (!pod) {
      outcome = 'new';
      const { mustReport } = request;
      pod = {
        name,
        pool,
        uid: '',
        ...drain,
        suspended: '',
        mustReport,
        restarts: undefined,
        failures: undefined,
        setBacks: 0,
        calls: new Map(),
        listed: 'no',
      };
      this.pods.set(name, pod);
    } else {
      const { kind, max } = parseKind(this.pools.get(pool));
      if (pool !== pod.pool && pod.calls.size > (kind ? max : 1)) {
        pool = pod.pool;
        outcome = 'waiting';
      } else if (pool !== pod.pool) {
        outcome = 'moved';
        this.leave(pod);
        pod.pool = pool;
        pod.listed = 'no';
        for (const [sid, deadline] of pod.calls) this.indexOf(pool).set(sid, deadline);
      }
    }
    const unknown = !parseKind(this.pools.get(pool)).kind;
    if (outcome !== 'waiting' && pool.startsWith('merchant:') && unknown) this.pools.set(pool, 'label');
    const cooling = pod.suspended === 'flapping' && this.flapping.has(name) ? 'flapping' : '';
    pod.suspended = request.suspended || (pod.mustReport ? 'awaiting_report' : cooling);
    if (request.uid !== '') pod.uid = request.uid;
    pod.restarts = request.restarts ?? pod.restarts;
    this.releaseHold(name);
    this.settle(pod);
    this.serveFreed();
    return { podName: name, outcome, pool, lostCalls };
  }

  suspend(name: string, reason: string): number {
    const pod = this.pods.get(name);
    if (!pod) return -1;
    pod.suspended = reason;
    if (reason === 'unconfirmed') this.held.add(name);
    this.settle(pod);
    return pod.calls.size;
  }

  confirmRemovals(): number {
    this.confirmed = new Set(this.held);
    return this.held.size;
  }

  remove(name: string): string[] {
    const pod = this.pods.get(name);
    const lost = pod ? this.forget(pod) : [];
    this.serveFreed();
    return lost;
  }

  sweepCalls(pool: PoolId): { callsEnded: number } {
    let callsEnded = 0;
    for (const sid of this.expired(pool)) callsEnded += this.reclaim(sid, pool);
    this.serveFreed();
    return { callsEnded };
  }

  /** `unsure`: how many of the pods could have been counted either way. */
  sweepPods(pool: PoolId): { callsEnded: number; putBack: number; takenOut: number; unsure: number } {
    const total = { callsEnded: 0, putBack: 0, takenOut: 0, unsure: 0 };
    for (const pod of this.asServed(this.podsOf(pool))) {
      const ended = this.endExpired(pod);
      const before = pod.listed;
      this.settle(pod);
      total.callsEnded += ended;
      if (before === 'maybe') total.unsure++;
      else if (before === 'yes' && pod.listed === 'no') total.takenOut++;
      else if (before === 'no' && pod.listed === 'yes' && ended === 0) total.putBack++;
    }
    this.serveFreed();
    return total;
  }

  /** The number of pools that changed, or `conflict`. */
  setTiers(kinds: ReadonlyMap<PoolId, string>): number | 'conflict' {
    const old = new Map(this.pools);
    const plan: { pool: PoolId; from: PoolId }[] = [];
    for (const [pool, value] of kinds) {
      const twin: PoolId = pool.startsWith('pool:') ? `merchant:${pool.slice(5)}` : `pool:${pool.slice(9)}`;
      const comes = !old.has(pool) && old.has(twin) && old.get(twin) !== 'label' && !kinds.has(twin);
      const from = comes ? twin : pool;
      const { kind } = parseKind(value);
      const otherKind = old.has(pool) && parseKind(old.get(pool)).kind !== kind;
      if (from === pool && !otherKind) continue;
      if (kind === 'exclusive' && this.podsOf(from).some((pod) => pod.calls.size > 1)) return 'conflict';
      plan.push({ pool, from });
    }
    let changed = 0;
    for (const [pool, value] of kinds) {
      if (old.get(pool) !== value) changed++;
      this.pools.set(pool, value);
    }
    for (const [pool, value] of old) {
      if (kinds.has(pool) || value === 'label' || value === 'gone') continue;
      changed++;
      for (const pod of this.podsOf(pool)) pod.listed = 'no';
      if (this.podsOf(pool).length === 0 && this.indexOf(pool).size === 0) this.pools.delete(pool);
      else this.pools.set(pool, 'gone');
    }
    for (const { pool, from } of plan) {
      if (from !== pool) {
        this.pools.delete(from);
        for (const [sid, deadline] of this.indexOf(from)) this.indexOf(pool).set(sid, deadline);
        this.index.delete(from);
        for (const pod of this.podsOf(from)) pod.pool = pool;
      }
    }
    const moved = plan.flatMap(({ pool }) => this.podsOf(pool));
    for (const pod of moved) pod.listed = 'no';
    for (const pod of this.asServed(moved)) this.settle(pod);
    const written = [...kinds.keys()].filter((pool) => old.get(pool) !== kinds.get(pool)).sort();
    for (const pool of written) this.servePool(pool);
    return changed;
  }
}
