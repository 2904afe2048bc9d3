import { type Clock, Deadline } from '../clock.js';
import { sendRequest } from './http-request.js';
import type { Log } from './log.js';

const everyMs = 1000;
const timeoutMs = 5000;
/** Twice, a second apart: an agent that restarts its listener keeps its calls. */
const maxRefused = 2;
const maxSilentMs = 30_000;

/**
 * Watches the health address of the agent. Any HTTP answer shows that its process lives. It is dead when nothing listens
 * there (a busy process times out, but never refuses a connection), or when it has not answered for 30 s. Before the first
 * answer nothing counts, so that a wrong address ends no call.
 */
export class HealthWatch {
  #refused = 0;
  #answeredAtMs: number | undefined;

  constructor(
    private readonly url: string,
    private readonly clock: Clock,
    private readonly log: Log,
    private readonly onDeath: () => void,
  ) {}

  /** Resolves when `signal` aborts. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.runOnce(signal);
      await this.clock.sleep(everyMs, signal);
    }
  }

  async runOnce(signal: AbortSignal): Promise<void> {
    const code = await this.#ask(signal);
    const nowMs = this.clock.monotonic();
    if (code === undefined) {
      this.#answeredAtMs = nowMs;
      this.#refused = 0;
    }
    if (code === undefined || this.#answeredAtMs === undefined || signal.aborted) return;
    this.#refused = code === 'ECONNREFUSED' ? this.#refused + 1 : 0;
    if (this.#refused < maxRefused && nowMs - this.#answeredAtMs < maxSilentMs) return;
    this.#answeredAtMs = undefined;
    this.log('warn', 'voice agent is dead; ending its calls', { url: this.url, error: code });
    this.onDeath();
  }

  /** Undefined after any answer, else the code of the error. */
  async #ask(signal: AbortSignal): Promise<string | undefined> {
    const deadline = new Deadline(this.clock, timeoutMs, () => new Error('timed out'), signal);
    try {
      (await sendRequest(this.url, { method: 'GET', signal: deadline.signal })).destroy();
      return undefined;
    } catch (error) {
      return (error as NodeJS.ErrnoException).code ?? 'unknown';
    } finally {
      deadline.end();
    }
  }
}
