/**
 * Three routers, a store, a cluster of voice agents, and callers. The agents are the truth: a call is where an agent
 * speaks with somebody. Everybody talks to a router of their choice, tries another one when it does not answer, and
 * gives up after a while.
 */

import type { CallRouter } from '../../src/calls/router.js';
import { Dice } from '../../src/demo/dice.js';
import { AppError } from '../../src/errors.js';
import { checkKeys } from './checks.js';
import { Cluster } from './cluster.js';
import { History, type KnownCall } from './history.js';
import { SimulatedRouter, times } from './router.js';
import { Store } from './store.js';
import { Process, VirtualTime } from './time.js';

const routerCount = 3;
const podCount = 6;
/** What a caller or an agent waits for an answer. */
const patienceMs = 5000;
/** As our own client does it: a little earlier each time, and a failed one is repeated soon. */
const reportEveryMs = 10_000;
/** Four of the six agents. */
const hasClient = (name: string) => !/[25]$/.test(name);
const renewEveryMs = 30_000;
const firstReportLateMs = 20_000;
/** Between two looks at all keys: often enough to see what the next sweep would have mended. */
const commandsPerLook = 30;

export interface Agent {
  name: string;
  uid: string;
  isAlive: boolean;
  /** Of its process: what was given to an earlier one finds nobody here. */
  startedAtMs: number;
  /** It neither reports nor renews nor releases. */
  isSilent: boolean;
  /** With our client it reports; without, it renews its calls one by one, and knows nothing of what others think. */
  reports: boolean;
  serving: Map<string, KnownCall>;
  /** The router's time, as the last answer told it. */
  told?: { atMs: number; heardMs: number };
}

export interface WorldOptions {
  seed: number;
  /** Calls per second. */
  rate?: number;
  holdMs?: number;
}

export class World {
  readonly time: VirtualTime;
  readonly cluster = new Cluster();
  readonly routers: (SimulatedRouter | undefined)[] = Array.from({ length: routerCount });
  readonly agents = new Map<string, Agent>();
  readonly history: History;
  readonly dice: Dice;
  readonly #traffic: Dice;
  readonly #options: Required<WorldOptions>;
  #births = 0;
  #sids = 0;
  isTaking = true;
  duplicates = 0.02;
  hangUps = 0.02;
  rateFactor = 1;

  private constructor(
    readonly store: Store,
    time: VirtualTime,
    options: WorldOptions,
  ) {
    this.time = time;
    this.#options = { rate: 0.2, holdMs: 40_000, ...options };
    this.dice = new Dice(options.seed);
    this.#traffic = new Dice(options.seed ^ 0x5eed);
    this.history = new History(
      () => time.nowMs - 1_800_000_000_000,
      () => store.nowMs,
      (pool) => (pool === 'pool:basic' ? 3 : 1),
      times.reportGraceMs,
    );
  }

  static async start(options: WorldOptions): Promise<World> {
    const time = new VirtualTime(1_800_000_000_000);
    const world = new World(await Store.start(time), time, options);
    for (let i = 0; i < podCount; i += 1) world.bearPod(`agent-${i}`);
    for (let i = 0; i < routerCount; i += 1) world.startRouter(i);
    world.#nextCall();
    world.#nextDrain();
    world.#watchLeaders();
    world.store.onCommand = () => {
      if (world.store.commands % commandsPerLook === 0) checkKeys(world);
    };
    return world;
  }

  // --- Routers ---

  startRouter(place: number): void {
    this.#births += 1;
    const process = new Process(`router-${place}.${this.#births}`, this.time, this.#fork());
    const router = new SimulatedRouter(process, {
      store: this.store,
      cluster: this.cluster,
      dice: this.#fork(),
      onLeader: (isLeader) => this.history.note(`${process.name} ${isLeader ? 'leads' : 'follows'}`),
    });
    this.routers[place] = router;
    void router.start();
  }

  killRouter(place: number): void {
    this.routers[place]?.process.kill();
    this.routers[place] = undefined;
  }

  get running(): SimulatedRouter[] {
    return this.routers.filter((router) => router !== undefined);
  }

  #fork(): Dice {
    return new Dice(Math.floor(this.dice.next() * 2 ** 32));
  }

  #watchLeaders(): void {
    this.time.after(500, () => {
      const leaders = this.running.filter(({ process, manager }) => process.isRunning && manager.isLeader);
      if (leaders.length > 1)
        this.history.violated(`two lead at once: ${leaders.map(({ process }) => process.name).join(', ')}`);
      this.#watchLeaders();
    });
  }

  /** Asks one router as over HTTP; the answer may not come. */
  ask<T>(router: SimulatedRouter | undefined, act: (calls: CallRouter) => Promise<T>): Promise<T> {
    const { time } = this;
    const dice = this.#traffic;
    const thereMs = 1 + dice.next() * 2;
    const backMs = 1 + dice.next() * 2;
    return new Promise<T>((resolve, reject) => {
      const cancel = time.after(patienceMs, () => reject(new Error('no answer')));
      const back = (finish: () => void) => () =>
        time.after(backMs, () => {
          cancel();
          finish();
        });
      time.after(thereMs, () => {
        if (!router?.process.isAlive) return time.after(backMs, () => reject(new Error('ECONNREFUSED')));
        router.process.enter(() =>
          act(router.calls).then(
            (answer) => router.process.isAlive && back(() => resolve(answer))(),
            (error: unknown) => router.process.isAlive && back(() => reject(error))(),
          ),
        );
      });
    });
  }

  /** Whatever router answers; throws the last error. */
  async askAny<T>(act: (calls: CallRouter) => Promise<T>, tries = 3): Promise<T> {
    let last: unknown;
    for (let i = 0; i < tries; i += 1) {
      try {
        return await this.ask(this.#traffic.pick(this.routers), act);
      } catch (error) {
        last = error;
        if (error instanceof AppError && !['store_unavailable', 'timeout'].includes(error.code)) throw error;
        await this.#wait(200 + this.#traffic.next() * 800);
      }
    }
    throw last;
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.time.after(ms, resolve);
    });
  }

  // --- Agents ---

  bearPod(name: string): void {
    this.#births += 1;
    const uid = `uid-${this.#births}`;
    const reports = hasClient(name);
    const startedAtMs = this.history.nowMs();
    const serving = new Map();
    const agent: Agent = { name, uid, startedAtMs, isAlive: true, isSilent: false, reports, serving };
    this.agents.set(name, agent);
    const born = { name, uid, restarts: 0, startedAt: this.#iso() };
    this.cluster.put({ ...born, state: 'not_ready' });
    this.time.after(2000, () => {
      if (this.agents.get(name) === agent && agent.isAlive) this.cluster.put({ ...born, state: 'ready' });
    });
    if (reports) this.#reportLater(agent);
  }

  /** The process is gone, and so are its calls; the cluster notices a moment later and puts another one there. */
  losePod(name: string): void {
    const agent = this.agents.get(name);
    if (!agent?.isAlive) return;
    this.endAgent(agent, 'its pod is gone');
    this.time.after(500, () => {
      this.cluster.put({ name, uid: agent.uid, state: 'gone' });
      this.time.after(3000, () => this.bearPod(name));
    });
  }

  /** The same pod, another process: its calls are gone. */
  restartContainer(name: string): void {
    const agent = this.agents.get(name);
    const pod = this.cluster.pod(name);
    if (!agent?.isAlive || !pod) return;
    this.#endCalls(agent, 'its container restarted');
    agent.startedAtMs = this.history.nowMs();
    const restarts = (pod.restarts ?? 0) + 1;
    this.cluster.put({ ...pod, state: 'not_ready', restarts, startedAt: this.#iso() });
    this.time.after(3000, () => this.setReady(name, true));
  }

  endAgent(agent: Agent, why: string): void {
    agent.isAlive = false;
    this.#endCalls(agent, why);
  }

  /** Those that were given and have not arrived yet, too. */
  #endCalls({ name, uid, serving }: Agent, why: string): void {
    for (const call of this.history.live)
      if (call.pod === name && call.uid === uid) this.history.over(call, why);
    serving.clear();
  }

  setReady(name: string, isReady: boolean): void {
    const pod = this.cluster.pod(name);
    const agent = this.agents.get(name);
    if (pod && agent?.isAlive && pod.state !== 'terminating')
      this.cluster.put({ ...pod, state: isReady ? 'ready' : 'not_ready' });
  }

  /** As a rolling update does it: drained with patience, then replaced. */
  async rollPod(name: string): Promise<void> {
    const agent = this.agents.get(name);
    const pod = this.cluster.pod(name);
    if (!agent?.isAlive || !pod) return;
    this.cluster.put({ ...pod, state: 'terminating' });
    for (let i = 0; i < 40 && agent.isAlive; i += 1) {
      await this.askAny((calls) => calls.drain(name, 0)).catch(() => undefined);
      if (agent.serving.size === 0) break;
      await this.#wait(3000);
    }
    this.losePod(name);
  }

  /** Operators do that all day, for a moment each. */
  #nextDrain(): void {
    this.time.after(this.#traffic.next() * 80_000, () => {
      if (!this.isTaking) return;
      const name = this.#traffic.pick([...this.agents.keys()]);
      void this.drain(name);
      this.time.after(this.#traffic.next() * 15_000, () => void this.undrain(name));
      this.#nextDrain();
    });
  }

  async drain(name: string): Promise<void> {
    const uid = this.agents.get(name)?.uid ?? '';
    const { atMs } = this.history.before();
    const isBeforeItsPod = this.#isBeforeItsPod(name, this.store.nowMs);
    await this.askAny((calls) => calls.drain(name, 0))
      .then(() => {
        if (!isBeforeItsPod) this.history.drained(name, uid, atMs);
        checkKeys(this);
      })
      .catch(() => undefined);
  }

  /** By the cluster's clock it starts only after this moment of the store's: then this was for another one. */
  #isBeforeItsPod(name: string, storeMs: number): boolean {
    return storeMs < Date.parse(this.cluster.pod(name)?.startedAt ?? '');
  }

  async undrain(name: string): Promise<void> {
    this.history.undrained(name);
    await this.askAny((calls) => {
      // Nobody stands at the door here, as src/http does: a router that was paused does it when it goes on.
      this.history.undrained(name);
      return calls.undrain(name);
    }).catch(() => undefined);
  }

  #reportLater(agent: Agent): void {
    this.time.after(reportEveryMs * (0.8 + 0.2 * this.#traffic.next()), () => {
      if (!agent.isAlive) return;
      if (!agent.isSilent) void this.#report(agent);
      this.#reportLater(agent);
    });
  }

  async #report(agent: Agent): Promise<void> {
    const sids = [...agent.serving.keys()];
    const sentMs = this.store.nowMs;
    const { told } = agent;
    const asOfMs = told && Math.floor(told.atMs + this.time.nowMs - told.heardMs);
    const { atMs: askedAtMs } = this.history.before();
    // A first report does not say as of when it is: it judges whatever is there when it arrives.
    this.history.heardFrom(agent.name, sids, asOfMs ?? sentMs + firstReportLateMs);
    try {
      const report = await this.askAny(
        (calls) => calls.report(agent.name, sids, { uid: agent.uid, asOfMs }),
        2,
      );
      agent.told = { atMs: report.atMs, heardMs: this.time.nowMs };
      for (const sid of [...report.renewed, ...report.adopted])
        this.history.renewed(sid, sentMs, times.leaseTtlMs);
      for (const sid of report.adopted) {
        const call = agent.serving.get(sid);
        if (call && report.fences[sid] !== undefined) call.fence = report.fences[sid];
        this.history.known(call, askedAtMs);
      }
      // By this very pod, as the leader knows it; of a container that restarted since it may not know yet.
      if ((this.cluster.pod(agent.name)?.restarts ?? 0) === 0)
        for (const sid of report.renewed) this.history.known(agent.serving.get(sid), askedAtMs);
      // It belongs to another pod by now: this one hangs up.
      for (const sid of report.conflicts) this.#hangUp(agent, sid, 'a conflict');
    } catch {
      // The next report comes anyway.
    }
  }

  #hangUp(agent: Agent, sid: string, why: string): void {
    this.history.over(agent.serving.get(sid), why);
    agent.serving.delete(sid);
  }

  // --- Callers ---

  #nextCall(): void {
    const { rate } = this.#options;
    const gapMs = (-Math.log(1 - this.#traffic.next()) / (rate * this.rateFactor)) * 1000;
    this.time.after(gapMs, () => {
      if (this.isTaking) {
        this.#sids += 1;
        const sid = `CA${this.#sids}`;
        void this.#call(sid);
        // The provider asks twice, perhaps at another router.
        if (this.#traffic.next() < this.duplicates) void this.#allocate(sid).catch(() => undefined);
      }
      this.#nextCall();
    });
  }

  async #allocate(sid: string) {
    const before = this.history.before();
    const request = { callSid: sid, merchantId: '', provider: 'twilio', flow: 'v2', template: 't' };
    const answer = await this.askAny((calls) => calls.allocate(request));
    const { podName: pod, sourcePool: pool, fence, leaseExpiresAtMs: leaseUntilMs, wasExisting } = answer;
    const uid = this.agents.get(pod)?.uid ?? '';
    // A call that was there has another lease by now; one from a clock that was set back a fence ahead of its time.
    const storeMs = Math.min(fence / 1000, leaseUntilMs - times.leaseTtlMs);
    const isBeforeItsPod = this.#isBeforeItsPod(pod, storeMs);
    const allocatedAtMs = this.history.nowMs() - (this.store.nowMs - storeMs);
    return this.history.allocatedAs(
      { sid, pod, uid, pool, fence, leaseUntilMs, wasExisting, isBeforeItsPod, allocatedAtMs },
      before,
    );
  }

  async #call(sid: string): Promise<void> {
    let call: KnownCall;
    try {
      call = await this.#allocate(sid);
    } catch (error) {
      const isRefused = error instanceof AppError && error.code === 'no_pods';
      if (isRefused) this.history.refused += 1;
      else this.history.failed += 1;
      this.history.note(`${sid} ${isRefused ? 'got no pod' : 'failed'}`);
      return;
    }
    // Some hang up before they are connected, and nobody says so.
    if (this.#traffic.next() < this.hangUps) return this.history.over(call, 'the caller hung up');
    await this.#wait(100 + this.#traffic.next() * 400);
    const agent = this.agents.get(call.pod);
    if (!agent?.isAlive || agent.uid !== call.uid || agent.startedAtMs >= call.allocatedAtMs) {
      this.history.over(call, 'nobody answers there');
      await this.#release(call);
      return;
    }
    agent.serving.set(sid, call);
    call.isConnected = true;
    const endMs = this.time.nowMs + this.#options.holdMs * (0.1 - Math.log(1 - this.#traffic.next()));
    while (this.time.nowMs < endMs) {
      await this.#wait(Math.min(endMs - this.time.nowMs, renewEveryMs));
      if (!agent.isAlive || agent.serving.get(sid) !== call) return;
      if (!agent.reports && !agent.isSilent) void this.#renew(call);
    }
    this.#hangUp(agent, sid, 'it ended');
    if (agent.isSilent) return;
    await this.#release(call);
    // Somebody says it a second time, much later; and some are called again under the same name.
    if (this.#traffic.next() < 0.1)
      this.time.after(this.#traffic.next() * 60_000, () => void this.#release(call));
    if (this.isTaking && this.#traffic.next() < 0.1) void this.#call(sid);
  }

  async #renew(call: KnownCall): Promise<void> {
    const sentMs = this.store.nowMs;
    await this.askAny((calls) => calls.renew(call.sid, call.fence))
      .then(() => this.history.renewed(call.sid, sentMs, times.leaseTtlMs))
      .catch(() => undefined);
  }

  async #release(call: KnownCall): Promise<void> {
    await this.askAny((calls) => calls.release(call.sid, call.fence)).catch(() => undefined);
  }

  #iso(): string {
    return new Date(this.time.nowMs).toISOString();
  }

  // --- Afterwards ---

  /** Every fault is over; operators end their drains, and callers go on for a while. */
  heal(): void {
    this.history.note('healed');
    this.store.resume();
    for (let place = 0; place < routerCount; place += 1) {
      const router = this.routers[place];
      if (!router) this.startRouter(place);
      else router.process.resume();
    }
    for (const { name } of this.cluster.pods) {
      void this.undrain(name);
      this.setReady(name, true);
    }
    for (const agent of this.agents.values()) agent.isSilent = false;
    // Who still speaks then has been found again; nobody new disturbs the count.
    this.time.after(60_000, () => {
      this.isTaking = false;
    });
  }
}
