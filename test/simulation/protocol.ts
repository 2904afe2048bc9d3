/** The store's protocol (RESP2), as little of it as is needed: commands out, answers in. */
export class ReplyError extends Error {
  override readonly name = 'ReplyError';
}
export type Reply = string | number | null | ReplyError | Reply[];

export function requestOf(args: readonly (string | number | Buffer)[]): Buffer {
  const parts: Buffer[] = [Buffer.from(`*${args.length}\r\n`)];
  for (const arg of args) {
    const bytes = Buffer.isBuffer(arg) ? arg : Buffer.from(String(arg));
    parts.push(Buffer.from(`$${bytes.length}\r\n`), bytes, Buffer.from('\r\n'));
  }
  return Buffer.concat(parts);
}

export class ReplyReader {
  #bytes: Buffer = Buffer.alloc(0);
  #at = 0;

  push(bytes: Buffer): void {
    this.#bytes =
      this.#at === this.#bytes.length ? bytes : Buffer.concat([this.#bytes.subarray(this.#at), bytes]);
    this.#at = 0;
  }

  /** The next complete reply, or undefined. */
  next(): Reply | undefined {
    const start = this.#at;
    const reply = this.#read();
    if (reply === undefined) this.#at = start;
    return reply;
  }

  #read(): Reply | undefined {
    const end = this.#bytes.indexOf('\r\n', this.#at);
    if (end < 0) return undefined;
    const kind = String.fromCharCode(this.#bytes[this.#at] ?? 0);
    const line = this.#bytes.toString('utf8', this.#at + 1, end);
    this.#at = end + 2;
    if (kind === '+') return line;
    if (kind === '-') return new ReplyError(line);
    if (kind === ':') return Number(line);
    const length = Number(line);
    if (length < 0) return null;
    if (kind === '$') {
      if (this.#bytes.length < this.#at + length + 2) return undefined;
      const text = this.#bytes.toString('utf8', this.#at, this.#at + length);
      this.#at += length + 2;
      return text;
    }
    if (kind !== '*') throw new Error(`the store answered with ${JSON.stringify(kind)}`);
    const items: Reply[] = [];
    for (let i = 0; i < length; i += 1) {
      const item = this.#read();
      if (item === undefined) return undefined;
      items.push(item);
    }
    return items;
  }
}
