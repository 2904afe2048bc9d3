/**
 * Everything the console knows, in one place, live. Three sources, each repairing the others:
 *
 * - reads: at the start, whenever a page opens, and every five seconds again what the open page shows;
 * - the event stream, applied the moment it arrives;
 * - what came through the stream while a read was under way is applied to its result once more, because the read may
 *   have looked before it happened.
 *
 * While either fails the state keeps what it had and says since when it is stale.
 */
import { ApiError, ask, readPages, request, sentenceOf } from '../api';
import type { Alert, Call, EventPage, History, Pod, RouterEvent, Status } from '../shapes';
import { learnRouterTime } from '../time';
import { applyEvent, type Fleet, learnLease } from './apply';
import { type Following, followEvents } from './stream';

/** What a page can ask to be read. */
export type Topic = 'status' | 'pods' | 'calls' | 'history' | 'alerts';

const everyMs = 5000;
/** While it fails, it is tried sooner: the page should be true again the moment the router is. */
const retryMs = 1000;
const patienceMs = 5000;
/** One read that fails is a hiccup, while the stream goes on; two are an outage. */
const readsToBelieve = 2;
const mostEvents = 5000;

export interface LiveState extends Fleet {
  status: Status | undefined;
  history: History | undefined;
  alerts: Alert[] | undefined;
  /** Newest last. */
  events: RouterEvent[];
  /** Topics that were read at least once. */
  known: ReadonlySet<Topic>;
  /** Topics of the open page: only these are kept true. */
  shown: ReadonlySet<Topic>;
  /** Topics that this router does not have. */
  absent: ReadonlySet<Topic>;
  /** Since when what is shown may be wrong; undefined while all is well. */
  staleSince: number | undefined;
  /** Why, in one sentence. */
  trouble: string | undefined;
  /** Grows with every change of pods or calls. */
  fleetVersion: number;
  eventVersion: number;
}

export class Live {
  readonly state: LiveState = {
    pods: new Map(),
    calls: new Map(),
    leaseMs: 0,
    status: undefined,
    history: undefined,
    alerts: undefined,
    events: [],
    known: new Set(),
    shown: new Set(),
    absent: new Set(),
    staleSince: undefined,
    trouble: undefined,
    fleetVersion: 0,
    eventVersion: 0,
  };
  readonly #listeners = new Set<() => void>();
  readonly #eventListeners = new Set<(events: RouterEvent[]) => void>();
  #topics: readonly Topic[] = ['status'];
  /** Events that arrived since the oldest read under way began. */
  #since: RouterEvent[] = [];
  #stream: Following | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #round = 0;
  #streamFails = false;
  #failedReads = 0;
  #lastTrueAt = 0;
  #frame = false;

  start(): void {
    if (this.#stream) return;
    this.#lastTrueAt = Date.now();
    this.#stream = followEvents({
      opened: () => {
        this.#streamFails = false;
        // Whatever was missed is made good by reading everything again.
        void this.read();
      },
      heard: (events) => this.#hear(events),
      broke: (error) => {
        this.#streamFails = true;
        this.#judge(error);
      },
    });
    void this.read();
    void this.#recall();
  }

  stop(): void {
    this.#stream?.stop();
    this.#stream = undefined;
    clearTimeout(this.#timer);
    this.#round += 1;
  }

  /** What the open page shows: read at once, and again and again. */
  show(topics: readonly Topic[]): void {
    this.#topics = [
      'status',
      'alerts',
      ...topics.filter((topic) => topic !== 'status' && topic !== 'alerts'),
    ];
    this.state.shown = new Set(this.#topics);
    if (this.#stream) void this.read();
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  onEvents(listener: (events: RouterEvent[]) => void): () => void {
    this.#eventListeners.add(listener);
    return () => void this.#eventListeners.delete(listener);
  }

  /** Reads the topics of the open page now; a newer round makes an older one void. */
  async read(): Promise<void> {
    clearTimeout(this.#timer);
    this.#round += 1;
    const round = this.#round;
    this.#since = [];
    const signal = AbortSignal.timeout(patienceMs);
    try {
      const results = await Promise.all(this.#topics.map((topic) => this.#fetch(topic, signal)));
      if (round !== this.#round) return;
      for (const apply of results) apply();
      for (const event of this.#since) applyEvent(this.state, event);
      this.state.leaseMs = learnLease(this.state.calls.values()) || this.state.leaseMs;
      this.state.known = new Set([...this.state.known, ...this.#topics]);
      this.state.fleetVersion += 1;
      // After an outage the stream need not wait for its turn.
      if (this.#failedReads > 0) this.#stream?.hurry();
      this.#failedReads = 0;
      if (!this.#streamFails) this.#lastTrueAt = Date.now();
      this.#judge(undefined);
    } catch (error) {
      if (round !== this.#round) return;
      this.#failedReads += 1;
      this.#judge(error);
    }
    if (this.#stream)
      this.#timer = setTimeout(() => void this.read(), this.#failedReads > 0 ? retryMs : everyMs);
  }

  /** What happened before the page was opened, so that it does not begin empty. */
  async #recall(): Promise<void> {
    try {
      const { events } = await ask<EventPage>('/events/search?limit=100');
      const { state } = this;
      const heard = new Set(state.events.map(({ id }) => id));
      state.events = [...events.filter(({ id }) => !heard.has(id)).reverse(), ...state.events];
      state.eventVersion += 1;
      this.#tell();
    } catch {
      // Then it begins with what happens next.
    }
  }

  async #fetch(topic: Topic, signal: AbortSignal): Promise<() => void> {
    const { state } = this;
    try {
      switch (topic) {
        case 'status': {
          const response = await request('/status', { signal });
          learnRouterTime(response.headers.get('date'));
          const status = (await response.json()) as Status;
          return () => {
            state.status = status;
          };
        }
        case 'pods': {
          const pods = await readPages<Pod>('/pods', 'pods', signal);
          return () => {
            state.pods = new Map(pods.map((pod) => [pod.pod_name, pod]));
          };
        }
        case 'calls': {
          const calls = await readPages<Call>('/calls', 'calls', signal);
          return () => {
            state.calls = new Map(calls.map((call) => [call.call_sid, call]));
          };
        }
        case 'history': {
          const history = await ask<History>('/history?minutes=60', { signal });
          return () => {
            state.history = history;
          };
        }
        case 'alerts': {
          const { alerts } = await ask<{ alerts: Alert[] }>('/alerts', { signal });
          return () => {
            state.alerts = alerts;
          };
        }
      }
    } catch (error) {
      if (!(error instanceof ApiError) || !error.isAbsent || topic === 'status') throw error;
      return () => {
        state.absent = new Set([...state.absent, topic]);
      };
    }
  }

  #hear(events: RouterEvent[]): void {
    const { state } = this;
    this.#since.push(...events);
    for (const event of events) {
      applyEvent(state, event);
      if (event.type === 'leader_elected' && state.status && event.leader !== undefined)
        state.status = { ...state.status, leader: event.leader };
    }
    state.events.push(...events);
    if (state.events.length > mostEvents * 1.2) state.events = state.events.slice(-mostEvents);
    state.fleetVersion += 1;
    state.eventVersion += 1;
    for (const listener of this.#eventListeners) listener(events);
    this.#tell();
  }

  #judge(error: unknown): void {
    const { state } = this;
    const down = state.status?.status === 'down';
    if (this.#streamFails || this.#failedReads >= readsToBelieve || down) {
      state.staleSince ??= this.#lastTrueAt;
      state.trouble =
        error !== undefined
          ? sentenceOf(error)
          : down
            ? (state.status?.store_error ?? 'the store does not answer')
            : state.trouble;
    } else {
      state.staleSince = undefined;
      state.trouble = undefined;
    }
    this.#tell();
  }

  /** Many changes, one rendering: the next frame's, or at once in a tab that draws no frames. */
  #tell(): void {
    if (this.#frame) return;
    this.#frame = true;
    const run = () => {
      this.#frame = false;
      for (const listener of this.#listeners) listener();
    };
    if (document.hidden) setTimeout(run, 500);
    else requestAnimationFrame(run);
  }
}

export const live = new Live();

/** How many calls are live, from what the open page keeps true. */
export function liveCalls(state: LiveState): number | null | undefined {
  if (state.shown.has('calls') && state.known.has('calls')) return state.calls.size;
  if (!state.shown.has('pods') || !state.known.has('pods')) return state.status?.active_calls;
  let sum = 0;
  for (const pod of state.pods.values()) sum += pod.leases.length;
  return sum;
}
