/** The event stream of the console, without a browser. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('document', new EventTarget());
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it('a connection that is not answered within 35 s counts as broken, and is opened again', async () => {
  const fetched = vi.fn(
    (_: unknown, { signal }: { signal: AbortSignal }) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason));
      }),
  );
  vi.stubGlobal('fetch', fetched);
  // Made for a browser, and so not for the compiler of these tests.
  const path = '../../console/src/live/stream.js';
  const { followEvents } = await import(path);
  const broke = vi.fn();
  const following = followEvents({ opened: () => {}, heard: () => {}, broke });
  await vi.advanceTimersByTimeAsync(34_000);
  expect(broke).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(2000);
  expect(broke).toHaveBeenCalledOnce();
  expect(fetched).toHaveBeenCalledTimes(2);
  following.stop();
});
