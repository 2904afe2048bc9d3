/**
 * The operations on calls and pods that any replica may do. Each one is one script and one round trip; this
 * file only turns arguments into strings and answers into objects, and codes into errors.
 */

import type { PoolId } from '../../config/tiers.js';
import { AppError } from '../../errors.js';
import type { Reply, StoreConnection } from './connection.js';
import {
  type CallInfo,
  joinRoute,
  type PodInfo,
  pairs,
  parseCall,
  parsePod,
  parseSnapshot,
  type Snapshot,
} from './replies.js';

export interface LeaseTimes {
  leaseTtlMs: number;
  callInfoTtlMs: number;
  drainingTtlMs: number;
  reportGraceMs: number;
  /** 0 = off: a call nobody has renewed nor reported by then ends. */
  noShowTimeoutMs: number;
}

export interface AllocateRequest {
  callSid: string;
  merchantId: string;
  provider: string;
  flow: string;
  template: string;
  chain: readonly PoolId[];
  /** How long the caller still waits; the store refuses to act later than that. */
  patienceMs: number;
}

export interface Allocation {
  podName: string;
  sourcePool: PoolId;
  allocatedAt: string;
  leaseExpiresAtMs: number;
  fence: number;
  wasExisting: boolean;
  /** Calls that had lost their owner and were ended to make room. */
  reclaimed: number;
}

export interface ReleaseDetails {
  /** The caller could not connect to the pod. A pod on which calls fail again and again is set back. */
  reason?: 'connect_failed' | undefined;
  /** The operator who ends it; its own agent is not named. */
  by?: string | undefined;
}

export interface Released {
  podName: string;
  releasedToPool: PoolId | null;
  /** The pool of its pod, whether it went back there or not. */
  pool: PoolId | '';
  wasDraining: boolean;
  activeCalls: number;
  /** The pod is now set back behind the others: several calls in a row failed on it. */
  isSetBack: boolean;
}

export interface ReportDetails {
  uid?: string | undefined;
  /** The store's time when the report was written, or a little before. One that was overtaken is refused. */
  asOfMs?: number | undefined;
  /** Between two reports. A pod that is silent for three of them takes no new calls. */
  intervalMs?: number | undefined;
}

export interface Report {
  /** When the store made it true, by its clock. */
  atMs: number;
  renewed: string[];
  adopted: string[];
  ended: string[];
  conflicts: string[];
  fences: Record<string, number>;
}

/** For whom a pod is drained, and by whom. */
export interface DrainCaller {
  /** The uid of the pod that is meant: a successor of its name is left alone. */
  uid?: string | undefined;
  /** The actor that the event names. */
  by?: string | undefined;
}

export interface Drained {
  activeCalls: number;
  untilMs: number;
}

export interface Page<T> {
  items: T[];
  /** Give it back to read on; undefined at the end. */
  cursor: string | undefined;
}

export class CallStore {
  constructor(
    readonly connection: StoreConnection,
    readonly times: LeaseTimes,
  ) {}

  /** Resolves to undefined when nothing in the chain is free. */
  async allocate(request: AllocateRequest): Promise<Allocation | undefined> {
    const { leaseTtlMs, noShowTimeoutMs, callInfoTtlMs, reportGraceMs } = this.times;
    const firstLeaseMs = noShowTimeoutMs > 0 ? Math.min(noShowTimeoutMs, leaseTtlMs) : leaseTtlMs;
    const reply = await this.#inTime(request.patienceMs, (notAfter) =>
      this.connection.run('allocate', [
        request.callSid,
        request.merchantId,
        joinRoute(request),
        firstLeaseMs,
        Math.max(callInfoTtlMs, firstLeaseMs),
        reportGraceMs,
        notAfter,
        ...this.connection.second(),
        ...request.chain,
      ]),
    );
    if (reply[0] === 'late') {
      throw new AppError('store_unavailable', 'the store answered too late to allocate a pod', {
        retryAfterSeconds: 1,
      });
    }
    if (reply[0] === 'no_pods') {
      this.connection.learnTime(Number(reply[1]));
      return undefined;
    }
    this.connection.learnTime(Number(reply[8]));
    return {
      podName: String(reply[1]),
      sourcePool: String(reply[2]) as PoolId,
      allocatedAt: String(reply[3]),
      leaseExpiresAtMs: Number(reply[4]),
      fence: Number(reply[5]),
      wasExisting: reply[6] === 1,
      reclaimed: Number(reply[7]),
    };
  }

  async release(callSid: string, fence?: number, about: ReleaseDetails = {}): Promise<Released> {
    const reply = await this.#release(callSid, fence, '', about);
    if (reply[0] !== 'ok') throw codeError(reply, callSid);
    return {
      podName: String(reply[1]),
      releasedToPool: reply[2] === '' ? null : (String(reply[2]) as PoolId),
      wasDraining: reply[3] === 1,
      activeCalls: Number(reply[4]),
      pool: String(reply[5]) as PoolId | '',
      isSetBack: reply[6] === 1,
    };
  }

  /** Gives back what was allocated for a caller that is gone, unless somebody has asked for that call since. */
  async releaseUnclaimed(callSid: string, fence: number): Promise<boolean> {
    return (await this.#release(callSid, fence, 'unclaimed'))[0] === 'ok';
  }

  async #release(
    callSid: string,
    fence: number | undefined,
    mode: '' | 'unclaimed',
    { reason, by }: ReleaseDetails = {},
  ): Promise<Reply[]> {
    return list(
      await this.connection.run('release', [
        callSid,
        fence ?? '',
        this.times.reportGraceMs,
        mode,
        this.connection.stamp(),
        ...(reason === undefined ? [] : ['reason', reason]),
        ...named(by),
      ]),
    );
  }

  async renew(callSid: string, fence?: number): Promise<{ leaseExpiresAtMs: number; podName: string }> {
    const { leaseTtlMs, callInfoTtlMs } = this.times;
    const reply = list(await this.connection.run('renew', [callSid, fence ?? '', leaseTtlMs, callInfoTtlMs]));
    if (reply[0] !== 'ok') throw codeError(reply, callSid);
    return { leaseExpiresAtMs: Number(reply[1]), podName: String(reply[2]) };
  }

  async report(podName: string, calls: readonly string[], about: ReportDetails = {}): Promise<Report> {
    const { uid = '', asOfMs, intervalMs } = about;
    const { leaseTtlMs, callInfoTtlMs, reportGraceMs } = this.times;
    const args = [
      podName,
      uid,
      leaseTtlMs,
      callInfoTtlMs,
      reportGraceMs,
      asOfMs ?? '',
      intervalMs ?? '',
      ...calls,
    ];
    const reply = list(await this.connection.run('report', args));
    if (reply[0] !== 'ok') throw codeError(reply, podName);
    const [, renewed, adopted, ended, conflicts, fences] = reply.map((part) =>
      Array.isArray(part) ? part.map(String) : [],
    );
    return {
      atMs: Number(reply[6]),
      renewed: renewed ?? [],
      adopted: adopted ?? [],
      ended: ended ?? [],
      conflicts: conflicts ?? [],
      fences: Object.fromEntries(pairs(fences ?? []).map(([sid, fence]) => [sid, Number(fence)])),
    };
  }

  /** `waitMs`: somebody waits that long for the last call, so the mark lasts longer than that. */
  async drain(podName: string, waitMs = 0, { uid = '', by }: DrainCaller = {}): Promise<Drained> {
    const markMs = Math.max(this.times.drainingTtlMs, waitMs > 0 ? waitMs + 30_000 : 0);
    const reply = list(await this.connection.run('drain', [podName, markMs, uid, ...named(by)]));
    if (reply[0] !== 'ok') throw codeError(reply, podName);
    return { activeCalls: Number(reply[1]), untilMs: Number(reply[2]) };
  }

  /** `blockedBy` is empty when the pod takes calls again. */
  async undrain(
    podName: string,
    patienceMs?: number,
    { uid = '', by }: DrainCaller = {},
  ): Promise<{ activeCalls: number; blockedBy: string }> {
    const reply = await this.#inTime(patienceMs, (notAfter) =>
      this.connection.run('undrain', [podName, notAfter, uid, ...named(by)]),
    );
    if (reply[0] !== 'ok') throw codeError(reply, podName);
    return { activeCalls: Number(reply[1]), blockedBy: String(reply[2]) };
  }

  /** For what the store must refuse when its caller has given up: told until when, by the store's own clock. */
  async #inTime(
    patienceMs: number | undefined,
    send: (notAfter: number | '') => Promise<Reply>,
  ): Promise<Reply[]> {
    const { clock } = this.connection;
    const giveUpMs = clock.monotonic() + (patienceMs ?? Number.POSITIVE_INFINITY);
    const notAfter = () => {
      const now = this.connection.estimateNowMs();
      return now === undefined || patienceMs === undefined
        ? ''
        : Math.round(now + giveUpMs - clock.monotonic());
    };
    const reply = list(await send(notAfter()));
    if (reply[0] !== 'late') return reply;
    this.connection.learnTime(Number(reply[1]));
    // Not late by our own clock: our idea of the store's was old (a failover, or its clock was set). Once more.
    return clock.monotonic() < giveUpMs ? list(await send(notAfter())) : reply;
  }

  async snapshot(): Promise<Snapshot> {
    const snapshot = parseSnapshot(list(await this.connection.run('snapshot', [])));
    this.connection.learnTime(snapshot.nowMs);
    return snapshot;
  }

  /** Answers if the store does. */
  async ping(): Promise<void> {
    await this.connection.command('ping', (client) => client.exists(`${this.connection.keyPrefix}ping`));
  }

  async pod(podName: string): Promise<PodInfo> {
    const reply = list(await this.connection.run('podInfo', [podName], 'pod'));
    if (reply[0] !== 'ok') throw codeError(reply, podName);
    return parsePod(reply[1] ?? null);
  }

  async call(callSid: string): Promise<CallInfo> {
    const reply = list(await this.connection.run('callInfo', [callSid], 'call'));
    if (reply[0] !== 'ok') throw codeError(reply, callSid);
    return parseCall(reply[1] ?? null);
  }

  async pods(pool: PoolId, cursor: string, count: number): Promise<Page<PodInfo>> {
    return page(list(await this.connection.run('listPods', [pool, cursor, count], 'pods')), parsePod);
  }

  async calls(pool: PoolId, cursor: string, count: number): Promise<Page<CallInfo>> {
    return page(list(await this.connection.run('listCalls', [pool, cursor, count], 'calls')), parseCall);
  }
}

/** Who did it, as the last field of the event; none where nobody is named. */
function named(by: string | undefined): string[] {
  return by === undefined ? [] : ['by', by];
}

/** The one place where a script's code becomes an error that a caller sees. */
function codeError(reply: Reply[], subject: string): AppError {
  switch (reply[0]) {
    case 'not_found':
      return new AppError(
        'call_not_found',
        `no live call ${quote(subject)}: it has ended or never got a pod`,
      );
    case 'stale_fence':
      return new AppError(
        'stale_fence',
        `the fence is not the one of call ${quote(subject)}: that allocation has ended`,
      );
    case 'late':
      return new AppError('store_unavailable', 'the store got to it too late: nothing was changed', {
        retryAfterSeconds: 1,
      });
    case 'pod_not_found':
      return new AppError('pod_not_found', `no pod ${quote(subject)}: it is not registered`);
    case 'pod_replaced':
      return podReplaced(subject);
    case 'stale_report':
      return new AppError(
        'stale_report',
        `a later report of pod ${quote(subject)} has arrived before this one: nothing was changed`,
      );
    case 'other_uid':
      return new AppError(
        'pod_not_found',
        `pod ${quote(subject)} is registered with another uid: this one has been replaced`,
      );
    default:
      return new AppError('internal', `the store answered ${JSON.stringify(reply[0])}, which nobody expects`);
  }
}

export function podReplaced(podName: string): AppError {
  return new AppError(
    'pod_replaced',
    `pod ${quote(podName)} is registered with another uid: the one that is meant has been replaced`,
  );
}

function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}

export function list(reply: Reply): Reply[] {
  if (!Array.isArray(reply))
    throw new AppError('internal', 'the store answered something that is not a list');
  return reply;
}

function page<T>(reply: Reply[], parse: (row: Reply) => T): Page<T> {
  const [cursor, ...rows] = reply;
  return { items: rows.map(parse), cursor: cursor === '0' ? undefined : String(cursor) };
}
