/**
 * The automatic part of the demo (`--no-story` leaves only the calls). Calls start all the time. Besides, actions run: for
 * the first minute and a half in a fixed order, then in random order. After a command of the visitor the scenario pauses,
 * so that the effects of the command can be seen alone.
 */
import type { Word } from './actions.js';
import type { Needs } from './context.js';

const opening: readonly (readonly [pauseSeconds: number, Word])[] = [
  [6, 'rush'],
  [9, 'crash'],
  [8, 'kill-leader'],
  [10, 'roll'],
  [16, 'kill-worker'],
  [16, 'lose-redis'],
  [10, 'lose-release'],
  [8, 'exhaust'],
  [8, 'drain'],
];
const steps: readonly Word[] = [...opening.map(([, word]) => word), 'merchant-rush', 'delete'];
const pauseSeconds = [10, 15] as const;
const commandPauseSeconds = 30;
/** The merchants of ordinary calls; few for nova, which has two agents only. */
const merchantMix: readonly (string | undefined)[] = [
  ...['acme', 'acme', 'thrifty', 'thrifty', 'nova'],
  ...[undefined, undefined, undefined, undefined, undefined, undefined],
];

export class Scenario {
  #pauseLeft = 0;

  /** `isOn`: whether actions run; calls do in any case. */
  constructor(
    private readonly options: Needs<'random' | 'callers' | 'actions'>,
    public isOn: boolean,
  ) {}

  start(): void {
    const { later } = this.options;
    later(0, () => this.#placeCalls());
    later(0, () => this.#runSteps());
  }

  toggle(): void {
    this.isOn = !this.isOn;
    this.#pauseLeft = 0;
    this.options.log('do', this.isOn ? 'story on' : 'story off: only calls and records continue');
  }

  /** After a command of the visitor. */
  pause(): void {
    this.#pauseLeft = commandPauseSeconds;
  }

  async #runSteps(): Promise<void> {
    const { random, signal } = this.options;
    for (const [pause, step] of opening) await this.#runAfter(pause, step);
    while (!signal.aborted) {
      for (const step of random.shuffled(steps)) await this.#runAfter(random.between(...pauseSeconds), step);
    }
  }

  async #runAfter(pause: number, step: Word): Promise<void> {
    const { actions, sleep, later, signal } = this.options;
    await sleep(pause);
    while (!signal.aborted && (!this.isOn || this.#pauseLeft > 0)) {
      await sleep(1);
      this.#pauseLeft = Math.max(0, this.#pauseLeft - 1);
    }
    if (!signal.aborted) later(0, actions.byWord[step].run);
  }

  /** Keeps about six calls live: gold is full from time to time, so that calls fall back. */
  async #placeCalls(): Promise<void> {
    const { random, callers, sleep, later, signal } = this.options;
    const first = [undefined, 'acme', undefined, 'thrifty'];
    while (!signal.aborted) {
      const merchant = first.length > 0 ? first.shift() : random.pick(merchantMix);
      later(0, () => callers.place(random.between(4, 10), merchant));
      await sleep(random.between(0.7, 1.5));
    }
  }
}
