/**
 * What the records process tells its router, collected and sent in reports. Bounded: a report is sent only after the one
 * before has been written, and what does not fit into the next one is dropped and counted.
 */
import type { RecordsEvent, RecordsState, Report } from './records-messages.js';

/** About a second's worth of the busiest loop. */
const mostEvents = 20_000;
const mostLines = 1000;

export class Reports {
  readonly #send: (report: Report) => Promise<void>;
  #events: RecordsEvent[] = [];
  #lines: string[] = [];
  #dropped = 0;
  #sent: Promise<void> = Promise.resolve();

  /** `send` resolves when the report has been written. */
  constructor(send: (report: Report) => Promise<void>) {
    this.#send = send;
  }

  event(name: RecordsEvent[0], args: unknown[]): void {
    if (this.#events.length < mostEvents) this.#events.push([name, args]);
    else this.#dropped += 1;
  }

  line(text: string): void {
    if (this.#lines.length < mostLines) this.#lines.push(text);
    else this.#dropped += 1;
  }

  /** Resolves when everything up to now has been written. */
  flush(state: () => RecordsState | undefined): Promise<void> {
    this.#sent = this.#sent.then(() => {
      const report = { state: state(), events: this.#events, lines: this.#lines, dropped: this.#dropped };
      this.#events = [];
      this.#lines = [];
      this.#dropped = 0;
      return this.#send(report);
    });
    return this.#sent;
  }
}
