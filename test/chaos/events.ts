/** Reads the event stream along, past every restart of the store: the stream keeps only the last 50,000. */
import type { Redis } from 'ioredis';
import type { StreamEvent } from '../processes/history.js';
import { wait } from './child.js';

const key = 'voice:events';
const page = 5000;

export class EventReader {
  readonly events: (StreamEvent & { id: string })[] = [];
  #isStopped = false;
  #last = '0-0';
  readonly #reading: Promise<void>;

  constructor(private readonly redis: Redis) {
    this.#reading = this.#read();
  }

  /** Everything up to now, or an error where the stream has more than was read. */
  async finish(): Promise<void> {
    this.#isStopped = true;
    await this.#reading;
    while (await this.#page());
    const info = (await this.redis.xinfo('STREAM', key)) as (string | number)[];
    const added = info[info.indexOf('entries-added') + 1];
    // Redis 6 does not count them.
    if (info.includes('entries-added') && added !== this.events.length)
      throw new Error(`the stream had ${added} events, ${this.events.length} were read`);
  }

  stop(): void {
    this.#isStopped = true;
  }

  async #read(): Promise<void> {
    while (!this.#isStopped) {
      // A store that is down is asked again.
      const isMore = await this.#page().catch(() => false);
      if (!isMore) await wait(500);
    }
  }

  async #page(): Promise<boolean> {
    const rows = await this.redis.xrange(key, `(${this.#last}`, '+', 'COUNT', page);
    for (const [id, flat] of rows) {
      this.events.push({ id, ...eventOf(flat) });
      this.#last = id;
    }
    return rows.length === page;
  }
}

function eventOf(flat: readonly string[]): StreamEvent {
  const field = (name: string) => {
    const at = flat.findIndex((item, i) => i % 2 === 0 && item === name);
    return at < 0 ? '' : (flat[at + 1] ?? '');
  };
  return {
    ...{ type: field('type'), call: field('call'), pod: field('pod'), pool: field('pool') },
    fence: Number(field('fence')),
  };
}
