/** Text in a terminal: colours, visible width, clipping and wrapping. */

/** The parts of an output stream that the terminal code uses. */
export interface OutStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
  write(text: string): boolean;
  on?(event: 'error', listener: (error: NodeJS.ErrnoException) => void): unknown;
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

/** Always colours: an output that shows no colours removes them (`withoutColours`). */
export function paint(colour: Colour | undefined, text: string): string {
  return colour !== undefined && text !== '' ? `\u001b[${sequences[colour]}m${text}\u001b[0m` : text;
}

export const withoutColours = (text: string) => text.replaceAll(/\u001b\[\d+m/g, '');

/** True for a terminal that can move its cursor. */
export function isTerminal(stream: OutStream, env: NodeJS.ProcessEnv): boolean {
  return stream.isTTY === true && env.TERM !== 'dumb';
}

export function showsColours(stream: OutStream, env: NodeJS.ProcessEnv): boolean {
  return isTerminal(stream, env) && !env.NO_COLOR;
}

/** Replaces control and format characters: names come from other machines and must not move the cursor. */
export function clean(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, '?');
}

/** The number of visible characters; colours take no room. */
export const widthOf = (text: string) => [...withoutColours(text)].length;

/** Cuts a line to `columns` visible characters and keeps its colours. */
export function clip(line: string, columns: number): string {
  let room = columns;
  let clipped = '';
  for (const [part] of line.matchAll(/\u001b\[\d+m|[^\u001b]/gu)) {
    if (part.startsWith('\u001b')) clipped += part;
    else if (room > 0) {
      clipped += part;
      room -= 1;
    }
  }
  return clipped;
}

/** Joins parts with `separator` into lines of at most `columns`; a longer part gets a line of its own. */
export function wrap(parts: readonly string[], columns: number, separator = ' '): string[] {
  const lines: string[] = [];
  for (const part of parts) {
    const last = lines.at(-1);
    if (last !== undefined && widthOf(last) + separator.length + widthOf(part) <= columns)
      lines[lines.length - 1] = last + separator + part;
    else lines.push(part);
  }
  return lines;
}
