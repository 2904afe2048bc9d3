/**
 * The shape of every background loop: it runs once per interval. A crash is logged and counted, and the loop retries
 * after 1, 2, 4 ... 30 s; the backoff starts again at 1 s after a healthy minute. Rounds never overlap. An
 * `InterruptedError` is retried the same way, but logged as information and not counted.
 */
import type { Clock } from './clock.js';
import { messageOf } from './errors.js';

/** What a loop needs of a logger. */
interface LoopLog {
  info(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface LoopOptions {
  name: string;
  intervalMs: number;
  clock: Clock;
  log: LoopLog;
  /** One round; `/status` shows its counts. A long round calls `alive` at times, with its counts so far. */
  runOnce(
    signal: AbortSignal,
    alive: (counts: Record<string, number>) => void,
  ): Promise<Record<string, number>>;
  onCrash?: ((loop: string) => void) | undefined;
  /** False: the first round waits one interval. */
  runAtStart?: boolean;
}

/** Ends a round for an ordinary reason: the remote server restarted, or the connection broke. */
export class InterruptedError extends Error {
  override readonly name = 'InterruptedError';
  readonly retryAfterMs: number;
  constructor(
    readonly reason: string,
    cause: unknown,
  ) {
    super(messageOf(cause), { cause });
    this.retryAfterMs = retryAfterMsOf(cause);
  }
}

export interface LoopState {
  name: string;
  running: boolean;
  rounds: number;
  crashes: number;
  last_round_at: string | null;
  last_error: string | null;
  counts: Record<string, number>;
}

const firstBackoffMs = 1000;
const maxBackoffMs = 30_000;
const healthyAfterMs = 60_000;

/** The pause after work that failed: 1, 2, 4 ... 30 s; from 1 s again after a healthy minute. */
export class Backoff {
  #nextMs = firstBackoffMs;

  after(healthyMs: number): number {
    if (healthyMs >= healthyAfterMs) this.#nextMs = firstBackoffMs;
    const pauseMs = this.#nextMs;
    this.#nextMs = Math.min(2 * pauseMs, maxBackoffMs);
    return pauseMs;
  }
}

export class SupervisedLoop {
  readonly #options: LoopOptions;
  readonly #stopping = new AbortController();
  #wake = new AbortController();
  #finished: Promise<void> | undefined;
  #state: LoopState;
  #endFirstRound = () => {};
  /** Resolves when the first round has ended, also by a crash. */
  readonly firstRound = new Promise<void>((resolve) => {
    this.#endFirstRound = resolve;
  });

  constructor(options: LoopOptions) {
    this.#options = options;
    this.#state = {
      name: options.name,
      running: false,
      rounds: 0,
      crashes: 0,
      last_round_at: null,
      last_error: null,
      counts: {},
    };
  }

  get state(): LoopState {
    return { ...this.#state };
  }

  start(): void {
    this.#finished ??= this.#run();
  }

  /** Starts the next round now instead of at the end of the interval. */
  nudge(): void {
    this.#wake.abort();
  }

  /** Resolves when the current round has ended. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#wake.abort();
    await this.#finished;
  }

  async #run(): Promise<void> {
    const { clock, intervalMs, log, name, onCrash, runOnce, runAtStart = true } = this.#options;
    const { signal } = this.#stopping;
    this.#state.running = true;
    const backoff = new Backoff();
    let healthySince = clock.monotonic();
    if (!runAtStart) await this.#pause(intervalMs);
    while (!signal.aborted) {
      let waitMs = intervalMs;
      // Before the round: a nudge during the round starts another one.
      this.#wake = new AbortController();
      try {
        this.#alive(await runOnce(signal, (counts) => this.#alive(counts)));
        this.#state.rounds += 1;
      } catch (error) {
        if (signal.aborted) break;
        this.#state.last_error = messageOf(error);
        const backoffMs = backoff.after(clock.monotonic() - healthySince);
        waitMs = Math.max(backoffMs, Math.min(retryAfterMsOf(error), maxBackoffMs));
        if (error instanceof InterruptedError) {
          const { reason, message } = error;
          log.info(
            { reason, error: message, loop: name, retry_in_ms: waitMs },
            `${name} interrupted; retrying`,
          );
        } else {
          this.#state.crashes += 1;
          log.error({ err: error, loop: name, retry_in_ms: waitMs }, 'loop crashed; restarting');
          onCrash?.(name);
        }
        healthySince = clock.monotonic() + waitMs;
      }
      this.#endFirstRound();
      await this.#pause(waitMs);
    }
    this.#endFirstRound();
    this.#state.running = false;
  }

  #alive(counts: Record<string, number>): void {
    this.#state.counts = counts;
    this.#state.last_round_at = new Date(this.#options.clock.now()).toISOString();
    this.#state.last_error = null;
  }

  async #pause(ms: number): Promise<void> {
    await this.#options.clock.sleep(ms, this.#wake.signal);
  }
}

/** The pause that a server asked for. */
function retryAfterMsOf(error: unknown): number {
  const { retryAfterMs } = (error ?? {}) as { retryAfterMs?: unknown };
  return typeof retryAfterMs === 'number' ? retryAfterMs : 0;
}
