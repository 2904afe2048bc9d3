/**
 * Brings messages to one receiver, one after the other, in the background. What cannot be delivered is tried again after
 * 1, 2, 4 ... 60 s for as long as the process lives; of several words about one condition only the last is kept, so
 * the queue is never longer than there are conditions. A message that the receiver refuses for good is dropped and
 * logged: the next reminder is another try.
 */
import type { Clock } from '../clock.js';
import { messageOf } from '../errors.js';
import { DeliveryError } from './alerts-http.js';
import type { AlertMessage, AlertSink } from './alerts-sinks.js';
import type { Logger } from './log.js';

const firstBackoffMs = 1000;
const longestBackoffMs = 60_000;

export class Delivery {
  readonly #waiting = new Map<string, AlertMessage>();
  readonly #stopping = new AbortController();
  #sending: Promise<void> | undefined;
  #failures = 0;

  constructor(
    readonly sink: AlertSink,
    readonly clock: Clock,
    readonly log: Logger,
  ) {}

  get waiting(): number {
    return this.#waiting.size;
  }

  add(message: AlertMessage): void {
    // Behind those that wait longer.
    this.#waiting.delete(message.key);
    this.#waiting.set(message.key, message);
    this.#sending ??= this.#send();
  }

  /** Gives what waits `patienceMs` more, then gives up. */
  async stop(patienceMs: number): Promise<void> {
    const cancel = this.clock.after(patienceMs, () => this.#stopping.abort());
    await this.#sending;
    cancel();
    this.#stopping.abort();
    if (this.#waiting.size > 0)
      this.log.warn({ to: this.sink.name, alerts: this.#waiting.size }, 'alerts were not delivered');
  }

  async #send(): Promise<void> {
    const { signal } = this.#stopping;
    // Never in the caller's own turn: an alert is noted, not sent, where it arises.
    await Promise.resolve();
    while (!signal.aborted) {
      const [message] = this.#waiting.values();
      if (!message) break;
      const pauseMs = await this.#try(message, signal);
      if (pauseMs > 0) await this.clock.sleep(pauseMs, signal);
    }
    this.#sending = undefined;
  }

  /** How long to wait before the next try. */
  async #try(message: AlertMessage, signal: AbortSignal): Promise<number> {
    const done = () => {
      // Unless there is a newer word by now.
      if (this.#waiting.get(message.key) === message) this.#waiting.delete(message.key);
    };
    try {
      await this.sink.send(message, signal);
      done();
      this.#failures = 0;
      return 0;
    } catch (error) {
      const isPassing = !(error instanceof DeliveryError) || error.isPassing;
      const fields = {
        to: this.sink.name,
        condition: message.condition,
        reason: messageOf(error),
      };
      if (!isPassing) {
        done();
        this.log.error(fields, 'an alert was refused: check the address and the key');
        return 0;
      }
      if (!signal.aborted) this.log.warn(fields, 'an alert could not be delivered and is tried again');
      this.#failures += 1;
      const backoffMs = Math.min(firstBackoffMs * 2 ** (this.#failures - 1), longestBackoffMs);
      const askedMs = error instanceof DeliveryError ? error.retryAfterMs : 0;
      return Math.max(askedMs, backoffMs * (1 - 0.2 * this.clock.random()));
    }
  }
}
