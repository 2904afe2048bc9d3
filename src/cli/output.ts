/**
 * The output of a command: results on stdout, everything else on stderr. Each stream is coloured only if it is a
 * terminal, without NO_COLOR and TERM=dumb.
 */
import { visible } from '../config/tiers.js';
import { isTerminal, type OutStream, paint, showsColours, withoutColours } from '../terminal/text.js';
import type { Failure } from './failure.js';

export interface Streams {
  stdin: AsyncIterable<string | Uint8Array> & { readonly isTTY?: boolean };
  stdout: OutStream;
  stderr: OutStream;
}

/** Line breaks, tabs, and our colours. JSON escapes mean the same after `visible`. */
const allowed = /(\n|\t|\u001b\[(?:[0127]|3[1-6])m)/;

/** Escapes control characters: names come from other machines and must not clear or retitle a terminal. */
function escapeControls(text: string, hasColours: boolean): string {
  return (hasColours ? text : withoutColours(text))
    .split(allowed)
    .map((part, i) => (i % 2 === 0 ? visible(part) : part))
    .join('');
}

export class Output {
  /** Whether stderr is a terminal, so that progress is shown. */
  readonly showsProgress: boolean;
  readonly hasColours: boolean;
  readonly #hasErrorColours: boolean;
  #progress = '';

  constructor(
    readonly streams: Streams,
    env: NodeJS.ProcessEnv,
  ) {
    this.showsProgress = isTerminal(streams.stderr, env);
    this.hasColours = showsColours(streams.stdout, env);
    this.#hasErrorColours = showsColours(streams.stderr, env);
  }

  out(text: string): void {
    this.#clearProgress();
    const shown = escapeControls(text, this.hasColours);
    this.streams.stdout.write(shown.endsWith('\n') ? shown : `${shown}\n`);
  }

  err(line: string): void {
    this.#clearProgress();
    this.streams.stderr.write(`${escapeControls(line, this.#hasErrorColours)}\n`);
  }

  warn(text: string): void {
    this.err(`${paint('yellow', 'warning:')} ${text}`);
  }

  fail({ message, problems }: Failure): void {
    this.err(`${paint('red', 'smart-router:')} ${message}`);
    for (const problem of problems) this.err(`  ${problem}`);
  }

  /** On a terminal, one line that the next output replaces; elsewhere nothing. */
  progress(line: string): void {
    if (!this.showsProgress) return;
    const width = (this.streams.stderr.columns || 80) - 1;
    this.streams.stderr.write(`\r\u001b[2K${line.slice(0, width)}`);
    this.#progress = line;
  }

  #clearProgress(): void {
    if (this.#progress === '') return;
    this.#progress = '';
    this.streams.stderr.write('\r\u001b[2K');
  }
}
