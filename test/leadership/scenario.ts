/** Random faults for electors, by fast-check: a time with faults, then one without. */
import fc from 'fast-check';
import { type NewElection, type SharedRecord, timing, World } from './world.js';

const faults = ['rough', 'slow', 'cut', 'deaf', 'pause', 'work breaks'] as const;
/** A record that vanishes and an elector that has never seen one do not go together: the essay of election.ts. */
const changesOfCrew = ['kill', 'stop', 'double'] as const;

interface Act {
  kind: (typeof faults)[number] | (typeof changesOfCrew)[number] | 'wipe';
  /** The leader of that moment, from `electors` upwards. */
  who: number;
  lastsMs: number;
  /** Until the next one, which may come while this one lasts. */
  gapMs: number;
}

export interface Scenario {
  seed: number;
  electors: number;
  acts: Act[];
}

const actsOf = (...kinds: Act['kind'][]) =>
  fc.array(
    fc.record({
      kind: fc.constantFrom(...kinds),
      who: fc.nat(9),
      lastsMs: fc.integer({ min: 100, max: 40_000 }),
      gapMs: fc.integer({ min: 0, max: 20_000 }),
    }),
    { minLength: 1, maxLength: 12 },
  );

export const anyScenario: fc.Arbitrary<Scenario> = fc.record({
  seed: fc.nat(),
  electors: fc.integer({ min: 2, max: 4 }),
  acts: fc.oneof(actsOf(...faults, ...changesOfCrew), actsOf(...faults, 'wipe')),
});

/** A whole duration by the slowest clock, and what a request may hang before the first read that counts. */
const healedWithinMs =
  (timing.durationMs + timing.renewDeadlineMs / 3 + 2 * 1.2 * timing.retryPeriodMs) / 0.9;
/** Leader work that broke may have to wait for its longest pause, without another process to lead. */
const longestBackoffMs = 30_000 / 0.9;

export async function play(
  { seed, electors, acts }: Scenario,
  newElection: NewElection,
  record?: SharedRecord,
): Promise<void> {
  const world = new World(seed, newElection, record);
  const crew = Array.from({ length: electors }, (_, i) => world.launch(`router-${i}`));
  await world.run(5000);
  const retired: Promise<void>[] = [];
  let isWiped = false;
  for (const { kind, who, lastsMs, gapMs } of acts) {
    const leading = crew.findIndex((process) => process.believesToLead);
    const index = who < electors ? who : Math.max(0, leading);
    const process = crew[index];
    if (process === undefined) throw new Error('no process with that number');
    const replace = () => {
      crew[index] = world.launch(`router-${index}`);
    };
    const during = (begin: () => void, end: () => void) => {
      begin();
      world.at(world.nowMs + lastsMs, end);
    };
    if (kind === 'rough')
      during(
        () => (world.roughness = 0.5),
        () => (world.roughness = 0),
      );
    if (kind === 'slow')
      during(
        () => (process.isSlow = true),
        () => (process.isSlow = false),
      );
    if (kind === 'cut')
      during(
        () => (process.isCut = true),
        () => (process.isCut = false),
      );
    if (kind === 'deaf')
      during(
        () => (process.isDeaf = true),
        () => (process.isDeaf = false),
      );
    if (kind === 'pause')
      during(
        () => process.pause(),
        () => process.resume(),
      );
    if (kind === 'work breaks') process.breakWork();
    if (kind === 'wipe' && !isWiped) world.record.wipe();
    // Absence has no version: a record deleted twice within one duration looks as if it had been gone throughout.
    isWiped ||= kind === 'wipe';
    if (kind === 'kill') {
      process.kill();
      replace();
    }
    if (kind === 'stop') {
      retired.push(process.election.stop());
      replace();
    }
    // Deleted by force, but still running and unreachable; it dies some time later.
    if (kind === 'double') {
      process.isCut = true;
      world.at(world.nowMs + lastsMs, () => process.kill());
      replace();
    }
    await world.run(gapMs);
  }
  // All faults end.
  await world.run(40_000);
  await world.run(healedWithinMs);
  if (world.leaders.length !== 1) await world.run(longestBackoffMs);
  if (world.leaders.length !== 1) throw new Error(`after healing ${world.leaders.length} lead`);
  const [leader] = world.leaders;
  await world.run(2 * timing.durationMs);
  if (world.leaders[0] !== leader) throw new Error('the leader changed although nothing happened');
  await Promise.all(retired);
}
