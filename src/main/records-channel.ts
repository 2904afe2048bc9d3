/**
 * Sends messages between a router and its records process over a socket pair: values (structured clone) after their
 * length.
 *
 * Node's own IPC channel is not used. It gives every module in the process `process.send`, and Node parses it outside of
 * any listener: invalid bytes throw there and would end the router.
 */
import type { Duplex } from 'node:stream';
import { deserialize, serialize } from 'node:v8';

const headerBytes = 4;
/** A full report has about 5 MB. */
const maxMessageBytes = 16 * 1024 ** 2;

/** What one side accepts until `allowMore` is called. The records process sends about five messages a second. */
export interface ChannelLimits {
  messages: number;
  bytes: number;
}

export class RecordsChannel {
  readonly #socket: Duplex;
  readonly #limits: ChannelLimits;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #neededBytes = headerBytes;
  #isHeader = true;
  #received: ChannelLimits = { messages: 0, bytes: 0 };

  /** `onError` gets errors of `onMessage`, invalid bytes, and an error if the other side sends more than `limits`. */
  constructor(
    socket: Duplex,
    onMessage: (message: unknown) => void,
    onError: (error: unknown) => void,
    limits: ChannelLimits = { messages: Infinity, bytes: Infinity },
  ) {
    this.#socket = socket;
    this.#limits = limits;
    // The socket breaks when the other process ends, which is detected elsewhere.
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => {
      try {
        for (const message of this.#read(chunk)) onMessage(message);
      } catch (error) {
        onError(error);
      }
    });
  }

  /** Resolves when the message is written or the socket is closed. Throws if it cannot be serialized. */
  send(message: unknown): Promise<void> {
    const body = serialize(message);
    const header = Buffer.alloc(headerBytes);
    header.writeUInt32BE(body.length);
    return new Promise((resolve) => {
      if (this.#socket.writable) this.#socket.write(Buffer.concat([header, body]), () => resolve());
      else resolve();
    });
  }

  /** Resolves when everything that the other side wrote has been read. */
  get closed(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#socket.closed) resolve();
      else this.#socket.once('close', () => resolve());
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  /** The limits count from here. */
  allowMore(): void {
    this.#received = { messages: 0, bytes: 0 };
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
    this.#received[what] += amount;
    if (this.#received[what] > this.#limits[what])
      throw new Error(`it sent more than ${this.#limits[what]} ${what} within a second`);
  }
}
