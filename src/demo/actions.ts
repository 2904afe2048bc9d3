/**
 * What a visitor's key or the scenario can do to the running system. Each action logs what it does; those with an
 * outcome log that too when it is there. Actions run concurrently, except that a roll waits for the last one.
 */
import type { Cluster } from '../cluster/simulator/cluster.js';
import type { Agents } from './agents.js';
import type { CallCounts, Callers } from './callers.js';
import type { ClusterMonitor } from './cluster-monitor.js';
import type { DemoContext } from './context.js';
import type { Dice } from './dice.js';
import type { Engine } from './engine.js';
import type { EventLog } from './event-log.js';
import type { Fleet } from './fleet.js';
import { count, inSeconds } from './lines.js';
import type { Operator } from './operator.js';
import type { RecordPlane } from './records/plane.js';
import type { Routers } from './routers.js';
import { agentCount, seconds, setOf } from './setup.js';

export interface ActionsOptions extends DemoContext {
  dice: Dice;
  cluster: Cluster;
  engine: Engine;
  routers: Routers;
  monitor: ClusterMonitor;
  fleet: Fleet;
  agents: Agents;
  callers: Callers;
  eventLog: EventLog;
  counts: CallCounts;
  operator: Operator;
  records: RecordPlane;
}

const pollMs = 50;

export class Actions {
  readonly #options: ActionsOptions;
  readonly #drained = new Set<string>();
  isApiDown = false;
  isStorePaused = false;
  #flushes = 0;

  constructor(options: ActionsOptions) {
    this.#options = options;
  }

  /** Whether the action `drain` has drained this agent. */
  isDrained(pod: string): boolean {
    return this.#drained.has(pod);
  }

  async endLeader(how: 'kill' | 'stop'): Promise<void> {
    const { monitor, routers } = this.#options;
    const { leader } = monitor;
    if (leader === undefined) return this.#say('no router leads at the moment');
    this.#say(`${how} ${leader}, the leader (${how === 'kill' ? 'SIGKILL' : 'SIGTERM'})`);
    routers.group.end(leader, how);
  }

  async roll(): Promise<void> {
    const { fleet, counts, clock, log } = this.#options;
    if (!fleet.isComplete)
      return this.#say('cannot roll now: not all agents are ready on the current version');
    const before = { ...counts };
    const startedMs = clock.monotonic();
    fleet.roll();
    const { version } = fleet;
    this.#say(`roll all ${agentCount} agents to version ${version}: each finishes its calls first`);
    if (!(await this.#until(() => fleet.isComplete))) return;
    const took = inSeconds(clock.monotonic() - startedMs);
    const served = count(counts.served - before.served, 'call');
    log(
      'roll',
      `all ${agentCount} agents run version ${version} after ${took}; during the roll ${served} served, ${counts.cut - before.cut} cut`,
    );
  }

  async crash(): Promise<void> {
    const { fleet, log } = this.#options;
    const target = this.#target();
    if (!target) return;
    const { pod, calls } = target;
    this.#say(`crash ${pod}${calls > 0 ? ` during ${count(calls, 'call')}` : ''}`);
    if (fleet.crash(pod)) log('agent', `${pod} crashed${calls > 0 ? `; ${count(calls, 'call')} lost` : ''}`);
  }

  async delete(): Promise<void> {
    const target = this.#target();
    if (!target) return;
    const { pod, calls } = target;
    this.#say(`delete pod ${pod}${calls > 0 ? `; ${count(calls, 'call')} may finish first` : ''}`);
    this.#options.fleet.delete(pod);
  }

  /** Drains an agent as an operator would, and undrains it some time after its last call. */
  async drain(): Promise<void> {
    const { operator, sleep, signal, log } = this.#options;
    const target = this.#target();
    if (!target) return;
    const { pod, calls } = target;
    this.#say(`drain ${pod}: no new calls${calls > 0 ? `; ${count(calls, 'call')} may finish` : ''}`);
    if (!(await operator.drain(pod, 'drain'))) return log('agent', `cannot drain ${pod}: no router answered`);
    this.#drained.add(pod);
    if (await this.#until(() => this.#isIdle(pod))) log('agent', `${pod} has no calls left: safe to stop`);
    await sleep(seconds.drained);
    this.#drained.delete(pod);
    if (!signal.aborted && (await operator.drain(pod, 'undrain'))) log('agent', `${pod} accepts calls again`);
  }

  async flushStore(): Promise<void> {
    const { engine, clock, monitor, agents, eventLog, operator, log } = this.#options;
    if (this.isStorePaused) return this.#say('cannot flush Redis now: it is paused');
    this.#flushes += 1;
    const flush = this.#flushes;
    const adoptedBefore = eventLog.counts.adopted;
    this.#say(`flush Redis: pools, leases and calls (${engine.pause ? 'FLUSHALL' : 'the demo’s own keys'})`);
    const startedMs = clock.monotonic();
    await engine.flush();
    eventLog.storeFlushed();
    const isRebuilt = async () => {
      // Flushed again: the later flush waits for the end.
      if (flush !== this.#flushes) return true;
      const status = await operator.status();
      if (!status) return false;
      const assigned = Object.values(status.pools).reduce((sum, pool) => sum + pool.assigned, 0);
      return (
        assigned >= monitor.readyAgents.length && agents.liveCalls.every((call) => eventLog.isInStore(call))
      );
    };
    if (!(await this.#until(isRebuilt)) || flush !== this.#flushes) return;
    const took = inSeconds(clock.monotonic() - startedMs);
    await this.#until(() => operator.deployMerchants());
    const adopted = eventLog.counts.adopted - adoptedBefore;
    log(
      'redis',
      `rebuilt after ${took}: ${count(monitor.readyAgents.length, 'agent')} registered, ${count(adopted, 'live call')} adopted`,
    );
  }

  async pauseStore(): Promise<void> {
    const { engine, sleep, log, signal } = this.#options;
    if (!engine.pause) return this.#say('cannot pause Redis: it is not the demo’s own');
    if (this.isStorePaused) return this.#say('Redis is paused already');
    this.#say(`pause Redis for ${seconds.storePause} s; calls that have an agent continue`);
    this.isStorePaused = true;
    await engine.pause();
    await sleep(seconds.storePause);
    engine.resume();
    this.isStorePaused = false;
    if (!signal.aborted) log('redis', 'answers again');
  }

  /** records/tracker.ts logs the recovery of its records. */
  async killWorker(): Promise<void> {
    const { records } = this.#options;
    const { disabledReason } = records.view();
    if (disabledReason !== undefined) return this.#say(`records are disabled: ${disabledReason}`);
    const killed = records.killWorker();
    if (!killed) return this.#say('no worker runs at the moment');
    this.#say(`kill ${killed.name}, which holds ${count(killed.records, 'record')} (SIGKILL)`);
  }

  async toggleApi(): Promise<void> {
    const { cluster, log } = this.#options;
    this.isApiDown = !this.isApiDown;
    if (this.isApiDown) {
      this.#say('stop the Kubernetes API server: no router can lead, calls are still served');
      await cluster.down();
    } else {
      this.#say('start the Kubernetes API server');
      await cluster.up();
      log('api', 'answers again');
    }
  }

  async rush(): Promise<void> {
    const { callers } = this.#options;
    const number = this.#freePlaces(/^(gold|standard|basic)-/) + 6;
    this.#say(`rush hour: ${number} callers at once, more than all agents can serve: Twilio holds some`);
    // All of them before the first hangs up.
    await this.#placeCalls(number, 0.1, (talkSeconds) => callers.ring(talkSeconds));
  }

  async merchantRush(): Promise<void> {
    const { callers } = this.#options;
    const number = this.#freePlaces(/^acme-/) + 2;
    this.#say(`${number} callers for acme: its own pool first, then its fallback`);
    await this.#placeCalls(number, 0.25, (talkSeconds) => callers.place(talkSeconds, 'acme'));
  }

  /** nova has no fallback: callers who do not wait get a busy tone when both of its agents are busy. */
  async exhaust(): Promise<void> {
    const { callers } = this.#options;
    const number = this.#freePlaces(/^nova-/) + 2;
    this.#say(`${number} callers for nova who do not wait, and no fallback: some get a busy tone`);
    await this.#placeCalls(number, 0.25, (talkSeconds) => callers.place(talkSeconds, 'nova', false));
  }

  async loseRelease(): Promise<void> {
    const { callers, sleep } = this.#options;
    const call = await callers.place(30);
    if (!call) return;
    await sleep(2);
    this.#say(`${call.callSid} hangs up but its release is lost: ${call.podName} reports without the call`);
    call.hangUpWithoutRelease();
  }

  #say(text: string): void {
    this.#options.log('do', text);
  }

  /** Picks a ready agent, one with calls if there is any. */
  #target(): { pod: string; calls: number } | undefined {
    const { monitor, agents, dice } = this.#options;
    const ready = monitor.readyAgents.filter(({ name }) => !this.#drained.has(name));
    const busy = ready.filter(({ name }) => !this.#isIdle(name));
    if (ready.length === 0) return void this.#say('no agent is ready');
    const pod = dice.pick(busy.length > 0 ? busy : ready).name;
    return { pod, calls: agents.callsOn(pod) };
  }

  #isIdle(pod: string): boolean {
    return this.#options.agents.callsOn(pod) === 0;
  }

  /** How many more calls these agents can have. */
  #freePlaces(names: RegExp): number {
    const { monitor, agents } = this.#options;
    const free = (name: string) => Math.max(0, (setOf(name)?.calls ?? 0) - agents.callsOn(name));
    return monitor.readyAgents.reduce((sum, { name }) => sum + (names.test(name) ? free(name) : 0), 0);
  }

  async #placeCalls(
    number: number,
    pauseSeconds: number,
    place: (talkSeconds: number) => Promise<unknown>,
  ): Promise<void> {
    const { dice, sleep, later, signal } = this.#options;
    for (let i = 0; i < number && !signal.aborted; i++) {
      const talkSeconds = dice.between(6, 9);
      later(0, () => place(talkSeconds));
      await sleep(pauseSeconds);
    }
  }

  /** Resolves to false when the demo stops first. */
  async #until(isDone: () => boolean | Promise<boolean>): Promise<boolean> {
    const { clock, signal } = this.#options;
    while (!signal.aborted) {
      if (await isDone()) return true;
      await clock.sleep(pollMs, signal);
    }
    return false;
  }
}
