/**
 * The database behind the commands on records; loaded only by them, because its modules take longer than everything
 * else here. Of the environment only DATABASE_*, RECORDS_* and ZOMBIE_* are read: what is wrong elsewhere does not
 * matter for records.
 */
import pg from 'pg';
import type { Clock } from '../clock.js';
import { type Config, hidePassword, loadConfig } from '../config/config.js';
import { loadWorkflows } from '../main/workflows.js';
import { silentLogger } from '../observe/log.js';
import { RecordOperations } from '../records/operations.js';
import { toAppError } from '../records/permissions.js';
import type { Workflow } from '../records/workflow.js';
import { Failure } from './failure.js';

export interface RecordsTools {
  config: Config;
  pool: pg.Pool;
  /** The one that was named, or all. */
  workflows: readonly Workflow[];
  desk: RecordOperations;
}

const connectMs = 5000;
/** Counting a large table without an index. */
const queryMs = 120_000;

export async function withRecords<T>(
  env: NodeJS.ProcessEnv,
  clock: Clock,
  name: string | undefined,
  work: (tools: RecordsTools) => Promise<T>,
): Promise<T> {
  const ours = Object.entries(env).filter(([key]) => /^(DATABASE|RECORDS|ZOMBIE)_/.test(key));
  const config = loadConfig(Object.fromEntries(ours), 'serve', clock);
  const url = addressOf(config);
  const all = await loadWorkflows(config, clock);
  // Only the one that is asked for: another one's table that does not fit must not stand in its way.
  const named = all.filter((workflow) => workflow.name === name);
  const workflows = named.length > 0 ? named : all;
  const { zombieStuckThresholdMs: stuckAfterMs } = config;
  return withDatabase(url, async (pool) => {
    const desk = new RecordOperations({ pool, workflows, stuckAfterMs, log: silentLogger, clock });
    try {
      if (name !== undefined) desk.workflow(name);
      return await work({ config, pool, workflows, desk });
    } catch (error) {
      throw namingAddress(toAppError(error), url);
    }
  });
}

/** A pool that is closed when `work` has ended. */
export async function withDatabase<T>(url: string, work: (pool: pg.Pool) => Promise<T>): Promise<T> {
  const pool = new pg.Pool({
    connectionString: url,
    max: 2,
    connectionTimeoutMillis: connectMs,
    query_timeout: queryMs,
    application_name: 'smart-router-cli',
  });
  pool.on('error', () => undefined);
  try {
    return await work(pool);
  } finally {
    await pool.end();
  }
}

function addressOf({ databaseUrl }: Config): string {
  if (databaseUrl === undefined)
    throw new Failure('configuration', 'DATABASE_URL is not set: it says where the records are');
  if (databaseUrl === 'embedded')
    throw new Failure(
      'configuration',
      'DATABASE_URL=embedded is a database beside a router: ask that router, at GET /api/v1/records',
    );
  return databaseUrl;
}

function namingAddress(error: unknown, url: string): unknown {
  const { code, message } = error as { code?: unknown; message: string };
  if (code !== 'database_unavailable') return error;
  return new Failure(code, `${message}. It is at ${hidePassword(url)} (DATABASE_URL).`, [], { cause: error });
}
