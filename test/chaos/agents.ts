/**
 * The voice agents: one life per container. They report what they serve through the client that real agents import, over
 * any of the routers, and drop calls that the reply says are not theirs. A container that ends takes its calls with it.
 */
import { type Client, createClient, type Reporter } from '../../src/client/index.js';
import type { SeededRandom } from '../../src/demo/seeded-random.js';
import type { HistoryWriter } from '../history/writer.js';
import type { KnownCall } from '../simulation/history.js';
import type { CallHistory } from './call-history.js';
import type { Router } from './routers.js';
import { apiKey, times } from './times.js';

export class Life {
  readonly serving = new Map<string, KnownCall>();
  /** Given by a router; the caller is on its way. */
  readonly awaited = new Set<KnownCall>();
  /** A router has answered a report with this pod's UID: it knows this one, not the one before. */
  isKnown = false;
  isAlive = true;
  readonly listensFromMs: number;
  readonly #client: Client;
  readonly #reporter: Reporter;
  /** When its last report was written. */
  reportedMs = 0;

  constructor(
    readonly pod: string,
    readonly uid: string,
    private readonly history: CallHistory,
    fetchAny: typeof globalThis.fetch,
  ) {
    this.listensFromMs = Date.now() + times.agentStartsMs;
    this.#client = createClient({
      baseUrl: 'http://any-router',
      apiKey,
      fetch: fetchAny,
      timeoutMs: 2500,
      breaker: { failures: 50, openMs: 500 },
      onEvent: (event) => {
        if (event.type === 'reported') this.#reported(event.report);
      },
    });
    this.#reporter = this.#client.startReporting(pod, () => this.#list(), {
      uid,
      intervalMs: times.reportEveryMs,
      onConflict: (sids) => {
        for (const sid of sids) this.#drop(sid);
      },
    });
  }

  /** A caller connects. False: the agent does not listen yet, or any more. */
  connect(call: KnownCall): boolean {
    if (!this.isAlive || Date.now() < this.listensFromMs) return false;
    this.awaited.delete(call);
    this.serving.set(call.sid, call);
    return true;
  }

  hangUp(call: KnownCall, why: string): void {
    this.awaited.delete(call);
    if (this.serving.get(call.sid) === call) this.serving.delete(call.sid);
    this.history.over(call, why);
  }

  /** The process and its calls end: also calls whose callers are still connecting. */
  end(why: string): void {
    this.isAlive = false;
    this.#reporter.stop();
    this.#client.close();
    for (const call of [...this.serving.values(), ...this.awaited]) this.history.over(call, why);
    this.serving.clear();
    this.awaited.clear();
  }

  #list(): string[] {
    this.reportedMs = Date.now();
    return [...this.serving.keys()];
  }

  /** The reply to the last report: reports of an agent never overlap. */
  #reported({
    renewed,
    adopted,
    fences,
  }: {
    renewed: string[];
    adopted: string[];
    fences: Record<string, number>;
  }) {
    this.isKnown = true;
    for (const sid of renewed) {
      const call = this.serving.get(sid);
      if (call) this.history.reported(call, this.reportedMs);
    }
    for (const sid of adopted) {
      const call = this.serving.get(sid);
      if (call) this.history.adopted(call, fences[sid], this.reportedMs);
    }
  }

  #drop(sid: string): void {
    const call = this.serving.get(sid);
    if (!call) return;
    this.history.denied(call, 'the router told its agent to drop it', this.reportedMs);
    this.hangUp(call, 'a conflict');
  }
}

export class Agents {
  readonly lives = new Map<string, Life>();
  readonly #fetchAny: typeof globalThis.fetch;

  constructor(
    private readonly history: CallHistory,
    routers: readonly Router[],
    random: SeededRandom,
    private readonly requests: HistoryWriter,
  ) {
    // As behind a load balancer that has not noticed a dead router yet.
    this.#fetchAny = async (input, init) => {
      const { pathname, search } = new URL(String(input));
      const { status, headers, text } = await requests.send(pathname, parsed(init?.body), async () => {
        const response = await globalThis.fetch(random.pick(routers).url + pathname + search, init);
        const text = await response.text();
        return { status: response.status, headers: response.headers, text, body: parsed(text) };
      });
      return new Response(text, { status, headers });
    };
  }

  start(pod: string, uid: string): Life {
    this.end(pod, 'another container starts');
    const life = new Life(pod, uid, this.history, this.#fetchAny);
    this.lives.set(pod, life);
    return life;
  }

  end(pod: string, why: string): void {
    const life = this.lives.get(pod);
    if (!life) return;
    this.requests.podGone(pod);
    life.end(why);
    this.lives.delete(pod);
  }

  get calls(): number {
    return [...this.lives.values()].reduce((sum, { serving }) => sum + serving.size, 0);
  }

  stop(): void {
    for (const pod of [...this.lives.keys()]) this.end(pod, 'the run is over');
  }
}

function parsed(text: unknown): unknown {
  try {
    return JSON.parse(String(text));
  } catch {
    return undefined;
  }
}
