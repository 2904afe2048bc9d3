/**
 * Callers and the agents that serve them. A call holds its pod from the answer to its allocate until its release is sent or
 * its agent drops it. Two calls that hold one pod at once are a double allocation.
 */
import { type Client, createClient, type Reporter } from '../../src/client/index.js';
import { SeededRandom } from '../../src/demo/seeded-random.js';
import { wait } from '../chaos/child.js';
import { type HistoryWriter, toSent } from '../history/writer.js';
import type { Answer, Routers } from './routers.js';
import { apiKey, type FailoverOptions, podNames, type Round, times } from './settings.js';

export interface Call {
  readonly sid: string;
  readonly round: Round;
  pod: string;
  fence: number | undefined;
  /** Answered with 200. */
  releasedMs?: number;
  /** Hangs up. */
  drop: () => void;
}

const final = ['no_pods', 'queue_full', 'wait_expired'];

export class Traffic {
  /** Calls whose callers have not finished: they ask, talk or release. */
  readonly unfinished = new Map<string, Call>();
  /** Released calls, until the next round but one. */
  readonly released = new Map<string, Call>();
  readonly #serving = new Map<string, Map<string, Call>>();
  readonly #clients: Client[] = [];
  readonly #reporters = new Map<string, Reporter>();
  readonly #overlaps = new Map<Call, { other: Call; sinceMs: number }[]>();
  readonly #random: SeededRandom;
  #begun = 0;
  #isOpen = true;

  constructor(
    private readonly options: FailoverOptions,
    private readonly routers: Routers,
    private readonly history: HistoryWriter,
    /** Calls that begin now belong to it. */
    public round: Round,
  ) {
    this.#random = new SeededRandom(options.seed ^ 0x5eed);
    for (const pod of podNames(options.pods)) this.#serving.set(pod, new Map());
    if (options.agents) for (const pod of this.#serving.keys()) this.#startAgent(pod);
  }

  /** Until `stop()`. */
  async run(): Promise<void> {
    // By the clock, so that a busy machine does not make them rare.
    for (let nextMs = performance.now(); this.#isOpen; ) {
      nextMs += (-Math.log(1 - this.#random.next()) / this.options.callsPerSecond) * 1000;
      await wait(Math.max(0, nextMs - performance.now()));
      if (this.#isOpen) void this.#call();
    }
  }

  stop(): void {
    this.#isOpen = false;
    for (const client of this.#clients) client.close();
    for (const call of this.unfinished.values()) call.drop();
  }

  async #call(): Promise<void> {
    this.#begun += 1;
    const { round } = this;
    const call: Call = { sid: `CA${this.#begun}`, round, pod: '', fence: undefined, drop: () => {} };
    round.calls += 1;
    this.unfinished.set(call.sid, call);
    const hungUp = new Promise<void>((resolve) => {
      call.drop = resolve;
    });
    if (await this.#allocate(call)) {
      // On average 64 % of the pods are busy, for any number of pods.
      const scale = (1000 * this.options.pods) / this.options.callsPerSecond / 5;
      const random = this.#random;
      const lengthMs = scale * (random.next() < 0.15 ? random.between(5, 15) : random.between(1, 3));
      let timer: NodeJS.Timeout | undefined;
      const talked = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, lengthMs);
      });
      await Promise.race([talked, hungUp]);
      clearTimeout(timer);
      this.#end(call);
      await this.#release(call);
    }
    this.unfinished.delete(call.sid);
  }

  async #allocate(call: Call): Promise<boolean> {
    const isWaiting = call.round.fault === 'planned';
    const untilMs = performance.now() + (isWaiting ? times.holdPatienceMs : times.patienceMs);
    const request = { call_sid: call.sid, ...(isWaiting ? { wait: '5s' } : {}) };
    for (let isCertain = true; ; ) {
      const { status, body } = await this.#post('/api/v1/allocate', request, isWaiting ? 5000 : 0);
      if (status === 200 && body.pod_name !== undefined) {
        call.pod = body.pod_name;
        call.fence = body.fence;
        this.#begin(call);
        return true;
      }
      if (status === 0 || status === 202) isCertain = false;
      if (final.includes(body.code ?? '') || performance.now() > untilMs || !this.#isOpen) {
        const code = body.code ?? (status === 0 ? 'no answer' : String(status));
        if (this.#isOpen) call.round.refused[code] = (call.round.refused[code] ?? 0) + 1;
        // It may have a pod or a place in the queue: the provider's final status ends that.
        if (!isCertain) await this.#release(call);
        return false;
      }
      if (status !== 202) await wait(this.#random.between(100, 400));
    }
  }

  async #release(call: Call): Promise<void> {
    const untilMs = performance.now() + 60_000;
    const { sid, fence } = call;
    while (this.#isOpen && performance.now() < untilMs) {
      const { status } = await this.#post('/api/v1/release', { call_sid: sid, fence });
      if (status === 200) {
        call.releasedMs = performance.now();
        this.released.set(sid, call);
      }
      if (status !== 0 && status < 500) return;
      await wait(this.#random.between(100, 400));
    }
  }

  #post(path: string, body: unknown, waitMs = 0): Promise<Answer> {
    return this.routers.post(this.#random.pick(this.routers.urls), path, body, waitMs);
  }

  #begin(call: Call): void {
    const serving = this.#serving.get(call.pod);
    const sinceMs = performance.now();
    for (const other of serving?.values() ?? []) {
      call.round.doubles += 1;
      this.#overlaps.set(call, [...(this.#overlaps.get(call) ?? []), { other, sinceMs }]);
      this.#overlaps.set(other, [...(this.#overlaps.get(other) ?? []), { other: call, sinceMs }]);
    }
    serving?.set(call.sid, call);
    // As the documentation asks: a call that has arrived is reported at once.
    this.#reporters
      .get(call.pod)
      ?.runOnce()
      .catch(() => undefined); // The next report tries again.
  }

  #end(call: Call): void {
    if (!this.#serving.get(call.pod)?.delete(call.sid)) return;
    for (const { other, sinceMs } of this.#overlaps.get(call) ?? []) {
      if (this.#serving.get(call.pod)?.get(other.sid) !== other) continue;
      const overlapMs = performance.now() - sinceMs;
      for (const { round } of [call, other])
        round.longestOverlapMs = Math.max(round.longestOverlapMs, overlapMs);
    }
    this.#overlaps.delete(call);
  }

  /** Reports through the client that real agents import, over any router, and drops what the answer says it must. */
  #startAgent(pod: string): void {
    const serving = this.#serving.get(pod) as Map<string, Call>;
    const client = createClient({
      ...{ baseUrl: 'http://any-router', apiKey, timeoutMs: 2500, breaker: { failures: 50, openMs: 500 } },
      fetch: (input, init) => this.#fetchAny(String(input), init),
      onEvent: (event) => {
        if (event.type !== 'reported') return;
        for (const [sid, fence] of Object.entries(event.report.fences)) {
          const call = serving.get(sid);
          if (call) call.fence = fence;
        }
        for (const sid of [...event.report.ended, ...event.report.conflicts]) this.#drop(serving.get(sid));
      },
    });
    const options = { intervalMs: times.reportEveryMs };
    this.#reporters.set(
      pod,
      client.startReporting(pod, () => [...serving.keys()], options),
    );
    this.#clients.push(client);
  }

  #drop(call: Call | undefined): void {
    if (!call) return;
    call.round.dropped += 1;
    this.#end(call);
    call.drop();
  }

  async #fetchAny(input: string, init: RequestInit | undefined): Promise<Response> {
    const { pathname, search } = new URL(input);
    const sent = toSent(pathname, JSON.parse(String(init?.body ?? '{}')));
    const end = sent && this.history.begin(sent);
    try {
      const response = await fetch(this.#random.pick(this.routers.urls) + pathname + search, init);
      const text = await response.text();
      end?.(response.status, JSON.parse(text));
      return new Response(text, { status: response.status, headers: response.headers });
    } catch (error) {
      end?.(null);
      throw error;
    }
  }
}
