/** The guarantees of every lock: the same suite for each kind. */
import { beforeEach, describe, expect, it } from 'vitest';
import type { HeldRecord, LeaseLock, LockRecord } from '../../src/leadership/leadership.js';

export interface LockUnderTest {
  /** A client of its own, as another process would have it. */
  open(): LeaseLock;
  /** Deletes the record directly. */
  wipe(): Promise<void>;
  /** Requests get no answer until the result is called. */
  silence(): Promise<() => Promise<void>>;
}

export const example: LockRecord = {
  holder: 'router-0',
  writer: 'a4e7c7c2-0000-4000-8000-000000000001',
  durationMs: 15_000,
  acquiredAt: '2026-11-15T10:00:00.000Z',
  renewedAt: '2026-11-15T10:00:02.123Z',
  transitions: 3,
};
const timeoutMs = 5000;

export function describeLock(open: () => LockUnderTest): void {
  describe('as any lock', () => {
    let one: LeaseLock;
    let two: LeaseLock;
    beforeEach(() => {
      one = open().open();
      two = open().open();
    });
    const write = (lock: LeaseLock, record: Partial<LockRecord>, before: HeldRecord | undefined) =>
      lock.write({ ...example, ...record }, before?.version, timeoutMs);
    const written = async (lock: LeaseLock, record: Partial<LockRecord>, before: HeldRecord | undefined) => {
      const result = await write(lock, record, before);
      if (!result) throw new Error('it was not written');
      return result;
    };

    it('has no record at first', async () => {
      expect(await one.read(timeoutMs)).toBeUndefined();
    });

    it('returns the written record to every reader', async () => {
      const result = await written(one, {}, undefined);
      expect(result).toEqual({ ...example, version: expect.stringMatching(/./) });
      expect(await one.read(timeoutMs)).toEqual(result);
      expect(await two.read(timeoutMs)).toEqual(result);
    });

    it('is created once, however many try', async () => {
      const locks = Array.from({ length: 8 }, () => open().open());
      const results = await Promise.all(
        locks.map((lock, i) => write(lock, { writer: `process-${i}` }, undefined)),
      );
      const winners = results.filter((result) => result !== undefined);
      expect(winners).toHaveLength(1);
      expect(await one.read(timeoutMs)).toEqual(winners[0]);
    });

    it('is taken over once, however many have seen the same version', async () => {
      await written(one, {}, undefined);
      const locks = Array.from({ length: 8 }, () => open().open());
      const seen = await Promise.all(locks.map((lock) => lock.read(timeoutMs)));
      const results = await Promise.all(
        locks.map((lock, i) => write(lock, { writer: `process-${i}` }, seen[i])),
      );
      expect(results.filter((result) => result !== undefined)).toHaveLength(1);
    });

    it('changes its version with every write, also of the same record', async () => {
      const versions = new Set<string>();
      let record: HeldRecord | undefined;
      for (let i = 0; i < 20; i += 1) {
        record = await written(one, {}, record);
        versions.add(record.version);
      }
      expect(versions.size).toBe(20);
    });

    it('refuses a version that is no longer there, and changes nothing', async () => {
      const first = await written(one, {}, undefined);
      const second = await written(two, { holder: 'router-1' }, await two.read(timeoutMs));
      expect(await write(one, {}, first)).toBeUndefined();
      expect(await two.read(timeoutMs)).toEqual(second);
    });

    it('takes a version that another client has read', async () => {
      const first = await written(one, {}, undefined);
      expect(await write(two, { holder: 'router-1' }, first)).toMatchObject({ holder: 'router-1' });
    });

    it('rejects to create an existing record', async () => {
      const first = await written(one, {}, undefined);
      expect(await write(two, { holder: 'router-1' }, undefined)).toBeUndefined();
      expect(await one.read(timeoutMs)).toEqual(first);
    });

    it('keeps a release: no holder, no writer', async () => {
      const first = await written(one, {}, undefined);
      const released = await written(one, { holder: '', writer: '', durationMs: 1000 }, first);
      expect(released).toMatchObject({ holder: '', writer: '', durationMs: 1000, transitions: 3 });
      expect(await two.read(timeoutMs)).toEqual(released);
    });

    it('that was deleted has no record, refuses the old version, and begins with a new one', async () => {
      const first = await written(one, {}, undefined);
      await open().wipe();
      expect(await write(one, {}, first)).toBeUndefined();
      expect(await one.read(timeoutMs)).toBeUndefined();
      expect(await write(one, {}, first)).toBeUndefined();
      const again = await written(two, {}, undefined);
      expect(again.version).not.toBe(first.version);
      expect(await write(one, {}, first)).toBeUndefined();
    });

    it('throws in time when no answer comes', async () => {
      const first = await written(one, {}, undefined);
      const end = await open().silence();
      try {
        await expect(one.read(200)).rejects.toThrow();
        await expect(one.write(example, first.version, 200)).rejects.toThrow();
        await expect(two.write(example, first.version, 200)).rejects.toThrow();
      } finally {
        await end();
      }
    });
  });
}
