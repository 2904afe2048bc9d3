/**
 * The whole terminal, lent: the alternate screen without a cursor and without line wrap, given back whatever ends the
 * process. A frame is one write of the lines that changed, so nothing flickers and a slow connection carries little.
 */
import type { OutStream } from '../screen.js';

const enter = '\u001b[?1049h\u001b[?25l\u001b[?7l\u001b[2J';
const leave = '\u001b[?7h\u001b[?25h\u001b[?1049l';

export class Stage {
  readonly #out: OutStream;
  #shown: readonly string[] = [];
  #size = '';
  #isOpen = false;
  readonly #giveBack = () => this.close();

  constructor(out: OutStream) {
    this.#out = out;
  }

  /** A terminal that does not know its size has the one of the first ones. */
  get size(): { columns: number; rows: number } {
    return { columns: this.#out.columns || 80, rows: this.#out.rows || 24 };
  }

  open(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.#out.write(enter);
    process.once('exit', this.#giveBack);
    // Before those of others: what they print about an error is for the screen that stays.
    process.prependListener('uncaughtException', this.#giveBack);
    process.prependListener('unhandledRejection', this.#giveBack);
  }

  /** The next frame is written whole: something else may have written over it. */
  forget(): void {
    this.#size = '';
    if (this.#isOpen) this.#out.write(enter);
  }

  draw(lines: readonly string[]): void {
    if (!this.#isOpen) return;
    const { columns, rows } = this.size;
    const isNew = this.#size !== `${columns}x${rows}`;
    const text = changes(isNew ? [] : this.#shown, lines.slice(0, rows));
    this.#size = `${columns}x${rows}`;
    this.#shown = lines.slice(0, rows);
    if (isNew || text !== '') this.#out.write(`${isNew ? '\u001b[2J' : ''}${text}`);
  }

  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    process.off('exit', this.#giveBack);
    process.off('uncaughtException', this.#giveBack);
    process.off('unhandledRejection', this.#giveBack);
    this.#out.write(leave);
  }
}

/** What makes `before` into `after`, line by line, each cleared behind its end. */
export function changes(before: readonly string[], after: readonly string[]): string {
  let text = '';
  for (let row = 0; row < Math.max(before.length, after.length); row++) {
    const line = after[row] ?? '';
    if (line !== (before[row] ?? '')) text += `\u001b[${row + 1};1H${line}\u001b[K`;
  }
  return text;
}
