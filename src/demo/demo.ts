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
import { EventFeed } from '../calls/events.js';
import { createClient } from '../client/index.js';
import { abortWith, systemClock, WakeableSleep } from '../clock.js';
import { startCluster } from '../cluster/simulator/cluster.js';
import { loadConfig } from '../config/config.js';
import { actionsOf, commandsOf } from './actions.js';
import { Agents } from './agents.js';
import { CallCounts, Callers } from './callers.js';
import { createContext, type Needs } from './context.js';
import { Display, type DisplayOptions } from './display.js';
import { openEngine } from './engine.js';
import { EventLog } from './event-log.js';
import { viewOf } from './frame.js';
import { operatorOf, type RouterStatus } from './operator.js';
import { RecordPlane } from './records/plane.js';
import { Routers } from './routers.js';
import { Scenario } from './scenario.js';
import { SeededRandom } from './seeded-random.js';
import { Service } from './service.js';
import { agentCount, keyVariable, routerEnvOf, routerNames, speedOf } from './setup.js';
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

const poolLinesSeconds = 10;
const statusIntervalMs = 500;
const readyTimeoutMs = 60_000;

export async function startDemo(options: DemoOptions) {
  const { env } = options;
  const clock = systemClock;
  const routerEnv = routerEnvOf(env);
  const port = options.port === undefined ? {} : { HTTP_PORT: String(options.port) };
  const config = loadConfig({ ...routerEnv, ...port }, 'demo');
  const display = new Display({ ...options, clock });
  const stopping = new AbortController();
  abortWith(stopping, options.signal);
  const { signal } = stopping;
  // Every sleep listens to it.
  setMaxListeners(0, signal);
  const context = createContext(clock, speedOf(env), signal, (line) => display.line(line));
  const { log, later } = context;

  const counts = new CallCounts();
  const eventLog = new EventLog();
  // The demo never uses another database than its own.
  const records = new RecordPlane(context, env.DATABASE_URL === 'off' ? 'DATABASE_URL is off' : undefined);
  // In the order of the starts; stopped in reverse, with the summary last.
  const stops: (() => Promise<void> | void)[] = [() => display.close(eventLog.counts), () => records.close()];
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

    const routers = new Routers(
      { ...context, cluster, counts, records },
      { ...routerEnv, REDIS_URL: engine.url },
    );
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
    const agents = new Agents({ ...context, cluster, client, counts });
    stops.push(() => agents.stop());
    const { publicUrl, twilioAuthToken: token } = config;
    const twilio = twilioOf({ ...context, url, publicUrl, token });
    const callers = new Callers({ ...context, client, twilio, agents, counts });
    const operator = operatorOf(url, config.adminKey, clock);
    const random = new SeededRandom(options.seed ?? randomInt(2 ** 32));
    const backend = { ...context, counts, eventLog, records, engine, cluster, routers };
    const parts = { ...backend, client, agents, twilio, callers, operator, random };
    const actions = actionsOf(parts);
    const scenario = new Scenario({ ...parts, actions }, options.story);
    const words = () => commands.map(({ word }) => word).join(', ');
    const help = () => log('do', `commands: ${words()}`);
    const commands = commandsOf(actions, scenario, options.onQuit, help);

    let status: RouterStatus | undefined;
    display.open({
      url,
      takenPort: [0, ownPort].includes(config.httpPort) ? undefined : config.httpPort,
      keyVariable: keyVariable(env),
      commands,
      view: () => viewOf({ ...parts, actions }, status),
      isStoryOn: () => scenario.isOn,
    });

    const feed = new EventFeed(engine.connection, clock);
    stops.push(() => feed.close());
    // Only wakes the reader: a subscription starts a moment after `subscribe` and could miss events.
    const pause = new WakeableSleep(clock);
    feed.subscribe(() => pause.wake());
    later(0, async () => {
      // The store was empty at first: this reads every event once and in order.
      for (let last = '0-0'; !signal.aborted; await pause.for(250, signal)) {
        for (const event of await feed.replay(last).catch(() => [])) {
          last = event.id;
          agents.follow(event);
          for (const line of eventLog.linesOf(event)) if (!signal.aborted) display.line(line);
        }
      }
    });
    later(0, async () => {
      for (let passedMs = 0; !signal.aborted; passedMs += statusIntervalMs) {
        status = await operator.status();
        if (passedMs % (poolLinesSeconds * 1000) === 0 && passedMs > 0) display.numbers(log);
        await clock.sleep(statusIntervalMs, signal);
      }
    });
    await untilReady(parts);
    if (!signal.aborted) {
      log('ready', `${url}/ answers: ${routerNames.length} routers, ${agentCount} agents`);
      display.ready();
      // Last: nothing waits for records.
      records.start(routers, operator);
      scenario.start();
    }
    /** Runs a command by its key or word. */
    const command = (text: string) => {
      if (display.help(text)) return;
      const known = commands.find(({ key, word }) => text === key || text === word);
      if (known) later(0, async () => known.run());
      // Unknown keys are ignored, unknown words are reported.
      else if (options.mode !== 'picture') log('do', `unknown command ${text}; commands: ${words()}`);
    };
    return { command, stop: stopAll };
  } catch (error) {
    await stopAll();
    throw error;
  }
}

/** Waits until a leader has put every agent into its pool and every agent has reported. */
async function untilReady({ clock, until, routers, operator }: Needs<'routers' | 'operator'>): Promise<void> {
  const deadlineMs = clock.monotonic() + readyTimeoutMs;
  let hasMerchants = false;
  await until(async () => {
    hasMerchants ||= await operator.deployMerchants();
    const registered = hasMerchants ? await operator.registeredAgents() : 0;
    const up = routers.endpoints.length;
    if (hasMerchants && registered >= agentCount && up === routerNames.length) return true;
    if (routers.failure !== undefined) throw new Error(`cannot start the routers: ${routers.failure}`);
    if (clock.monotonic() > deadlineMs)
      throw new Error(
        `the demo was not ready within ${readyTimeoutMs / 1000} s: ${up} of ${routerNames.length} routers are up, ${registered} of ${agentCount} agents are registered`,
      );
    return false;
  });
}
