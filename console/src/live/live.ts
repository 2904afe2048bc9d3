/**
 * The state of the console, kept up to date from three sources:
 *
 * - reads: at the start, when a page opens, and every five seconds for the data of the open page, less often when reads
 *   are slow;
 * - the event stream, applied at once;
 * - events that arrived during a read are applied to its result again, because the read may be older.
 *
 * While reads or stream fail, the state keeps its data and the time since which it is stale.
 */
import { ApiError, ask, readPages, request, sentenceOf, withTimeout } from '../api';
import { learnRouterTime, routerNow } from '../time';
import type {
  Alert,
  Call,
  EventPage,
  History,
  Pod,
  RouterEvent,
  Status,
  WaitingCall,
  WorkflowNumbers,
} from '../types';
import { applyEvent, type Fleet, learnLease } from './apply';
import { type LostPod, lostBy, rememberLost } from './lost-pods';
import { type Outage, outageOf, worse } from './outage';
import { pauseAfter, type RepeatedRead, type Rest, repeat } from './repeat';
import { type KnownRouter, rememberRouters } from './routers';
import { followEvents } from './stream';

/** The data that a page can request. */
export type Topic = 'status' | 'pods' | 'calls' | 'history' | 'alerts' | 'records';

/** For one page of a list. */
const timeoutMs = 5000;
/** One failed read is tolerated while the stream works; two are an outage. */
const readsToBelieve = 2;
const maxEvents = 5000;
const noRest: Rest = { minMs: 0, maxMs: 0 };
/** Renderings take at most a tenth of the time: with 1,000 pods there are about ten a second. */
const restPerRendering = 9;
const maxRestMs = 400;
const hiddenMs = 500;
/** The router counts table rows: reads of records are rare, rarer if they are slow, and frequent only on their page. */
const recordsRest = { minMs: 1000, openMs: 5000, closedMs: 15_000, perRead: 10, maxMs: 300_000 };
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export class LiveState implements Fleet {
  pods = new Map<string, Pod>();
  calls = new Map<string, Call>();
  waiting = new Map<string, WaitingCall>();
  leaseMs = 0;
  status: Status | undefined;
  history: History | undefined;
  /** Including those that left the history recently. */
  routers: readonly KnownRouter[] = [];
  /** Since when there is no leader; undefined while there is one. */
  leaderlessSince: number | undefined;
  lostPods: readonly LostPod[] = [];
  alerts: Alert[] | undefined;
  records: RecordNumbers = { workflows: undefined, stuck: [], problem: undefined };
  /** Newest last. */
  events: RouterEvent[] = [];
  /** The number of events since the first list, including those that have left it. */
  heard = 0;
  /** How often events left the list, or the first ones were listed: older events must be read again then. */
  trims = 0;
  /** Topics that were read at least once. */
  known: ReadonlySet<Topic> = new Set();
  /** Topics of the open page: only these are kept up to date. */
  shown: ReadonlySet<Topic> = new Set(['status']);
  /** Since when the state may be stale; undefined while it is live. */
  staleSince: number | undefined;
  outage: Outage | undefined;
  /** Incremented with every change of pods or calls. */
  fleetVersion = 0;
}

/** From one read for all pages, so that badge, overview and records page agree. */
interface RecordNumbers {
  /** The last successful read; undefined before the first one. */
  workflows: readonly WorkflowNumbers[] | undefined;
  /** Workflows with stuck records; empty while the counts are unknown. */
  stuck: readonly WorkflowNumbers[];
  /** The error message; undefined after a successful read. */
  problem: string | undefined;
}

/** Of events; above 0: a is newer. */
export function compareIds(a: string, b: string): number {
  const [am = 0, as = 0] = a.split('-').map(Number);
  const [bm = 0, bs = 0] = b.split('-').map(Number);
  return am === bm ? as - bs : am - bm;
}

export class Live {
  readonly state = new LiveState();
  readonly #listeners = new Set<() => void>();
  readonly #eventListeners = new Set<(events: RouterEvent[]) => void>();
  /** Events since the start of the oldest running read. */
  #since: RouterEvent[] = [];
  #stream: ReturnType<typeof followEvents> | undefined;
  #records: RepeatedRead | undefined;
  #reads: RepeatedRead | undefined;
  #streamFails = false;
  #failedReads = 0;
  #lastTrueAt = 0;
  #storeAwayAt = 0;
  #recalls = 0;
  #mustRecall = false;
  /** Events after this one may be missing from the list; `after` undefined: it was empty. Undefined: none is missing. */
  #gap: { after: string | undefined } | undefined;
  #isRendering = false;
  #hasChanged = false;

  start(): void {
    if (this.#stream) return;
    this.#lastTrueAt = Date.now();
    this.#stream = followEvents({
      opened: (hasGap) => {
        this.#streamFails = false;
        // A full read replaces the missed events.
        this.read();
        if (!hasGap) return;
        this.#keepAfterGap();
        void this.#recall();
      },
      heard: (events) => this.#hear(events),
      broke: (error) => {
        this.#streamFails = true;
        this.#judge(error);
      },
    });
    // Without a stream, the first round lists the latest events.
    this.#mustRecall = true;
    this.#reads = repeat((signal) => this.#readOnce(signal));
  }

  stop(): void {
    this.#stream?.stop();
    this.#stream = undefined;
    this.#records?.stop();
    this.#records = undefined;
    this.#reads?.stop();
  }

  /** Sets the topics of the open page; reads them at once and repeatedly. */
  show(topics: readonly Topic[]): void {
    this.state.shown = new Set<Topic>(['status', 'alerts', ...topics]);
    if (this.#stream) this.read();
    if (this.state.shown.has('records')) this.readRecords();
  }

  /** Reads the record counts now. */
  readRecords(): void {
    this.#records?.again();
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  onEvents(listener: (events: RouterEvent[]) => void): () => void {
    this.#eventListeners.add(listener);
    return () => void this.#eventListeners.delete(listener);
  }

  /** Reads the topics of the open page now; a newer round cancels an older one. */
  read(): void {
    this.#reads?.restart();
  }

  async #readOnce(signal: AbortSignal): Promise<Rest> {
    this.#since = [];
    const round = new AbortController();
    const deadline = () => withTimeout(timeoutMs, AbortSignal.any([signal, round.signal]));
    const beganAt = performance.now();
    const topics = [...this.state.shown];
    let retryAfterMs = 0;
    try {
      const results = await Promise.all(topics.map((topic) => this.#fetch(topic, deadline)));
      if (signal.aborted) return noRest;
      for (const apply of results) apply();
      for (const event of this.#since) applyEvent(this.state, event);
      this.state.leaseMs = learnLease(this.state.calls.values()) || this.state.leaseMs;
      this.state.known = new Set([...this.state.known, ...topics]);
      this.state.fleetVersion += 1;
      // After an outage the stream reconnects at once.
      if (this.#failedReads > 0) this.#stream?.hurry();
      this.#failedReads = 0;
      if (this.#mustRecall) void this.#recall();
      if (!this.#streamFails) this.#lastTrueAt = Date.now();
      this.#judge(undefined);
    } catch (error) {
      if (signal.aborted) return noRest;
      // The other reads of this round are obsolete.
      round.abort();
      if (error instanceof ApiError) retryAfterMs = error.retryAfterMs;
      this.#failedReads += 1;
      this.#judge(error);
    }
    const tookMs = performance.now() - beganAt;
    return { minMs: 0, maxMs: pauseAfter({ tookMs, hasFailed: this.#failedReads > 0, retryAfterMs }) };
  }

  /** Called at a new gap: if an earlier one is still open, the events before it leave the list. */
  #keepAfterGap(): void {
    const { state } = this;
    if (!this.#gap) return;
    const { after } = this.#gap;
    const kept = state.events.filter(({ id }) => after === undefined || compareIds(id, after) > 0);
    if (kept.length === 0) return;
    this.#gap = undefined;
    state.events = kept;
    state.trims += 1;
  }

  /**
   * Reads the latest events after a gap. If they do not reach back to it, the events before the gap leave the list. If the
   * read fails, the next successful round repeats it.
   */
  async #recall(): Promise<void> {
    const { state } = this;
    this.#recalls += 1;
    const turn = this.#recalls;
    this.#mustRecall = false;
    this.#gap ??= { after: state.events.at(-1)?.id };
    try {
      // Newest first.
      const events = (await ask<EventPage>('/events/search?limit=100')).events.reverse();
      if (turn !== this.#recalls) return;
      const { after } = this.#gap;
      this.#gap = undefined;
      if (after === undefined || !events.some(({ id }) => compareIds(id, after) <= 0)) {
        if (after !== undefined) state.events = state.events.filter(({ id }) => compareIds(id, after) > 0);
        state.trims += 1;
      }
      const added = this.#list(events);
      if (after !== undefined) state.heard += added;
      this.#notify();
    } catch {
      if (turn === this.#recalls) this.#mustRecall = true;
    }
  }

  /** Lists events, oldest first, that are not listed yet; returns how many. A search may be ahead of the stream. */
  #list(events: readonly RouterEvent[]): number {
    const { state } = this;
    const before = state.events;
    const newest = before.at(-1)?.id;
    if (newest !== undefined && events.every(({ id }) => compareIds(id, newest) > 0))
      state.events = [...before, ...events];
    else {
      const byId = new Map([...before, ...events].map((event) => [event.id, event]));
      state.events = [...byId.values()].sort((a, b) => compareIds(a.id, b.id));
    }
    const added = state.events.length - before.length;
    if (state.events.length > maxEvents * 1.2) {
      state.events = state.events.slice(-maxEvents);
      state.trims += 1;
    }
    return added;
  }

  async #fetch(topic: Topic, deadline: () => AbortSignal): Promise<() => void> {
    const { state } = this;
    switch (topic) {
      case 'status': {
        const response = await request('/status', { signal: deadline() });
        learnRouterTime(response.headers.get('date'));
        const status = (await response.json()) as Status;
        return () => this.#know(status);
      }
      case 'pods': {
        const pods = await readPages<Pod>('/pods', 'pods', deadline);
        return () => {
          state.pods = new Map(pods.map((pod) => [pod.pod_name, pod]));
          state.lostPods = rememberLost(state.lostPods, state.pods, routerNow());
        };
      }
      case 'calls': {
        const [calls, waiting] = await Promise.all([
          readPages<Call>('/calls', 'calls', deadline),
          readPages<WaitingCall>('/calls?waiting=true', 'waiting', deadline),
        ]);
        return () => {
          state.calls = new Map(calls.map((call) => [call.call_sid, call]));
          state.waiting = new Map(waiting.map((call) => [call.call_sid, call]));
        };
      }
      case 'history': {
        const history = await ask<History>('/history?minutes=60', { signal: deadline() });
        return () => {
          state.history = history;
          state.routers = rememberRouters(state.routers, history.replicas, routerNow(), this.#storeAwayAt);
        };
      }
      // Separately: counting rows may take long.
      case 'records':
        return () => {};
      case 'alerts': {
        const { alerts } = await ask<{ alerts: Alert[] }>('/alerts', { signal: deadline() });
        return () => {
          state.alerts = alerts;
        };
      }
    }
  }

  #know(status: Status): void {
    const { state } = this;
    state.status = status;
    state.leaderlessSince = status.leader === null ? (state.leaderlessSince ?? Date.now()) : undefined;
    if (status.records !== null && this.#stream) this.#records ??= repeat(() => this.#readRecordsOnce());
  }

  async #readRecordsOnce(): Promise<Rest> {
    const { state } = this;
    const { minMs, openMs, closedMs, perRead, maxMs } = recordsRest;
    const isOpen = () => state.shown.has('records');
    const beganAt = performance.now();
    try {
      if (state.status?.records?.database === 'up' || isOpen()) {
        const { workflows } = await ask<{ workflows: WorkflowNumbers[] }>('/records');
        const stuck = workflows.filter((workflow) => workflow.stuck > 0);
        state.records = { workflows, stuck, problem: undefined };
      } else state.records = { ...state.records, stuck: [] };
    } catch (error) {
      state.records = { ...state.records, stuck: [], problem: sentenceOf(error) };
    }
    this.#notify();
    if (isOpen()) return { minMs, maxMs: openMs };
    const restMs = Math.max(closedMs, perRead * (performance.now() - beganAt));
    return { minMs, maxMs: Math.min(maxMs, restMs) };
  }

  #hear(events: RouterEvent[]): void {
    const { state } = this;
    this.#since.push(...events);
    for (const event of events) {
      state.lostPods = [...state.lostPods, ...lostBy(event, state.pods)];
      applyEvent(state, event);
      if (event.type === 'leader_elected' && state.status && event.leader !== undefined)
        this.#know({ ...state.status, leader: event.leader });
    }
    state.lostPods = rememberLost(state.lostPods, state.pods, routerNow());
    state.heard += this.#list(events);
    state.fleetVersion += 1;
    for (const listener of this.#eventListeners) listener(events);
    this.#notify();
  }

  #judge(error: unknown): void {
    const { state } = this;
    const down = state.status?.status === 'down';
    const found = outageOf(error, state.status);
    if (found?.part === 'store') this.#storeAwayAt = routerNow();
    if (this.#streamFails || this.#failedReads >= readsToBelieve || down) {
      state.staleSince ??= this.#lastTrueAt;
      state.outage = worse(state.outage, found);
    } else {
      state.staleSince = undefined;
      state.outage = undefined;
    }
    this.#notify();
  }

  /** One rendering for all changes of a frame. After a slow one the next waits, so that the page stays responsive. */
  #notify(): void {
    this.#hasChanged = true;
    if (this.#isRendering) return;
    this.#isRendering = true;
    const render = async () => {
      const beganAt = performance.now();
      this.#hasChanged = false;
      try {
        for (const listener of this.#listeners) listener();
        // Its layout and painting follow before the next task.
        await pause(0);
        await pause(Math.min(maxRestMs, restPerRendering * (performance.now() - beganAt)));
      } finally {
        this.#isRendering = false;
      }
      if (this.#hasChanged) this.#notify();
    };
    if (document.hidden) setTimeout(render, hiddenMs);
    else requestAnimationFrame(render);
  }
}

export const live = new Live();

/** The number of live calls, from the topics of the open page. */
export function liveCalls(state: LiveState): number | null | undefined {
  if (state.shown.has('calls') && state.known.has('calls')) return state.calls.size;
  if (!state.shown.has('pods') || !state.known.has('pods')) return state.status?.active_calls;
  let sum = 0;
  for (const pod of state.pods.values()) sum += pod.leases.length;
  return sum;
}
