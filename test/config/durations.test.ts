import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { durationMaxMs, formatDuration, parseDuration } from '../../src/config/durations.js';

describe('parsing a duration', () => {
  it.each([
    ['500ms', 500],
    ['30s', 30_000],
    ['15m', 900_000],
    ['1h', 3_600_000],
    ['1h30m', 5_400_000],
    ['1.5s', 1_500],
    ['0.29s', 290],
    ['1.005s', 1_005],
    ['.5s', 500],
    ['5.s', 5_000],
    ['0', 0],
    ['0s', 0],
    ['1000000ns', 1],
    ['1500us', 2],
    ['1500µs', 2],
    ['1500μs', 2],
    ['1ns', 1],
    ['1h0m0s', 3_600_000],
    ['2147483647ms', durationMaxMs],
  ])('reads %s as %d ms', (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
  });

  it.each([
    '',
    ' ',
    '30',
    '1',
    's',
    '-1s',
    '+1s',
    '30 s',
    '30s ',
    ' 30s',
    '30S',
    '1d',
    '1h30',
    '1e3s',
    '.s',
    '1.2.3s',
    'off',
    '2147483648ms',
    `${'9'.repeat(60)}h`,
    '1s'.repeat(40),
    '1s\n',
  ])('refuses %j', (text) => {
    expect(parseDuration(text)).toBeUndefined();
  });

  it('never throws, and gives a whole number of milliseconds or nothing', () => {
    const near = fc.stringMatching(/^([0-9]{0,5}\.?[0-9]{0,5}(ns|us|ms|s|m|h|x)){0,4}$/);
    fc.assert(
      fc.property(fc.oneof(fc.string(), near), (text) => {
        const ms = parseDuration(text);
        if (ms !== undefined) expect(Number.isInteger(ms) && ms >= 0 && ms <= durationMaxMs).toBe(true);
      }),
    );
  });
});

describe('formatting a duration', () => {
  it.each([
    [0, '0s'],
    [1, '1ms'],
    [999, '999ms'],
    [1_000, '1s'],
    [1_500, '1.5s'],
    [61_500, '1m1.5s'],
    [900_000, '15m'],
    [3_600_500, '1h0.5s'],
    [5_400_000, '1h30m'],
    [86_400_000, '24h'],
    [-1_500, '-1.5s'],
    [12.4, '12ms'],
    [Number.POSITIVE_INFINITY, 'Infinity'],
  ])('writes %d ms as %s', (ms, text) => {
    expect(formatDuration(ms)).toBe(text);
  });

  it('parses to the same number', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: durationMaxMs }), (ms) => {
        expect(parseDuration(formatDuration(ms))).toBe(ms);
      }),
    );
  });
});
