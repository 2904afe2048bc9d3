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
import { guardPool } from '../../records/pool-guard.js';
import { migrateRecords } from '../../records-workflows.js';
import type { Move } from './book.js';

/** Nobody reads a row twice: reading removes it, so that none is missed however transactions overtake each other. */
const takeMoves = `WITH taken AS (DELETE FROM demo.moves RETURNING *)
SELECT kind, record, status, by, url, found, error FROM taken ORDER BY id`;

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
  error text
);
CREATE FUNCTION demo.log_move() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  record jsonb := to_jsonb(NEW);
BEGIN
  INSERT INTO demo.moves (kind, record, status, by, url, found, error)
  VALUES (TG_ARGV[0], NEW.id::text, record ->> TG_ARGV[1], current_setting('application_name'), NEW.url,
    record ->> 'title', record ->> TG_ARGV[2]);
  RETURN NULL;
END $$;
CREATE TRIGGER log_move AFTER INSERT OR UPDATE OF sitemap_import_status ON sitemap_files FOR EACH ROW
  EXECUTE FUNCTION demo.log_move('sitemaps', 'sitemap_import_status', 'sitemap_import_error');
CREATE TRIGGER log_move AFTER INSERT OR UPDATE OF page_processing_status ON pages FOR EACH ROW
  EXECUTE FUNCTION demo.log_move('pages', 'page_processing_status', 'page_processing_error');
`;

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

  static async open(clock: Clock, onCrash: (error: Error) => void): Promise<Database> {
    const database = new Database(await startEmbeddedPostgres({ clock, onCrash }));
    try {
      await migrateRecords(database.#pool, {
        recordsWorkflows: ['sitemap-import', 'page-curation'],
        recordsModule: undefined,
        recordsAllowPrivateAddresses: false,
      });
      await database.#pool.query(logMoves);
    } catch (error) {
      await database.close();
      throw error;
    }
    return database;
  }

  get url(): string {
    return this.#engine.url;
  }

  async queueSitemap(domain: string, url: string): Promise<void> {
    await this.#pool.query('INSERT INTO sitemap_files (domain, url) VALUES ($1, $2)', [domain, url]);
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
