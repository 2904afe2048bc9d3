/**
 * What happens by itself. Calls come and go all the time; above that, chapters: the first minute and a half shows the
 * idea in a fixed order, afterwards they come in random order. When a visitor does something, the story gives way for
 * a while, so that what is seen is what was asked for. Seconds are the demo's own: see `speed`.
 */

import type { Deeds } from './actions.js';
import type { Callers } from './callers.js';
import type { Dice } from './dice.js';

interface StoryOptions {
  dice: Dice;
  callers: Callers;
  deeds: Deeds;
  /** Whether chapters come at all; calls do in any case. */
  tells: boolean;
  sleep: (seconds: number) => Promise<void>;
  later: (afterSeconds: number, work: () => Promise<unknown>) => void;
  signal: AbortSignal;
}

type Chapter =
  | 'rush'
  | 'crash'
  | 'killLeader'
  | 'roll'
  | 'killWorker'
  | 'loseStore'
  | 'merchantRush'
  | 'exhaust'
  | 'drain'
  | 'loseRelease'
  | 'remove';

const opening: readonly (readonly [pauseSeconds: number, Chapter])[] = [
  [6, 'rush'],
  [9, 'crash'],
  [8, 'killLeader'],
  [10, 'roll'],
  [16, 'killWorker'],
  [16, 'loseStore'],
  [10, 'loseRelease'],
  [8, 'exhaust'],
  [8, 'drain'],
];
const pauseSeconds = [10, 15] as const;
const giveWaySeconds = 30;
/** Whose calls come on an ordinary day; nova's seldom, as two agents are soon busy. */
const everyday: readonly (string | undefined)[] = [
  ...['acme', 'acme', 'thrifty', 'thrifty', 'nova'],
  ...[undefined, undefined, undefined, undefined, undefined, undefined],
];

export class Story {
  readonly #options: StoryOptions;
  readonly #chapters: Record<Chapter, () => Promise<void>>;
  #tells: boolean;
  #givesWay = 0;

  constructor(options: StoryOptions) {
    this.#options = options;
    this.#tells = options.tells;
    const { deeds } = options;
    this.#chapters = {
      rush: () => deeds.rush(),
      crash: () => deeds.crash(),
      killLeader: () => deeds.endLeader('kill'),
      roll: () => deeds.roll(),
      killWorker: () => deeds.killWorker(),
      loseStore: () => deeds.loseStore(),
      merchantRush: () => deeds.merchantRush(),
      exhaust: () => deeds.exhaust(),
      drain: () => deeds.drain(),
      loseRelease: () => deeds.loseRelease(),
      remove: () => deeds.remove(),
    };
  }

  get tells(): boolean {
    return this.#tells;
  }

  start(): void {
    const { later } = this.#options;
    later(0, () => this.#traffic());
    later(0, () => this.#tell());
  }

  toggle(): void {
    this.#tells = !this.#tells;
    this.#givesWay = 0;
  }

  giveWay(): void {
    this.#givesWay = giveWaySeconds;
  }

  async #tell(): Promise<void> {
    const { dice, signal } = this.#options;
    for (const [pause, chapter] of opening) await this.#after(pause, chapter);
    while (!signal.aborted) {
      for (const chapter of dice.shuffled(Object.keys(this.#chapters) as Chapter[]))
        await this.#after(dice.between(...pauseSeconds), chapter);
    }
  }

  async #after(pause: number, chapter: Chapter): Promise<void> {
    const { sleep, later, signal } = this.#options;
    await sleep(pause);
    while (!signal.aborted && (!this.#tells || this.#givesWay > 0)) {
      await sleep(1);
      this.#givesWay = Math.max(0, this.#givesWay - 1);
    }
    if (!signal.aborted) later(0, this.#chapters[chapter]);
  }

  /** About six calls at a time: gold is full now and then, and a fallback can be seen. */
  async #traffic(): Promise<void> {
    const { dice, callers, sleep, later, signal } = this.#options;
    const first = [undefined, 'acme', undefined, 'thrifty'];
    while (!signal.aborted) {
      const merchant = first.length > 0 ? first.shift() : dice.pick(everyday);
      later(0, () => callers.place(dice.between(4, 10), merchant));
      await sleep(dice.between(0.7, 1.5));
    }
  }
}
