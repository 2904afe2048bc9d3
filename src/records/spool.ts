/**
 * Stores outcomes of finished work while the database cannot take them: in a Redis list, else in files. Nothing is lost
 * while that Redis or disk survives. Writing an outcome twice does no harm: its token is valid for one finish. The size is
 * limited; outcomes beyond it are rejected, and their records left to the recovery.
 *
 * A place (`installation/workflow`) belongs to one workflow of one database.
 */
import { randomUUID } from 'node:crypto';
import { access, constants, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, within } from '../clock.js';
import { messageOf } from '../errors.js';
import type { Outcome } from './store.js';

export interface Spool {
  /** Throws if it cannot store them. */
  add(place: string, outcomes: readonly Outcome[]): Promise<void>;
  /**
   * Passes stored outcomes to `write` in batches. A batch is deleted once `write` has resolved, so `write` may add what it
   * could not write. Resolves to false if some could not be read. Throws what `write` throws.
   */
  replay(place: string, write: (outcomes: Outcome[]) => Promise<void>): Promise<boolean>;
}

/** The commands of a Redis client that we use. */
export interface SpoolRedis {
  rpush(key: string, ...values: string[]): Promise<unknown>;
  llen(key: string): Promise<number>;
  lrange(key: string, start: number, stop: number): Promise<string[]>;
  lrem(key: string, count: number, value: string): Promise<unknown>;
}

const batchSize = 500;
const prefix = 'smart_router:records:spool:';
const maxInRedis = 1_000_000;
const maxBytesOnDisk = 256 * 1024 * 1024;
/** A client may retry without end. */
const redisTimeoutMs = 2000;

export class RedisSpool implements Spool {
  constructor(
    readonly redis: SpoolRedis,
    readonly clock: Clock,
    readonly max = maxInRedis,
  ) {}

  async add(place: string, outcomes: readonly Outcome[]): Promise<void> {
    const key = prefix + place;
    const waiting = await this.#timed(this.redis.llen(key));
    if (waiting + outcomes.length > this.max) throw new Error('the spool in Redis is full');
    await this.#timed(this.redis.rpush(key, ...outcomes.map(line)));
  }

  async replay(place: string, write: (outcomes: Outcome[]) => Promise<void>): Promise<boolean> {
    const key = prefix + place;
    try {
      // Outcomes that `write` adds are for the next replay.
      for (let left = await this.#timed(this.redis.llen(key)); left > 0; ) {
        const values = await this.#timed(this.redis.lrange(key, 0, Math.min(batchSize, left) - 1));
        if (values.length === 0) return true;
        await write(values.flatMap(parse)).catch((error: unknown) => {
          throw new WriteFailed(error);
        });
        // By value: another process may replay the same list.
        for (const value of values) await this.#timed(this.redis.lrem(key, 1, value));
        left -= values.length;
      }
      return true;
    } catch (error) {
      if (error instanceof WriteFailed) throw error.cause;
      return false;
    }
  }

  #timed<T>(answer: Promise<T>): Promise<T> {
    return within(this.clock, redisTimeoutMs, answer, () => {
      throw new Error(`Redis did not answer within ${redisTimeoutMs} ms`);
    });
  }
}

/** Distinguishes errors of `write` from those of Redis. */
class WriteFailed extends Error {
  constructor(override readonly cause: unknown) {
    super();
  }
}

export class DiskSpool implements Spool {
  /** Files whose outcomes are written but that could not be deleted. */
  readonly #written = new Set<string>();

  constructor(
    readonly folder: string,
    readonly maxBytes = maxBytesOnDisk,
  ) {}

  async add(place: string, outcomes: readonly Outcome[]): Promise<void> {
    const folder = this.#folderOf(place);
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const text = outcomes.map((outcome) => `${line(outcome)}\n`).join('');
    if ((await sizeOf(this.folder)) + Buffer.byteLength(text) > this.maxBytes)
      throw new Error(`the spool in ${this.folder} is full`);
    const name = join(folder, randomUUID());
    // Renamed when complete: a half-written file has another name.
    try {
      await writeFile(`${name}.part`, text, { mode: 0o600, flush: true });
      await rename(`${name}.part`, `${name}.jsonl`);
    } catch (error) {
      // The disk is full: a half-written file would fill it, and the spool, permanently.
      await rm(`${name}.part`, { force: true }).catch(() => {});
      throw error;
    }
  }

  async replay(place: string, write: (outcomes: Outcome[]) => Promise<void>): Promise<boolean> {
    const folder = this.#folderOf(place);
    let isComplete = true;
    const entries = await readdir(folder, { withFileTypes: true }).catch((error: unknown) => {
      isComplete = isMissing(error);
      return [];
    });
    // Only files: the read of a FIFO would never end.
    for (const { name } of entries.filter((entry) => entry.isFile() && entry.name.endsWith('.jsonl'))) {
      const path = join(folder, name);
      if (this.#written.has(path)) {
        isComplete = (await this.#remove(path)) && isComplete;
        continue;
      }
      const text = await readFile(path, 'utf8').catch((error: unknown) => {
        // Another process may have replayed and deleted it.
        if (!isMissing(error)) isComplete = false;
        return undefined;
      });
      if (text === undefined) continue;
      const outcomes = text.split('\n').flatMap((one) => (one === '' ? [] : parse(one)));
      for (let i = 0; i < outcomes.length; i += batchSize) await write(outcomes.slice(i, i + batchSize));
      isComplete = (await this.#remove(path)) && isComplete;
    }
    return isComplete;
  }

  /** Why outcomes cannot be stored here; undefined if they can. Creates the folder. */
  async problem(): Promise<string | undefined> {
    try {
      await mkdir(this.folder, { recursive: true, mode: 0o700 });
      await access(this.folder, constants.R_OK | constants.W_OK | constants.X_OK);
      const { uid } = await stat(this.folder);
      // Root may write everywhere; another owner could change outcomes, or delete them.
      const isForeign = process.getuid !== undefined && uid !== process.getuid() && uid !== 0;
      return isForeign ? `it belongs to another user (uid ${uid})` : undefined;
    } catch (error) {
      return messageOf(error);
    }
  }

  /** A file that cannot be deleted (a disk that became read-only) is remembered and not read again. */
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

/** Uses the first spool that can store them. */
export class SpoolChain implements Spool {
  constructor(readonly spools: readonly Spool[]) {}

  async add(place: string, outcomes: readonly Outcome[]): Promise<void> {
    let last: unknown = new Error('no spool is configured');
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
    let isComplete = true;
    // An unreachable spool is retried next time; the others are replayed now.
    for (const spool of this.spools) isComplete = (await spool.replay(place, write)) && isComplete;
    return isComplete;
  }
}

const isMissing = (error: unknown) => (error as NodeJS.ErrnoException).code === 'ENOENT';

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
