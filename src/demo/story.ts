/**
 * What happens, and when. Calls come and go all the time; above that, chapters: the first minute shows each of
 * them once at a fixed time, afterwards they come in random order. Seconds are the demo's own: see `speed`.
 */
import type { CallStore } from '../calls/store/store.js';
import type { Client } from '../client/index.js';
import type { Agents } from './agents.js';
import type { Callers } from './callers.js';
import type { Dice } from './dice.js';
import { seconds } from './scenery.js';

interface StoryOptions {
  dice: Dice;
  callers: Callers;
  agents: Agents;
  client: Client;
  store: CallStore;
  /** Says what the demo itself does: the router tells the rest. */
  say: (text: string) => void;
  sleep: (seconds: number) => Promise<void>;
  later: (afterSeconds: number, work: () => Promise<unknown>) => void;
  signal: AbortSignal;
}

type Chapter = 'rush' | 'crash' | 'drain' | 'merchantRush' | 'lostHangUp';

const firstMinute: readonly (readonly [atSecond: number, Chapter])[] = [
  [8, 'rush'],
  [20, 'crash'],
  [23, 'drain'],
  [38, 'merchantRush'],
  [48, 'lostHangUp'],
];
const pauseSeconds = [12, 18] as const;

export class Story {
  readonly #options: StoryOptions;
  readonly #chapters: Record<Chapter, () => Promise<void>> = {
    rush: () => this.#rush(),
    crash: () => this.#crash(),
    drain: () => this.#drain(),
    merchantRush: () => this.#merchantRush(),
    lostHangUp: () => this.#lostHangUp(),
  };

  constructor(options: StoryOptions) {
    this.#options = options;
  }

  start(): void {
    const { later } = this.#options;
    later(0, () => this.#traffic());
    for (const [atSecond, chapter] of firstMinute) later(atSecond, this.#chapters[chapter]);
    later(firstMinute.at(-1)?.[0] ?? 0, () => this.#goOn());
  }

  async #goOn(): Promise<void> {
    const { dice, sleep, later, signal } = this.#options;
    for (;;) {
      for (const chapter of dice.shuffled(Object.values(this.#chapters))) {
        await sleep(dice.between(...pauseSeconds));
        if (signal.aborted) return;
        later(0, chapter);
      }
    }
  }

  /** About three calls at a time, so that gold is rarely full and every fallback has a visible reason. */
  async #traffic(): Promise<void> {
    const { dice, callers, sleep, later, signal } = this.#options;
    const opening = [undefined, 'acme', undefined, 'thrifty'];
    while (!signal.aborted) {
      const merchant =
        opening.length > 0
          ? opening.shift()
          : dice.pick<string | undefined>(['acme', 'thrifty', undefined, undefined, undefined]);
      later(0, () => callers.place(dice.between(5, 10), merchant));
      await sleep(dice.between(2, 4));
    }
  }

  async #rush(): Promise<void> {
    const { say } = this.#options;
    const count = (await this.#free('pool:gold')) + (await this.#free('pool:standard')) + 3;
    say(`rush hour: ${count} callers at once, more than gold and standard can take`);
    await this.#ring(count);
  }

  async #merchantRush(): Promise<void> {
    const { say } = this.#options;
    const count = (await this.#free('merchant:acme')) + 2;
    say(`${count} callers for acme: its own pool first, then what it may fall back to`);
    await this.#ring(count, 'acme');
  }

  async #crash(): Promise<void> {
    const { callers, agents, say, sleep } = this.#options;
    const call = await callers.place(30);
    if (!call) return;
    await sleep(3);
    call.abandon();
    agents.crash(call.podName, call.callSid);
    const within = seconds.lease + seconds.sweep;
    say(
      `${call.podName} crashes during ${call.callSid}: no renewal, no release. Wait for it: at most ${within} s`,
    );
  }

  async #lostHangUp(): Promise<void> {
    const { callers, agents, say, sleep } = this.#options;
    const call = await callers.place(30);
    if (!call) return;
    await sleep(3);
    call.abandon();
    agents.hangUp(call.callSid);
    say(
      `${call.callSid} hangs up, but its release gets lost: ${call.podName} reports without it from now on`,
    );
  }

  async #drain(): Promise<void> {
    const { callers, client, say, sleep, signal } = this.#options;
    const call = await callers.place(8);
    if (!call) return;
    await sleep(2);
    say(`drain ${call.podName} and wait for its call to end, as a rolling update does`);
    await client.drain(call.podName, { wait: '60s', signal });
    await sleep(3);
    await client.undrain(call.podName, { signal });
  }

  async #ring(count: number, merchant?: string): Promise<void> {
    const { dice, callers, sleep, later, signal } = this.#options;
    for (let i = 0; i < count && !signal.aborted; i++) {
      later(0, () => callers.place(dice.between(6, 9), merchant));
      await sleep(0.35);
    }
  }

  async #free(pool: string): Promise<number> {
    const { pools } = await this.#options.store.snapshot();
    return pools.find((one) => one.pool === pool)?.available ?? 0;
  }
}
