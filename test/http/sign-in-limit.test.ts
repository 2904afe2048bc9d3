import { describe, expect, it } from 'vitest';
import { SignInLimit } from '../../src/http/sessions.js';
import { ManualClock } from '../support/manual-clock.js';

describe('the limit of wrong keys', () => {
  it('lets ten pass within a minute, and one more whenever the oldest is a minute old', () => {
    const clock = new ManualClock();
    const limit = new SignInLimit(clock);
    for (let i = 0; i < 10; i += 1) {
      expect(limit.waitSeconds('a')).toBe(0);
      limit.failed('a');
      clock.advance(1000);
    }
    expect(limit.waitSeconds('a')).toBe(50);
    expect(limit.waitSeconds('b')).toBe(0);
    clock.advance(50_000);
    expect(limit.waitSeconds('a')).toBe(0);
    limit.failed('a');
    expect(limit.waitSeconds('a')).toBe(1);
  });

  it('resets the count of an address that signed in', () => {
    const limit = new SignInLimit(new ManualClock());
    for (let i = 0; i < 10; i += 1) limit.failed('a');
    limit.succeeded('a');
    expect(limit.waitSeconds('a')).toBe(0);
  });

  it('keeps the latest ten thousand addresses', () => {
    const limit = new SignInLimit(new ManualClock());
    for (let i = 0; i < 10; i += 1) limit.failed('first');
    for (let i = 0; i < 10; i += 1) limit.failed('192.0.2.1');
    for (let i = 0; i < 9_999; i += 1) limit.failed(`address ${i}`);
    expect(limit.addresses).toBe(10_000);
    expect(limit.waitSeconds('first')).toBe(0);
    expect(limit.waitSeconds('192.0.2.1')).toBeGreaterThan(0);
  });
});
