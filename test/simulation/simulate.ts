/**
 * One seed: a while with faults, in which nothing may go wrong that must not; then everything is healed, and within a
 * bound everything must work again. The same seed gives the same history, to the last line.
 */
import { createHash } from 'node:crypto';
import { SeededRandom } from '../../src/demo/seeded-random.js';
import { checkHealed, checkKeys } from './checks.js';
import { type Fault, plan, schedule } from './faults.js';
import { cleanupIntervalMs, type Rewire, reconcileIntervalMs, times } from './router.js';
import { World } from './world.js';

const faultyMs = 5 * 60_000;
/** What a fault has begun at the last moment is over. */
const restMs = 5000;
/** After the last fault: a lease, the minute after an outage, two sweeps, a reconcile, and an election. */
export const healMs = times.leaseTtlMs + 60_000 + 2 * cleanupIntervalMs + reconcileIntervalMs + 30_000;
const checkEveryMs = 30_000;

export interface Outcome {
  seed: number;
  violations: readonly string[];
  faults: number;
  calls: number;
  refused: number;
  /** Calls that waited for a pod. */
  waited: number;
  failed: number;
  virtualMs: number;
  commands: number;
  audits: number;
  events: number;
  trace: readonly string[];
  digest: string;
}

export interface SimulationOptions {
  /** Instead of those that the seed gives. */
  faults?: readonly Fault[];
  faultCount?: number;
  /** Before it begins: a broken variant, of the world or of every router in it. */
  sabotage?: (world: World) => void;
  rewire?: Rewire;
}

export function faultsOf(seed: number, count = 25): Fault[] {
  return schedule(new SeededRandom(seed ^ 0xfa17), faultyMs, count);
}

export async function simulate(seed: number, options: SimulationOptions = {}): Promise<Outcome> {
  const world = await World.start({ seed, ...(options.rewire ? { rewire: options.rewire } : {}) });
  options.sabotage?.(world);
  const startMs = world.time.nowMs;
  let begun = 0;
  plan(world, options.faults ?? faultsOf(seed, options.faultCount), () => {
    begun += 1;
  });
  const isOver = () => world.history.violations.length > 0;
  const run = async (untilMs: number) => {
    while (world.time.nowMs < untilMs && !isOver()) {
      await world.time.runUntil(Math.min(untilMs, world.time.nowMs + checkEveryMs));
      if (world.isLookedAt) checkKeys(world);
    }
  };
  await run(startMs + faultyMs + restMs);
  if (!isOver()) {
    world.heal();
    await run(world.time.nowMs + healMs);
  }
  if (!isOver()) checkHealed(world);
  world.store.end();
  const { violations, allocated, refused, failed, trace } = world.history;
  return {
    seed,
    violations,
    faults: begun,
    calls: allocated,
    refused,
    waited: world.callers.waited.size,
    failed,
    virtualMs: world.time.nowMs - startMs,
    commands: world.store.commands,
    audits: world.audits,
    events: world.time.events,
    trace,
    digest: createHash('sha256').update(trace.join('\n')).digest('hex'),
  };
}
