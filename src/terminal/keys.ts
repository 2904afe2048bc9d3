/**
 * Input from a terminal. In raw mode a special key arrives as a sequence that starts with an escape, possibly in two
 * reads; an escape that nothing follows within 50 ms is the Escape key.
 */
import { createInterface } from 'node:readline';
import type { ReadStream } from 'node:tty';
import type { Clock } from '../clock.js';

/** A character, or the name of a special key. */
export type Key = string;

const special: Readonly<Record<string, Key>> = {
  '[A': 'up',
  '[B': 'down',
  '[C': 'right',
  '[D': 'left',
  OA: 'up',
  OB: 'down',
  OC: 'right',
  OD: 'left',
  '[5~': 'pgup',
  '[6~': 'pgdn',
  '[H': 'home',
  '[F': 'end',
  OH: 'home',
  OF: 'end',
  '[1~': 'home',
  '[4~': 'end',
  '[7~': 'home',
  '[8~': 'end',
  '[Z': 'backtab',
};
const control: Readonly<Record<string, Key>> = {
  '\t': 'tab',
  '\r': 'enter',
  '\n': 'enter',
  '\u007f': 'backspace',
  '\b': 'backspace',
  '\u0003': 'interrupt',
  '\u0004': 'interrupt',
  '\u000c': 'redraw',
};
const sequence = /^\u001b(\[[0-?]*[ -/]*[@-~]|O[A-Za-z])/;
const unfinished = /^\u001b(\[[0-?]*[ -/]*|O)?$/;

/** Splits `text` into keys; `rest` may be the start of another one. */
export function decodeKeys(text: string): { keys: Key[]; rest: string } {
  const keys: Key[] = [];
  let left = text;
  while (left !== '') {
    const [whole, code = ''] = sequence.exec(left) ?? [];
    if (whole !== undefined) {
      // Unknown sequences are ignored.
      if (Object.hasOwn(special, code)) keys.push(special[code] as Key);
      left = left.slice(whole.length);
    } else if (unfinished.test(left)) {
      return { keys, rest: left };
    } else {
      const [char = ''] = left;
      if (char === '\u001b') keys.push('escape');
      else if (Object.hasOwn(control, char)) keys.push(control[char] as Key);
      else if (!/\p{Cc}/u.test(char)) keys.push(char);
      left = left.slice(char.length);
    }
  }
  return { keys, rest: '' };
}

const escapeMs = 50;

/** Puts the input into raw mode and reads keys; the result restores the input. */
export function readKeys(input: ReadStream, clock: Clock, onKey: (key: Key) => void): () => void {
  let rest = '';
  let cancel = () => {};
  const read = (text: string) => {
    cancel();
    const decoded = decodeKeys(rest + text);
    rest = decoded.rest;
    for (const key of decoded.keys) onKey(key);
    if (rest === '') return;
    cancel = clock.after(escapeMs, () => {
      rest = '';
      onKey('escape');
    });
  };
  // After Ctrl-Z and fg the shell has left raw mode.
  const setRaw = () => void input.setRawMode(true);
  setRaw();
  process.on('SIGCONT', setRaw);
  input.setEncoding('utf8').on('data', read);
  input.resume();
  return () => {
    cancel();
    process.off('SIGCONT', setRaw);
    input.off('data', read);
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
