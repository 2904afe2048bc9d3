/**
 * Leadership without an election (`LEADER_ELECTION_ENABLED=false`): at once and permanently, for a single replica.
 *
 * Nothing prevents a second replica from doing the same; only the epoch keeps their pool writes apart. A refused epoch is
 * therefore final: there is no lock to read (`stillHeld` is false), the work ends, and this replica only serves calls from
 * then on. Work that throws is restarted after a pause.
 */
import { messageOf } from '../errors.js';
import { Backoff } from '../loop.js';
import type { Leadership, LeadershipOptions, LeadershipState } from './leadership.js';

export class SingleReplica implements Leadership {
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;
  #role: LeadershipState['role'] = 'follower';
  #terms = 0;
  #lastError: string | null = null;

  constructor(private readonly options: LeadershipOptions) {}

  get isLeader(): boolean {
    return this.#role === 'leader';
  }

  get leader(): string | null {
    return this.isLeader ? this.options.identity : null;
  }

  get state(): LeadershipState {
    return {
      role: this.#role,
      lock: 'none: the election is off',
      terms: this.#terms,
      last_error: this.#lastError,
    };
  }

  start(): void {
    if (!this.#stopping.signal.aborted) this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    if (this.#role === 'leader') this.#become('leaving');
    await this.#running;
    this.#become('stopped');
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
      this.#terms += 1;
      this.#become('leader');
      try {
        await lead(signal);
        break;
      } catch (error) {
        if (signal.aborted) break;
        this.#lastError = messageOf(error);
        const pauseMs = backoff.after(clock.monotonic() - startedMs);
        log.error({ err: error, retry_in_ms: pauseMs }, 'leader work crashed; restarting');
        this.#become('follower');
        await clock.sleep(pauseMs, signal);
      }
    }
    if (!signal.aborted) this.#become('follower');
  }

  #become(role: LeadershipState['role']): void {
    const before = this.isLeader;
    this.#role = role;
    if (this.isLeader !== before) this.options.onChange?.({ isLeader: this.isLeader, leader: this.leader });
  }
}
