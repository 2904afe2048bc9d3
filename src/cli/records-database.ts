/**
 * The database of the commands on records. Only these commands load this module: it takes longer to load than all
 * others. Only DATABASE_*, RECORDS_* and ZOMBIE_* are read, so that other wrong variables do not block records.
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
  /** The named workflow, or all. */
  workflows: readonly Workflow[];
  operations: RecordOperations;
}

const connectTimeoutMs = 5000;
/** Enough to count a large table without an index. */
const queryTimeoutMs = 120_000;

/** `env` must name a database; records.ts checks that. */
export async function withRecords<T>(
  env: NodeJS.ProcessEnv,
  clock: Clock,
  name: string | undefined,
  work: (tools: RecordsTools) => Promise<T>,
): Promise<T> {
  const ours = Object.entries(env).filter(([key]) => /^(DATABASE|RECORDS|ZOMBIE)_/.test(key));
  const config = loadConfig(Object.fromEntries(ours), 'serve', clock);
  const { databaseUrl: url = '', zombieStuckThresholdMs } = config;
  const stuckAfterMs = zombieStuckThresholdMs;
  const all = await loadWorkflows(config, clock);
  // Only the named one: an unusable table of another workflow must not block it.
  const named = all.filter((workflow) => workflow.name === name);
  const workflows = named.length > 0 ? named : all;
  return withDatabase(url, async (pool) => {
    const operations = new RecordOperations({ pool, workflows, stuckAfterMs, log: silentLogger, clock });
    try {
      if (name !== undefined) operations.workflow(name);
      return await work({ config, pool, workflows, operations });
    } catch (error) {
      throw withAddress(toAppError(error), url);
    }
  });
}

/** Runs `work` with a pool and closes the pool. */
export async function withDatabase<T>(url: string, work: (pool: pg.Pool) => Promise<T>): Promise<T> {
  const pool = new pg.Pool({
    connectionString: url,
    max: 2,
    connectionTimeoutMillis: connectTimeoutMs,
    query_timeout: queryTimeoutMs,
    application_name: 'smart-router-cli',
  });
  pool.on('error', () => undefined);
  try {
    return await work(pool);
  } finally {
    await pool.end();
  }
}

function withAddress(error: unknown, url: string): unknown {
  const { code, message } = error as { code?: unknown; message: string };
  if (code !== 'database_unavailable') return error;
  return new Failure(code, `${message}. It is at ${hidePassword(url)} (DATABASE_URL).`, [], { cause: error });
}
