/**
 * A constant load: calls on exclusive and shared pods, some of which report; calls that wait; merchants, pods and drains
 * that come and go. Everything that has a name gets a new one again and again: state that is kept per name must show.
 */
import { createHmac } from 'node:crypto';
import { SeededRandom } from '../../src/demo/seeded-random.js';
import { wait } from '../chaos/child.js';
import type { Cluster } from '../support/cluster.js';
import { type Router, twilioToken } from './routers.js';

const meanCallMs = 6000;
const reportEveryMs = 15_000;
const merchantEveryMs = 5000;
const drainEveryMs = 3000;
const podEveryMs = 10_000;
const lookEveryMs = 5000;
const liveMerchants = 20;
/** The most requests that may be open: a fleet that does not answer must not fill the memory of this process. */
const maxAtOnce = 2000;

interface Agent {
  name: string;
  uid: string;
  reports: boolean;
  calls: Set<string>;
}

export interface LoadOptions {
  callsPerSecond: number;
  pods: number;
}

export class Load {
  begun = 0;
  live = 0;
  waiting = 0;
  /** Answers by request and status; `0` is no answer. */
  readonly answers: Record<string, number> = {};
  #isRunning = true;
  #atOnce = 0;
  #podNumber = 0;
  #merchantNumber = 0;
  readonly #agents = new Map<string, Agent>();
  readonly #random = new SeededRandom(1);

  constructor(
    private readonly routers: readonly Router[],
    private readonly cluster: Cluster,
    private readonly options: LoadOptions,
  ) {}

  createPods(): void {
    for (let i = 0; i < this.options.pods; i += 1) this.#createPod();
  }

  /** Until `stop()`. */
  async run(): Promise<void> {
    const { callsPerSecond } = this.options;
    await Promise.all([
      this.#every(
        () => (-Math.log(1 - this.#random.next()) / callsPerSecond) * 1000,
        () => this.#call(),
      ),
      this.#every(
        () => reportEveryMs / Math.max(1, this.options.pods / 2),
        () => this.#report(),
      ),
      this.#every(
        () => merchantEveryMs,
        () => this.#changeMerchants(),
      ),
      this.#every(
        () => drainEveryMs,
        () => this.#drain(),
      ),
      this.#every(
        () => podEveryMs,
        () => this.#replacePod(),
      ),
      this.#every(
        () => lookEveryMs,
        () => this.#look(),
      ),
    ]);
  }

  stop(): void {
    this.#isRunning = false;
  }

  /** By the clock, so that a busy machine does not make them rare. */
  async #every(gapMs: () => number, act: () => Promise<unknown>): Promise<void> {
    for (let nextMs = Date.now(); this.#isRunning; ) {
      nextMs = Math.max(nextMs + gapMs(), Date.now() - 1000);
      await wait(Math.max(0, nextMs - Date.now()));
      if (!this.#isRunning || this.#atOnce >= maxAtOnce) continue;
      this.#atOnce += 1;
      void act().finally(() => {
        this.#atOnce -= 1;
      });
    }
  }

  #createPod(): void {
    this.#podNumber += 1;
    const name = `agent-${this.#podNumber}`;
    const { metadata } = this.cluster.pods.create({ name });
    const reports = this.#podNumber % 4 < 2;
    this.#agents.set(name, { name, uid: metadata.uid, reports, calls: new Set() });
  }

  async #replacePod(): Promise<void> {
    const [oldest] = this.#agents.keys();
    if (oldest === undefined) return;
    this.#agents.delete(oldest);
    this.cluster.pods.remove(oldest);
    this.#createPod();
  }

  async #call(): Promise<void> {
    this.begun += 1;
    const random = this.#random;
    const sid = `CA${this.begun}`;
    // Also merchants that were deleted, and none.
    const merchant = random.next() < 0.5 ? undefined : this.#merchantName(Math.floor(random.between(0, 25)));
    if (random.next() < 0.1) return this.#webhook(sid, merchant);
    const body = {
      call_sid: sid,
      ...(merchant === undefined ? {} : { merchant_id: merchant }),
      ...(random.next() < 0.4 ? { wait: '5s' } : {}),
    };
    let answer = await this.#post('allocate', body);
    for (; answer.status === 202 && this.#isRunning; answer = await this.#post('allocate', body))
      // Some hang up: the router removes them as abandoned.
      if (random.next() < 0.2) return;
    const { pod_name: pod = '', fence } = answer.body;
    if (answer.status !== 200) return;
    const agent = this.#agents.get(pod);
    agent?.calls.add(sid);
    this.live += 1;
    const lengthMs = -Math.log(1 - random.next()) * meanCallMs;
    await wait(lengthMs / 2);
    if (random.next() < 0.2) await this.#post('renew', { call_sid: sid, fence });
    await wait(lengthMs / 2);
    agent?.calls.delete(sid);
    this.live -= 1;
    // Some are never released: a report or the lease ends them.
    if (random.next() < 0.98) await this.#post('release', { call_sid: sid, fence });
  }

  async #webhook(sid: string, merchant: string | undefined): Promise<void> {
    const send = (name: string, form: Record<string, string>) => {
      const router = this.#random.pick(this.routers);
      const path = `/api/v1/twilio/${name}${merchant === undefined ? '' : `?merchant_id=${merchant}`}`;
      const signed = Object.keys(form)
        .sort()
        .reduce((text, key) => text + key + form[key], router.url + path);
      const signature = createHmac('sha1', twilioToken).update(signed).digest('base64');
      return this.#counted(`twilio ${name}`, router.form(path, form, signature));
    };
    await send('allocate', { CallSid: sid });
    await wait(this.#random.between(500, 2 * meanCallMs));
    await send('status', { CallSid: sid, CallStatus: 'completed' });
  }

  #merchantName(back: number): string {
    return `shop-${Math.max(0, this.#merchantNumber - back)}`;
  }

  /** One appears with each of several configurations, and the oldest is deleted. */
  async #changeMerchants(): Promise<void> {
    this.#merchantNumber += 1;
    const n = this.#merchantNumber;
    await this.#counted(
      'merchant',
      this.#random.pick(this.routers).send('PUT', `/api/v1/merchants/${this.#merchantName(0)}`, {
        tier: n % 2 === 0 ? 'gold' : 'basic',
        priority: n % 3,
        weight: 1 + (n % 4),
        ...(n % 2 === 0 ? { max_calls: 4, hold: { max_wait: '15s', max_waiting: 10 } } : {}),
      }),
    );
    if (n <= liveMerchants) return;
    const oldest = `/api/v1/merchants/${this.#merchantName(liveMerchants)}`;
    await this.#counted('merchant', this.#random.pick(this.routers).send('DELETE', oldest));
  }

  async #drain(): Promise<void> {
    const { name: pod_name } = this.#random.pick([...this.#agents.values()]);
    await this.#post('drain', { pod_name });
    // The others wait for the end of their drain.
    if (this.#random.next() < 0.5) return;
    await wait(5000);
    await this.#post('undrain', { pod_name });
  }

  async #report(): Promise<void> {
    const agent = [...this.#agents.values()].find(({ reports }) => reports);
    if (!agent) return;
    // In turn: the one that reported is the last of the map now.
    this.#agents.delete(agent.name);
    this.#agents.set(agent.name, agent);
    await this.#counted(
      'report',
      this.#random.pick(this.routers).send('POST', `/api/v1/pod/${agent.name}/report`, {
        ...{ calls: [...agent.calls], uid: agent.uid, interval_ms: reportEveryMs },
      }),
    );
  }

  /** An operator: lists, an explanation, and an event stream that is opened and closed. */
  async #look(): Promise<void> {
    const router = this.#random.pick(this.routers);
    const path = this.#random.pick(['/api/v1/status', '/api/v1/calls', '/api/v1/pods', '/api/v1/merchants']);
    await this.#counted('look', router.send('GET', path));
    await this.#counted('look', router.send('POST', '/api/v1/explain', { call_sid: 'CA0' }));
    await router.follow('/api/v1/events', this.#random.between(500, 5000));
  }

  #post(name: string, body: object) {
    const isWaiting = 'wait' in body;
    if (isWaiting) this.waiting += 1;
    return this.#counted(name, this.#random.pick(this.routers).send('POST', `/api/v1/${name}`, body)).finally(
      () => {
        if (isWaiting) this.waiting -= 1;
      },
    );
  }

  async #counted<T extends { status: number }>(name: string, answer: Promise<T>): Promise<T> {
    const known = await answer;
    const key = `${name} ${known.status}`;
    this.answers[key] = (this.answers[key] ?? 0) + 1;
    return known;
  }
}
