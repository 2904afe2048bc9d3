/**
 * What can be done to the system while calls run: by a visitor's key, by the story. Each deed says what it does, and
 * those whose end is worth knowing say it when it has come. None of them waits for another but a roll for a roll.
 */
import type { Clock } from '../clock.js';
import type { Cluster } from '../cluster/simulator/cluster.js';
import type { Agents } from './agents.js';
import type { Callers } from './callers.js';
import type { Roster, RosterEntry } from './cluster-monitor.js';
import type { Dice } from './dice.js';
import type { Engine } from './engine.js';
import type { Chronicle } from './event-log.js';
import type { Fleet } from './fleet.js';
import type { Ledger } from './ledger.js';
import { count, inSeconds, type LineKind } from './lines.js';
import type { Narrator } from './narrator.js';
import type { Operator } from './operator.js';
import type { RecordPlane } from './records/plane.js';
import type { Routers } from './routers.js';
import { agentCount, seconds, setOf } from './setup.js';

export interface DeedsOptions {
  clock: Clock;
  dice: Dice;
  cluster: Cluster;
  engine: Engine;
  routers: Routers;
  narrator: Narrator;
  fleet: Fleet;
  roster: Roster;
  agents: Agents;
  callers: Callers;
  chronicle: Chronicle;
  ledger: Ledger;
  operator: Operator;
  records: RecordPlane;
  tell: (kind: LineKind, text: string) => void;
  sleep: (seconds: number) => Promise<void>;
  later: (afterSeconds: number, work: () => Promise<unknown>) => void;
  signal: AbortSignal;
}

const lookMs = 50;

export class Deeds {
  readonly #options: DeedsOptions;
  #isApiDown = false;
  #isStorePaused = false;
  #losses = 0;
  readonly #drained = new Set<string>();

  constructor(options: DeedsOptions) {
    this.#options = options;
  }

  get isApiDown(): boolean {
    return this.#isApiDown;
  }

  get isStorePaused(): boolean {
    return this.#isStorePaused;
  }

  /** Whether this agent was drained here, by hand, and still is. */
  isDrained(pod: string): boolean {
    return this.#drained.has(pod);
  }

  async endLeader(how: 'kill' | 'stop'): Promise<void> {
    const { narrator, routers } = this.#options;
    const { leader } = narrator;
    if (leader === undefined) return this.#say('nobody leads at the moment');
    this.#say(
      how === 'kill' ? `kill ${leader}, the leader (SIGKILL)` : `stop ${leader}, the leader (SIGTERM)`,
    );
    routers.end(leader, how);
  }

  async roll(): Promise<void> {
    const { fleet, ledger, clock, tell } = this.#options;
    if (!fleet.isComplete) return this.#say('no roll now: not every agent is ready and of the same version');
    const before = { ...ledger };
    const sinceMs = clock.monotonic();
    fleet.roll();
    const version = fleet.version;
    this.#say(`roll all ${agentCount} agents to version ${version}: each lets its calls end before it goes`);
    if (!(await this.#until(() => fleet.isComplete))) return;
    const took = inSeconds(clock.monotonic() - sinceMs);
    const served = count(ledger.served - before.served, 'call');
    tell(
      'roll',
      `all ${agentCount} agents run version ${version} after ${took}; meanwhile ${served} served, ${ledger.cut - before.cut} cut`,
    );
  }

  async crash(): Promise<void> {
    const { fleet, agents, tell } = this.#options;
    const pod = this.#pick()?.name;
    if (pod === undefined) return this.#say('no agent is ready');
    const calls = agents.callsOn(pod);
    this.#say(`crash ${pod}${calls > 0 ? `, in the middle of ${count(calls, 'call')}` : ''}`);
    if (fleet.crash(pod))
      tell('agent', `${pod} crashed${calls > 0 ? ` and took ${count(calls, 'call')} with it` : ''}`);
  }

  async remove(): Promise<void> {
    const { fleet, agents } = this.#options;
    const pod = this.#pick()?.name;
    if (pod === undefined) return this.#say('no agent is ready');
    const calls = agents.callsOn(pod);
    this.#say(`delete the pod ${pod}${calls > 0 ? `; it may let ${count(calls, 'call')} end` : ''}`);
    fleet.remove(pod);
  }

  /** As an operator does who wants to look at an agent: no new calls, until it is told otherwise. */
  async drain(): Promise<void> {
    const { agents, operator, sleep, signal, tell } = this.#options;
    const pod = this.#pick()?.name;
    if (pod === undefined) return this.#say('no agent is ready');
    const calls = agents.callsOn(pod);
    this.#say(`drain ${pod}: no new calls${calls > 0 ? `; it may let ${count(calls, 'call')} end` : ''}`);
    if (!(await operator.drain(pod, 'drain'))) return tell('agent', `no router could drain ${pod}`);
    this.#drained.add(pod);
    const isIdle = await this.#until(() => this.#isIdle(pod));
    if (isIdle) tell('agent', `${pod} has no call any more: safe to stop`);
    await sleep(seconds.drained);
    this.#drained.delete(pod);
    if (!signal.aborted && (await operator.drain(pod, 'undrain'))) tell('agent', `${pod} takes calls again`);
  }

  async loseStore(): Promise<void> {
    const { engine, clock, roster, agents, chronicle, operator, tell } = this.#options;
    if (this.#isStorePaused) return this.#say('Redis does not answer now: it cannot be told to forget');
    this.#losses += 1;
    const loss = this.#losses;
    const adoptedBefore = chronicle.counts.adopted;
    this.#say(
      `Redis loses everything: pools, leases, calls (${engine.pause ? 'FLUSHALL' : 'the demo’s own keys'})`,
    );
    const sinceMs = clock.monotonic();
    await engine.lose();
    chronicle.forget();
    const ready = () => roster.agents.filter(({ state }) => state === 'ready').length;
    const isBack = async () => {
      // Lost once more meanwhile: that loss has its own end.
      if (loss !== this.#losses) return true;
      const status = await operator.status();
      if (!status) return false;
      const known = Object.values(status.pools).reduce((sum, { assigned }) => sum + assigned, 0);
      return known >= ready() && agents.liveCalls.every((call) => chronicle.knows(call));
    };
    if (!(await this.#until(isBack)) || loss !== this.#losses) return;
    const took = inSeconds(clock.monotonic() - sinceMs);
    await this.#until(() => operator.deployMerchants());
    const adopted = chronicle.counts.adopted - adoptedBefore;
    tell(
      'redis',
      `everything is back after ${took}: ${count(ready(), 'agent')} registered, ${count(adopted, 'live call')} adopted`,
    );
  }

  async pauseStore(): Promise<void> {
    const { engine, sleep, tell, signal } = this.#options;
    if (!engine.pause) return this.#say('this Redis is yours: the demo does not make it hold still');
    if (this.#isStorePaused) return this.#say('Redis does not answer already');
    this.#say(`Redis stops answering for ${seconds.storePause} s; calls that have their agent go on`);
    this.#isStorePaused = true;
    await engine.pause();
    await sleep(seconds.storePause);
    engine.resume();
    this.#isStorePaused = false;
    if (!signal.aborted) tell('redis', 'answers again');
  }

  /** What becomes of its records is told by their book: see records/book.ts. */
  async killWorker(): Promise<void> {
    const { records } = this.#options;
    const { leftOut } = records.view();
    if (leftOut !== undefined) return this.#say(`there are no records: ${leftOut}`);
    const killed = records.kill();
    if (!killed) return this.#say('no worker runs at the moment');
    this.#say(`kill ${killed.name}, which holds ${count(killed.records, 'record')} (SIGKILL)`);
  }

  async switchApi(): Promise<void> {
    const { cluster, tell } = this.#options;
    this.#isApiDown = !this.#isApiDown;
    if (this.#isApiDown) {
      this.#say('the Kubernetes API server goes down: nobody can lead, calls are served all the same');
      await cluster.faults.down();
    } else {
      this.#say('the Kubernetes API server comes back');
      await cluster.faults.up();
      tell('api', 'answers again');
    }
  }

  async rush(): Promise<void> {
    const free = this.#options.roster.agents.filter(
      ({ name, state }) => state === 'ready' && /^(gold|standard)-/.test(name) && this.#isIdle(name),
    ).length;
    this.#say(`rush hour: ${free + 3} callers at once, more than gold and standard can take`);
    await this.#ring(free + 3);
  }

  async merchantRush(): Promise<void> {
    const { roster } = this.#options;
    const free = roster.agents.filter(({ name }) => name.startsWith('acme-') && this.#isIdle(name)).length;
    this.#say(`${free + 2} callers for acme: its own pool first, then what it may fall back to`);
    await this.#ring(free + 2, 'acme');
  }

  /** nova has no fallback: who finds both of its agents busy gets none. */
  async exhaust(): Promise<void> {
    const { roster } = this.#options;
    const free = roster.agents.filter(({ name }) => name.startsWith('nova-') && this.#isIdle(name)).length;
    this.#say(`${free + 2} callers for nova, which takes its own agents only: some hear a busy tone`);
    await this.#ring(free + 2, 'nova');
  }

  async loseRelease(): Promise<void> {
    const { callers, sleep } = this.#options;
    const call = await callers.place(30);
    if (!call) return;
    await sleep(2);
    this.#say(`${call.callSid} hangs up, but its release gets lost: ${call.podName} reports without it`);
    call.hangUpUnheard();
  }

  #say(text: string): void {
    this.#options.tell('do', text);
  }

  /** A ready agent, one with calls if there is any: that is where something can be seen. */
  #pick(): RosterEntry | undefined {
    const { roster, dice } = this.#options;
    const ready = roster.agents.filter(
      ({ state, name }) => state === 'ready' && setOf(name) && !this.#drained.has(name),
    );
    const busy = ready.filter(({ name }) => !this.#isIdle(name));
    const candidates = busy.length > 0 ? busy : ready;
    return candidates.length > 0 ? dice.pick(candidates) : undefined;
  }

  #isIdle(pod: string): boolean {
    return this.#options.agents.callsOn(pod) === 0;
  }

  async #ring(callers: number, merchant?: string): Promise<void> {
    const { dice, callers: phones, sleep, later, signal } = this.#options;
    for (let i = 0; i < callers && !signal.aborted; i++) {
      later(0, () => phones.place(dice.between(6, 9), merchant));
      await sleep(0.25);
    }
  }

  /** False when the demo ends first. */
  async #until(isDone: () => boolean | Promise<boolean>): Promise<boolean> {
    const { clock, signal } = this.#options;
    while (!signal.aborted) {
      if (await isDone()) return true;
      await clock.sleep(lookMs, signal);
    }
    return false;
  }
}
