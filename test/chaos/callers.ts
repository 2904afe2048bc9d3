/**
 * People who call: they ask any router, another one when it does not answer, hold for a while, and hang up. Some say so
 * twice, late, or never; half of them wait for a pod; some hang up during the connection; some providers allocate twice for one call.
 */
import { SeededRandom } from '../../src/demo/seeded-random.js';
import type { KnownCall } from '../simulation/history.js';
import type { Agents, Life } from './agents.js';
import type { CallHistory } from './call-history.js';
import { wait } from './child.js';
import { type Answer, type AnswerBody, nothing, type Router } from './routers.js';

const callsPerSecond = 40;
/** The maximum number of callers that wait for a fleet that does not answer. */
const maxAtOnce = 250;
const refusals = ['no_pods', 'queue_full', 'wait_expired'];

export class Callers {
  begun = 0;
  /** Those who went away before they had an answer. */
  gone = 0;
  askedAgain = 0;
  #atOnce = 0;
  #isTaking = true;
  readonly #random: SeededRandom;

  constructor(
    private readonly history: CallHistory,
    private readonly routers: readonly Router[],
    private readonly agents: Agents,
    seed: number,
  ) {
    this.#random = new SeededRandom(seed ^ 0x5eed);
  }

  get atOnce(): number {
    return this.#atOnce;
  }

  /** Until `stop()`. */
  async run(): Promise<void> {
    // By the clock, so that a busy machine does not make them rare.
    for (let nextMs = Date.now(); this.#isTaking; ) {
      nextMs += (-Math.log(1 - this.#random.next()) / callsPerSecond) * 1000;
      await wait(Math.max(0, nextMs - Date.now()));
      if (!this.#isTaking || this.#atOnce >= maxAtOnce) continue;
      this.begun += 1;
      this.#atOnce += 1;
      void this.#call(`CA${this.begun}`).finally(() => {
        this.#atOnce -= 1;
      });
    }
  }

  stop(): void {
    this.#isTaking = false;
  }

  async #call(sid: string): Promise<void> {
    const random = this.#random;
    if (random.next() < 0.01) return this.#goAway(sid);
    // The provider asks twice, perhaps at another router.
    if (random.next() < 0.03) void this.#allocate(sid);
    const given = await this.#allocate(sid);
    if (!given) return;
    const { call, life } = given;
    if (random.next() < 0.1) await this.#askAgain(call);
    await wait(random.between(0, 300));
    if (!life?.connect(call)) {
      this.history.over(call, 'no agent listens');
      await this.#release(call, undefined);
      return;
    }
    await this.#talk(call, life);
    const wasThere = life.serving.get(sid) === call;
    life.hangUp(call, 'it ended');
    // The agent dropped the call or ended; the caller does not know that.
    if (random.next() < 0.02) return;
    await this.#release(call, wasThere ? life : undefined);
  }

  /** Most are short, so that there are many; some are longer than a lease, and some of their callers renew. */
  async #talk(call: KnownCall, life: Life): Promise<void> {
    const random = this.#random;
    const isLong = random.next() < 0.01;
    const untilMs = Date.now() + (isLong ? random.between(5000, 20_000) : random.between(20, 500));
    const renews = random.next() < 0.3;
    while (Date.now() < untilMs && life.serving.get(call.sid) === call && this.#isTaking) {
      await wait(Math.min(1500, untilMs - Date.now()));
      if (!renews || life.serving.get(call.sid) !== call) continue;
      const sentMs = Date.now();
      const fence = call.fence;
      const { status } = await random.pick(this.routers).post('/api/v1/renew', { call_sid: call.sid, fence });
      // A report may have returned another fence since: then this was about the old one.
      if ([404, 409].includes(status) && life.isAlive && call.fence === fence)
        this.history.denied(call, `a renewal was refused with ${status}`, sentMs);
    }
  }

  /** Its outcome is unknown, and no further request follows: the report of its pod ends it. */
  async #goAway(sid: string): Promise<void> {
    this.gone += 1;
    const leaving = new AbortController();
    setTimeout(() => leaving.abort(), this.#random.between(0, 30));
    await this.#post('/api/v1/allocate', { call_sid: sid }, leaving.signal);
  }

  async #allocate(sid: string): Promise<{ call: KnownCall; life: Life | undefined } | undefined> {
    const { history } = this;
    const isWaiting = this.#random.next() < 0.5;
    const request = { call_sid: sid, ...(isWaiting ? { wait: '2s' } : {}) };
    let [before, sentMs] = [history.before(), Date.now()];
    let answer = await this.#insist('/api/v1/allocate', request);
    // The pod is handed over after the last request that was answered with `waiting`.
    while (answer.status === 202) {
      const now = [history.before(), Date.now()] as const;
      answer = await this.#insist('/api/v1/allocate', request);
      if (answer.status === 202) [before, sentMs] = now;
    }
    const { status, body } = answer;
    if (status !== 200 || body.pod_name === undefined || body.fence === undefined) {
      if (refusals.includes(body.code ?? '')) history.refused += 1;
      else history.failed += 1;
      if (![0, 503].includes(status))
        history.violated(`allocate ${sid} was answered with ${status} ${body.code}`);
      return undefined;
    }
    const { call, life, isCertain } = this.#given(sid, body, before, sentMs);
    if (isCertain && life && !call.isOver && life.serving.get(sid) !== call) life.awaited.add(call);
    return { call, life };
  }

  /** Acknowledged by one router, known to every other: the history compares. */
  async #askAgain({ sid, pod }: KnownCall): Promise<void> {
    const before = this.history.before();
    const sentMs = Date.now();
    const { status, body } = await this.#post('/api/v1/allocate', { call_sid: sid });
    if (status !== 200 || body.fence === undefined) return;
    this.askedAgain += 1;
    const again = this.#given(sid, body, before, sentMs);
    // Allocated again elsewhere, without a caller: that one is connecting to the pod of the first reply.
    if (body.pod_name !== pod) this.history.ofUnknownPod(again.call);
  }

  #given(sid: string, body: AnswerBody, before: { fence: number; atMs: number }, sentMs: number) {
    const { history } = this;
    const { pod_name: pod = '', fence = 0, source_pool: pool = '', lease_expires_at = '' } = body;
    const life = this.agents.lives.get(pod);
    // Asked for before this container listened: it may have been given on the one before, and have ended with it.
    const isCertain = life !== undefined && sentMs >= life.listensFromMs && !history.isLost(sentMs);
    const call = history.allocatedAs(
      {
        ...{ sid, pod, pool, fence, leaseUntilMs: Date.parse(lease_expires_at) },
        uid: isCertain ? life.uid : `unknown ${sid}`,
        // Of two who ask for one call the slower one may hear last that it was the first; the call may be over by then.
        wasExisting: body.was_existing === true || (history.call(sid)?.fence ?? 0) >= fence,
      },
      before,
    );
    if (!isCertain) history.ofUnknownPod(call);
    return { call, life, isCertain };
  }

  async #release(call: KnownCall, life: Life | undefined): Promise<void> {
    const { history } = this;
    const random = this.#random;
    const { sid, fence } = call;
    const sentMs = Date.now();
    const first = await this.#post('/api/v1/release', { call_sid: sid, fence });
    // A report written after the hang-up does not name the call. The first report of a new generation then ends it at once.
    const isSafe =
      life?.isAlive && life.reportedMs < sentMs && history.isPromised(call) && !history.isLost(sentMs);
    if (first.status === 404 && isSafe && call.fence === fence)
      history.violated(`5: ${sid} was promised until ${call.leaseUntilMs}, and is not there to be released`);
    if (first.status === 0 || first.status === 503) {
      await this.#insist('/api/v1/release', { call_sid: sid, fence });
    } else if (random.next() < 0.05) {
      await wait(random.between(0, 1500));
      const second = await this.#post('/api/v1/release', { call_sid: sid, fence });
      if (first.status === 200 && second.status === 200)
        history.violated(`7: the second release of ${sid} with fence ${fence} freed something`);
    }
  }

  #post(path: string, body: unknown, hangUp?: AbortSignal): Promise<Answer> {
    return this.#random.pick(this.routers).post(path, body, hangUp);
  }

  async #insist(path: string, body: unknown): Promise<Answer> {
    let answer = nothing;
    for (let tries = 0; tries < 3; tries += 1) {
      answer = await this.#post(path, body);
      const isWorthIt =
        answer.status === 0 || (answer.status === 503 && !refusals.includes(answer.body.code ?? ''));
      if (!isWorthIt) return answer;
      await wait(this.#random.between(100, 500));
    }
    return answer;
  }
}
