/**
 * The faults. Each fault is begun at one place, held for a while and ended by the same function, so that nothing is
 * left broken; faults that would end each other share a key and do not overlap.
 */
import type { SeededRandom } from '../../src/demo/seeded-random.js';
import { until } from '../support/until.js';
import { type Attack, rejectedRequests, slowBodies, unreadAnswers } from './attackers.js';
import type { Link, Router } from './routers.js';
import { podNames, times } from './times.js';
import type { World } from './world.js';

export interface Fault {
  name: string;
  weight: number;
  /** Shortest and longest. */
  lastsMs: readonly [number, number];
  /** How many places it may be at. */
  places: number;
  /** Faults with the same key never overlap. */
  key: (place: number) => string;
  needs?: 'one server' | 'sentinel';
  act: (world: World, place: number, forMs: number) => Promise<void>;
}

const router = (world: World, place: number) => world.routers[place] as Router;
const pod = (place: number) => podNames[place] as string;
/** Some connection of another program may sit on the port for a moment. */
const again = (start: () => Promise<void>) =>
  until(() => start().then(() => true), 'its port is free', times.healedWithinMs);

// --- Processes ---

const pauseRouter: Fault['act'] = async (world, place, forMs) => {
  router(world, place).pause();
  await world.hold(forMs);
  router(world, place).resume();
};
const endRouter =
  (signal: 'SIGKILL' | 'SIGTERM'): Fault['act'] =>
  async (world, place, forMs) => {
    await router(world, place).end(signal);
    await world.hold(forMs);
    router(world, place).start();
  };
const atRouter = { places: 3, key: (place: number) => `router ${place}` };
const routers: Fault[] = [
  { ...atRouter, name: 'router killed', weight: 4, lastsMs: [100, 5000], act: endRouter('SIGKILL') },
  { ...atRouter, name: 'router stopped', weight: 1, lastsMs: [100, 3000], act: endRouter('SIGTERM') },
  { ...atRouter, name: 'router paused a moment', weight: 2, lastsMs: [200, 1800], act: pauseRouter },
  { ...atRouter, name: 'router paused past its lease', weight: 3, lastsMs: [4000, 9000], act: pauseRouter },
];

const pauseWorker: Fault['act'] = async ({ records, hold }, place, forMs) => {
  records.workers[place]?.pause();
  await hold(forMs);
  records.workers[place]?.resume();
};
const atWorker = { places: 2, key: (place: number) => `worker ${place}` };
const workers: Fault[] = [
  {
    ...{ ...atWorker, name: 'worker killed', weight: 2, lastsMs: [100, 3000] },
    async act({ records, hold }, place, forMs) {
      await records.workers[place]?.end();
      await hold(forMs);
      records.workers[place]?.start();
    },
  },
  { ...atWorker, name: 'worker paused a moment', weight: 1, lastsMs: [200, 2000], act: pauseWorker },
  { ...atWorker, name: 'worker paused past its death', weight: 2, lastsMs: [5000, 9000], act: pauseWorker },
];

// --- Links ---

function linkFaults(
  what: string,
  places: number,
  proxyOf: (world: World, place: number) => Link | undefined,
) {
  const key = (place: number) => `${what} ${place}`;
  const fault = (
    name: string,
    weight: number,
    lastsMs: readonly [number, number],
    begin: (proxy: Link, forMs: number) => unknown,
    end: (proxy: Link) => unknown,
  ): Fault => ({
    ...{ name: `${what}: ${name}`, weight, lastsMs, places, key },
    async act(world, place, forMs) {
      const proxy = proxyOf(world, place);
      if (!proxy) return;
      await begin(proxy, forMs);
      await world.hold(forMs);
      await end(proxy);
    },
  });
  const passes = (proxy: Link) => proxy.pass();
  const resets = (proxy: Link) => proxy.reset();
  return [
    fault('black hole', 1, [500, 6000], (proxy) => proxy.blackHole(), passes),
    fault('reset', 1, [0, 0], resets, () => undefined),
    fault('slow', 1, [1000, 6000], (proxy, forMs) => proxy.delay(20 + (forMs % 280)), passes),
    fault('replies lost', 1, [300, 4000], (proxy) => proxy.loseReplies(), resets),
    fault('connections stranded', 0.5, [1000, 6000], (proxy) => proxy.strand(), resets),
    fault(
      'refused',
      0.5,
      [300, 4000],
      (proxy) => proxy.down(),
      (proxy) => again(() => proxy.up()),
    ),
  ];
}

const links: Fault[] = [
  ...linkFaults('router to redis', 3, (world, place) => router(world, place).store).map(
    (fault): Fault => ({ ...fault, needs: 'one server' }),
  ),
  ...linkFaults('router to the API', 3, (world, place) => router(world, place).api),
  ...linkFaults('worker to postgres', 2, ({ records }, place) => records.workers[place]?.link),
];

// --- The stores ---

const atRedis = { places: 1, key: () => 'redis' };
const stores: Fault[] = [
  {
    ...{ ...atRedis, name: 'redis killed', weight: 3, lastsMs: [100, 3000], needs: 'one server' },
    async act({ store, hold }, _place, forMs) {
      const [server] = store.servers;
      await server?.kill();
      await hold(forMs);
      if (server) await store.rejoin(server);
    },
  },
  {
    ...{ ...atRedis, name: 'redis paused', weight: 2, lastsMs: [300, 4000], needs: 'one server' },
    async act({ store, hold }, _place, forMs) {
      store.servers[0]?.pause();
      await hold(forMs);
      store.servers[0]?.resume();
    },
  },
  {
    ...{ ...atRedis, name: 'scripts flushed', weight: 2, lastsMs: [0, 0] },
    act: async ({ store }) => void (await store.redis.script('FLUSH')),
  },
  {
    ...{ ...atRedis, name: 'redis drops its clients', weight: 2, lastsMs: [0, 0] },
    act: async ({ store }) =>
      void (await store.redis.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')),
  },
  {
    ...{ ...atRedis, name: 'failover', weight: 6, lastsMs: [500, 4000], needs: 'sentinel' },
    async act({ store, hold, onLoss }, _place, forMs) {
      // From the kill on nothing is acknowledged until another master is there: all that may be lost was asked before.
      const old = await store.failOver?.(onLoss);
      await hold(forMs);
      if (old) await store.rejoin(old);
    },
  },
  {
    ...{ places: 1, key: () => 'postgres', name: 'postgres restarted', weight: 1.5, lastsMs: [0, 2000] },
    async act({ records, hold }, _place, forMs) {
      await records.server.stop('clean');
      await hold(forMs);
      await again(() => records.server.start());
    },
  },
  {
    ...{ places: 1, key: () => 'postgres', name: 'postgres crashed', weight: 1.5, lastsMs: [0, 3000] },
    async act({ records, hold }, _place, forMs) {
      await records.server.stop('crash');
      await hold(forMs);
      await again(() => records.server.start());
    },
  },
  {
    ...{ places: 1, key: () => 'postgres', name: 'postgres paused', weight: 1, lastsMs: [300, 5000] },
    async act({ records, hold }, _place, forMs) {
      await records.server.pause();
      await hold(forMs);
      await records.server.resume();
    },
  },
  {
    ...{ places: 1, key: () => 'postgres', name: 'postgres sessions cut', weight: 1, lastsMs: [0, 0] },
    act: ({ records }) => records.cutSessions(),
  },
];

// --- The cluster ---

const atPod = { places: podNames.length, key: (place: number) => `pod ${place}` };
const pods: Fault[] = [
  {
    ...{ ...atPod, name: 'pod lost', weight: 2, lastsMs: [300, 3000] },
    act: (world, place, forMs) => world.pods.lose(pod(place), forMs),
  },
  {
    ...{ ...atPod, name: 'pod replaced at once', weight: 2, lastsMs: [0, 0] },
    act: (world, place) => world.pods.lose(pod(place), 0),
  },
  {
    ...{ ...atPod, name: 'container restarted', weight: 2, lastsMs: [200, 2000] },
    act: (world, place, forMs) => world.pods.restartContainer(pod(place), forMs),
  },
  {
    ...{ ...atPod, name: 'container restarted at once', weight: 2, lastsMs: [0, 0] },
    act: (world, place) => world.pods.restartAtOnce(pod(place)),
  },
  {
    ...{ ...atPod, name: 'pod not ready', weight: 2, lastsMs: [200, 8000] },
    async act(world, place, forMs) {
      world.pods.setReady(pod(place), false);
      await world.hold(forMs);
      world.pods.setReady(pod(place), true);
    },
  },
  {
    ...{ ...atPod, name: 'pod rolled', weight: 2, lastsMs: [0, 0] },
    act: (world, place) => world.pods.roll(pod(place)),
  },
  {
    ...{ ...atPod, name: 'pod drained', weight: 2, lastsMs: [500, 10_000] },
    async act(world, place, forMs) {
      await world.pods.drain(pod(place));
      await world.hold(forMs);
      await world.pods.undrain(pod(place));
    },
  },
];

const atApi = { places: 1, key: () => 'api' };
const requestsFail =
  (fault: Parameters<World['cluster']['faults']['failRequests']>[0]): Fault['act'] =>
  async ({ cluster, hold }, _place, forMs) => {
    const end = cluster.faults.failRequests(fault);
    await hold(forMs);
    end();
  };
const api: Fault[] = [
  { ...atApi, name: 'API: 500', weight: 1, lastsMs: [500, 6000], act: requestsFail({ status: 500 }) },
  {
    ...atApi,
    name: 'API: 429',
    weight: 0.5,
    lastsMs: [500, 6000],
    act: requestsFail({ status: 429, retryAfterSeconds: 1 }),
  },
  { ...atApi, name: 'API: no answers', weight: 1, lastsMs: [500, 8000], act: requestsFail({ hang: true }) },
  { ...atApi, name: 'API: answers lost', weight: 1, lastsMs: [500, 5000], act: requestsFail({ lost: true }) },
  { ...atApi, name: 'API: slow', weight: 1, lastsMs: [1000, 8000], act: requestsFail({ delayMs: 700 }) },
  {
    ...{ ...atApi, name: 'API down', weight: 1, lastsMs: [500, 6000] },
    async act({ cluster, hold }, _place, forMs) {
      await cluster.down();
      await hold(forMs);
      await again(() => cluster.up());
    },
  },
  {
    ...{ ...atApi, name: 'watches cut', weight: 1, lastsMs: [0, 0] },
    act: async ({ cluster }) => void cluster.faults.cutWatches(),
  },
  {
    ...{ ...atApi, name: 'watches silent', weight: 1, lastsMs: [2000, 8000] },
    async act({ cluster, hold }, _place, forMs) {
      const speak = cluster.faults.silenceWatches();
      await hold(forMs);
      speak();
    },
  },
  {
    ...{ ...atApi, name: 'watches too old', weight: 1, lastsMs: [0, 0] },
    act: async ({ cluster }) => cluster.faults.expireHistory({ tellWatches: true }),
  },
  {
    ...{ ...atApi, name: 'lease lost', weight: 2, lastsMs: [3000, 6000] },
    async act({ cluster, hold, leader }, place, forMs) {
      const client = await leader();
      if (client !== undefined)
        await requestsFail({ client, resource: 'leases', status: 500 })(
          { cluster, hold } as World,
          place,
          forMs,
        );
    },
  },
];

// --- Strangers ---

const attacked = (name: string, attack: Attack): Fault => ({
  ...{ name, weight: 2, lastsMs: [1000, 8000], places: 3, key: (place) => `attack ${place}` },
  act: (world, place, forMs) => router(world, place).attack(attack, world.hold(forMs)),
});
const attacks: Fault[] = [
  attacked('attack: slow bodies', slowBodies),
  attacked('attack: unread answers', unreadAnswers),
  attacked('attack: rejected requests', rejectedRequests),
];

export const faults: readonly Fault[] = [
  ...attacks,
  ...routers,
  ...workers,
  ...links,
  ...stores,
  ...pods,
  ...api,
];

export function choose(
  random: SeededRandom,
  known: readonly Fault[],
): { fault: Fault; place: number; forMs: number } {
  const all = known.reduce((sum, { weight }) => sum + weight, 0);
  let rest = random.next() * all;
  const isIt = ({ weight }: Fault) => {
    rest -= weight;
    return rest < 0;
  };
  const fault = known.find(isIt) ?? (known[0] as Fault);
  const [shortest, longest] = fault.lastsMs;
  return {
    fault,
    place: Math.floor(random.next() * fault.places),
    forMs: Math.round(random.between(shortest, longest)),
  };
}
