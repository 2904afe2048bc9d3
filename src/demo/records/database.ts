/**
 * The demo's PostgreSQL: its own, temporary, with the tables of both workflows, and beside them a log of every change
 * of a status, written by triggers. So what the demo tells about records is what happened to the rows, not what the
 * workers say; `by` is the name under which a worker has opened its connection.
 *
 * A database of the user's is never touched, whatever DATABASE_URL says.
 */
import pg from 'pg';
import type { Clock } from '../../clock.js';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../embedded/postgres.js';
import { migrateRecords } from '../../main/workflows.js';
import { guardPool } from '../../records/pool-guard.js';
import { type Move, stranger } from './tracker.js';

/** Nobody reads a row twice: reading removes it, so that none is missed however transactions overtake each other. */
const takeMoves = `WITH taken AS (DELETE FROM demo.moves RETURNING *)
SELECT kind, record, status, by, url, found, error, is_retry AS "isRetry" FROM taken ORDER BY id`;

const logMoves = `
CREATE SCHEMA demo;
CREATE UNLOGGED TABLE demo.moves (
  id bigint GENERATED ALWAYS AS IDENTITY,
  kind text NOT NULL,
  record text NOT NULL,
  status text NOT NULL,
  by text NOT NULL,
  url text NOT NULL,
  found text,
  error text,
  is_retry boolean NOT NULL
);
CREATE FUNCTION demo.log_move() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  record jsonb := to_jsonb(NEW);
BEGIN
  INSERT INTO demo.moves (kind, record, status, by, url, found, error, is_retry)
  VALUES (TG_ARGV[0], NEW.id::text, record ->> TG_ARGV[1], current_setting('application_name'), NEW.url,
    record ->> 'title', record ->> TG_ARGV[2],
    TG_OP = 'UPDATE' AND record ->> TG_ARGV[1] = 'Queued' AND to_jsonb(OLD) ->> TG_ARGV[1] = 'Failed');
  RETURN NULL;
END $$;
CREATE TRIGGER log_move AFTER INSERT OR UPDATE OF sitemap_import_status ON sitemap_files FOR EACH ROW
  EXECUTE FUNCTION demo.log_move('sitemaps', 'sitemap_import_status', 'sitemap_import_error');
CREATE TRIGGER log_move AFTER INSERT OR UPDATE OF page_processing_status ON pages FOR EACH ROW
  EXECUTE FUNCTION demo.log_move('pages', 'page_processing_status', 'page_processing_error');
`;

/**
 * As a program does that works on the table without us, and dies: pages in Processing without a claim, so old that
 * they are stuck for whoever goes by that.
 */
const takeAsStranger = `WITH named AS (SELECT set_config('application_name', '${stranger}', true))
INSERT INTO pages (domain, url, page_processing_status, updated_at)
SELECT $1, url, 'Processing', now() - interval '1 hour' - random() * interval '2 hours'
FROM unnest($2::text[]) AS url, named ON CONFLICT DO NOTHING`;

/**
 * A router beats every 10 s, as in production, and the sweeps here take for dead who is silent for half of that. So
 * the demo, which knows whose process lives, beats for the routers in between.
 */
const beatForRouters = 'UPDATE smart_router.workers SET heartbeat_at = now() WHERE pid = ANY ($1)';

export interface DatabaseOptions {
  clock: Clock;
  onCrash: (error: Error) => void;
  /** As whom the routers come. */
  routerRole: { name: string; password: string };
}

export class Database {
  readonly #engine: EmbeddedPostgres;
  readonly #pool: pg.Pool;

  private constructor(engine: EmbeddedPostgres) {
    this.#engine = engine;
    this.#pool = new pg.Pool({
      connectionString: engine.url,
      max: 2,
      connectionTimeoutMillis: 5000,
      // Whatever the shell says about databases of its own.
      ssl: false,
      application_name: 'demo',
    });
    // Told by `onCrash`.
    guardPool(this.#pool);
  }

  static async open({ clock, onCrash, routerRole }: DatabaseOptions): Promise<Database> {
    const database = new Database(await startEmbeddedPostgres({ clock, onCrash }));
    try {
      await migrateRecords(database.#pool, { withWorkflows: true });
      await database.#pool.query(logMoves);
      // Both are words of our own making; a role's name and password take no parameters.
      await database.#pool.query(
        `CREATE ROLE ${routerRole.name} LOGIN SUPERUSER PASSWORD '${routerRole.password}'`,
      );
    } catch (error) {
      await database.close();
      throw error;
    }
    return database;
  }

  get url(): string {
    return this.#engine.url;
  }

  get port(): number {
    return this.#engine.port;
  }

  async queueSitemap(domain: string, url: string): Promise<void> {
    await this.#pool.query('INSERT INTO sitemap_files (domain, url) VALUES ($1, $2)', [domain, url]);
  }

  /** A stranger has taken these pages, and will never finish them. */
  async forgetPages(domain: string, urls: readonly string[]): Promise<void> {
    await this.#pool.query(takeAsStranger, [domain, urls]);
  }

  async beatFor(pids: readonly number[]): Promise<void> {
    await this.#pool.query(beatForRouters, [pids]);
  }

  /** What has happened since the last call, in its order for each record. */
  async moves(): Promise<Move[]> {
    return (await this.#pool.query<Move>(takeMoves)).rows;
  }

  async close(): Promise<void> {
    await this.#pool.end().catch(() => {});
    await this.#engine.stop();
  }
}
