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
const maxMessageBytes = 64 * 1024 ** 2;

export class RecordsChannel {
  readonly #socket: Duplex;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #neededBytes = headerBytes;
  #isHeader = true;

  /** `onError` gets errors of `onMessage`, and invalid bytes. */
  constructor(socket: Duplex, onMessage: (message: unknown) => void, onError: (error: unknown) => void) {
    this.#socket = socket;
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

  *#read(chunk: Buffer): Generator<unknown> {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    while (this.#bytes >= this.#neededBytes) {
      const all = Buffer.concat(this.#chunks);
      const part = all.subarray(0, this.#neededBytes);
      this.#chunks = [all.subarray(part.length)];
      this.#bytes -= part.length;
      this.#neededBytes = this.#isHeader ? part.readUInt32BE() : headerBytes;
      this.#isHeader = !this.#isHeader;
      if (this.#neededBytes > maxMessageBytes)
        throw new Error(`a message of ${this.#neededBytes} bytes is larger than ${maxMessageBytes}`);
      if (this.#isHeader) yield deserialize(part);
    }
  }
}
