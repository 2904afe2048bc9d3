/**
 * The terminal: results on stdout, everything else on stderr. Colours only where a person looks (a TTY, no
 * NO_COLOR, no TERM=dumb), decided for each of the two streams.
 */
import { visible } from '../config/tiers.js';

export interface OutStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
  write(text: string): boolean;
  on?(event: 'error', listener: (error: NodeJS.ErrnoException) => void): unknown;
}

export interface Streams {
  stdin: AsyncIterable<string | Uint8Array> & { readonly isTTY?: boolean };
  stdout: OutStream;
  stderr: OutStream;
}

const sequences = {
  bold: 1,
  dim: 2,
  inverse: 7,
  red: 31,
  green: 32,
  yellow: 33,
  blue: 34,
  magenta: 35,
  cyan: 36,
} as const;
export type Colour = keyof typeof sequences;
export type Paint = (colour: Colour | undefined, text: string) => string;

export function paintFor(stream: OutStream, env: NodeJS.ProcessEnv): Paint {
  const coloured = stream.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb';
  return (colour, text) =>
    coloured && colour !== undefined && text !== '' ? `\u001b[${sequences[colour]}m${text}\u001b[0m` : text;
}

/** Lines, tabs, and the colours above; in JSON what is escaped here means the same. */
const wanted = /(\n|\t|\u001b\[(?:[0127]|3[1-6])m)/;

/** Names come from elsewhere: what would clear a terminal, rename its window or hide a text is shown, not done. */
function harmless(text: string): string {
  return text
    .split(wanted)
    .map((part, i) => (i % 2 === 0 ? visible(part) : part))
    .join('');
}

export class Screen {
  readonly paint: Paint;
  readonly paintError: Paint;
  readonly #streams: Streams;
  readonly #isDumb: boolean;
  #progress = '';

  constructor(streams: Streams, env: NodeJS.ProcessEnv) {
    this.#streams = streams;
    this.#isDumb = env.TERM === 'dumb';
    this.paint = paintFor(streams.stdout, env);
    this.paintError = paintFor(streams.stderr, env);
  }

  get stdin(): Streams['stdin'] {
    return this.#streams.stdin;
  }

  get stdout(): OutStream {
    return this.#streams.stdout;
  }

  get watched(): boolean {
    return this.#streams.stderr.isTTY === true && !this.#isDumb;
  }

  out(text: string): void {
    this.#clearProgress();
    const shown = harmless(text);
    this.#streams.stdout.write(shown.endsWith('\n') ? shown : `${shown}\n`);
  }

  err(line: string): void {
    this.#clearProgress();
    this.#streams.stderr.write(`${harmless(line)}\n`);
  }

  /** On a TTY one line that is written over; elsewhere nothing. */
  progress(line: string): void {
    if (!this.watched) return;
    const width = (this.#streams.stderr.columns || 80) - 1;
    this.#streams.stderr.write(`\r\u001b[2K${line.slice(0, width)}`);
    this.#progress = line;
  }

  #clearProgress(): void {
    if (this.#progress === '') return;
    this.#progress = '';
    this.#streams.stderr.write('\r\u001b[2K');
  }
}
