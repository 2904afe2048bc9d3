/** Items that come together are handed over together, whatever comes after them. */
import { expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { bursts } from '../../src/pool/bursts.js';

const moment = () => systemClock.sleep(0);
async function* from(...pieces: (number[] | Error)[]): AsyncGenerator<number> {
  for (const piece of pieces) {
    if (piece instanceof Error) throw piece;
    yield* piece;
    // Two moments: the reader has had its own.
    await systemClock.sleep(20);
  }
}
async function read(items: AsyncGenerator<number>, most = 10): Promise<(number[] | string)[]> {
  const seen: (number[] | string)[] = [];
  try {
    for await (const burst of bursts(items, most, moment)) seen.push(burst);
  } catch (error) {
    seen.push(String(error));
  }
  return seen;
}

it('what is there at once comes at once, in order, to the last one', async () => {
  expect((await read(from([1, 2, 3], [4], [5, 6]))).flat()).toEqual([1, 2, 3, 4, 5, 6]);
  expect((await read(from([1, 2, 3])))[0]).toEqual([1, 2, 3]);
  expect(await read(from())).toEqual([]);
});

it('never more than asked for', async () => {
  const pieces = await read(from([1, 2, 3, 4, 5]), 2);
  expect(pieces.flat()).toEqual([1, 2, 3, 4, 5]);
  expect(Math.max(...pieces.map(({ length }) => length))).toBe(2);
});

it('an error comes after everything before it', async () => {
  expect((await read(from([1, 2], new Error('broken')))).flat()).toEqual([1, 2, 'Error: broken']);
});

it('who stops early leaves nothing open', async () => {
  let isOpen = true;
  async function* items() {
    try {
      for (let n = 0; ; n += 1) yield n;
    } finally {
      isOpen = false;
    }
  }
  for await (const burst of bursts(items(), 3, moment)) if (burst.includes(4)) break;
  await systemClock.sleep(0);
  expect(isOpen).toBe(false);
});
