/**
 * A command on a real pseudo terminal, made by `script` of util-linux, and what a person would see there: enough of a
 * terminal to follow the cursor, to clear lines, and to know the alternate screen.
 */
import { spawn, spawnSync } from 'node:child_process';
import { describe, onTestFinished } from 'vitest';
import { findOnPath } from '../support/engines.js';
import { until } from '../support/until.js';

/** Of macOS and busybox takes other options. */
const isThere =
  findOnPath('script') !== undefined &&
  /util-linux/.test(spawnSync('script', ['--version'], { encoding: 'utf8' }).stdout ?? '');

export function describeTerminal(title: string, suite: () => void): void {
  if (isThere) describe(title, suite);
  else describe.skip(`${title} [script of util-linux is not there]`, suite);
}

export interface Terminal {
  readonly pid: number;
  /** Everything that was written, with its escape sequences. */
  raw(): string;
  /** The current screen. */
  screen(): string[];
  isAlternate(): boolean;
  hasCursor(): boolean;
  type(keys: string): void;
  resize(columns: number, rows: number): void;
  /** Resolves when the screen has shown it. */
  shows(what: string | RegExp): Promise<void>;
  ended: Promise<number | null>;
}

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

export async function startOnTerminal(
  binary: { path: string },
  args: readonly string[],
  {
    env = {},
    columns = 80,
    rows = 24,
    patienceMs = 20_000,
  }: { env?: NodeJS.ProcessEnv; columns?: number; rows?: number; patienceMs?: number } = {},
): Promise<Terminal> {
  const command = [process.execPath, binary.path, ...args].map(quote).join(' ');
  // The mark is put together by the shell, so that it is not found in the command itself.
  const line = `stty cols ${columns} rows ${rows}; echo "pid=$$ tty=$(tty) be""gin"; exec ${command}`;
  const child = spawn('script', ['-qfec', line, '/dev/null'], {
    env: { PATH: process.env.PATH, HOME: process.env.HOME, TERM: 'xterm-256color', SHELL: '/bin/sh', ...env },
    stdio: 'pipe',
    timeout: 3 * patienceMs,
    killSignal: 'SIGKILL',
  });
  let raw = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    raw += text;
  });
  child.stdin.on('error', () => undefined);
  const ended = new Promise<number | null>((resolve) => child.once('close', (code) => resolve(code)));
  const opening = /pid=(\d+) tty=(\S+) begin\r?\n/;
  const begun = await until(() => opening.exec(raw) ?? undefined, 'the terminal is there', patienceMs);
  const [, pid = '', tty = ''] = begun;
  onTestFinished(() => {
    if (child.exitCode !== null) return;
    try {
      process.kill(Number(pid), 'SIGKILL');
    } catch {
      // It has just ended.
    }
    child.kill('SIGKILL');
  });
  const own = () => raw.slice((opening.exec(raw)?.index ?? 0) + (opening.exec(raw)?.[0].length ?? 0));
  const screen = () => drawn(own());
  return {
    pid: Number(pid),
    raw: own,
    screen,
    isAlternate: () => own().lastIndexOf('\u001b[?1049h') > own().lastIndexOf('\u001b[?1049l'),
    hasCursor: () => own().lastIndexOf('\u001b[?25h') >= own().lastIndexOf('\u001b[?25l'),
    type: (keys) => child.stdin.write(keys),
    resize: (wide, high) => {
      spawnSync('stty', ['-F', tty, 'cols', String(wide), 'rows', String(high)]);
    },
    shows: async (what) => {
      const seen = () => {
        const text = screen().join('\n');
        return typeof what === 'string' ? text.includes(what) : what.test(text);
      };
      try {
        await until(seen, `the screen shows ${what}`, patienceMs);
      } catch (error) {
        throw new Error(`${(error as Error).message}; it shows:\n${screen().join('\n')}`);
      }
    },
    ended,
  };
}

/** The screen after all that was written, without colours. */
export function drawn(raw: string): string[] {
  let lines: string[][] = [];
  let [row, column] = [0, 0];
  for (const [part] of raw.matchAll(/\u001b\[[0-9;?]*[A-Za-z]|[^\u001b]/gu)) {
    const position = /^\u001b\[(\d+);(\d+)H$/.exec(part);
    if (position) [row, column] = [Number(position[1]) - 1, Number(position[2]) - 1];
    else if (part === '\u001b[H') [row, column] = [0, 0];
    else if (part === '\u001b[2J') lines = [];
    else if (part === '\u001b[J') lines.splice(row + 1);
    else if (part === '\u001b[K') lines[row] = (lines[row] ?? []).slice(0, column);
    else if (/^\u001b\[\?1049[hl]$/.test(part)) [lines, row, column] = [[], 0, 0];
    else if (part === '\r') column = 0;
    else if (part === '\n') row += 1;
    else if (!part.startsWith('\u001b')) {
      lines[row] ??= [];
      const line = lines[row] as string[];
      while (line.length < column) line.push(' ');
      line[column] = part;
      column += 1;
    }
  }
  return Array.from(lines, (line) => (line ?? []).join(''));
}
