/**
 * The whole terminal as one picture: the alternate buffer, without cursor and line wrap. The terminal is restored on
 * close, on exit and on an uncaught error. Each frame is one write of the lines that changed: no flicker, and little
 * traffic on a slow connection.
 */
import { type OutStream, withoutColours } from './text.js';

const enter = '\u001b[?1049h\u001b[?25l\u001b[?7l\u001b[2J';
const leave = '\u001b[?7h\u001b[?25h\u001b[?1049l';
const endings = ['exit', 'uncaughtException', 'unhandledRejection'] as const;

export class FullScreen {
  #shown: readonly string[] = [];
  #size = '';
  #isOpen = false;
  readonly #restore = () => this.close();
  /** After Ctrl-Z and fg the shell has overwritten the screen. */
  readonly #repaint = () => {
    this.reset();
    this.redraw();
  };

  /** `redraw` must call `draw`; it runs after a resize and after the process continues. */
  constructor(
    private readonly out: OutStream,
    private readonly hasColours: boolean,
    private readonly redraw: () => void,
  ) {}

  /** Falls back to 80x24 if the terminal does not report its size. */
  get size(): { columns: number; rows: number } {
    return { columns: this.out.columns || 80, rows: this.out.rows || 24 };
  }

  open(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    this.out.write(enter);
    // First: the error handler of the process must print to the normal buffer.
    for (const event of endings) process.prependListener(event as 'exit', this.#restore);
    process.on('SIGWINCH', this.redraw);
    process.on('SIGCONT', this.#repaint);
  }

  /** Makes the next `draw` write every line. */
  reset(): void {
    this.#size = '';
    if (this.#isOpen) this.out.write(enter);
  }

  draw(lines: readonly string[]): void {
    if (!this.#isOpen) return;
    const { columns, rows } = this.size;
    const isNew = this.#size !== `${columns}x${rows}`;
    const after = lines.slice(0, rows).map((line) => (this.hasColours ? line : withoutColours(line)));
    const text = changes(isNew ? [] : this.#shown, after);
    this.#size = `${columns}x${rows}`;
    this.#shown = after;
    if (isNew || text !== '') this.out.write(`${isNew ? '\u001b[2J' : ''}${text}`);
  }

  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    for (const event of endings) process.off(event, this.#restore);
    process.off('SIGWINCH', this.redraw);
    process.off('SIGCONT', this.#repaint);
    this.out.write(leave);
  }
}

/** The output that turns the lines `before` into `after`: only the changed lines, each cleared to its end. */
export function changes(before: readonly string[], after: readonly string[]): string {
  let text = '';
  for (let row = 0; row < Math.max(before.length, after.length); row++) {
    const line = after[row] ?? '';
    if (line !== (before[row] ?? '')) text += `\u001b[${row + 1};1H${line}\u001b[K`;
  }
  return text;
}
