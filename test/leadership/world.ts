/**
 * Several processes and one lock on virtual time: every process has a clock of its own that is wrong in its own way
 * and may be stopped; every request may be lost, late, or done without an answer. One seed decides everything.
 * The elections in it are the real ones; only time, network and the record are made here.
 */
import type { Clock } from '../../src/clock.js';
import type { ElectionOptions } from '../../src/leadership/election.js';
import type { HeldRecord, Leadership, LeaseLock, LockRecord } from '../../src/leadership/leadership.js';
import { silentLogger } from '../../src/observe/log.js';

export type NewElection = (options: ElectionOptions) => Leadership;

/** Clocks here differ by at most 10 % each way, so 12.5 s are just longer than 10 s: 12.5 / 1.1 > 10 / 0.9. */
export const timing = { durationMs: 12_500, renewDeadlineMs: 10_000, retryPeriodMs: 2000 };
const slowestRate = 0.9;
const fastestRate = 1.1;

/** mulberry32: small, and the same everywhere. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

export class World {
  nowMs = 0;
  readonly random: () => number;
  readonly record: SharedRecord;
  readonly processes: Process[] = [];
  /** Probability that a request fails, for all electors. */
  roughness = 0;
  readonly #newElection: NewElection;
  #events: { atMs: number; order: number; run: () => void }[] = [];
  #order = 0;

  constructor(seed: number, newElection: NewElection, record = new SharedRecord()) {
    this.random = random(seed);
    this.#newElection = newElection;
    this.record = record;
  }

  at(atMs: number, run: () => void): () => void {
    const event = { atMs, order: this.#order++, run };
    this.#events.push(event);
    return () => {
      event.run = () => {};
    };
  }

  /** A new process with this name, beside others with the same name. */
  launch(identity: string): Process {
    const process = new Process(this, identity, this.#newElection);
    this.processes.push(process);
    return process;
  }

  /** Lets time pass; after every single event no two may lead. */
  async run(ms: number): Promise<void> {
    const endMs = this.nowMs + ms;
    for (;;) {
      let next = this.#events[0];
      for (const event of this.#events) {
        if (next && (event.atMs < next.atMs || (event.atMs === next.atMs && event.order < next.order)))
          next = event;
      }
      if (next === undefined || next.atMs > endMs) break;
      this.#events.splice(this.#events.indexOf(next), 1);
      this.nowMs = Math.max(this.nowMs, next.atMs);
      next.run();
      await settled();
      this.check();
    }
    this.nowMs = endMs;
    this.check();
  }

  get leaders(): Process[] {
    return this.processes.filter((process) => process.believesToLead);
  }

  check(): void {
    const named = (processes: Process[]) => processes.map(({ name }) => name).join(' and ');
    if (this.leaders.length > 1) throw new Error(`at ${this.nowMs} ms two lead: ${named(this.leaders)}`);
    const working = this.processes.filter((process) => process.works);
    if (working.length > 1) throw new Error(`at ${this.nowMs} ms two do a leader's work: ${named(working)}`);
  }
}

/** One process: its clock, its lock over the network, its election, and the work it does as a leader. */
export class Process implements Clock {
  readonly name: string;
  readonly election: Leadership;
  /** Requests do not arrive. */
  isCut = false;
  /** Answers do not arrive. */
  isDeaf = false;
  /** Responses take nearly as long as the timeout. */
  isSlow = false;
  readonly #world: World;
  readonly #rate: number;
  readonly #startMs: number;
  readonly #wallOffsetMs: number;
  readonly #backlog: (() => void)[] = [];
  #isPaused = false;
  #isDead = false;
  #term: AbortSignal | undefined;
  #breakWork = () => {};

  constructor(world: World, identity: string, newElection: NewElection) {
    this.#world = world;
    this.name = `${identity}#${world.processes.length}`;
    this.#rate = slowestRate + world.random() * (fastestRate - slowestRate);
    this.#startMs = world.random() * 1e6;
    this.#wallOffsetMs = (world.random() - 0.5) * 120_000;
    this.election = newElection({
      lock: this.#remoteLock(),
      identity,
      ...timing,
      clock: this,
      log: silentLogger,
      lead: (signal) => this.#lead(signal),
    });
    this.election.start();
  }

  /** As the process itself would report; a paused process responds when it resumes. */
  get believesToLead(): boolean {
    return !this.#isDead && this.election.isLeader;
  }

  /** A process that is behind with its timers is judged by what it believes, not by what it has not yet ended. */
  get works(): boolean {
    const isBehind = this.#isDead || this.#isPaused || this.#backlog.length > 0;
    return !isBehind && this.#term !== undefined && !this.#term.aborted;
  }

  now(): number {
    return 1_700_000_000_000 + this.#wallOffsetMs + this.#world.nowMs;
  }

  monotonic(): number {
    return this.#startMs + this.#world.nowMs * this.#rate;
  }

  random(): number {
    return this.#world.random();
  }

  after(ms: number, callback: () => void): () => void {
    return this.#world.at(this.#world.nowMs + Math.max(0, ms) / this.#rate, () => this.#deliver(callback));
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const wake = () => {
        cancel();
        signal?.removeEventListener('abort', wake);
        resolve();
      };
      const cancel = this.after(ms, wake);
      signal?.addEventListener('abort', wake, { once: true });
    });
  }

  pause(): void {
    this.#isPaused = true;
  }

  /** Overdue timers run now, in any order: a response may be handled before an earlier timer. */
  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#backlog.sort(() => this.#world.random() - 0.5);
    const due = this.#backlog.length;
    for (let i = 0; i < due; i += 1) this.#world.at(this.#world.nowMs, () => this.#backlog.shift()?.());
  }

  kill(): void {
    this.#isDead = true;
  }

  breakWork(): void {
    this.#breakWork();
  }

  #deliver(callback: () => void): void {
    if (this.#isDead) return;
    if (this.#isPaused || this.#backlog.length > 0) {
      this.#backlog.push(callback);
      if (!this.#isPaused) this.#world.at(this.#world.nowMs, () => this.#backlog.shift()?.());
    } else {
      callback();
    }
  }

  async #lead(signal: AbortSignal): Promise<void> {
    this.#term = signal;
    await new Promise<void>((resolve, reject) => {
      this.#breakWork = () => reject(new Error('the work broke'));
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    // Ending takes its time.
    if (signal.aborted) await this.sleep(this.#world.random() * 3000);
    if (this.#term === signal) this.#term = undefined;
  }

  #remoteLock(): LeaseLock {
    const { record } = this.#world;
    return {
      description: 'the record of the test',
      read: (timeoutMs) => this.#ask(() => record.read(), timeoutMs),
      write: (next, version, timeoutMs) => this.#ask(() => record.write(next, version), timeoutMs),
    };
  }

  #ask<T>(run: () => T, timeoutMs: number): Promise<T> {
    const world = this.#world;
    return new Promise((resolve, reject) => {
      this.after(timeoutMs, () => reject(new Error('no answer')));
      const fault = world.random() < world.roughness ? Math.floor(world.random() * 5) : -1;
      if (fault === 0) return void this.after(5, () => reject(new Error('refused')));
      if (fault === 1 || this.isCut) return;
      // A request that hangs in the network arrives after its timeout.
      const wayMs = fault === 2 ? world.random() * 25_000 : 1 + world.random() * 50;
      const backMs = fault === 3 || this.isSlow ? world.random() * 4000 : 1 + world.random() * 50;
      world.at(world.nowMs + wayMs, () => {
        const answer = run();
        if (fault === 4) return;
        world.at(world.nowMs + backMs, () => {
          if (!this.isDeaf) this.#deliver(() => resolve(answer));
        });
      });
    });
  }
}

/** The record itself, with the compare-and-swap that both real locks promise. */
export class SharedRecord {
  #held: HeldRecord | undefined;
  #version = 0;

  read(): HeldRecord | undefined {
    return this.#held && { ...this.#held };
  }

  write(record: LockRecord, version: string | undefined): HeldRecord | undefined {
    if (!this.isCurrent(version)) return undefined;
    this.#version += 1;
    this.#held = { ...record, version: String(this.#version) };
    return { ...this.#held };
  }

  wipe(): void {
    this.#held = undefined;
  }

  protected isCurrent(version: string | undefined): boolean {
    return this.#held?.version === version;
  }
}
