/** The record plane as the HTTP API and the alerts see it. `src/main` implements it, in this process or another one. */
import type { LoopState } from '../loop.js';
import type { RecordGauges } from './metrics.js';
import type { RecordOperations } from './operations.js';

export interface RecordsStatus {
  database: 'up' | 'down';
  /** No record is claimed because database sessions fail. */
  paused: boolean;
  /** The fast sweep waits because most workers missed their heartbeats at once. */
  braked: boolean;
  /** Whether stuck records are recovered (ZOMBIE_CLEANUP_ENABLED). */
  cleanup: boolean;
  /** Why records are not processed. */
  error: string | null;
  /** From the last sweep; null while unknown. */
  workflows: { name: string; stuck: number | null; oldest_stuck_seconds: number | null }[];
}

/** Operations that may run in another process: their arguments and results are plain data. */
export const operationNames = ['numbers', 'look', 'failed', 'recent', 'reset', 'retry'] as const;
export type OperationName = (typeof operationNames)[number];
export type RemoteOperations = Pick<RecordOperations, OperationName>;

export interface RecordsAdmin {
  readonly loops: LoopState[];
  status(): RecordsStatus | Promise<RecordsStatus>;
  /** Undefined if another worker shows them. */
  gauges(): RecordGauges | undefined;
  /** Throws 503 `database_unavailable` until the database has been opened. */
  operations(): RemoteOperations;
}
