/**
 * The demo's own temporary PostgreSQL, with the tables of both workflows and a log of every status change, written by
 * triggers. So the demo shows what happened to the rows, not what the workers say; `by` is the application name of the
 * worker's connection. The demo never uses a database of the user.
 */
import { randomBytes } from 'node:crypto';
import pg from 'pg';
import type { Clock } from '../../clock.js';
import { startEmbeddedPostgres } from '../../embedded/postgres.js';
import { migrateRecords } from '../../main/workflows.js';
import { guardPool } from '../../records/sessions.js';
import { type Endpoint, Service } from '../service.js';
import { externalProgram } from './tracker.js';

const logChanges = `
CREATE SCHEMA demo;
CREATE UNLOGGED TABLE demo.changes (
  id bigint GENERATED ALWAYS AS IDENTITY,
  kind text NOT NULL,
  record text NOT NULL,
  status text NOT NULL,
  by text NOT NULL,
  url text NOT NULL,
  title text,
  error text,
  is_retry boolean NOT NULL
);
CREATE FUNCTION demo.log_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  record jsonb := to_jsonb(NEW);
BEGIN
  INSERT INTO demo.changes (kind, record, status, by, url, title, error, is_retry)
  VALUES (TG_ARGV[0], NEW.id::text, record ->> TG_ARGV[1], current_setting('application_name'), NEW.url,
    record ->> 'title', record ->> TG_ARGV[2],
    TG_OP = 'UPDATE' AND record ->> TG_ARGV[1] = 'Queued' AND to_jsonb(OLD) ->> TG_ARGV[1] = 'Failed');
  RETURN NULL;
END $$;
CREATE TRIGGER log_change AFTER INSERT OR UPDATE OF sitemap_import_status ON sitemap_files FOR EACH ROW
  EXECUTE FUNCTION demo.log_change('sitemaps', 'sitemap_import_status', 'sitemap_import_error');
CREATE TRIGGER log_change AFTER INSERT OR UPDATE OF page_processing_status ON pages FOR EACH ROW
  EXECUTE FUNCTION demo.log_change('pages', 'page_processing_status', 'page_processing_error');
`;

const statements = {
  queueSitemap: 'INSERT INTO sitemap_files (domain, url) VALUES ($1, $2)',
  /** Deletes what it reads: an id may become visible after a higher one, so a position would miss rows. */
  takeChanges: `WITH taken AS (DELETE FROM demo.changes RETURNING *)
SELECT kind, record, status, by, url, title, error, is_retry AS "isRetry" FROM taken ORDER BY id`,
  /** Pages in Processing without a claim, old enough to be stuck: left by a program that knows no claims and crashed. */
  abandonPages: `WITH named AS (SELECT set_config('application_name', '${externalProgram}', true))
INSERT INTO pages (domain, url, page_processing_status, updated_at)
SELECT $1, url, 'Processing', now() - interval '1 hour' - random() * interval '2 hours'
FROM unnest($2::text[]) AS url, named ON CONFLICT DO NOTHING`,
  /**
   * Routers send a heartbeat every 10 s, but the sweeps of the demo count a worker as dead after 5 s. So the demo, which
   * knows the running processes, writes heartbeats for the routers in between.
   */
  beatForRouters: 'UPDATE smart_router.workers SET heartbeat_at = now() WHERE pid = ANY ($1)',
};

const host = '127.0.0.1';

/**
 * The address of the database for the routers. Routers start first, so that calls are served early; their database
 * connections wait here until the database runs, and are refused if there will be none.
 */
export class DatabaseProxy {
  readonly role = { name: 'router', password: randomBytes(16).toString('hex') };
  /** The first call decides. Undefined: there will be no database. */
  connectTo: (databasePort: number | undefined) => void = () => {};
  readonly #database = new Promise<Endpoint[]>((resolve) => {
    this.connectTo = (port) => resolve(port === undefined ? [] : [{ host, port }]);
  });
  readonly #service = new Service(() => this.#database);
  #port = 0;

  async listen(): Promise<void> {
    this.#port = await this.#service.listen(0, host);
  }

  urlFor(instance: string): string {
    const { name, password } = this.role;
    return `postgres://${name}:${password}@${host}:${this.#port}/postgres?sslmode=disable&application_name=${instance}`;
  }

  async close(): Promise<void> {
    await this.#service.close();
  }
}

export type Database = Awaited<ReturnType<typeof openDatabase>>;

export async function openDatabase(
  clock: Clock,
  { name, password }: DatabaseProxy['role'],
  onCrash: (error: Error) => void,
) {
  const engine = await startEmbeddedPostgres({ clock, onCrash });
  const pool = new pg.Pool({
    connectionString: engine.url,
    max: 2,
    connectionTimeoutMillis: 5000,
    // Overrides PGSSLMODE of the user's shell.
    ssl: false,
    application_name: 'demo',
  });
  // `onCrash` reports lost connections.
  guardPool(pool);
  const close = async (): Promise<void> => {
    await pool.end().catch(() => {});
    await engine.stop();
  };
  try {
    await migrateRecords(pool, { withWorkflows: true });
    await pool.query(logChanges);
    // CREATE ROLE takes no parameters; neither value contains user input.
    await pool.query(`CREATE ROLE ${name} LOGIN SUPERUSER PASSWORD '${password}'`);
  } catch (error) {
    await close();
    throw error;
  }
  return {
    url: engine.url,
    port: engine.port,
    run: async <Row extends pg.QueryResultRow>(
      statement: keyof typeof statements,
      values: unknown[] = [],
    ): Promise<Row[]> => (await pool.query<Row>(statements[statement], values)).rows,
    close,
  };
}
