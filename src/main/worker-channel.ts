/**
 * Calls by name between the primary and a worker, over the channel of Node's cluster module: values (structured clone),
 * and errors that keep their type. Both sides run only our code. Modules of a team run in the records process.
 */
import type { ChildProcess } from 'node:child_process';
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import { receivedError, type SentError, sentError } from './records-messages.js';

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

export class WorkerChannel {
  readonly #process: ChildProcess | NodeJS.Process;
  readonly #clock: Clock;
  readonly #handlers: Readonly<Record<string, Handler>>;
  readonly #calls = new Map<number, (answer: Message) => void>();
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
      const error = sentError(new Error('the other process has ended'));
      for (const [id, settle] of this.#calls) settle({ id, error });
    });
  }

  /** Rejects with the error of the other side, without an answer in time, and when the other side has ended. */
  call(timeoutMs: number, name: string, ...args: unknown[]): Promise<unknown> {
    this.#lastId += 1;
    const id = this.#lastId;
    return new Promise((resolve, reject) => {
      const fail = (text: string) => settle({ id, error: sentError(new Error(text)) });
      const cancel = this.#clock.after(timeoutMs, () => fail(`no answer within ${timeoutMs / 1000} s`));
      const settle = (answer: Message) => {
        cancel();
        this.#calls.delete(id);
        if ('error' in answer) reject(receivedError(answer.error));
        else resolve('value' in answer ? answer.value : undefined);
      };
      this.#calls.set(id, settle);
      this.#send({ id, name, args }, () => fail('the other process has ended'));
    });
  }

  async #receive(message: Message): Promise<void> {
    if (!('name' in message)) {
      this.#calls.get(message.id)?.(message);
      return;
    }
    const { id, name, args } = message;
    try {
      this.#send({ id, value: await this.#handlers[name]?.(...(args as never[])) });
    } catch (error) {
      this.#send({ id, error: sentError(error) });
    }
  }

  #send(message: Message, onError?: () => void): void {
    // With a callback an error is neither thrown nor emitted.
    this.#process.send?.(message, undefined, undefined, (error) => {
      if (error) onError?.();
    });
  }
}
