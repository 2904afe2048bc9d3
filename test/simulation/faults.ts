/**
 * The faults, with their places and durations. A schedule is a list made from a seed before the run, so that a run can be
 * repeated with a part of it, down to the faults that a failure needs.
 */
import type { SeededRandom } from '../../src/demo/seeded-random.js';
import { noApiTrouble } from './cluster.js';
import { noTrouble } from './store.js';
import type { Snapshot } from './valkey.js';
import type { World } from './world.js';

export interface Fault {
  kind: string;
  /** A router's number, or a pod's; -1: there is only one. */
  place: number;
  atMs: number;
  forMs: number;
}

interface Kind {
  places: 'router' | 'pod' | 'one';
  maxMs: number;
  /** The result ends it. */
  begin(world: World, place: number): (() => void) | undefined;
}

const onLink =
  (trouble: Partial<typeof noTrouble>) =>
  (world: World, place: number): (() => void) | undefined => {
    const link = world.routers[place]?.link;
    if (!link) return undefined;
    link.trouble = { ...noTrouble, ...trouble };
    return () => {
      link.trouble = noTrouble;
    };
  };
const onApi =
  (trouble: Partial<typeof noApiTrouble>) =>
  (world: World): (() => void) => {
    world.cluster.trouble = { ...noApiTrouble, ...trouble };
    return () => {
      world.cluster.trouble = noApiTrouble;
    };
  };
const onStore = (begin: Kind['begin']): Kind => ({
  places: 'one',
  maxMs: 20_000,
  begin,
});
/** It happens, and there is nothing to end. */
const once =
  (act: (world: World, place: number) => unknown): Kind['begin'] =>
  (world, place) => {
    act(world, place);
    return undefined;
  };
const podName = (place: number) => `agent-${place}`;
const restart = (world: World, place: number) => () => {
  if (!world.routers[place]) world.startRouter(place);
};
const pause = (world: World, place: number) => {
  const process = world.routers[place]?.process;
  process?.pause();
  return () => process?.resume();
};
const failOver = (lagMs: number, skewMs: number) =>
  once((world) => {
    let then: Snapshot | undefined = world.store.remember();
    world.time.after(lagMs, () => {
      if (!then || !world.store.isUp) return;
      world.history.note(`failover: the last ${lagMs} ms are lost`);
      world.store.failOver(then, skewMs);
      then = undefined;
      world.history.excuse();
    });
  });

export const kinds: Readonly<Record<string, Kind>> = {
  'requests to the store are lost': { places: 'router', maxMs: 40_000, begin: onLink({ loss: 0.3 }) },
  'answers of the store are lost': {
    places: 'router',
    maxMs: 40_000,
    begin: onLink({ lossOfAnswers: 0.3 }),
  },
  'the store is slow to reach': {
    places: 'router',
    maxMs: 40_000,
    begin: onLink({ slow: 0.5, slowMs: 3000 }),
  },
  'nothing reaches the store': { places: 'router', maxMs: 40_000, begin: onLink({ cutOut: true }) },
  'replies of the store are lost': {
    places: 'router',
    maxMs: 40_000,
    begin: onLink({ cutBack: true }),
  },
  'a router is cut off from the store': {
    places: 'router',
    maxMs: 60_000,
    begin: onLink({ cutOut: true, cutBack: true }),
  },
  'a connection to the store breaks': {
    places: 'router',
    maxMs: 1000,
    begin: once((world, place) => world.routers[place]?.link.reset()),
  },
  'a router is killed': {
    places: 'router',
    maxMs: 40_000,
    begin: (world, place) => {
      world.killRouter(place);
      return restart(world, place);
    },
  },
  'a router stops and starts': {
    places: 'router',
    maxMs: 20_000,
    begin: (world, place) => {
      const router = world.routers[place];
      world.routers[place] = undefined;
      if (router) router.process.enter(() => void router.stop());
      return restart(world, place);
    },
  },
  'a router is paused for a moment': { places: 'router', maxMs: 5000, begin: pause },
  'a router is paused past its lease': { places: 'router', maxMs: 90_000, begin: pause },
  'the clock of a router jumps': {
    places: 'router',
    maxMs: 60_000,
    begin: (world, place) => {
      const process = world.routers[place]?.process;
      if (process) process.wallSkewMs = 7_200_000;
      return () => {
        if (process) process.wallSkewMs = -7_200_000;
      };
    },
  },
  'the store is paused': onStore((world) => {
    world.store.pause();
    return () => world.store.resume();
  }),
  'the store restarts': onStore((world) => {
    world.store.stop();
    return () => world.store.start(false);
  }),
  'every connection to the store breaks': onStore(once((world) => world.store.resetConnections())),
  'the store forgets its scripts': onStore(once((world) => world.store.admin('SCRIPT', 'FLUSH'))),
  'the store restarts empty': onStore((world) => {
    world.store.stop();
    return () => {
      world.store.start(true);
      world.history.excuse((call) => world.agents.isGuarded(call));
    };
  }),
  'a failover loses the last moments': onStore(failOver(300, 0)),
  'a failover loses seconds, to a clock that is ahead': onStore(failOver(3000, 5000)),
  'a failover loses seconds, to a clock that is behind': onStore(failOver(3000, -5000)),
  // Leases end early by as much, and no call gets two pods; fences keep growing.
  'the clock of the store jumps ahead': onStore(once((world) => world.store.setClock(45_000))),
  'the clock of the store is set back': onStore(once((world) => world.store.setClock(-3000))),
  'the cluster does not answer': { places: 'one', maxMs: 60_000, begin: onApi({ isDown: true }) },
  'the cluster answers with errors': { places: 'one', maxMs: 60_000, begin: onApi({ failure: 0.5 }) },
  'answers of the cluster are lost': { places: 'one', maxMs: 60_000, begin: onApi({ loss: 0.4 }) },
  'the cluster answers late': { places: 'one', maxMs: 60_000, begin: onApi({ slow: 0.6, slowMs: 9000 }) },
  'the cluster stops answering': { places: 'one', maxMs: 60_000, begin: onApi({ isSilent: true }) },
  'lists of the cluster are stale': {
    places: 'one',
    maxMs: 60_000,
    begin: onApi({ stale: 0.7 }),
  },
  'the Lease is deleted': {
    places: 'one',
    maxMs: 1000,
    begin: once((world) => world.deleteLease()),
  },
  'watches end': { places: 'one', maxMs: 1000, begin: once((world) => world.cluster.cutWatches()) },
  'watches are too old': { places: 'one', maxMs: 1000, begin: once((world) => world.cluster.compact()) },
  'requests arrive twice': {
    places: 'one',
    maxMs: 60_000,
    begin: (world) => {
      world.redeliveries = 0.3;
      return () => {
        world.redeliveries = 0;
      };
    },
  },
  'a pod is lost': {
    places: 'pod',
    maxMs: 1000,
    begin: once((world, place) => world.agents.lose(podName(place))),
  },
  'a container restarts': {
    places: 'pod',
    maxMs: 1000,
    begin: once((world, place) => world.agents.restartContainer(podName(place))),
  },
  'a pod is not ready': {
    places: 'pod',
    maxMs: 40_000,
    begin: (world, place) => {
      world.agents.setReady(podName(place), false);
      return () => world.agents.setReady(podName(place), true);
    },
  },
  'a pod is rolled': {
    places: 'pod',
    maxMs: 1000,
    begin: once((world, place) => world.agents.roll(podName(place))),
  },
  'a pod is drained': {
    places: 'pod',
    maxMs: 60_000,
    begin: (world, place) => {
      void world.operators.drain(podName(place));
      return () => void world.operators.undrain(podName(place));
    },
  },
  'an agent stops reporting': {
    places: 'pod',
    maxMs: 180_000,
    begin: (world, place) => {
      const agent = world.agents.all.get(podName(place));
      if (agent) agent.isSilent = true;
      return () => {
        if (agent) agent.isSilent = false;
      };
    },
  },
  'hang-ups are lost': {
    places: 'one',
    maxMs: 60_000,
    begin: (world) => {
      world.callers.hangUps = 0.5;
      return () => {
        world.callers.hangUps = 0.02;
      };
    },
  },
  'providers ask twice': {
    places: 'one',
    maxMs: 60_000,
    begin: (world) => {
      world.callers.duplicates = 0.7;
      return () => {
        world.callers.duplicates = 0.02;
      };
    },
  },
  'many call at once': {
    places: 'one',
    maxMs: 20_000,
    begin: (world) => {
      world.callers.rateFactor = 10;
      return () => {
        world.callers.rateFactor = 1;
      };
    },
  },
};

const placesOf = { router: 3, pod: 6, one: 1 };

const drawn = Object.entries(kinds);

/** Kinds times places. */
export const varieties = drawn.map(([, kind]) => kind).reduce((sum, { places }) => sum + placesOf[places], 0);

export function schedule(random: SeededRandom, durationMs: number, count: number): Fault[] {
  const faults = Array.from({ length: count }, (): Fault => {
    const [kind, { places, maxMs }] = random.pick(drawn);
    const place = places === 'one' ? -1 : Math.floor(random.next() * placesOf[places]);
    const atMs = Math.floor(random.next() * durationMs);
    return { kind, place, atMs, forMs: Math.min(Math.floor(random.next() * maxMs), durationMs - atMs) };
  });
  return faults.sort((a, b) => a.atMs - b.atMs);
}

/** Plans them all. A fault that cannot begin (its router is down already) does nothing. */
export function plan(world: World, faults: readonly Fault[], onBegin: () => void): void {
  const running = new Set<string>();
  for (const { kind, place, atMs, forMs } of faults) {
    const what = kinds[kind];
    if (!what) throw new Error(`there is no fault "${kind}"`);
    // Two of the same kind at the same place would end each other.
    const key = what.places === 'one' ? whole(kind) : `${whole(kind)} ${place}`;
    world.time.after(atMs, () => {
      if (running.has(key)) return;
      running.add(key);
      onBegin();
      world.history.note(`fault: ${kind}${place < 0 ? '' : ` (${place})`} for ${forMs} ms`);
      const end = what.begin(world, place);
      world.time.after(forMs, () => {
        running.delete(key);
        end?.();
      });
    });
  }
}

/** Faults that share what they change must not overlap. */
function whole(kind: string): string {
  if (kind.startsWith('the store ') || kind.includes('failover')) return 'store';
  if (kind.includes('the store')) return 'link';
  if (kind.includes('cluster')) return 'cluster';
  if (kind.startsWith('a router')) return 'router';
  return kind;
}
