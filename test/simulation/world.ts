/**
 * Three routers, a store, a cluster of voice agents (agents.ts), callers (callers.ts) and operators (operators.ts).
 * Each client uses a random router, tries another one if it does not answer, and gives up after a while.
 */
import type { CallRouter } from '../../src/calls/router.js';
import type { Settings } from '../../src/calls/settings.js';
import type { LeaseTimes } from '../../src/calls/store/store.js';
import { SeededRandom } from '../../src/demo/seeded-random.js';
import { AppError } from '../../src/errors.js';
import { Agents } from './agents.js';
import { Callers } from './callers.js';
import { checkKeys, checkWrite } from './checks.js';
import { Cluster } from './cluster.js';
import { maxCallsPerPod } from './configuration.js';
import { History } from './history.js';
import { Operators } from './operators.js';
import { leaderDurationMs, type Rewire, SimulatedRouter, times } from './router.js';
import { Store } from './store.js';
import { Process, VirtualTime } from './time.js';

const routerCount = 3;
/** What a caller or an agent waits for an answer. */
const patienceMs = 5000;
/** A proxy that tries again does so within this time, so that nothing of it is left when everything is healed. */
const redeliveredWithinMs = 4000;
/** Between two checks of all keys: short enough to find what the next sweep would repair. */
const commandsPerLook = 45;

export interface WorldOptions {
  seed: number;
  /** Makes the parts of every router other than they are: a broken variant. */
  rewire?: Rewire;
}

export type Act<T> = (calls: CallRouter, settings: Settings) => Promise<T>;

export class World {
  readonly cluster = new Cluster();
  readonly routers: (SimulatedRouter | undefined)[] = Array.from({ length: routerCount });
  readonly history: History;
  readonly random: SeededRandom;
  /** What people and agents do by chance. */
  readonly traffic: SeededRandom;
  readonly agents: Agents;
  readonly callers: Callers;
  readonly operators: Operators;
  /** Some worlds have a NO_SHOW_TIMEOUT. */
  readonly times: LeaseTimes;
  readonly #rewire: Rewire | undefined;
  #births = 0;
  isHealed = false;
  /** Whether all keys are checked during the run, directly in the store. */
  isLookedAt = true;
  /** How often the leader has audited the store. */
  audits = 0;
  #leaseDeletedMs = Number.NEGATIVE_INFINITY;
  /** Chance that a request reaches a router twice: a proxy has lost patience, and tried again. */
  redeliveries = 0;

  private constructor(
    readonly store: Store,
    readonly time: VirtualTime,
    { seed, rewire }: WorldOptions,
  ) {
    this.#rewire = rewire;
    this.random = new SeededRandom(seed);
    this.traffic = new SeededRandom(seed ^ 0x5eed);
    const kind = new SeededRandom(seed ^ 0x1cd5);
    this.times = { ...times, noShowTimeoutMs: kind.next() < 0.3 ? 60_000 : 0 };
    this.history = new History(
      () => time.nowMs - 1_800_000_000_000,
      () => store.nowMs,
      (pool) => maxCallsPerPod(pool, this.operators.changesTiers),
      times.reportGraceMs,
    );
    this.agents = new Agents(this);
    this.callers = new Callers(this);
    this.operators = new Operators(this, kind.next() < 0.4);
  }

  static async start(options: WorldOptions): Promise<World> {
    const time = new VirtualTime(1_800_000_000_000);
    const world = new World(await Store.start(time), time, options);
    world.agents.start();
    for (let i = 0; i < routerCount; i += 1) world.startRouter(i);
    world.callers.start();
    world.operators.start();
    world.#watchLeaders();
    world.store.onSetBack = (byMs) => world.history.setBack(byMs);
    world.store.onCommand = (args, reply) => {
      checkWrite(world, args, reply);
      if (world.isLookedAt && world.store.commands % commandsPerLook === 0) checkKeys(world);
    };
    return world;
  }

  /** An unused name. */
  newBirth(): number {
    this.#births += 1;
    return this.#births;
  }

  startRouter(place: number): void {
    const process = new Process(`router-${place}.${this.newBirth()}`, this.time, this.#fork());
    const router = new SimulatedRouter(process, {
      store: this.store,
      cluster: this.cluster,
      times: this.times,
      random: this.#fork(),
      rewire: this.#rewire,
      onLeader: (isLeader) => this.history.note(`${process.name} ${isLeader ? 'leads' : 'follows'}`),
      onAudited: (violations) => {
        this.audits += 1;
        for (const message of violations)
          this.history.violated(`the audit of ${process.name} found: ${message}`);
      },
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

  #fork(): SeededRandom {
    return new SeededRandom(Math.floor(this.random.next() * 2 ** 32));
  }

  deleteLease(): void {
    this.#leaseDeletedMs = this.time.nowMs;
    this.cluster.deleteLease();
  }

  #watchLeaders(): void {
    this.time.after(500, () => {
      const leaders = this.running.filter(({ process, manager }) => process.isRunning && manager.isLeader);
      // Who has just started takes a lock that is not there, and the leader learns of it by its next renewal (see
      // src/leadership/election.ts). Epochs keep the two apart: see `checkWrite`.
      const isLeaseLost = this.time.nowMs < this.#leaseDeletedMs + leaderDurationMs;
      if (leaders.length > 1 && !isLeaseLost)
        this.history.violated(`two lead at once: ${leaders.map(({ process }) => process.name).join(', ')}`);
      this.#watchLeaders();
    });
  }

  /** Asks one router as over HTTP; the answer may not come, and the question may come twice. */
  ask<T>(router: SimulatedRouter | undefined, act: Act<T>): Promise<T> {
    const { time, traffic } = this;
    const thereMs = 1 + traffic.next() * 2;
    const backMs = 1 + traffic.next() * 2;
    const isTwice = traffic.next() < this.redeliveries;
    return new Promise<T>((resolve, reject) => {
      const cancel = time.after(patienceMs, () => reject(new Error('no answer')));
      const deliver = (to: SimulatedRouter | undefined, afterMs: number, isAnswerLost: boolean) => {
        const back = (finish: () => void) => () => {
          if (isAnswerLost) return;
          time.after(backMs, () => {
            cancel();
            finish();
          });
        };
        time.after(afterMs, () => {
          if (!to?.process.isAlive) return back(() => reject(new Error('ECONNREFUSED')))();
          to.process.enter(() =>
            act(to.calls, to.settings).then(
              (answer) => to.process.isAlive && back(() => resolve(answer))(),
              (error: unknown) => to.process.isAlive && back(() => reject(error))(),
            ),
          );
        });
      };
      // One of the two replies arrives, never both.
      const isFirstLost = isTwice && traffic.next() < 0.5;
      deliver(router, thereMs, isFirstLost);
      if (isTwice)
        deliver(traffic.pick(this.routers), thereMs + traffic.next() * redeliveredWithinMs, !isFirstLost);
    });
  }

  /** Tries the routers until one answers; throws the last error. */
  async askAny<T>(act: Act<T>, tries = 3): Promise<T> {
    let last: unknown;
    for (let i = 0; i < tries; i += 1) {
      try {
        return await this.ask(this.traffic.pick(this.routers), act);
      } catch (error) {
        last = error;
        if (error instanceof AppError && !['store_unavailable', 'timeout'].includes(error.code)) throw error;
        await this.wait(200 + this.traffic.next() * 800);
      }
    }
    throw last;
  }

  wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.time.after(ms, resolve);
    });
  }

  /** Ends all faults; operators end their drains, and callers continue for a while. */
  heal(): void {
    this.history.note('healed');
    this.isHealed = true;
    this.store.resume();
    for (let place = 0; place < routerCount; place += 1) {
      const router = this.routers[place];
      if (!router) this.startRouter(place);
      else router.process.resume();
    }
    for (const { name } of this.cluster.pods) {
      void this.operators.undrain(name);
      this.agents.setReady(name, true);
    }
    for (const agent of this.agents.all.values()) agent.isSilent = false;
    // Live calls are known again by then; no new call changes the count.
    this.time.after(60_000, () => {
      this.callers.isTaking = false;
    });
  }
}
