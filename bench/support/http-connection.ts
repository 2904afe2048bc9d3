/** A keep-alive connection, one request at a time; reads only status and length of an answer. */
import { connect, type Socket } from 'node:net';

export class HttpConnection {
  readonly #socket: Socket;
  #received = '';
  #resolve: (status: string) => void = () => {};
  #reject: (error: Error) => void = () => {};

  constructor(host: string, port: number) {
    this.#socket = connect({ host, port, noDelay: true });
    this.#socket.setEncoding('latin1');
    this.#socket.on('data', (text: string) => this.#read(text));
    this.#socket.on('error', (error) => this.#reject(error));
    this.#socket.on('close', () => this.#reject(new Error('the server closed the connection')));
  }

  /** Resolves when it is open; the first request reports a failure. */
  get opened(): Promise<void> {
    return new Promise((resolve) => {
      this.#socket.once('connect', resolve);
      this.#socket.once('close', () => resolve());
    });
  }

  get isClosed(): boolean {
    return this.#socket.destroyed;
  }

  post(path: string, text: string): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      this.#socket.write(
        `POST ${path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`,
      );
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #read(text: string): void {
    this.#received += text;
    const head = this.#received.indexOf('\r\n\r\n');
    if (head < 0) return;
    const length = Number(/content-length: (\d+)/i.exec(this.#received)?.[1] ?? 0);
    if (this.#received.length < head + 4 + length) return;
    const status = this.#received.slice(9, 12);
    this.#received = '';
    this.#resolve(status);
  }
}
