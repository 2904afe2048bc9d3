import { describe, expect, it } from 'vitest';
import { changes } from '../../src/terminal/full-screen.js';
import { decodeKeys } from '../../src/terminal/keys.js';
import { table, usageBar } from '../../src/terminal/table.js';
import { clip, paintColours, plain, widthOf, wrap } from '../../src/terminal/text.js';
import { drawn } from '../cli/pty.js';

describe('text', () => {
  it('clip and width count visible characters and keep colours', () => {
    expect(clip('\u001b[31mabcdef\u001b[0m', 3)).toBe('\u001b[31mabc\u001b[0m');
    expect(widthOf(paintColours('red', 'añb'))).toBe(3);
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
      [{ head: 'A' }, { head: 'B' }],
      [
        ['x'.repeat(200), 'y'],
        ['short', 'y'],
      ],
      plain,
    );
    expect(text.split('\n')[2]).toBe(`short${' '.repeat(59)}  y`);
  });
});

describe('keys', () => {
  it('decodes special keys, also when a sequence arrives in two reads', () => {
    expect(decodeKeys('a\u001b[A\u001bOB\u001b[6~\t\r\u007f\u0003é').keys).toEqual([
      'a',
      'up',
      'down',
      'pgdn',
      'tab',
      'enter',
      'backspace',
      'interrupt',
      'é',
    ]);
    expect(decodeKeys('\u001b')).toEqual({ keys: [], rest: '\u001b' });
    expect(decodeKeys('x\u001b[5')).toEqual({ keys: ['x'], rest: '\u001b[5' });
    expect(decodeKeys('\u001bx').keys).toEqual(['escape', 'x']);
    expect(decodeKeys('\u001b[1;5C\u001b[200~').keys).toEqual([]);
  });
});

describe('full screen', () => {
  it('writes only the lines that changed', () => {
    expect(changes(['a', 'b'], ['a', 'b'])).toBe('');
    expect(changes(['a', 'b'], ['a', 'c'])).toBe('\u001b[2;1Hc\u001b[K');
    expect(drawn(changes([], ['long line', 'b']) + changes(['long line', 'b'], ['x']))).toEqual(['x', '']);
  });
});
