/**
 * What a command of the visitor (a key on a terminal, its word elsewhere) or a step of the scenario can do to the running
 * system. Each action logs what it does; those with an outcome log that too when it is there. Actions run concurrently,
 * except that a roll waits for the last one.
 */
import type { DemoParts, Needs } from './context.js';
import { count, inSeconds } from './lines.js';
import type { Scenario } from './scenario.js';
import { agentCount, seconds, setOf } from './setup.js';

interface Action {
  /** Of a command of the visitor; others are steps of the scenario only. */
  key?: string;
  what?: string;
  run: () => Promise<void>;
}

export type Actions = ReturnType<typeof actionsOf>;
export type Word = keyof Actions['byWord'];

export function actionsOf(parts: Needs<Exclude<keyof DemoParts, 'actions'>>) {
  const { clock, signal, log, sleep, later, until, counts, eventLog, records, engine, cluster } = parts;
  const { random, routers, agents, callers, operator } = parts;
  /** `drained`: the agents that the action `drain` has drained. */
  const state = { isApiDown: false, isStorePaused: false, drained: new Set<string>() };
  let flushes = 0;

  const say = (text: string) => log('do', text);
  const isIdle = (pod: string) => agents.callsOn(pod) === 0;

  /** Runs `act` on a ready agent, one with calls if there is any. `calls` is empty if it has none. */
  const onAgent = async (act: (pod: string, calls: string) => Promise<void> | void) => {
    const ready = agents.ready.map(({ name }) => name).filter((name) => !state.drained.has(name));
    const busy = ready.filter((name) => !isIdle(name));
    if (ready.length === 0) return say('no agent is ready');
    const pod = random.pick(busy.length > 0 ? busy : ready);
    await act(pod, isIdle(pod) ? '' : count(agents.callsOn(pod), 'call'));
  };

  /** How many more calls these agents can have. */
  const freePlaces = (names: RegExp) => {
    const free = (name: string) => Math.max(0, (setOf(name)?.calls ?? 0) - agents.callsOn(name));
    return agents.ready.reduce((sum, { name }) => sum + (names.test(name) ? free(name) : 0), 0);
  };

  const placeCalls = async (number: number, pause: number, place: (talk: number) => Promise<unknown>) => {
    for (let i = 0; i < number && !signal.aborted; i++) {
      const talkSeconds = random.between(6, 9);
      later(0, () => place(talkSeconds));
      await sleep(pause);
    }
  };

  const endLeader = async (how: 'kill' | 'stop') => {
    const { leader } = routers;
    if (leader === undefined) return say('no router leads at the moment');
    say(`${how} ${leader}, the leader (${how === 'kill' ? 'SIGKILL' : 'SIGTERM'})`);
    routers.group.end(leader, how);
  };

  const roll = async () => {
    if (!agents.isComplete) return say('cannot roll now: not all agents are ready on the current version');
    const before = { ...counts };
    const startedMs = clock.monotonic();
    agents.roll();
    const { version } = agents;
    say(`roll all ${agentCount} agents to version ${version}: each finishes its calls first`);
    if (!(await until(() => agents.isComplete))) return;
    const took = inSeconds(clock.monotonic() - startedMs);
    const served = count(counts.served - before.served, 'call');
    log(
      'roll',
      `all ${agentCount} agents run version ${version} after ${took}; during the roll ${served} served, ${counts.cut - before.cut} cut`,
    );
  };

  const crash = (pod: string, calls: string) => {
    say(`crash ${pod}${calls && ` during ${calls}`}`);
    if (agents.crash(pod)) log('agent', `${pod} crashed${calls && `; ${calls} lost`}`);
  };

  const deletePod = (pod: string, calls: string) => {
    say(`delete pod ${pod}${calls && `; ${calls} may finish first`}`);
    agents.delete(pod);
  };

  /** Drains an agent as an operator would, and undrains it some time after its last call. */
  const drain = async (pod: string, calls: string) => {
    say(`drain ${pod}: no new calls${calls && `; ${calls} may finish`}`);
    if (!(await operator.drain(pod, 'drain'))) return log('agent', `cannot drain ${pod}: no router answered`);
    state.drained.add(pod);
    if (await until(() => isIdle(pod))) log('agent', `${pod} has no calls left: safe to stop`);
    await sleep(seconds.drained);
    state.drained.delete(pod);
    if (!signal.aborted && (await operator.drain(pod, 'undrain'))) log('agent', `${pod} accepts calls again`);
  };

  const flushStore = async () => {
    if (state.isStorePaused) return say('cannot flush Redis now: it is paused');
    flushes += 1;
    const flush = flushes;
    const adoptedBefore = eventLog.counts.adopted;
    say(`flush Redis: pools, leases and calls (${engine.pause ? 'FLUSHALL' : 'the demo’s own keys'})`);
    const startedMs = clock.monotonic();
    await engine.flush();
    eventLog.storeFlushed();
    const isRebuilt = async () => {
      // Flushed again: the later flush waits for the end.
      if (flush !== flushes) return true;
      const status = await operator.status();
      if (!status) return false;
      const assigned = Object.values(status.pools).reduce((sum, pool) => sum + pool.assigned, 0);
      return assigned >= agents.ready.length && agents.liveCalls.every((call) => eventLog.isInStore(call));
    };
    if (!(await until(isRebuilt)) || flush !== flushes) return;
    const took = inSeconds(clock.monotonic() - startedMs);
    await until(() => operator.deployMerchants());
    const registered = count(agents.ready.length, 'agent');
    const adopted = count(eventLog.counts.adopted - adoptedBefore, 'live call');
    log('redis', `rebuilt after ${took}: ${registered} registered, ${adopted} adopted`);
  };

  const pauseStore = async () => {
    if (!engine.pause) return say('cannot pause Redis: it is not the demo’s own');
    if (state.isStorePaused) return say('Redis is paused already');
    say(`pause Redis for ${seconds.storePause} s; calls that have an agent continue`);
    state.isStorePaused = true;
    await engine.pause();
    await sleep(seconds.storePause);
    engine.resume();
    state.isStorePaused = false;
    log('redis', 'answers again');
  };

  /** records/tracker.ts logs the recovery of its records. */
  const killWorker = async () => {
    const { disabledReason } = records.view();
    if (disabledReason !== undefined) return say(`records are disabled: ${disabledReason}`);
    const killed = records.killWorker();
    if (!killed) return say('no worker runs at the moment');
    say(`kill ${killed.name}, which holds ${count(killed.records, 'record')} (SIGKILL)`);
  };

  const toggleApi = async () => {
    state.isApiDown = !state.isApiDown;
    if (state.isApiDown) {
      say('stop the Kubernetes API server: no router can lead, calls are still served');
      await cluster.down();
    } else {
      say('start the Kubernetes API server');
      await cluster.up();
      log('api', 'answers again');
    }
  };

  const rush = async () => {
    const number = freePlaces(/^(gold|standard|basic)-/) + 6;
    say(`rush hour: ${number} callers at once, more than all agents can serve: Twilio holds some`);
    // All of them before the first hangs up.
    await placeCalls(number, 0.1, (talkSeconds) => callers.ring(talkSeconds));
  };

  /** nova has no fallback: callers who do not wait get a busy tone when both of its agents are busy. */
  const exhaust = async () => {
    const number = freePlaces(/^nova-/) + 2;
    say(`${number} callers for nova who do not wait, and no fallback: some get a busy tone`);
    await placeCalls(number, 0.25, (talkSeconds) => callers.place(talkSeconds, 'nova', false));
  };

  const merchantRush = async () => {
    const number = freePlaces(/^acme-/) + 2;
    say(`${number} callers for acme: its own pool first, then its fallback`);
    await placeCalls(number, 0.25, (talkSeconds) => callers.place(talkSeconds, 'acme'));
  };

  const loseRelease = async () => {
    const call = await callers.place(30);
    if (!call) return;
    await sleep(2);
    say(`${call.callSid} hangs up but its release is lost: ${call.podName} reports without the call`);
    call.hangUpWithoutRelease();
  };

  const byWord = {
    'kill-leader': { key: 'k', what: 'kill the leader', run: () => endLeader('kill') },
    'stop-leader': { key: 's', what: 'stop the leader', run: () => endLeader('stop') },
    roll: { key: 'r', what: 'roll the agents', run: roll },
    crash: { key: 'c', what: 'crash an agent', run: () => onAgent(crash) },
    delete: { key: 'd', what: 'delete an agent', run: () => onAgent(deletePod) },
    drain: { key: 'n', what: 'drain an agent', run: () => onAgent(drain) },
    'lose-redis': { key: 'f', what: 'flush Redis', run: flushStore },
    'pause-redis': { key: 'x', what: 'pause Redis', run: pauseStore },
    'kill-worker': { key: 'w', what: 'kill a worker', run: killWorker },
    api: { key: 'a', what: 'API server down/up', run: toggleApi },
    rush: { key: 'u', what: 'rush hour', run: rush },
    exhaust: { key: 'e', what: 'exhaust a pool', run: exhaust },
    'merchant-rush': { run: merchantRush },
    'lose-release': { run: loseRelease },
  } as const satisfies Record<string, Action>;
  return { state, byWord };
}

export type Command = ReturnType<typeof commandsOf>[number];

export function commandsOf(actions: Actions, scenario: Scenario, quit: () => void, help: () => void) {
  const acts = Object.entries<Action>(actions.byWord).flatMap(([word, { key, what, run }]) => {
    if (key === undefined || what === undefined) return [];
    const pauseAndRun = () => {
      scenario.pause();
      return run();
    };
    return [{ key, word, what, run: pauseAndRun }];
  });
  return [
    ...acts,
    { key: 'p', word: 'story', what: 'story on/off', run: () => scenario.toggle() },
    { key: '?', word: 'help', what: 'help', run: help },
    { key: 'q', word: 'quit', what: 'quit', run: quit },
  ];
}
