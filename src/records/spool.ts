/**
 * Where outcomes of finished work wait while the database cannot take them: a list in Redis, else files in a folder.
 * Nothing is lost while that Redis or disk lives; writing an outcome twice does no harm, because its token is good for
 * one finish only. Bounded: what does not fit is refused, and its record is left to the recovery.
 *
 * A place (`installation/workflow`) belongs to one workflow of one database.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../clock.js';
import type { Outcome } from './store.js';

export interface Spool {
  /** Throws when it cannot keep them. */
  add(place: string, outcomes: readonly Outcome[]): Promise<void>;
  /**
   * Hands over what waits, batch by batch; a batch is forgotten once `write` has resolved, so `write` may add what it
   * could not write. Resolves to false when some of it could not be read now. Throws what `write` throws.
   */
  replay(place: string, write: (outcomes: Outcome[]) => Promise<void>): Promise<boolean>;
}

/** What we need of a Redis client. */
export interface SpoolRedis {
  rpush(key: string, ...values: string[]): Promise<unknown>;
  llen(key: string): Promise<number>;
  lrange(key: string, start: number, stop: number): Promise<string[]>;
  lrem(key: string, count: number, value: string): Promise<unknown>;
}

const batchSize = 500;
const mostInRedis = 1_000_000;
const mostBytesOnDisk = 256 * 1024 * 1024;
/** A client may try for ever; finished work waits for Redis no longer than this. */
const redisTimeoutMs = 2000;

export class RedisSpool implements Spool {
  readonly #redis: SpoolRedis;
  readonly #clock: Clock;
  readonly #prefix: string;
  readonly #most: number;

  constructor(
    redis: SpoolRedis,
    clock: Clock,
    { prefix = 'smart_router:records:spool:', most = mostInRedis }: { prefix?: string; most?: number } = {},
  ) {
    this.#redis = redis;
    this.#clock = clock;
    this.#prefix = prefix;
    this.#most = most;
  }

  async add(place: string, outcomes: readonly Outcome[]): Promise<void> {
    const key = this.#prefix + place;
    const waiting = await this.#timed(this.#redis.llen(key));
    if (waiting + outcomes.length > this.#most) throw new Error('the spool in Redis is full');
    await this.#timed(this.#redis.rpush(key, ...outcomes.map(line)));
  }

  async replay(place: string, write: (outcomes: Outcome[]) => Promise<void>): Promise<boolean> {
    const key = this.#prefix + place;
    try {
      // Only what waits now: what `write` adds is for the next time.
      for (let left = await this.#timed(this.#redis.llen(key)); left > 0; ) {
        const values = await this.#timed(this.#redis.lrange(key, 0, Math.min(batchSize, left) - 1));
        if (values.length === 0) return true;
        await write(values.flatMap(parse)).catch((error: unknown) => {
          throw new WriteFailed(error);
        });
        // One by one and by value: another process may replay the same list.
        for (const value of values) await this.#timed(this.#redis.lrem(key, 1, value));
        left -= values.length;
      }
      return true;
    } catch (error) {
      if (error instanceof WriteFailed) throw error.cause;
      return false;
    }
  }

  #timed<T>(answer: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const cancel = this.#clock.after(redisTimeoutMs, () =>
        reject(new Error(`Redis did not answer within ${redisTimeoutMs} ms`)),
      );
      answer.then(resolve, reject).finally(cancel);
    });
  }
}

/** Tells what `write` threw from what Redis did. */
class WriteFailed extends Error {
  constructor(override readonly cause: unknown) {
    super();
  }
}

export class DiskSpool implements Spool {
  /** Files whose outcomes have been written, and that could not be removed. */
  readonly #written = new Set<string>();

  constructor(
    readonly folder: string,
    readonly mostBytes = mostBytesOnDisk,
  ) {}

  async add(place: string, outcomes: readonly Outcome[]): Promise<void> {
    const folder = this.#folderOf(place);
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const text = outcomes.map((outcome) => `${line(outcome)}\n`).join('');
    if ((await sizeOf(this.folder)) + Buffer.byteLength(text) > this.mostBytes)
      throw new Error(`the spool in ${this.folder} is full`);
    const name = join(folder, randomUUID());
    // Whole or not at all: a half-written file has another name.
    try {
      await writeFile(`${name}.part`, text, { mode: 0o600, flush: true });
      await rename(`${name}.part`, `${name}.jsonl`);
    } catch (error) {
      // A disk that is full: what is half written would fill it, and the spool, for good.
      await rm(`${name}.part`, { force: true }).catch(() => {});
      throw error;
    }
  }

  async replay(place: string, write: (outcomes: Outcome[]) => Promise<void>): Promise<boolean> {
    const folder = this.#folderOf(place);
    let isWhole = true;
    const names = await readdir(folder).catch((error: unknown) => {
      isWhole = isGone(error);
      return [];
    });
    for (const name of names.filter((file) => file.endsWith('.jsonl'))) {
      const path = join(folder, name);
      if (this.#written.has(path)) {
        isWhole = (await this.#remove(path)) && isWhole;
        continue;
      }
      const text = await readFile(path, 'utf8').catch((error: unknown) => {
        // Another process may have written it meanwhile.
        if (!isGone(error)) isWhole = false;
        return undefined;
      });
      if (text === undefined) continue;
      const outcomes = text.split('\n').flatMap((one) => (one === '' ? [] : parse(one)));
      for (let i = 0; i < outcomes.length; i += batchSize) await write(outcomes.slice(i, i + batchSize));
      isWhole = (await this.#remove(path)) && isWhole;
    }
    return isWhole;
  }

  /** A file that cannot be removed (a disk that became read-only) keeps nobody from working: it is not read again. */
  async #remove(path: string): Promise<boolean> {
    try {
      await rm(path, { force: true });
      this.#written.delete(path);
      return true;
    } catch {
      this.#written.add(path);
      return false;
    }
  }

  #folderOf(place: string): string {
    return join(this.folder, encodeURIComponent(place));
  }
}

/** The first that can keep them. */
export class FirstSpool implements Spool {
  constructor(readonly spools: readonly Spool[]) {}

  async add(place: string, outcomes: readonly Outcome[]): Promise<void> {
    let last: unknown = new Error('there is no spool');
    for (const spool of this.spools) {
      try {
        return await spool.add(place, outcomes);
      } catch (error) {
        last = error;
      }
    }
    throw last;
  }

  async replay(place: string, write: (outcomes: Outcome[]) => Promise<void>): Promise<boolean> {
    let isWhole = true;
    // One that is away now is asked again next time, and keeps nobody from the others.
    for (const spool of this.spools) isWhole = (await spool.replay(place, write)) && isWhole;
    return isWhole;
  }
}

const isGone = (error: unknown) => (error as NodeJS.ErrnoException).code === 'ENOENT';

async function sizeOf(folder: string): Promise<number> {
  const names = await readdir(folder, { recursive: true }).catch(() => []);
  const sizes = await Promise.all(
    names.map((name) =>
      stat(join(folder, name)).then(
        (file) => (file.isFile() ? file.size : 0),
        () => 0,
      ),
    ),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

const line = ({ id, token, error }: Outcome) => JSON.stringify([id, token, error]);

function parse(text: string): Outcome[] {
  try {
    const [id, token, error] = JSON.parse(text) as unknown[];
    if (typeof id !== 'string' || typeof token !== 'string') return [];
    return [{ id, token, error: typeof error === 'string' ? error : null }];
  } catch {
    return [];
  }
}
