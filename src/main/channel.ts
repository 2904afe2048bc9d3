/**
 * Calls by name between a router and a process that it started, over a socket pair: values (structured clone) after their
 * length, and errors that keep their type.
 *
 * Node's own IPC channel is not used for them. It gives every module in the process `process.send`, Node parses it outside
 * of any listener (invalid bytes throw there and would end the router), and it drops messages that arrive before the
 * modules of the child are loaded. Handlers of records can reach this channel too, so every message is checked; the value
 * of an answer and the arguments of a call are for the receiver to check.
 */
import type { Duplex } from 'node:stream';
import { deserialize, serialize } from 'node:v8';
import type { Clock } from '../clock.js';
import { AppError, ConfigError, type ErrorCode, errorCodes } from '../errors.js';

const headerBytes = 4;
/** A full report has about 5 MB. */
const maxMessageBytes = 16 * 1024 ** 2;
const maxArguments = 10;
const maxProblems = 1000;
const hasEnded = 'the other process has ended';

/** What one side accepts until `allowMore` is called. The records process sends about five messages a second. */
interface ChannelLimits {
  messages: number;
  bytes: number;
}

type Handler = (...args: never[]) => unknown;
type Handlers = Readonly<Record<string, Handler>>;

/** A call without an `id` gets no answer. */
type Call = { id?: number; name: string; args: unknown[] };
type Answer = { id: number; value: unknown } | { id: number; error: SentError };

export interface ChannelOptions {
  clock: Clock;
  /** What the other side may call. The error of a call without an answer goes to `onError`. */
  handlers: Handlers;
  /** Gets invalid messages, and an error if the other side sends more than `limits`. */
  onError(error: unknown): void;
  limits?: ChannelLimits;
}

/** The other side did not answer in time, or has ended. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer';
}

export class Channel {
  readonly #socket: Duplex;
  readonly #options: ChannelOptions;
  readonly #calls = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  #lastId = 0;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #neededBytes = headerBytes;
  #isHeader = true;
  #received: ChannelLimits = { messages: 0, bytes: 0 };

  constructor(socket: Duplex, options: ChannelOptions) {
    this.#socket = socket;
    this.#options = options;
    // The socket breaks when the other process ends, which is detected elsewhere.
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => {
      try {
        for (const message of this.#read(chunk)) this.#receive(readMessage(message, options.handlers));
      } catch (error) {
        options.onError(error);
      }
    });
  }

  /** The number of calls that wait for an answer. */
  get waiting(): number {
    return this.#calls.size;
  }

  /** Rejects with the error of the other side, or a NoAnswer after `timeoutMs`. */
  async call(name: string, args: unknown[], timeoutMs?: number): Promise<unknown> {
    if (this.#socket.destroyed) throw new NoAnswer(hasEnded);
    this.#lastId += 1;
    const id = this.#lastId;
    let cancel = () => {};
    try {
      return await new Promise((resolve, reject) => {
        this.#calls.set(id, { resolve, reject });
        if (timeoutMs !== undefined)
          cancel = this.#options.clock.after(timeoutMs, () =>
            reject(new NoAnswer(`no answer within ${timeoutMs / 1000} s`)),
          );
        void this.#send({ id, name, args });
      });
    } finally {
      cancel();
      this.#calls.delete(id);
    }
  }

  /** Calls without an answer. Resolves when the message is written or the socket is closed. */
  notify(name: string, ...args: unknown[]): Promise<void> {
    return this.#send({ name, args });
  }

  /** Resolves when everything that the other side wrote has been read. */
  get closed(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#socket.closed) resolve();
      else this.#socket.once('close', () => resolve());
    });
  }

  /** Rejects waiting calls. */
  close(error: Error = new NoAnswer(hasEnded)): void {
    this.#socket.destroy();
    for (const { reject } of this.#calls.values()) reject(error);
  }

  /** The limits count from here. */
  allowMore(): void {
    this.#received = { messages: 0, bytes: 0 };
  }

  #receive(message: Call | Answer): void {
    if ('name' in message) void this.#handle(message);
    else if ('error' in message) this.#calls.get(message.id)?.reject(receivedError(message.error));
    else this.#calls.get(message.id)?.resolve(message.value);
  }

  async #handle({ id, name, args }: Call): Promise<void> {
    const { handlers, onError } = this.#options;
    try {
      const value = await handlers[name]?.(...(args as never[]));
      if (id !== undefined) await this.#send({ id, value });
    } catch (error) {
      if (id === undefined) onError(error);
      else await this.#send({ id, error: sentError(error) });
    }
  }

  #send(message: Call | Answer): Promise<void> {
    const body = serialize(message);
    const header = Buffer.alloc(headerBytes);
    header.writeUInt32BE(body.length);
    return new Promise((resolve) => {
      if (this.#socket.writable) this.#socket.write(Buffer.concat([header, body]), () => resolve());
      else resolve();
    });
  }

  *#read(chunk: Buffer): Generator<unknown> {
    this.#count('bytes', chunk.length);
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes < this.#neededBytes) return;
    const all = Buffer.concat(this.#chunks);
    let position = 0;
    try {
      while (all.length - position >= this.#neededBytes) {
        const part = all.subarray(position, position + this.#neededBytes);
        position += part.length;
        this.#neededBytes = this.#isHeader ? part.readUInt32BE() : headerBytes;
        this.#isHeader = !this.#isHeader;
        if (this.#neededBytes > maxMessageBytes)
          throw new Error(`a message of ${this.#neededBytes} bytes is larger than ${maxMessageBytes}`);
        if (!this.#isHeader) continue;
        this.#count('messages', 1);
        yield deserialize(part);
      }
    } finally {
      this.#chunks = [all.subarray(position)];
      this.#bytes = all.length - position;
    }
  }

  #count(what: keyof ChannelLimits, amount: number): void {
    const max = this.#options.limits?.[what] ?? Infinity;
    this.#received[what] += amount;
    if (this.#received[what] > max) throw new Error(`it sent more than ${max} ${what} within a second`);
  }
}

/** Throws if the value is not a call of one of the handlers or an answer. */
export function readMessage(message: unknown, handlers: Handlers): Call | Answer {
  if (!isObject(message)) throw new Error('not a message');
  const { id, name, args, error } = message;
  const isCall =
    Object.hasOwn(handlers, String(name)) &&
    isArrayOf(args, maxArguments, () => true) &&
    (id === undefined || Number.isInteger(id));
  const isAnswer = name === undefined && Number.isInteger(id) && (error === undefined || isSentError(error));
  if (!isCall && !isAnswer) throw new Error('not a valid call or answer');
  return message as Call | Answer;
}

export const isString = (value: unknown) => typeof value === 'string';
export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;
/** Checks the length first: a message of 60 bytes can hold an array with four billion holes. */
export const isArrayOf = (value: unknown, max: number, isItem: (item: unknown) => boolean) =>
  Array.isArray(value) && value.length <= max && value.every(isItem);

/** Structured clone would drop the type of an error and its fields. */
interface SentError {
  name: string;
  message: string;
  stack: string | undefined;
  /** Of an AppError. */
  code?: ErrorCode;
  retryAfterSeconds?: number | undefined;
  /** Of an AppError or a ConfigError. */
  problems?: readonly string[] | undefined;
}

function isSentError(error: unknown): boolean {
  if (!isObject(error)) return false;
  const { name, message, code, problems } = error;
  return (
    isString(name) &&
    isString(message) &&
    (code === undefined || Object.hasOwn(errorCodes, String(code))) &&
    (problems === undefined || isArrayOf(problems, maxProblems, isString))
  );
}

export function sentError(error: unknown): SentError {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error), stack: undefined };
  const { name, message, stack } = error;
  if (error instanceof ConfigError) return { name, message, stack, problems: error.problems };
  if (!(error instanceof AppError)) return { name, message, stack };
  const { retryAfterSeconds, problems } = error.details;
  return { name, message, stack, code: error.code, retryAfterSeconds, problems };
}

export function receivedError({ name, message, stack, code, retryAfterSeconds, problems }: SentError): Error {
  if (code !== undefined) {
    return new AppError(code, message, {
      ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
      ...(problems === undefined ? {} : { problems }),
    });
  }
  if (name === 'ConfigError') return new ConfigError(problems ?? [message]);
  return Object.assign(new Error(message), { name, ...(stack === undefined ? {} : { stack }) });
}
