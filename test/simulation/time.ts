/**
 * Time that passes only when nothing is left to do at the present moment. Everything that happens is an event on one
 * queue; events of the same moment happen in the order in which they were put there. After each one, all that follows
 * from it without waiting (promises) is done before the next.
 */
import type { Clock } from '../../src/clock.js';
import type { SeededRandom } from '../../src/demo/seeded-random.js';

interface Event {
  atMs: number;
  order: number;
  run: () => void;
}

export class VirtualTime {
  nowMs: number;
  readonly #heap: Event[] = [];
  #order = 0;
  events = 0;

  constructor(startMs: number) {
    this.nowMs = startMs;
  }

  after(ms: number, run: () => void): () => void {
    const event: Event = { atMs: this.nowMs + Math.max(0, ms), order: this.#order, run };
    this.#order += 1;
    this.#push(event);
    return () => {
      event.run = nothing;
    };
  }

  async runUntil(endMs: number): Promise<void> {
    await settle();
    for (;;) {
      const next = this.#heap[0];
      if (!next || next.atMs > endMs) break;
      this.#pop();
      if (next.run === nothing) continue;
      this.nowMs = next.atMs;
      this.events += 1;
      next.run();
      await settle();
    }
    this.nowMs = endMs;
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let at = heap.push(event) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(event, heap[parent] as Event)) break;
      heap[at] = heap[parent] as Event;
      at = parent;
    }
    heap[at] = event;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop() as Event;
    if (heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1] as Event, heap[child] as Event)) child += 1;
      if (!isBefore(heap[child] as Event, last)) break;
      heap[at] = heap[child] as Event;
      at = child;
    }
    heap[at] = last;
  }
}

const nothing = () => {};
const isBefore = (a: Event, b: Event) => a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
/** All promises that can be settled are settled before the next macrotask. */
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Something that runs and can be stopped at any point: nothing of it happens while it is paused, nor after its end. */
export class Process {
  readonly clock: Clock;
  #state: 'runs' | 'paused' | 'killed' = 'runs';
  #later: (() => void)[] = [];
  /** Added to its wall clock. */
  wallSkewMs = 0;

  constructor(
    readonly name: string,
    readonly time: VirtualTime,
    random: SeededRandom,
  ) {
    this.clock = {
      now: () => time.nowMs + this.wallSkewMs,
      monotonic: () => time.nowMs,
      random: () => random.next(),
      after: (ms, callback) => time.after(ms, () => this.enter(callback)),
      sleep: (ms, signal) =>
        new Promise<void>((resolve) => {
          if (signal?.aborted) return resolve();
          const done = () => {
            cancel();
            signal?.removeEventListener('abort', done);
            resolve();
          };
          const cancel = time.after(ms, () => this.enter(done));
          signal?.addEventListener('abort', done, { once: true });
        }),
    };
  }

  get isAlive(): boolean {
    return this.#state !== 'killed';
  }

  get isRunning(): boolean {
    return this.#state === 'runs';
  }

  /** Timers and replies wait while it is paused. */
  enter(work: () => void): void {
    if (this.#state === 'killed') return;
    if (this.#state === 'paused') this.#later.push(work);
    else work();
  }

  pause(): void {
    if (this.#state === 'runs') this.#state = 'paused';
  }

  resume(): void {
    if (this.#state !== 'paused') return;
    this.#state = 'runs';
    for (const work of this.#later.splice(0)) this.time.after(0, () => this.enter(work));
  }

  kill(): void {
    this.#state = 'killed';
    this.#later = [];
  }
}
