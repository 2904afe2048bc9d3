/** Starts a PostgreSQL for each part of this area, first with full durability and then without. */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Pool } from 'pg';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.js';
import type { Figure } from '../support/report.js';
import type { Bench, Part } from '../support/run.js';

export interface RecordsBench extends Bench {
  pool: Pool;
  databaseUrl: string;
  /** The PostgreSQL server. */
  serverPid: number;
  isDurable: boolean;
}

/**
 * Each part has its own server, so that bloat and caches of one do not affect the next. Every figure is measured twice: with
 * `fsync`, `synchronous_commit` and `full_page_writes` on, PostgreSQL's defaults, and with all three off.
 */
export function withPostgres(part: (bench: RecordsBench) => Promise<Figure[]>): Part {
  return async (bench) => {
    const figures: Figure[] = [];
    for (const isDurable of [true, false]) {
      const setting = isDurable ? 'on' : 'off';
      process.stderr.write(`  fsync ${setting}\n`);
      for (const figure of await withServer(bench, isDurable, part))
        figures.push({
          ...figure,
          id: `${figure.id}.fsync_${setting}`,
          label: `fsync ${setting}: ${figure.label}`,
        });
    }
    return figures;
  };
}

async function withServer(
  bench: Bench,
  isDurable: boolean,
  part: (bench: RecordsBench) => Promise<Figure[]>,
): Promise<Figure[]> {
  // Temporary data of the embedded server is never flushed, so it gets a folder.
  const folder = await mkdtemp(join(tmpdir(), 'smart-router-bench-'));
  await chmod(folder, 0o755);
  const server = await startEmbeddedPostgres({ folder });
  const pool = new Pool({ connectionString: server.url, max: 4 });
  pool.on('error', () => {});
  try {
    await configure(pool, isDurable);
    return await part({ ...bench, pool, databaseUrl: server.url, serverPid: server.pid, isDurable });
  } finally {
    await pool.end();
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

async function configure(pool: Pool, isDurable: boolean): Promise<void> {
  const names = ['fsync', 'synchronous_commit', 'full_page_writes'];
  const value = isDurable ? 'on' : 'off';
  for (const name of names) await pool.query(`ALTER SYSTEM SET ${name} = ${value}`);
  // No checkpoint during a run, except our own before it.
  await pool.query("ALTER SYSTEM SET checkpoint_timeout = '1h'");
  await pool.query("ALTER SYSTEM SET max_wal_size = '16GB'");
  await pool.query('SELECT pg_reload_conf()');
  // The reload is asynchronous. A new session shows what the workers will get.
  for (;;) {
    const client = await pool.connect();
    const { rows } = await client.query('SELECT setting FROM pg_settings WHERE name = ANY($1)', [names]);
    client.release(true);
    if (rows.every(({ setting }) => setting === value)) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
