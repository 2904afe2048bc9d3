/**
 * Real processes under faults: three routers, Redis, PostgreSQL with record workers, a cluster of voice agents, and people
 * who call during the whole run. First the faults, from a seed; then all faults end, and the fleet must recover within a
 * bound (liveness); replies and stored data must be consistent (safety).
 *
 * The seed gives the same faults at the same moments. It does not give the same run: processes have their own time.
 */
import { execFile } from 'node:child_process';
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SeededRandom } from '../../src/demo/seeded-random.js';
import { checkInvariants } from '../support/invariants.js';
import { until } from '../support/until.js';
import { streamProblems } from './checks.js';
import { root, wait } from './child.js';
import { choose, faults } from './faults.js';
import type { Router } from './routers.js';
import { limits, podNames, times } from './times.js';
import { openWorld, type World } from './world.js';

export interface ChaosOptions {
  seed: number;
  /** Of faults; starting and healing come on top. */
  minutes: number;
  sentinel?: boolean;
  /** Ends the faults early; the recovery and the checks still run. */
  signal?: AbortSignal;
  onProgress?: (progress: Progress) => void;
}

export interface Progress {
  seconds: number;
  calls: number;
  faults: number;
  violations: number;
}

export interface Outcome {
  seed: number;
  minutes: number;
  calls: number;
  allocated: number;
  refused: number;
  /** Calls that waited for a pod. */
  waited: number;
  failed: number;
  faults: Record<string, number>;
  recordsDone: number;
  eventsReplayed: number;
  /** How often all keys were looked at while it ran. */
  looks: number;
  /** How often the findings of the leader's audit were read. */
  audits: number;
  healedInSeconds: number | undefined;
  violations: string[];
  /** What callers and agents sent and received: for `npm run check-history`. */
  historyFile: string;
  /** What the independent checker concludes from that file. */
  checked: Verdict;
  /** Where logs and histories are; only after a failure. */
  kept: string | undefined;
}

interface Verdict {
  requests: number;
  lost_replies: number;
  violations: { promise: number; text: string }[];
  excused: unknown[];
}

/** 30 minutes are to have 200 faults at least. */
const meanGapMs = 2500;
const lookEveryMs = 2000;

export async function chaos(options: ChaosOptions): Promise<Outcome> {
  const { seed, minutes, sentinel = false, signal } = options;
  const stamp = new Date().toISOString().replace(/[:.]/g, '-');
  const folder = join(root, '.cache', 'chaos', `${stamp}-seed-${seed}`);
  mkdirSync(folder, { recursive: true });
  const healing = new AbortController();
  const world = await openWorld({ seed, sentinel, folder, healing: healing.signal });
  const run = new Run(world, options, healing);
  try {
    await run.begin();
    const startMs = Date.now();
    await run.faults(minutes * 60_000, signal);
    const faultMinutes = (Date.now() - startMs) / 60_000;
    const healedInSeconds = await run.heal();
    return await run.outcome(folder, faultMinutes, healedInSeconds);
  } catch (error) {
    writeFileSync(join(folder, 'history.log'), world.history.trace.join('\n'));
    throw new Error(`the run broke off, see ${folder}: ${(error as Error).message}`, { cause: error });
  } finally {
    healing.abort();
    await world.close();
    if (run.isClean) rmSync(folder, { recursive: true, force: true });
  }
}

class Run {
  isClean = false;
  readonly #counts: Record<string, number> = {};
  readonly #running = new Map<string, Promise<void>>();
  #looking: Promise<void> = Promise.resolve();
  #calling: Promise<void> = Promise.resolve();
  #isLooking = true;
  #looks = 0;
  #audits = 0;
  readonly #startMs = Date.now();

  constructor(
    private readonly world: World,
    private readonly options: ChaosOptions,
    private readonly healing: AbortController,
  ) {}

  async begin(): Promise<void> {
    await this.world.pods.bearAll();
    await this.#untilWell('the fleet is up');
    this.#calling = this.world.callers.run();
    const audits = this.world.routers.map((router) => this.#watchAudits(router));
    this.#looking = Promise.all([this.#look(), ...audits]).then(() => {});
  }

  async faults(durationMs: number, signal: AbortSignal | undefined): Promise<void> {
    const { world } = this;
    const random = new SeededRandom(this.options.seed);
    const needed = this.options.sentinel ? 'sentinel' : 'one server';
    const known = faults.filter(({ needs }) => needs === undefined || needs === needed);
    const endMs = Date.now() + durationMs;
    while (Date.now() < endMs && !signal?.aborted) {
      const gapMs = -Math.log(1 - random.next()) * meanGapMs;
      const { fault, place, forMs } = choose(random, known);
      await interruptible(Math.min(gapMs, endMs - Date.now()), signal);
      const key = fault.key(place);
      if (this.#running.has(key) || Date.now() >= endMs || signal?.aborted) continue;
      this.#counts[fault.name] = (this.#counts[fault.name] ?? 0) + 1;
      world.history.note(`fault: ${fault.name} (${place}) for ${forMs} ms`);
      const running = fault
        .act(world, place, forMs)
        .catch((error: unknown) => world.history.violated(`the fault "${fault.name}" failed: ${error}`))
        .finally(() => {
          world.history.note(`fault over: ${fault.name} (${place})`);
          this.#running.delete(key);
        });
      this.#running.set(key, running);
      this.#tell();
    }
  }

  /** Ends all faults and waits for recovery; resolves to its duration, or undefined if the fleet did not recover. */
  async heal(): Promise<number | undefined> {
    const { world } = this;
    world.history.note('healing');
    this.healing.abort();
    await Promise.all(this.#running.values());
    const startMs = Date.now();
    // Callers continue for a while: a recovered fleet serves them.
    await wait(2000);
    world.callers.stop();
    await this.#calling;
    await world.records.stopTaking();
    try {
      // Callers stop, and records have other bounds: the 90 s apply to pods and routers.
      await until(() => world.callers.atOnce === 0, 'the last caller has hung up', times.healedWithinMs);
      await this.#untilWell('everything is well again');
      await until(() => world.records.isIdle(), 'no record is left', times.healedWithinMs);
      this.#isLooking = false;
      await this.#looking;
      return (Date.now() - startMs) / 1000;
    } catch (error) {
      world.history.violated(`8: ${(error as Error).message}${await this.#state()}`);
      this.#isLooking = false;
      await this.#looking;
      return undefined;
    }
  }

  async outcome(folder: string, minutes: number, healedInSeconds: number | undefined): Promise<Outcome> {
    const { world } = this;
    const { history, callers, records, reader, store } = world;
    for (const problem of await checkInvariants(store.redis, { settled: healedInSeconds !== undefined }))
      history.violated(`at the end: ${problem}`);
    // After a failover the stream has lost events: it is incomplete.
    if (!this.options.sentinel) {
      await reader.finish();
      for (const problem of streamProblems(reader.events, limits)) history.violated(problem);
    }
    for (const problem of await records.problems()) history.violated(problem);
    world.requests.close();
    const checked = await checkHistory(world.requests.path);
    for (const { promise, text } of checked.violations) history.violated(`${promise}: checker: ${text}`);
    const violations = [...history.violations];
    this.isClean = violations.length === 0;
    if (!this.isClean) {
      writeFileSync(join(folder, 'violations.txt'), `${violations.join('\n')}\n`);
      writeFileSync(join(folder, 'history.log'), `${history.trace.join('\n')}\n`);
      writeFileSync(
        join(folder, 'events.jsonl'),
        reader.events.map((event) => `${JSON.stringify(event)}\n`).join(''),
      );
    }
    // The folder of a clean run is deleted; the file of the last one stays.
    const historyFile = this.isClean ? join(folder, '..', 'history.ndjson') : world.requests.path;
    if (this.isClean) renameSync(world.requests.path, historyFile);
    return {
      ...{ seed: this.options.seed, minutes, healedInSeconds, violations, historyFile, checked },
      ...{ calls: callers.begun, allocated: history.allocated, refused: history.refused },
      waited: reader.events.filter(({ type }) => type === 'call_waiting').length,
      ...{ failed: history.failed, faults: this.#counts, recordsDone: (await records.done()) ?? 0 },
      eventsReplayed: this.options.sentinel ? 0 : reader.events.length,
      looks: this.#looks,
      audits: this.#audits,
      kept: this.isClean ? undefined : folder,
    };
  }

  /** All routers are ready and name one leader, every pod can be had, no call is left; derived keys are exact. */
  async #untilWell(what: string): Promise<void> {
    const { routers, store } = this.world;
    await until(
      async () => {
        const ready = await Promise.all(routers.map((router) => router.get('/ready')));
        if (ready.some(({ status }) => status !== 200)) return false;
        const states = (await Promise.all(routers.map((router) => router.get('/api/v1/status')))).map(
          ({ body }) => body,
        );
        const leaders = new Set(states.map(({ leader }) => leader));
        const pools = Object.values(states[0]?.pools ?? {});
        const sum = (of: 'assigned' | 'available') => pools.reduce((all, pool) => all + pool[of], 0);
        return (
          states.filter(({ is_leader }) => is_leader === true).length === 1 &&
          leaders.size === 1 &&
          states.every(({ active_calls }) => active_calls === 0) &&
          sum('assigned') === podNames.length &&
          sum('available') === podNames.length &&
          (await checkInvariants(store.redis, { settled: true })).length === 0
        );
      },
      what,
      times.healedWithinMs,
    );
  }

  /** What the keys say about each other, all the time: every step of the store leaves them right. */
  async #look(): Promise<void> {
    const { store, history, growing } = this.world;
    while (this.#isLooking) {
      try {
        for (const problem of await checkInvariants(store.redis))
          history.violated(`in the store: ${problem}`);
        for (const name of ['fence', 'leader:epoch']) {
          const problem = growing.look(name, Number(await store.redis.get(`voice:${name}`)));
          if (problem !== undefined) history.violated(problem);
        }
        this.#looks += 1;
      } catch (error) {
        // It is down, or loads its data: the next look tells.
        if (error instanceof TypeError || error instanceof RangeError) throw error;
      }
      this.#tell();
      await wait(lookEveryMs);
    }
  }

  /** The leader's own audit finds nothing, under any fault of routers and their connections. */
  async #watchAudits(router: Router): Promise<void> {
    const { history } = this.world;
    let before = 0;
    while (this.#isLooking) {
      const found = await router.violationsFound();
      if (found !== undefined) this.#audits += 1;
      // Each finding is reported once.
      if (found !== undefined && found > before)
        history.violated(`the audit of ${router.name} found ${found} violations: see its log`);
      before = found ?? 0;
      await wait(lookEveryMs);
    }
  }

  #tell(): void {
    this.options.onProgress?.({
      seconds: (Date.now() - this.#startMs) / 1000,
      calls: this.world.callers.begun,
      faults: Object.values(this.#counts).reduce((sum, n) => sum + n, 0),
      violations: this.world.history.violations.length,
    });
  }

  async #state(): Promise<string> {
    const { routers, store } = this.world;
    const states = await Promise.all(routers.map((router) => router.get('/api/v1/status')));
    const settled = await checkInvariants(store.redis, { settled: true }).catch(String);
    return `\n  ${states.map((state, i) => `${routers[i]?.name} ${JSON.stringify(state)}`).join('\n  ')}\n  ${settled}`;
  }
}

/** Runs the checker as its own process: it shares no code with the routers. */
function checkHistory(file: string): Promise<Verdict> {
  const program = [join(root, 'scripts', 'check-history.mjs'), '--json', file];
  return new Promise((resolve, reject) => {
    execFile(process.execPath, program, { maxBuffer: 1e9 }, (error, stdout, stderr) => {
      // 1: it found violations, and they are in its output.
      if (error && error.code !== 1) reject(new Error(`check-history failed: ${stderr || error.message}`));
      else resolve(JSON.parse(stdout) as Verdict);
    });
  });
}

function interruptible(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const over = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', over);
      resolve();
    };
    const timer = setTimeout(over, ms);
    signal?.addEventListener('abort', over);
  });
}
