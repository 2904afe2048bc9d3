/** Input from a terminal or a pipe: single keys or whole lines. */
import { createInterface, emitKeypressEvents, type Interface, type Key as Keypress } from 'node:readline';
import type { ReadStream } from 'node:tty';

/** A character, or the name of a special key. */
export type Key = string;

/** Our names of special keys, by Node's. */
const special: Readonly<Record<string, Key>> = {
  up: 'up',
  down: 'down',
  right: 'right',
  left: 'left',
  pageup: 'pgup',
  pagedown: 'pgdn',
  home: 'home',
  end: 'end',
  tab: 'tab',
  return: 'enter',
  enter: 'enter',
  backspace: 'backspace',
  escape: 'escape',
};
const withControl: Readonly<Record<string, Key>> = { c: 'interrupt', d: 'interrupt', l: 'redraw' };

/** Unknown sequences and control characters are no keys. */
function keysOf(char: string | undefined, { name = '', ctrl, shift, meta }: Keypress): Key[] {
  if (ctrl) return Object.hasOwn(withControl, name) ? [withControl[name] as Key] : [];
  if (name === 'tab' && shift) return ['backtab'];
  if (Object.hasOwn(special, name)) return [special[name] as Key];
  // The Escape key, and at once a character: Node reads both as one key with Alt.
  if (meta) return name.length === 1 ? ['escape', name] : [];
  return char !== undefined && !/\p{Cc}/u.test(char) ? [char] : [];
}

/** An escape that nothing follows within this time is the Escape key. */
const escapeMs = 50;

/** Puts the input into raw mode and reads keys; the result restores the input. */
export function readKeys(input: ReadStream, onKey: (key: Key) => void): () => void {
  emitKeypressEvents(input, { escapeCodeTimeout: escapeMs } as unknown as Interface);
  const read = (char: string | undefined, keypress: Keypress) => {
    for (const key of keysOf(char, keypress)) onKey(key);
  };
  // After Ctrl-Z and fg the shell has left raw mode.
  const setRaw = () => void input.setRawMode(true);
  setRaw();
  process.on('SIGCONT', setRaw);
  input.on('keypress', read);
  input.resume();
  return () => {
    process.off('SIGCONT', setRaw);
    input.off('keypress', read);
    input.setRawMode(false);
    input.pause();
  };
}

/** Reads lines from a pipe or a terminal; blank lines are ignored, and so is the end of the input. */
export function readLines(input: NodeJS.ReadableStream, onLine: (line: string) => void): () => void {
  const lines = createInterface({ input });
  lines.on('line', (line) => {
    const text = line.trim();
    if (text !== '') onLine(text);
  });
  // A read error is the end of the input.
  input.on('error', () => lines.close());
  return () => lines.close();
}
