/**
 * Calls by name between the primary and a worker, over the channel of Node's cluster module: values (structured clone),
 * and errors that keep their type. Both sides run only our code. Modules of a team run in the records process.
 */
import type { ChildProcess } from 'node:child_process';
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import { receivedError, recordsUnavailable, type SentError, sentError } from './records-messages.js';

/** As long as operations on records may take. */
export const callTimeoutMs = 15_000;

/** What a worker gets at its start. Worker 1 has the records process. */
export interface WorkerConfig {
  config: Config;
  number: number;
}

type Message = { id: number } & (
  | { name: string; args: unknown[] }
  | { value: unknown }
  | { error: SentError }
);

type Handler = (...args: never[]) => unknown;

/** The other side did not answer in time, or has ended. */
class NoAnswer extends Error {
  override readonly name = 'NoAnswer';
}

const hasEnded = 'the other process has ended';

export class WorkerChannel {
  readonly #process: ChildProcess | NodeJS.Process;
  readonly #clock: Clock;
  readonly #handlers: Readonly<Record<string, Handler>>;
  readonly #calls = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  #lastId = 0;

  /** `process`: the worker, or in a worker its own. */
  constructor(
    process: ChildProcess | NodeJS.Process,
    clock: Clock,
    handlers: Readonly<Record<string, Handler>>,
  ) {
    this.#process = process;
    this.#clock = clock;
    this.#handlers = handlers;
    process.on('message', (message: Message) => void this.#receive(message));
    process.once('disconnect', () => {
      for (const { reject } of this.#calls.values()) reject(new NoAnswer(hasEnded));
    });
  }

  /** Rejects with the error of the other side, or a NoAnswer. */
  async call(timeoutMs: number, name: string, ...args: unknown[]): Promise<unknown> {
    this.#lastId += 1;
    const id = this.#lastId;
    let cancel = () => {};
    try {
      return await new Promise((resolve, reject) => {
        this.#calls.set(id, { resolve, reject });
        const noAnswer = (reason: string) => reject(new NoAnswer(reason));
        cancel = this.#clock.after(timeoutMs, () => noAnswer(`no answer within ${timeoutMs / 1000} s`));
        this.#send({ id, name, args }, () => noAnswer(hasEnded));
      });
    } finally {
      cancel();
      this.#calls.delete(id);
    }
  }

  /** Calls the records process of worker 1; rejects with 503 `database_unavailable` if it does not answer. */
  async callRecords(timeoutMs: number, name: string, args: unknown[]): Promise<unknown> {
    try {
      return await this.call(timeoutMs, 'records', name, args);
    } catch (error) {
      throw error instanceof NoAnswer ? recordsUnavailable(`worker 1: ${error.message}`) : error;
    }
  }

  async #receive(message: Message): Promise<void> {
    if ('name' in message) {
      const { id, name, args } = message;
      try {
        this.#send({ id, value: await this.#handlers[name]?.(...(args as never[])) });
      } catch (error) {
        this.#send({ id, error: sentError(error) });
      }
      return;
    }
    const call = this.#calls.get(message.id);
    if ('error' in message) call?.reject(receivedError(message.error));
    else call?.resolve(message.value);
  }

  #send(message: Message, onError?: () => void): void {
    // With a callback an error is neither thrown nor emitted.
    this.#process.send?.(message, undefined, undefined, (error) => {
      if (error) onError?.();
    });
  }
}
