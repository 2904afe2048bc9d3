/**
 * The record plane of the fleet: a real PostgreSQL, a team's table that keeps getting rows, and workers in processes of
 * their own, each with a proxy between itself and the database. The database itself writes down every change of status.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { guardPool } from '../../src/records/sessions.js';
import { keepHistory, statuses, teamTable } from '../records/fixture.js';
import { type PostgresServer, postgresKinds } from '../support/postgres.js';
import { openTcpProxy } from '../support/tcp-proxy.js';
import { type RecordsBook, recordProblems } from './checks.js';
import { Child, root, wait } from './child.js';
import type { Link } from './routers.js';

const rowsPerSecond = 20;
const maxResets = 10;
const restartMs = 300;

export class RecordWorker {
  #child: Child | undefined;
  #isWanted = false;
  #restart: NodeJS.Timeout | undefined;

  constructor(
    readonly name: string,
    readonly link: Link,
    private readonly told: object,
    private readonly logFile: string,
  ) {}

  start(): void {
    this.#isWanted = true;
    if (this.#child?.isRunning) return;
    const file = join(root, 'test', 'records', 'worker-process.mjs');
    this.#child = new Child({
      command: [process.execPath, file, JSON.stringify(this.told)],
      logFile: this.logFile,
      onEnd: () => {
        this.#restart = setTimeout(() => this.#isWanted && this.start(), restartMs);
      },
    });
  }

  async end(): Promise<void> {
    this.#isWanted = false;
    clearTimeout(this.#restart);
    await this.#child?.end();
  }

  pause(): void {
    this.#child?.pause();
  }

  resume(): void {
    this.#child?.resume();
  }
}

export class Records {
  #isTaking = true;
  #filling: Promise<void> = Promise.resolve();

  private constructor(
    readonly server: PostgresServer,
    readonly workers: readonly RecordWorker[],
    private readonly pool: pg.Pool,
  ) {}

  static async open(folder: string): Promise<Records> {
    const kind = postgresKinds.findLast((one) => one.available() === true);
    if (!kind) throw new Error('there is no PostgreSQL here, neither embedded nor native');
    const server = await kind.start();
    const pool = new pg.Pool({ connectionString: server.url, max: 3 });
    guardPool(pool);
    await teamTable(pool, 0);
    await keepHistory(pool);
    await pool.query('CREATE TABLE effects (page uuid, pid integer)');
    const workers = await Promise.all(
      [0, 1].map(async (i) => {
        const name = `worker-${i}`;
        const link = await openTcpProxy(server.port);
        const spoolFolder = join(folder, `${name}.spool`);
        mkdirSync(spoolFolder);
        const told = {
          url: server.url.replace(`:${server.port}/`, `:${link.port}/`),
          ...{ batchSize: 20, usesTx: true, heartbeat: 300, deadAfter: 4000, maxResets, spoolFolder },
        };
        return new RecordWorker(name, link, told, join(folder, `${name}.log`));
      }),
    );
    for (const worker of workers) worker.start();
    const records = new Records(server, workers, pool);
    records.#filling = records.#fill();
    return records;
  }

  /** Sessions of the workers break, as behind a proxy that was restarted. */
  async cutSessions(): Promise<void> {
    await this.pool
      .query(
        'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL',
      )
      .catch(() => undefined);
  }

  /** How many are finished; undefined while the database does not answer. */
  async done(): Promise<number | undefined> {
    const found = await statuses(this.pool).catch(() => undefined);
    return found && (found.Completed ?? 0) + (found.Failed ?? 0);
  }

  async stopTaking(): Promise<void> {
    this.#isTaking = false;
    await this.#filling;
  }

  /** Whether nothing waits and nothing is in hand. */
  async isIdle(): Promise<boolean> {
    // A record that was in progress at several crashes waits longer each time; here the wait is cut.
    await this.pool.query('UPDATE smart_router.claims SET not_before = now() WHERE not_before > now()');
    const { Queued = 0, Processing = 0 } = await statuses(this.pool);
    return Queued + Processing === 0;
  }

  /** Invariant 10, from what the database wrote down. */
  async problems(): Promise<string[]> {
    const rows = async <T extends pg.QueryResultRow>(text: string) => (await this.pool.query<T>(text)).rows;
    const [effects] = await rows<{ n: number }>(`
      SELECT count(*)::integer AS n FROM (SELECT page, count(*) AS n FROM effects GROUP BY page) AS e
      WHERE n > 1 + (SELECT count(*) FROM smart_router.resets WHERE record_id = e.page::text)`);
    const [claims] = await rows<{ n: number }>('SELECT count(*)::integer AS n FROM smart_router.claims');
    const [resets] = await rows<{ most: number | null }>(
      'SELECT max(resets) AS most FROM smart_router.resets',
    );
    const failures = await rows<{ error: string; n: number }>(`
      SELECT error, count(*)::integer AS n FROM pages AS p WHERE status = 'Failed' AND NOT EXISTS
        (SELECT FROM smart_router.resets WHERE record_id = p.id::text AND outcome = 'failed' AND resets >= ${maxResets})
      GROUP BY error`);
    const book: RecordsBook = {
      statuses: await statuses(this.pool),
      changes: await rows(`
        SELECT was, became, max(n)::integer AS most FROM
          (SELECT page, was, became, count(*) AS n FROM history GROUP BY 1, 2, 3) AS one GROUP BY 1, 2`),
      effectsTooMany: effects?.n ?? 0,
      claimsLeft: claims?.n ?? 0,
      highestResets: resets?.most ?? 0,
      maxResets,
      failures,
    };
    return recordProblems(book);
  }

  async stop(): Promise<void> {
    this.#isTaking = false;
    await Promise.all(this.workers.map((worker) => worker.end()));
    for (const { link } of this.workers) link.close();
    await this.server.resume();
    await this.server.start();
    await this.#filling;
    await this.pool.end();
    await this.server.end();
  }

  async #fill(): Promise<void> {
    for (let n = 0; this.#isTaking; n += 1) {
      // It is unknown whether a failed statement took effect: only the table counts.
      await this.pool
        .query(
          "INSERT INTO pages (url) SELECT 'https://example.com/' || $1 || '/' || i FROM generate_series(1, $2) AS i",
          [n, rowsPerSecond / 2],
        )
        .catch(() => undefined);
      await wait(500);
    }
  }
}
