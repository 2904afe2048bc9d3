/**
 * The demo: a real router on a real (embedded) store, with simulated agents and callers around it.
 *
 * It promises that what is printed happened: every line but those that start with ▸ is an event of the store,
 * also those that a visitor causes by hand. Within the first minute it shows an allocation, a merchant's pool,
 * a fallback, a drain to its end and the recovery of a zombie.
 *
 * It fails softly: a caller that gets no pod hangs up, an error of the simulation is one line and the show goes
 * on. Its weakness: agents learn of calls from the event stream instead of from audio, so an agent never misses
 * a call that the store knows.
 */
import { randomInt } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import type { EventFeed, StoreEvent } from '../calls/events.js';
import { poolsOf } from '../calls/tiers.js';
import { createClient } from '../client/index.js';
import { type Clock, systemClock } from '../clock.js';
import { type RunningRouter, startRouter } from '../main.js';
import { Agents } from './agents.js';
import { Callers } from './callers.js';
import { Chronicle } from './chronicle.js';
import { Dice } from './dice.js';
import { freePort } from './port.js';
import { demoConfig, keyVariable, merchants, pods, seconds } from './scenery.js';
import { Screen } from './screen.js';
import { Story } from './story.js';

export interface DemoOptions {
  env: NodeJS.ProcessEnv;
  write: (text: string) => void;
  colours: boolean;
  quiet?: boolean;
  port?: number;
  seed?: number;
  /** 10 makes a demo's minute last six seconds, leases included; for tests. */
  speed?: number;
  clock?: Clock;
}

export interface RunningDemo {
  url: string;
  stop(): Promise<void>;
}

const poolsEverySeconds = 10;

export async function startDemo(options: DemoOptions): Promise<RunningDemo> {
  const { env, speed = 1, clock = systemClock } = options;
  const wanted = demoConfig(env, speed, options.port);
  const port = await freePort(wanted.httpPort, wanted.httpHost);
  const router = await startRouter(demoConfig(env, speed, port), { clock });
  const screen = new Screen({ ...options, quiet: options.quiet ?? false });
  const stopping = new AbortController();
  const { signal } = stopping;
  // Everything that waits listens to it.
  setMaxListeners(0, signal);
  // One client plays a dozen agents and all callers: what would trip one process' breaker is noise here.
  const client = createClient({
    baseUrl: router.url,
    apiKey: wanted.adminKey,
    clock,
    timeoutMs: 5000,
    breaker: { failures: 100, openMs: 1000 },
  });
  const now = () => new Date(clock.now()).toISOString();
  const say = (text: string) => screen.say(now(), text);

  const sleep = (time: number) => clock.sleep((time * 1000) / speed, signal);
  const later = (afterSeconds: number, work: () => Promise<unknown>) => {
    const run = async () => {
      await sleep(afterSeconds);
      if (!signal.aborted) await work();
    };
    run().catch((error: unknown) => {
      if (!signal.aborted) say(`the demo stumbled: ${error instanceof Error ? error.message : error}`);
    });
  };
  try {
    await setUp(router, clock);
    const { store, feed, settings } = router.context;
    const chronicle = new Chronicle((merchantId) => settings.chainFor(merchantId).steps);
    const callers = new Callers({ client, later });
    const agents = new Agents({
      client,
      clock,
      pods,
      reportMs: (seconds.report * 1000) / speed,
      guestMs: (seconds.guest * 1000) / speed,
      isGuest: Callers.isGuest,
    });
    const key = keyVariable(env);
    screen.banner({
      url: router.url,
      ...(port === wanted.httpPort ? {} : { takenPort: wanted.httpPort }),
      ...(key === undefined ? {} : { keyVariable: key }),
    });
    const followed = await follow(feed, clock, signal, (event) => {
      agents.hear(event);
      for (const line of chronicle.tell(event)) screen.line(line);
    });
    const dice = new Dice(options.seed ?? randomInt(2 ** 32));
    new Story({ dice, callers, agents, client, store, say, sleep, later, signal }).start();
    later(0, async () => {
      for (;;) {
        await sleep(poolsEverySeconds);
        if (signal.aborted) return;
        await screen.pools(
          now(),
          store,
          poolsOf(settings.tiers).map(({ id }) => id),
        );
      }
    });
    return {
      url: router.url,
      async stop() {
        stopping.abort();
        client.close();
        await followed.ended;
        await router.stop();
        screen.summary(chronicle.counts);
      },
    };
  } catch (error) {
    stopping.abort();
    client.close();
    await router.stop();
    throw error;
  }
}

/** Waits until the leader has put every agent into its pool. */
async function setUp({ context }: RunningRouter, clock: Clock): Promise<void> {
  const { settings, store } = context;
  for (const [id, merchant] of Object.entries(merchants)) await settings.setMerchant(id, merchant, 'demo');
  for (let tries = 0; tries < 200; tries++) {
    const { pools } = await store.snapshot();
    const known = pools.reduce((sum, { assigned }) => sum + assigned, 0);
    if (known >= pods.length) return;
    await clock.sleep(25);
  }
  throw new Error('the demo’s agents were not registered within 5 s');
}

/**
 * Every event from now on, once and in order. The feed only wakes: what it says is read again by id, because
 * its listening starts a moment after `subscribe`.
 */
async function follow(
  feed: EventFeed,
  clock: Clock,
  signal: AbortSignal,
  hear: (event: StoreEvent) => void,
): Promise<{ ended: Promise<void> }> {
  let last = (await feed.latest(1))[0]?.id ?? '0-0';
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
  return { ended: read() };
}
