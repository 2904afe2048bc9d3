/** How often the console reads: one read at a time, with pauses that grow with the time of a read. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { pauseAfter, type RepeatedRead, type Rest, repeat } from '../../console/src/live/repeat.js';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Reads that the test completes. */
function heldReads(rest: Rest): { reading: RepeatedRead; count: () => number; answer: () => Promise<void> } {
  let reads = 0;
  let letGo: (rest: Rest) => void = () => {};
  const reading = repeat(() => {
    reads += 1;
    return new Promise<Rest>((resolve) => {
      letGo = resolve;
    });
  });
  return {
    reading,
    count: () => reads,
    answer: async () => {
      letGo(rest);
      await vi.advanceTimersByTimeAsync(0);
    },
  };
}

it('combines requests during a read into one more read, a second later', async () => {
  const { reading, count, answer } = heldReads({ minMs: 1000, maxMs: 5000 });
  for (let n = 0; n < 100; n++) reading.again();
  expect(count()).toBe(1);
  await answer();
  for (let n = 0; n < 100; n++) reading.again();
  await vi.advanceTimersByTimeAsync(999);
  expect(count()).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(count()).toBe(2);
  await answer();
  await vi.advanceTimersByTimeAsync(4999);
  expect(count()).toBe(2);
  await vi.advanceTimersByTimeAsync(1);
  expect(count()).toBe(3);
  reading.stop();
});

it('reads at once when requested after the pause, and restarts its interval', async () => {
  const { reading, count, answer } = heldReads({ minMs: 1000, maxMs: 5000 });
  await answer();
  await vi.advanceTimersByTimeAsync(3000);
  reading.again();
  expect(count()).toBe(2);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(count()).toBe(2);
  reading.stop();
});

it('does not repeat a read without an interval', async () => {
  const { reading, count, answer } = heldReads({ minMs: 1000, maxMs: 0 });
  await answer();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(count()).toBe(1);
  reading.again();
  expect(count()).toBe(2);
  reading.stop();
});

it('does not read after stop', async () => {
  const { reading, count, answer } = heldReads({ minMs: 1000, maxMs: 5000 });
  reading.again();
  reading.stop();
  await answer();
  reading.again();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(count()).toBe(1);
});

it('pauses four times as long as a read took, from five seconds to a minute', () => {
  const after = (tookMs: number) => pauseAfter({ tookMs, hasFailed: false, retryAfterMs: 0 });
  expect([10, 1250, 5000, 90_000].map(after)).toEqual([5000, 5000, 20_000, 60_000]);
});

it('retries a second after a failure, later with Retry-After or after a slow read', () => {
  const after = (tookMs: number, retryAfterMs = 0) => pauseAfter({ tookMs, hasFailed: true, retryAfterMs });
  expect(after(10)).toBe(1000);
  expect(after(5000)).toBe(1000);
  expect(after(30_000)).toBe(6000);
  expect(after(10, 7000)).toBe(7000);
});

it('cancels a running read and reads at once when restarted', async () => {
  const signals: AbortSignal[] = [];
  const reading = repeat((signal) => {
    signals.push(signal);
    return new Promise<Rest>(() => {});
  });
  reading.restart();
  expect(signals.map(({ aborted }) => aborted)).toEqual([true, false]);
  reading.stop();
});
