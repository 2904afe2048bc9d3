/**
 * The operations on calls and pods that any replica may run. Each is one script and one round trip; this file converts
 * arguments to strings, replies to objects and reply codes to errors.
 */
import type { PoolId } from '../../config/tiers.js';
import { AppError, type ErrorCode } from '../../errors.js';
import type { Reply, ScriptName, StoreConnection } from './connection.js';
import { keysOf } from './keys.js';
import { type AllocateOutcome, type Explanation, parseExplanation, parseOutcome } from './outcome.js';
import {
  type CallInfo,
  joinRoute,
  lines,
  list,
  type PodInfo,
  pairs,
  parseCall,
  parsePod,
  parseSnapshot,
  type Route,
  type Snapshot,
  strings,
} from './replies.js';

export type { AllocateOutcome, Allocation, Refusal, Waiting } from './outcome.js';

export interface LeaseTimes {
  leaseTtlMs: number;
  callInfoTtlMs: number;
  drainingTtlMs: number;
  reportGraceMs: number;
  /** A call that is neither renewed nor reported within this time ends; 0 = off. */
  noShowTimeoutMs: number;
  /** How long a pod is kept for a waiting call until its caller asks again. */
  holdClaimTtlMs: number;
  /** A waiting call that is not asked for during three of these is removed. */
  holdPollIntervalMs: number;
}

/** The rules by which a call may wait. */
export interface HoldRules {
  /** The merchant, or '' for the queue of all merchants without a configuration. */
  queue: string;
  priority: number;
  weight: number;
  maxWaitMs: number;
  /** The most calls that wait: of this queue, and of all. */
  maxWaiting: number;
  maxWaitingAll: number;
}

export interface CallRequest extends Route {
  callSid: string;
  merchantId: string;
}

export interface AllocateRequest extends CallRequest {
  chain: readonly PoolId[];
  /** How long the caller still waits: the store refuses to act later than that. */
  patienceMs: number;
  /** Without it, a call that finds no pod is refused. */
  hold?: HoldRules | undefined;
  /** The caller was told to wait before: if its wait has ended since, it must not enter the queue again. */
  wasHeld?: boolean | undefined;
}

export interface ReleaseDetails {
  /** The caller could not connect to the pod. A pod on which calls fail again and again is set back. */
  reason?: 'connect_failed' | undefined;
  /** The operator who ends the call; agents are not named. */
  by?: string | undefined;
}

export interface Released {
  /** Null: the call was waiting, and left the queue. */
  podName: string | null;
  releasedToPool: PoolId | null;
  /** The pod's pool, also if the pod did not become available there. */
  pool: PoolId | '';
  wasDraining: boolean;
  activeCalls: number;
  /** The pod is now set back behind the others: several calls in a row failed on it. */
  isSetBack: boolean;
  /** False: fewer than REDIS_WAIT_REPLICAS replicas confirmed it. */
  replicated?: false;
}

export interface ReportDetails {
  uid?: string | undefined;
  /** The store's time when the report was written, or slightly earlier. A report older than the last one is refused. */
  asOfMs?: number | undefined;
  /** Time between two reports. A pod that misses three takes no new calls. */
  intervalMs?: number | undefined;
}

export interface Report {
  /** The store's time when it applied the report. */
  atMs: number;
  renewed: string[];
  adopted: string[];
  ended: string[];
  conflicts: string[];
  fences: Record<string, number>;
}

/** Which pod is drained, and by whom. */
export interface DrainCaller {
  /** The uid of the pod: a later pod of the same name is not changed. */
  uid?: string | undefined;
  /** The actor that the event names. */
  by?: string | undefined;
}

export interface Drained {
  activeCalls: number;
  untilMs: number;
  /** False: fewer than REDIS_WAIT_REPLICAS replicas confirmed it. */
  replicated?: false;
}

export interface Page<T> {
  items: T[];
  /** Pass it to read the next page; undefined at the end. */
  cursor: string | undefined;
}

type Arguments = readonly (string | number)[];

const none = { podName: null, releasedToPool: null, pool: '' } as const;
const leftQueue: Released = { ...none, wasDraining: false, activeCalls: 0, isSetBack: false };

export class CallStore {
  constructor(
    readonly connection: StoreConnection,
    readonly times: LeaseTimes,
  ) {}

  async allocate(request: AllocateRequest): Promise<AllocateOutcome> {
    const reply = await this.#inTime(request.patienceMs, (notAfter) =>
      this.connection.run('allocate', this.#allocateArgs(request, notAfter)),
    );
    const parsed = parseOutcome(reply);
    if (!parsed) throw codeError(reply[0], request.callSid);
    this.connection.learnTime(parsed.nowMs);
    return parsed.outcome;
  }

  /** What `allocate` would do with this request now. Changes nothing. */
  async explain(request: Omit<AllocateRequest, 'patienceMs'>): Promise<Explanation> {
    return parseExplanation(list(await this.connection.run('explain', this.#allocateArgs(request, ''))));
  }

  #allocateArgs(request: Omit<AllocateRequest, 'patienceMs'>, notAfter: number | ''): Arguments {
    const { leaseTtlMs, noShowTimeoutMs, callInfoTtlMs, reportGraceMs } = this.times;
    const firstLeaseMs = noShowTimeoutMs > 0 ? Math.min(noShowTimeoutMs, leaseTtlMs) : leaseTtlMs;
    return [
      request.callSid,
      request.merchantId,
      joinRoute(request),
      firstLeaseMs,
      Math.max(callInfoTtlMs, firstLeaseMs),
      reportGraceMs,
      notAfter,
      ...this.connection.second(),
      request.hold ? this.#holdText(request.hold, request.wasHeld === true) : '',
      ...request.chain,
    ];
  }

  #holdText(hold: HoldRules, held: boolean): string {
    const { queue, priority, weight, maxWaitMs, maxWaiting, maxWaitingAll } = hold;
    return JSON.stringify({
      queue,
      priority,
      weight,
      max_wait: maxWaitMs,
      max: maxWaiting,
      all: maxWaitingAll,
      claim: this.times.holdClaimTtlMs,
      seen: 3 * this.times.holdPollIntervalMs,
      held,
    });
  }

  async release(callSid: string, fence?: number, details: ReleaseDetails = {}): Promise<Released> {
    const reply = await this.#release(callSid, fence, '', details);
    if (reply[0] === 'was_waiting') return leftQueue;
    expectOk(reply, callSid);
    return {
      podName: String(reply[1]),
      releasedToPool: reply[2] === '' ? null : (String(reply[2]) as PoolId),
      wasDraining: reply[3] === '1',
      activeCalls: Number(reply[4]),
      pool: String(reply[5]) as PoolId | '',
      isSetBack: reply[6] === '1',
    };
  }

  /** Releases a call whose caller disconnected before the reply, unless the call was requested again. */
  async releaseUnclaimed(callSid: string, fence: number): Promise<boolean> {
    return (await this.#release(callSid, fence, 'unclaimed'))[0] === 'ok';
  }

  async #release(
    callSid: string,
    fence: number | undefined,
    mode: '' | 'unclaimed',
    { reason, by }: ReleaseDetails = {},
  ): Promise<Reply[]> {
    return lines(
      await this.connection.run('release', [
        callSid,
        fence ?? '',
        this.times.reportGraceMs,
        mode,
        this.connection.stamp(),
        ...(reason === undefined ? [] : ['reason', reason]),
        ...actorFields(by),
      ]),
    );
  }

  async renew(callSid: string, fence?: number): Promise<{ leaseExpiresAtMs: number; podName: string }> {
    const { leaseTtlMs, callInfoTtlMs } = this.times;
    const reply = await this.#run('renew', [callSid, fence ?? '', leaseTtlMs, callInfoTtlMs]);
    return { leaseExpiresAtMs: Number(reply[1]), podName: String(reply[2]) };
  }

  async report(podName: string, calls: readonly string[], details: ReportDetails = {}): Promise<Report> {
    const { uid = '', asOfMs = '', intervalMs = '' } = details;
    const { leaseTtlMs, callInfoTtlMs, reportGraceMs } = this.times;
    const args = [podName, uid, leaseTtlMs, callInfoTtlMs, reportGraceMs, asOfMs, intervalMs, ...calls];
    const reply = await this.#run('report', args);
    const callsAt = (index: number) => strings(reply[index] ?? null);
    return {
      atMs: Number(reply[6]),
      renewed: callsAt(1),
      adopted: callsAt(2),
      ended: callsAt(3),
      conflicts: callsAt(4),
      fences: Object.fromEntries(pairs(callsAt(5)).map(([sid, fence]) => [sid, Number(fence)])),
    };
  }

  /** `waitMs`: how long the caller waits for the last call to end; the mark lasts longer than that. */
  async drain(podName: string, waitMs = 0, { uid = '', by }: DrainCaller = {}): Promise<Drained> {
    const markMs = Math.max(this.times.drainingTtlMs, waitMs > 0 ? waitMs + 30_000 : 0);
    const reply = await this.#run('drain', [podName, markMs, uid, ...actorFields(by)]);
    return { activeCalls: Number(reply[1]), untilMs: Number(reply[2]) };
  }

  /** `blockedBy` is empty if the pod takes calls again. */
  async undrain(
    podName: string,
    patienceMs?: number,
    { uid = '', by }: DrainCaller = {},
  ): Promise<{ activeCalls: number; blockedBy: string }> {
    const reply = await this.#inTime(patienceMs, (notAfter) =>
      this.connection.run('undrain', [podName, notAfter, uid, ...actorFields(by)]),
    );
    expectOk(reply, podName);
    return { activeCalls: Number(reply[1]), blockedBy: String(reply[2]) };
  }

  /** Sends a request with the store's time after which the store must refuse it, because the caller has given up. */
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
    const reply = lines(await send(notAfter()));
    if (reply[0] !== 'late') return reply;
    this.connection.learnTime(Number(reply[1]));
    // Not late by our clock: the estimate of the store's time was old (a failover, or its clock was set). Retry once.
    return clock.monotonic() < giveUpMs ? lines(await send(notAfter())) : reply;
  }

  async snapshot(): Promise<Snapshot> {
    const snapshot = parseSnapshot(list(await this.connection.run('snapshot', [])));
    this.connection.learnTime(snapshot.nowMs);
    return snapshot;
  }

  /** Rejects if the store does not answer. */
  async ping(): Promise<void> {
    const { pools } = keysOf(this.connection.keyPrefix);
    await this.connection.command('ping', (client) => client.exists(pools));
  }

  async pod(podName: string): Promise<PodInfo> {
    return parsePod((await this.#run('podInfo', [podName], 'pod'))[1] ?? null);
  }

  async call(callSid: string): Promise<CallInfo> {
    return parseCall((await this.#run('callInfo', [callSid], 'call'))[1] ?? null);
  }

  async pods(pool: PoolId, cursor: string, count: number): Promise<Page<PodInfo>> {
    return page(list(await this.connection.run('listPods', [pool, cursor, count], 'pods')), parsePod);
  }

  async calls(pool: PoolId, cursor: string, count: number): Promise<Page<CallInfo>> {
    return page(list(await this.connection.run('listCalls', [pool, cursor, count], 'calls')), parseCall);
  }

  /** The first argument is the call or the pod that an error names. */
  async #run(script: ScriptName, args: Arguments, operation: string = script): Promise<Reply[]> {
    return expectOk(list(await this.connection.run(script, args, operation)), String(args[0]));
  }
}

/** The actor as the last field of an event, or nothing. */
function actorFields(by: string | undefined): string[] {
  return by === undefined ? [] : ['by', by];
}

const codeErrors: Record<string, (subject: string) => [ErrorCode, string]> = {
  not_found: (call) => ['call_not_found', `no live call ${call}: it has ended or never got a pod`],
  stale_fence: (call) => ['stale_fence', `wrong fence for call ${call}: that allocation has ended`],
  late: () => ['store_unavailable', 'the store received the request too late: nothing was changed; retry'],
  pod_not_found: (pod) => ['pod_not_found', `no pod ${pod}: it is not registered`],
  pod_replaced: (pod) => ['pod_replaced', `pod ${pod} was replaced: it is registered with another uid`],
  stale_report: (pod) => [
    'stale_report',
    `a later report of pod ${pod} arrived before this one: nothing was changed`,
  ],
  other_uid: (pod) => ['pod_not_found', `pod ${pod} was replaced: it is registered with another uid`],
};

/** The only function that turns a reply code into an error. */
function codeError(code: Reply | undefined, subject: string): AppError {
  const [errorCode, message] = codeErrors[String(code)]?.(quote(subject)) ?? [
    'internal' as const,
    `unexpected reply ${JSON.stringify(code)} from the store`,
  ];
  return new AppError(errorCode, message, code === 'late' ? { retryAfterSeconds: 1 } : {});
}

function expectOk(reply: Reply[], subject: string): Reply[] {
  if (reply[0] !== 'ok') throw codeError(reply[0], subject);
  return reply;
}

export function podReplaced(podName: string): AppError {
  return codeError('pod_replaced', podName);
}

function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}

export function page<T>(reply: Reply[], parse: (row: Reply) => T): Page<T> {
  const [cursor, ...rows] = reply;
  return { items: rows.map(parse), cursor: cursor === '0' ? undefined : String(cursor) };
}
