/**
 * The demo: a small Kubernetes cluster inside this process, with StatefulSets of voice agents and people who call
 * them, and three real routers around it, each a process of its own, that elect a leader and follow the cluster with
 * their real client. Beside it records: a PostgreSQL, sites to read, and workers that import and curate them, as the
 * routers do too. On top, a story and a keyboard: leaders and workers die, agents roll, Redis forgets.
 *
 * It promises that what is shown happened: calls are counted where they are heard, by callers and agents, not where
 * the routers say so, records where their rows change; a line without ▸ is an event of a store, of the cluster or of a
 * process.
 *
 * It fails softly: a caller that gets no agent hangs up, an error of the simulation is one line and the show goes on.
 * Everything it starts ends with it. Its weakness: audio takes no time here, so an agent never waits for a call that
 * the router has already given it.
 */
import { randomInt } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { EventFeed, type StoreEvent } from '../calls/events.js';
import { createClient } from '../client/index.js';
import { type Clock, systemClock } from '../clock.js';
import { startCluster } from '../cluster/simulator/cluster.js';
import { Deeds } from './actions.js';
import { Agents } from './agents.js';
import { Callers } from './callers.js';
import { Roster } from './cluster-monitor.js';
import { commandsOf, findCommand } from './commands.js';
import { Dice } from './dice.js';
import { Show, type ShowOptions } from './display.js';
import { openEngine } from './engine.js';
import { Chronicle } from './event-log.js';
import { Fleet } from './fleet.js';
import { Ledger } from './ledger.js';
import type { LineKind } from './lines.js';
import { Narrator } from './narrator.js';
import { Operator, type RouterStatus } from './operator.js';
import { freePort } from './port.js';
import { RecordPlane } from './records/plane.js';
import { Routers } from './routers.js';
import { Story } from './scenario.js';
import { Service } from './service.js';
import { agentCount, chainOf, keyVariable, recordsLeftOut, routerNames, seconds, setScene } from './setup.js';
import { look } from './view.js';

export interface DemoOptions extends Omit<ShowOptions, 'quiet' | 'headless' | 'clock'> {
  env: NodeJS.ProcessEnv;
  /** Somebody asked for the end. */
  onQuit: () => void;
  /** Gives up the start. */
  signal: AbortSignal;
  quiet?: boolean;
  headless?: boolean;
  /** Whether things happen by themselves. Default: true. */
  story?: boolean;
  port?: number;
  seed?: number;
  /** 10 makes a demo's minute last six seconds, leases included; for tests. */
  speed?: number;
  clock?: Clock;
}

export interface RunningDemo {
  url: string;
  /** A key or a word. */
  command(text: string): void;
  stop(): Promise<void>;
}

const poolsEverySeconds = 10;
const statusEveryMs = 500;
const readyWithinMs = 60_000;

export async function startDemo(options: DemoOptions): Promise<RunningDemo> {
  const { env, speed = 1, clock = systemClock, quiet = false, headless = false } = options;
  const { config, routerEnv } = setScene(env, speed, options.port);
  const show = new Show({ ...options, quiet, headless, clock });
  const stopping = new AbortController();
  const signal = AbortSignal.any([stopping.signal, options.signal]);
  // Everything that waits listens to it.
  setMaxListeners(0, signal);
  const now = () => new Date(clock.now()).toISOString();
  const tell = (kind: LineKind, text: string) => {
    if (!signal.aborted) show.line({ at: now(), kind, text });
  };
  const sleep = (time: number) => clock.sleep((time * 1000) / speed, signal);
  const later = (afterSeconds: number, work: () => Promise<unknown>) => {
    const run = async () => {
      await sleep(afterSeconds);
      if (!signal.aborted) await work();
    };
    run().catch((error: unknown) =>
      tell('do', `the demo stumbled: ${error instanceof Error ? error.message : error}`),
    );
  };

  const ledger = new Ledger();
  const chronicle = new Chronicle(chainOf);
  const records = new RecordPlane({ clock, speed, leftOut: recordsLeftOut(env), tell, sleep, later, signal });
  // Started last, stopped first; the summary is the last word.
  const stops: (() => Promise<void> | void)[] = [
    () => show.close(ledger, chronicle.counts, records.view()),
    () => records.close(),
  ];
  const stopAll = async () => {
    stopping.abort();
    for (const stop of stops.splice(0).reverse()) await stop();
  };
  try {
    const port = await freePort(config.httpPort, config.httpHost);
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
    const narrator = new Narrator({ clock, ledger, tell });
    const roster = new Roster(cluster, {
      onReady: (agent) => narrator.agentReady(agent),
      onHolder: (holder) => narrator.leaseHolder(holder),
    });
    stops.push(() => roster.stop());
    const routers = new Routers({
      names: routerNames,
      env: { ...routerEnv, REDIS_URL: engine.url },
      envFor: (life) => records.envFor(life),
      kubeconfigFor: (name) => cluster.kubeconfigFor(name),
      restartMs: (seconds.routerRestarts * 1000) / speed,
      clock,
      onUp: (replica) => narrator.routerUp(replica),
      onEnd: (replica, ending) => {
        narrator.routerEnded(replica, ending);
        records.routerEnded(replica.life);
      },
    });
    stops.push(() => routers.close());
    routers.start();
    const service = new Service(() => routers.endpoints);
    const taken = await service.listen(port, config.httpHost);
    stops.push(() => service.close());
    const url = `http://${config.httpHost.includes(':') ? `[${config.httpHost}]` : config.httpHost}:${taken}`;

    // One client plays twenty agents and all callers: what would trip one process' breaker is noise here.
    const client = createClient({
      baseUrl: url,
      apiKey: config.adminKey,
      clock,
      timeoutMs: 5000,
      breaker: { failures: 1000, openMs: 1000 },
    });
    stops.push(() => client.close());
    const agents = new Agents({
      client,
      clock,
      ledger,
      reportMs: Math.max(300, (seconds.report * 1000) / speed),
      guestMs: (seconds.guest * 1000) / speed,
      onDrained: (pod, calls, ms) => narrator.agentDrained(pod, calls, ms),
    });
    const fleet = new Fleet(cluster, roster, agents.hooks, speed);
    stops.push(() => fleet.stop());
    const callers = new Callers({
      client,
      agents,
      ledger,
      later,
      onGone: (callSid, pod, how, why) => {
        if (how === 'cut' && !signal.aborted)
          show.line({ at: now(), kind: 'cut', call: callSid, pod, text: why });
      },
    });
    const operator = new Operator(url, config.adminKey, clock);
    const shared = {
      clock,
      dice,
      engine,
      cluster,
      routers,
      narrator,
      roster,
      fleet,
      agents,
      callers,
      records,
    };
    const deeds = new Deeds({ ...shared, chronicle, ledger, operator, tell, sleep, later, signal });
    const story = new Story({ dice, callers, deeds, tells: options.story ?? true, sleep, later, signal });
    const say = (text: string) => tell('do', text);
    const words = () => commands.map(({ word }) => word).join(', ');
    const help = () => say(`the commands are ${words()}`);
    const commands = commandsOf({ deeds, story, quit: options.onQuit, help, say });

    let status: RouterStatus | undefined;
    const view = () => look({ routers, narrator, roster, agents, fleet, deeds, ledger, records }, status);
    show.open({
      url,
      takenPort: port === config.httpPort ? undefined : config.httpPort,
      keyVariable: keyVariable(env),
      commands,
      view,
      storyTells: () => story.tells,
    });

    const feed = new EventFeed(engine.connection, clock);
    stops.push(() => feed.close());
    follow(feed, clock, signal, (event) => {
      hearGuests(event, agents);
      for (const line of chronicle.tell(event)) if (!signal.aborted) show.line(line);
    });
    later(0, async () => {
      for (let ms = 0; !signal.aborted; ms += statusEveryMs) {
        status = await operator.status();
        if (ms % (poolsEverySeconds * 1000) === 0 && ms > 0) show.numbers(now(), view());
        await clock.sleep(statusEveryMs, signal);
      }
    });
    await untilReady({ clock, signal, routers, operator });
    if (!signal.aborted) {
      tell('ready', `${url}/ answers: ${routerNames.length} routers, ${agentCount} agents`);
      show.ready();
      // Last, so that nobody waits for it.
      records.start({
        pids: () => routers.recordsPids,
        answer: () => operator.haveRecords(routers.endpoints),
      });
      story.start();
    }
    const command = (text: string) => {
      if (show.help(text)) return;
      const known = findCommand(commands, text);
      if (known) later(0, async () => known.run());
      // Unknown keys are ignored, unknown words are reported.
      else if (!show.isPicture) say(`no command is called ${text}; there are: ${words()}`);
    };
    return { url, command, stop: stopAll };
  } catch (error) {
    await stopAll();
    throw error;
  }
}

/** A call that we did not place: nobody connects it, so its agent takes it from the store's word. */
function hearGuests({ type, fields: { call = '', pod = '' } }: StoreEvent, agents: Agents): void {
  if (!Callers.isGuest(call)) return;
  if (type === 'call_allocated') agents.receiveGuest(pod, call);
  if (type === 'call_released' || type === 'call_recovered' || type === 'call_lost')
    agents.dismissGuest(call);
}

/** Waits until a leader has put every agent into its pool, and every agent has reported. */
async function untilReady({
  clock,
  signal,
  routers,
  operator,
}: {
  clock: Clock;
  signal: AbortSignal;
  routers: Routers;
  operator: Operator;
}): Promise<void> {
  const endsAtMs = clock.monotonic() + readyWithinMs;
  let hasMerchants = false;
  while (!signal.aborted) {
    const status = routers.endpoints.length > 0 ? await operator.status() : undefined;
    hasMerchants ||= status !== undefined && (await operator.deployMerchants());
    const registered = status === undefined ? 0 : await operator.registeredAgents();
    if (hasMerchants && registered >= agentCount && routers.endpoints.length === routerNames.length) return;
    if (routers.failure !== undefined)
      throw new Error(`the demo cannot start its routers: ${routers.failure}`);
    if (clock.monotonic() > endsAtMs)
      throw new Error(
        `the demo was not ready within ${readyWithinMs / 1000} s: ${routers.endpoints.length} routers answer, ${registered} of ${agentCount} agents are registered`,
      );
    await clock.sleep(50, signal);
  }
}

/**
 * Every event of a store that was empty at first, once and in order. The feed only wakes: what it says is read again
 * by id, because its listening starts a moment after `subscribe`.
 */
function follow(feed: EventFeed, clock: Clock, signal: AbortSignal, hear: (event: StoreEvent) => void): void {
  let last = '0-0';
  let wake = new AbortController();
  const unsubscribe = feed.subscribe(() => wake.abort());
  const read = async () => {
    while (!signal.aborted) {
      wake = new AbortController();
      for (const event of await feed.replay(last).catch(() => [])) {
        last = event.id;
        hear(event);
      }
      await clock.sleep(250, AbortSignal.any([wake.signal, signal]));
    }
    unsubscribe();
  };
  void read();
}
