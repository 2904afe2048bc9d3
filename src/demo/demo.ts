/**
 * The demo. Inside this process: a small Kubernetes cluster with StatefulSets of simulated voice agents, their callers,
 * Valkey, and a web server with sites. Beside it, as real processes: three routers that elect a leader and follow the
 * cluster with their real client, PostgreSQL, and two record workers. A scenario and the visitor's commands kill, roll,
 * drain and flush them.
 *
 * What it shows has happened: calls are counted by callers and agents, records by triggers in the database, not by the
 * routers. A line without ▸ is an event of a store, of the cluster or of a process.
 *
 * A caller waits if all agents are busy, and hangs up without one; an error of the simulation is one line, and the demo continues. Everything it
 * starts ends with it. Its limit: connecting a call takes no time, so no agent ever waits for its call.
 */

import { randomInt } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { EventFeed, type StoreEvent } from '../calls/events.js';
import { createClient } from '../client/index.js';
import { abortWith, systemClock } from '../clock.js';
import { startCluster } from '../cluster/simulator/cluster.js';
import { Actions } from './actions.js';
import { Agents } from './agents.js';
import { CallCounts, Callers } from './callers.js';
import { ClusterMonitor } from './cluster-monitor.js';
import { commandsOf } from './commands.js';
import { createContext, type DemoContext } from './context.js';
import { Dice } from './dice.js';
import { Display, type DisplayOptions } from './display.js';
import { openEngine } from './engine.js';
import { EventLog } from './event-log.js';
import { Fleet } from './fleet.js';
import { viewOf } from './frame.js';
import { type Operator, operatorOf, type RouterStatus } from './operator.js';
import { RecordPlane } from './records/plane.js';
import { Routers } from './routers.js';
import { Scenario } from './scenario.js';
import { Service } from './service.js';
import {
  agentCount,
  keyVariable,
  loadSetup,
  recordsDisabledReason,
  routerNames,
  seconds,
  speedOf,
} from './setup.js';
import { twilioOf } from './twilio.js';

interface DemoOptions extends Omit<DisplayOptions, 'clock'> {
  env: NodeJS.ProcessEnv;
  /** The visitor wants to quit. */
  onQuit: () => void;
  /** Aborts the start. */
  signal: AbortSignal;
  /** Whether the scenario runs. */
  story: boolean;
  port?: number;
  seed?: number;
}

interface RunningDemo {
  url: string;
  /** Runs a command by its key or word. */
  command(text: string): void;
  stop(): Promise<void>;
}

const poolLinesSeconds = 10;
const statusIntervalMs = 500;
const readyTimeoutMs = 60_000;

export async function startDemo(options: DemoOptions): Promise<RunningDemo> {
  const { env } = options;
  const clock = systemClock;
  const { config, routerEnv } = loadSetup(env, options.port);
  const display = new Display({ ...options, clock });
  const stopping = new AbortController();
  abortWith(stopping, options.signal);
  const { signal } = stopping;
  // Every sleep listens to it.
  setMaxListeners(0, signal);
  const context = createContext(clock, speedOf(env), signal, (line) => display.line(line));
  const { log, ms, later } = context;

  const counts = new CallCounts();
  const eventLog = new EventLog();
  const records = new RecordPlane(context, recordsDisabledReason(env));
  // In the order of the starts; stopped in reverse, with the summary last.
  const stops: (() => Promise<void> | void)[] = [
    () => display.close(counts, eventLog.counts, records.view()),
    () => records.close(),
  ];
  const stopAll = async () => {
    stopping.abort();
    for (const stop of stops.splice(0).reverse()) await stop();
  };
  try {
    const [engine, cluster] = await Promise.all([
      openEngine(config, clock),
      startCluster({ clock, bookmarkIntervalMs: 1000 }),
      records.prepare(),
    ]);
    stops.push(
      () => engine.stop(),
      () => cluster.stop(),
    );

    const dice = new Dice(options.seed ?? randomInt(2 ** 32));
    const monitor = new ClusterMonitor({ ...context, cluster, counts });
    stops.push(() => monitor.stop());
    const routers = new Routers({
      names: routerNames,
      env: { ...routerEnv, REDIS_URL: engine.url },
      envFor: (instance) => records.envFor(instance),
      kubeconfigFor: (name) => cluster.kubeconfigFor(name),
      restartMs: ms(seconds.routerRestart),
      clock,
      onUp: ({ upText }) => log('router', upText),
      onExit: (router, exit) => {
        monitor.routerExited(router, exit);
        records.routerExited(router.instance);
      },
    });
    stops.push(() => routers.close());
    routers.group.start();
    const service = new Service(() => routers.endpoints);
    const ownPort = await service.listen(config.httpPort, config.httpHost);
    stops.push(() => service.close());
    const url = `http://${config.httpHost.includes(':') ? `[${config.httpHost}]` : config.httpHost}:${ownPort}`;

    // One client serves twenty agents and all callers, so the failures of one must not open its circuit breaker.
    const client = createClient({
      baseUrl: url,
      apiKey: config.adminKey,
      clock,
      timeoutMs: 5000,
      breaker: { failures: 1000, openMs: 1000 },
    });
    stops.push(() => client.close());
    const agents = new Agents({
      ...context,
      client,
      counts,
      onDrained: (pod, calls, tookMs) => monitor.agentDrained(pod, calls, tookMs),
    });
    const fleet = new Fleet(cluster, monitor, agents.hooks, context);
    stops.push(() => fleet.stop());
    const { publicUrl, twilioAuthToken: token } = config;
    const twilio = twilioOf({ ...context, url, publicUrl, token });
    const callers = new Callers({ ...context, client, twilio, agents, counts });
    const operator = operatorOf(url, config.adminKey, clock);
    const parts = { dice, engine, cluster, routers, monitor, fleet, agents, callers, records, counts };
    const actions = new Actions({ ...context, ...parts, eventLog, operator });
    const scenario = new Scenario({ ...context, dice, callers, actions, isOn: options.story });
    const words = () => commands.map(({ word }) => word).join(', ');
    const help = () => log('do', `commands: ${words()}`);
    const commands = commandsOf({ actions, scenario, quit: options.onQuit, help });

    let status: RouterStatus | undefined;
    const view = () => viewOf({ ...parts, actions }, status);
    display.open({
      url,
      takenPort: [0, ownPort].includes(config.httpPort) ? undefined : config.httpPort,
      keyVariable: keyVariable(env),
      commands,
      view,
      isStoryOn: () => scenario.isOn,
    });

    const feed = new EventFeed(engine.connection, clock);
    stops.push(() => feed.close());
    follow(feed, context, (event) => {
      connectVisitors(event, agents);
      for (const line of eventLog.linesOf(event)) if (!signal.aborted) display.line(line);
    });
    later(0, async () => {
      for (let passedMs = 0; !signal.aborted; passedMs += statusIntervalMs) {
        status = await operator.status();
        if (passedMs % (poolLinesSeconds * 1000) === 0 && passedMs > 0) display.numbers(view(), log);
        await clock.sleep(statusIntervalMs, signal);
      }
    });
    await untilReady(context, routers, operator);
    if (!signal.aborted) {
      log('ready', `${url}/ answers: ${routerNames.length} routers, ${agentCount} agents`);
      display.ready();
      // Last: nothing waits for records.
      records.start({
        pids: () => routers.recordsPids,
        areReady: () => operator.haveRecords(routers.endpoints),
      });
      scenario.start();
    }
    const command = (text: string) => {
      if (display.help(text)) return;
      const known = commands.find(({ key, word }) => text === key || text === word);
      if (known) later(0, async () => known.run());
      // Unknown keys are ignored, unknown words are reported.
      else if (options.mode !== 'picture') log('do', `unknown command ${text}; commands: ${words()}`);
    };
    return { url, command, stop: stopAll };
  } catch (error) {
    await stopAll();
    throw error;
  }
}

/** A visitor's call has no simulated caller, so its agent follows the events of the store. */
function connectVisitors({ type, fields: { call = '', pod = '' } }: StoreEvent, agents: Agents): void {
  if (!Callers.isVisitor(call)) return;
  if (type === 'call_allocated' || type === 'call_assigned') agents.connectVisitor(pod, call);
  if (type === 'call_released' || type === 'call_recovered' || type === 'call_lost') agents.endVisitor(call);
}

/** Waits until a leader has put every agent into its pool and every agent has reported. */
async function untilReady(
  { clock, signal }: DemoContext,
  routers: Routers,
  operator: Operator,
): Promise<void> {
  const deadlineMs = clock.monotonic() + readyTimeoutMs;
  let hasMerchants = false;
  while (!signal.aborted) {
    const status = routers.endpoints.length > 0 ? await operator.status() : undefined;
    hasMerchants ||= status !== undefined && (await operator.deployMerchants());
    const registered = status === undefined ? 0 : await operator.registeredAgents();
    if (hasMerchants && registered >= agentCount && routers.endpoints.length === routerNames.length) return;
    if (routers.failure !== undefined) throw new Error(`cannot start the routers: ${routers.failure}`);
    if (clock.monotonic() > deadlineMs)
      throw new Error(
        `the demo was not ready within ${readyTimeoutMs / 1000} s: ${routers.endpoints.length} of ${routerNames.length} routers are up, ${registered} of ${agentCount} agents are registered`,
      );
    await clock.sleep(50, signal);
  }
}

/**
 * Reads every event of the store, which was empty at first, once and in order. The subscription only wakes the reader,
 * because it starts a moment after `subscribe` and could miss events.
 */
function follow(feed: EventFeed, { clock, signal }: DemoContext, onEvent: (event: StoreEvent) => void): void {
  let last = '0-0';
  let wake = new AbortController();
  const unsubscribe = feed.subscribe(() => wake.abort());
  signal.addEventListener('abort', () => wake.abort(), { once: true });
  const read = async () => {
    while (!signal.aborted) {
      wake = new AbortController();
      for (const event of await feed.replay(last).catch(() => [])) {
        last = event.id;
        onEvent(event);
      }
      await clock.sleep(250, wake.signal);
    }
    unsubscribe();
  };
  void read();
}
