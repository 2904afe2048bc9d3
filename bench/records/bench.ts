/** Starts a PostgreSQL for each part of this area. */
import { Pool } from 'pg';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.js';
import type { Figure } from '../support/report.js';
import type { Bench, Part } from '../support/run.js';

export interface RecordsBench extends Bench {
  pool: Pool;
  databaseUrl: string;
}

/** Each part has its own server, so that bloat and caches of one do not affect the next. */
export function withPostgres(part: (bench: RecordsBench) => Promise<Figure[]>): Part {
  return async (bench) => {
    const server = await startEmbeddedPostgres();
    const pool = new Pool({ connectionString: server.url, max: 4 });
    pool.on('error', () => {});
    try {
      return await part({ ...bench, pool, databaseUrl: server.url });
    } finally {
      await pool.end();
      await server.stop();
    }
  };
}
