import { PassThrough } from 'node:stream';
import type { ReadStream } from 'node:tty';
import { describe, expect, it, onTestFinished } from 'vitest';
import { changes } from '../../src/terminal/full-screen.js';
import { readKeys } from '../../src/terminal/keys.js';
import { table, usageBar } from '../../src/terminal/table.js';
import { clip, paint, widthOf, withoutColours, wrap } from '../../src/terminal/text.js';
import { drawn } from '../cli/pty.js';

describe('text', () => {
  it('clip and width count visible characters and keep colours', () => {
    expect(clip('\u001b[31mabcdef\u001b[0m', 3)).toBe('\u001b[31mabc\u001b[0m');
    expect(widthOf(paint('red', 'añb'))).toBe(3);
  });

  it('wraps parts and gives a long part its own line', () => {
    expect(wrap(['aa', 'bb', 'a long part', 'c'], 5)).toEqual(['aa bb', 'a long part', 'c']);
  });
});

describe('tables', () => {
  it('a usage bar is empty only without use and full only at capacity', () => {
    expect([
      usageBar(0, 1000),
      usageBar(1, 1000),
      usageBar(999, 1000),
      usageBar(1000, 1000),
      usageBar(5, 0),
    ]).toEqual(['----------', '#---------', '#########-', '##########', '##########']);
  });

  it('a very long cell does not widen its column for other rows', () => {
    const text = table(
      ['A', 'B'],
      [
        ['x'.repeat(200), 'y'],
        ['short', 'y'],
      ],
    );
    expect(withoutColours(text).split('\n')[2]).toBe(`short${' '.repeat(59)}  y`);
  });
});

describe('keys', () => {
  /** Writes each text, and waits until its keys have arrived. */
  async function expectKeys(...reads: [text: string, keys: string[]][]): Promise<void> {
    const input = new PassThrough();
    const terminal = Object.assign(input, { setRawMode: () => input }) as unknown as ReadStream;
    const found: string[] = [];
    onTestFinished(readKeys(terminal, (key) => found.push(key)));
    for (const [text, keys] of reads) {
      input.write(text);
      await expect.poll(() => found.splice(0)).toEqual(keys);
    }
  }

  it('decodes special keys and characters', async () => {
    await expectKeys([
      'a\u001b[A\u001bOB\u001b[6~\u001b[1~\u001b[Z\t\r\u007f\u0003\u000cé D',
      [
        ...['a', 'up', 'down', 'pgdn', 'home', 'backtab', 'tab', 'enter', 'backspace', 'interrupt', 'redraw'],
        ...['é', ' ', 'D'],
      ],
    ]);
  });

  it('decodes a sequence that arrives in two reads', async () => {
    await expectKeys(['x\u001b[5', ['x']], ['~y', ['pgup', 'y']]);
  });

  it('reads an escape that nothing follows as the Escape key', async () => {
    await expectKeys(['\u001b', ['escape']], ['x', ['x']], ['\u001bx', ['escape', 'x']]);
  });

  it('ignores unknown sequences and control characters', async () => {
    await expectKeys(['\u001b[1;5C\u001b[200~\u0001\u001b[15~z', ['z']]);
  });
});

describe('full screen', () => {
  it('writes only the lines that changed', () => {
    expect(changes(['a', 'b'], ['a', 'b'])).toBe('');
    expect(changes(['a', 'b'], ['a', 'c'])).toBe('\u001b[2;1Hc\u001b[K');
    expect(drawn(changes([], ['long line', 'b']) + changes(['long line', 'b'], ['x']))).toEqual(['x', '']);
  });
});
