/**
 * Keys of a terminal in raw mode. A special key comes as an escape and more, perhaps in two pieces; an escape after
 * which nothing comes for a moment is the key Escape.
 */
import type { ReadStream } from 'node:tty';
import type { Clock } from '../../clock.js';

/** A character as it is, or the name of a special key. */
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

/** The keys in `text`, and what may be the beginning of another one. */
export function decodeKeys(text: string): { keys: Key[]; rest: string } {
  const keys: Key[] = [];
  let left = text;
  while (left !== '') {
    const [whole, code = ''] = sequence.exec(left) ?? [];
    if (whole !== undefined) {
      // One that we do not know is none of ours.
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

/** The result gives the input back as it was. */
export function readKeys(input: ReadStream, clock: Clock, onKey: (key: Key) => void): () => void {
  let rest = '';
  let cancel = () => {};
  const hear = (text: string) => {
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
  input.setRawMode(true);
  input.setEncoding('utf8').on('data', hear);
  input.resume();
  return () => {
    cancel();
    input.off('data', hear);
    input.setRawMode(false);
    input.pause();
  };
}
