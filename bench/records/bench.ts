/** What the parts of this area get beside the store: one PostgreSQL of the run's own. */
import { Pool } from 'pg';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.js';
import type { Figure } from '../support/report.js';
import type { Bench, Part } from '../support/run.js';

export interface RecordsBench extends Bench {
  pool: Pool;
  databaseUrl: string;
}

/** Each part has a server of its own: what one leaves behind (bloat, caches) is not the next one's. */
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
