/**
 * Leadership without an election (`LEADER_ELECTION_ENABLED=false`): at once and permanently, for a single replica.
 *
 * Nothing prevents a second replica from doing the same; only the epoch keeps their pool writes apart. A refused epoch is
 * therefore final: there is no lock to read (`stillHeld` is false), the work ends, and this replica only serves calls from
 * then on. Work that throws is restarted after a pause.
 */
import { messageOf } from '../errors.js';
import { Backoff } from '../loop.js';
import type { Leadership, LeadershipOptions } from './leadership.js';

export class SingleReplica implements Leadership {
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;
  #isLeading = false;
  #lastError: string | null = null;

  constructor(private readonly options: LeadershipOptions) {}

  get isLeader(): boolean {
    return this.#isLeading;
  }

  get leader(): string | null {
    return this.isLeader ? this.options.identity : null;
  }

  get state() {
    return { lock: 'none: the election is off', last_error: this.#lastError };
  }

  start(): void {
    if (!this.#stopping.signal.aborted) this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#setLeading(false);
    await this.#running;
  }

  stillHeld(): Promise<boolean> {
    return Promise.resolve(false);
  }

  async #run(): Promise<void> {
    const { clock, lead, log } = this.options;
    const { signal } = this.#stopping;
    const backoff = new Backoff();
    while (!signal.aborted) {
      const startedMs = clock.monotonic();
      this.#setLeading(true);
      try {
        await lead(signal);
        break;
      } catch (error) {
        if (signal.aborted) break;
        this.#lastError = messageOf(error);
        const pauseMs = backoff.after(clock.monotonic() - startedMs);
        log.error({ err: error, retry_in_ms: pauseMs }, 'leader work crashed; restarting');
        this.#setLeading(false);
        await clock.sleep(pauseMs, signal);
      }
    }
    this.#setLeading(false);
  }

  #setLeading(isLeading: boolean): void {
    if (this.#isLeading === isLeading) return;
    this.#isLeading = isLeading;
    this.options.onChange?.({ isLeader: isLeading, leader: this.leader });
  }
}
